//! The front-ends that are compared, and what is behind them.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddrV4},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use levada_net::lab::{Child, Host, LabCluster};

use crate::{
    CASES, Result,
    world::{BACK, SERVICE},
};

/// Starts a front-end at a port.
pub(crate) type Start = fn(&Host, &Path, u16) -> Result<Child>;

/// A way to a server.
pub(crate) struct Front {
    pub(crate) name: &'static str,
    /// Where clients connect.
    pub(crate) at: SocketAddrV4,
    /// The host that they ask for.
    pub(crate) host: &'static str,
    /// The machine of the server, and of the back-end before it.
    pub(crate) back: usize,
    /// `None` where there is no front-end of its own.
    pub(crate) start: Option<Start>,
}

const fn front(name: &'static str, port: u16, start: Start) -> Front {
    let at = SocketAddrV4::new(SERVICE, port);
    Front { name, at, host: "tcp.test", back: 0, start: Some(start) }
}

const fn shared(name: &'static str, host: &'static str, back: usize) -> Front {
    Front { name, at: SocketAddrV4::new(SERVICE, 80), host, back, start: None }
}

/// Ours that hands over, and ours that passes on as it does by default, come first.
pub(crate) const FRONTS: [Front; 8] = [
    front("handoff", 80, handing_over),
    front("proxy, splicing", 81, splicing),
    front("proxy, copying", 82, copying),
    front("HAProxy, splicing", 83, haproxy),
    front("nginx", 84, proxying_nginx),
    shared("handoff, Unix socket", "unix.test", 1),
    shared("handoff to a cache", "cache.test", 2),
    Front { at: SocketAddrV4::new(BACK, 8080), ..shared("server alone", "tcp.test", 0) },
];

/// The one that does without any front-end.
pub(crate) const ALONE: usize = FRONTS.len() - 1;
/// HAProxy.
pub(crate) const HAPROXY: usize = 3;

/// A machine with a server, and with the back-end that takes connections over for it.
pub(crate) struct Back {
    pub(crate) server: Child,
    pub(crate) taker: Child,
}

/// Starts them: a server over TCP, one at a Unix socket, and one behind a node with a cache.
pub(crate) fn backs(hosts: &[Host], directory: &Path) -> Result<Vec<Back>> {
    let start = |(at, host): (usize, &Host)| {
        let own = LabCluster::back(at as u8);
        let socket = directory.join(format!("{at}.sock"));
        let unix = format!("unix:{}", socket.display());
        let server = nginx(host, directory, &[&format!("{own}:8080"), &unix])?;
        let taker = match at {
            0 => taker(host, directory, own, &format!("http://{own}:8080"))?,
            1 => taker(host, directory, own, &unix)?,
            _ => cache(host, directory, own)?,
        };
        Ok(Back { server, taker })
    };
    hosts.iter().enumerate().map(start).collect()
}

fn on_core(core: &str, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", core]).arg(program).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn binary() -> Result<PathBuf> {
    match env::var_os("LEVADA") {
        Some(binary) => Ok(binary.into()),
        None => Ok(env::current_exe()?.with_file_name("levada")),
    }
}

fn nginx(host: &Host, directory: &Path, addresses: &[&str]) -> Result<Child> {
    let root = directory.join("root");
    fs::create_dir_all(&root)?;
    for case in &CASES {
        fs::write(root.join(case.bytes.to_string()), vec![b'x'; case.bytes])?;
    }
    let name = addresses[0].replace([':', '/'], "-");
    let config = directory.join(format!("{name}.conf"));
    let listens: String =
        addresses.iter().map(|address| format!("listen {address} backlog=4096;")).collect();
    let text = format!(
        "user root;\nmaster_process off;\nerror_log /dev/null;\npid {dir}/{name}.pid;\ndaemon off;\n\
         events {{ worker_connections 4096; }}\nhttp {{ access_log off; sendfile on; tcp_nopush on;\n\
         keepalive_requests 100000000; add_header Cache-Control max-age=3600;\n\
         server {{ {listens} root {root}; }} }}\n",
        dir = directory.display(),
        root = root.display()
    );
    fs::write(&config, text)?;
    let mut command = on_core("1", Path::new("nginx"));
    command.arg("-c").arg(config);
    Ok(host.start(command)?)
}

fn taker(host: &Host, directory: &Path, own: Ipv4Addr, server: &str) -> Result<Child> {
    let other = env::var_os("LEVADA_BACK").map(PathBuf::from);
    let mut command = on_core("1", &other.map_or_else(binary, Ok)?);
    command.args(["handoff-backend", "--log-level", "warn", "--interface", "eth0"]);
    command.args(["--listen", &format!("{own}:7072"), "--service", &format!("{SERVICE}:80")]);
    command.args(["--to", server, "--secret-file"]).arg(secret(directory)?);
    Ok(host.start(command)?)
}

/// A node with a cache that takes connections itself.
fn cache(host: &Host, directory: &Path, own: Ipv4Addr) -> Result<Child> {
    let text = format!(
        "name = 'back'\n[[listen]]\naddress = '127.0.0.1:8081'\n[log]\naccess = 'off'\n\
         [runtime]\nthreads = 1\n[handoff]\ninterfaces = 'eth0'\nsecret_file = '{}'\n\
         listen = '{own}:7072'\nservices = '{SERVICE}:80'\n\
         [[site]]\nhosts = '*'\norigin = 'http://{own}:8080'\n",
        secret(directory)?.display()
    );
    let config = directory.join("cache.toml");
    fs::write(&config, text)?;
    let mut command = on_core("1", &binary()?);
    command.args(["run", "--log-level", "warn", "-c"]).arg(config);
    Ok(host.start(command)?)
}

fn secret(directory: &Path) -> Result<PathBuf> {
    let secret = directory.join("secret");
    fs::write(&secret, "0123456789abcdef")?;
    Ok(secret)
}

fn handing_over(host: &Host, directory: &Path, port: u16) -> Result<Child> {
    let handoff = "[admin]\nlisten = '127.0.0.1:9180'\n\
                   [handoff]\ninterfaces = 'eth0'\nsecret_file = 'secret'\n";
    let mut sites = String::new();
    for front in FRONTS.iter().filter(|front| front.at.port() == port) {
        let own = LabCluster::back(front.back as u8);
        sites += &site(front.host, own, &format!("handoff = '{own}:7072'\n"));
    }
    levada(host, directory, port, handoff, &sites)
}

fn splicing(host: &Host, directory: &Path, port: u16) -> Result<Child> {
    levada(host, directory, port, "", &site("*", BACK, ""))
}

fn copying(host: &Host, directory: &Path, port: u16) -> Result<Child> {
    levada(host, directory, port, "splice = false\n", &site("*", BACK, ""))
}

fn site(name: &str, back: Ipv4Addr, server: &str) -> String {
    format!(
        "[[site]]\nhosts = '{name}'\ncache = false\npolicy = {{ name = 'lard/r' }}\n\
         [[site.server]]\nurl = 'http://{back}:8080'\n{server}"
    )
}

fn levada(host: &Host, directory: &Path, port: u16, more: &str, sites: &str) -> Result<Child> {
    let text = format!(
        "name = 'front'\n[[listen]]\naddress = '{SERVICE}:{port}'\n[log]\naccess = 'off'\n\
         [runtime]\nthreads = 1\n{more}{sites}"
    );
    let config = directory.join(format!("{port}.toml"));
    fs::write(&config, text)?;
    let mut command = on_core("0", &binary()?);
    command.args(["run", "--log-level", "warn", "-c"]).arg(config);
    Ok(host.start(command)?)
}

fn haproxy(host: &Host, directory: &Path, port: u16) -> Result<Child> {
    let text = format!(
        "global\n    nbthread 1\n    maxconn 4096\n    tune.pipesize 1048576\n\ndefaults\n    mode http\n    option splice-response\n    \
         http-reuse always\n    timeout connect 5s\n    timeout client 60s\n    timeout server 60s\n\n\
         frontend clients\n    bind {SERVICE}:{port} backlog 4096\n    option forwardfor\n    \
         default_backend servers\n\nbackend servers\n    server one {BACK}:8080\n"
    );
    let config = directory.join("haproxy.cfg");
    fs::write(&config, text)?;
    let mut command = on_core("0", Path::new("haproxy"));
    command.arg("-db").arg("-f").arg(config);
    Ok(host.start(command)?)
}

fn proxying_nginx(host: &Host, directory: &Path, port: u16) -> Result<Child> {
    let text = format!(
        "user root;\nmaster_process off;\nerror_log /dev/null;\npid {dir}/front.pid;\ndaemon off;\n\
         events {{ worker_connections 4096; }}\nhttp {{ access_log off; tcp_nodelay on;\n\
         proxy_temp_path {dir}/proxied; keepalive_requests 100000000;\n\
         upstream servers {{ server {BACK}:8080; keepalive 128; keepalive_requests 100000000; }}\n\
         server {{ listen {SERVICE}:{port} backlog=4096;\nlocation / {{ proxy_pass http://servers;\n\
         proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }} }}\n",
        dir = directory.display()
    );
    let config = directory.join("front.conf");
    fs::write(&config, text)?;
    let mut command = on_core("0", Path::new("nginx"));
    command.arg("-c").arg(config);
    Ok(host.start(command)?)
}
