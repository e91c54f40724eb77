//! The front-ends that are compared, and what is behind them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use levada_net::lab::{Child, Host};

use crate::{
    CASES, Result,
    world::{BACK, SERVICE},
};

/// A front-end, on a port of its own.
pub(crate) struct Front {
    pub(crate) name: &'static str,
    pub(crate) port: u16,
    pub(crate) start: fn(&Host, &Path, &Front) -> Result<Child>,
}

/// Ours that hands over, and ours that passes on as it does by default, come first.
pub(crate) const FRONTS: [Front; 5] = [
    Front { name: "handoff", port: 80, start: handing_over },
    Front { name: "proxy, splicing", port: 81, start: splicing },
    Front { name: "proxy, copying", port: 82, start: copying },
    Front { name: "HAProxy, splicing", port: 83, start: haproxy },
    Front { name: "nginx", port: 84, start: proxying_nginx },
];

/// Starts a server, and beside it the back-end that takes connections over.
pub(crate) fn servers(back: &Host, directory: &Path) -> Result<Vec<Child>> {
    Ok(vec![nginx(back, directory)?, taker(back, directory)?])
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

fn nginx(host: &Host, directory: &Path) -> Result<Child> {
    let root = directory.join("root");
    fs::create_dir_all(&root)?;
    for case in &CASES {
        fs::write(root.join(case.bytes.to_string()), vec![b'x'; case.bytes])?;
    }
    let config = directory.join("nginx.conf");
    let text = format!(
        "user root;\nworker_processes 1;\nerror_log /dev/null;\npid {dir}/nginx.pid;\ndaemon off;\n\
         events {{ worker_connections 4096; }}\nhttp {{ access_log off; sendfile on; tcp_nopush on;\n\
         keepalive_requests 100000000;\nserver {{ listen {BACK}:8080 backlog=4096; root {root}; }} }}\n",
        dir = directory.display(),
        root = root.display()
    );
    fs::write(&config, text)?;
    let mut command = on_core("1", Path::new("nginx"));
    command.arg("-c").arg(config);
    Ok(host.start(command)?)
}

fn taker(host: &Host, directory: &Path) -> Result<Child> {
    let secret = directory.join("secret");
    fs::write(&secret, "0123456789abcdef")?;
    let mut command = on_core("1", &binary()?);
    command.args(["handoff-backend", "--log-level", "warn", "--interface", "eth0"]);
    command.args(["--listen", &format!("{BACK}:7072"), "--service", &format!("{SERVICE}:80")]);
    command.args(["--to", &format!("http://{BACK}:8080"), "--secret-file"]).arg(secret);
    Ok(host.start(command)?)
}

fn handing_over(host: &Host, directory: &Path, front: &Front) -> Result<Child> {
    let handoff = "[admin]\nlisten = '127.0.0.1:9180'\n\
                   [handoff]\ninterfaces = 'eth0'\nsecret_file = 'secret'\n";
    levada(host, directory, front, handoff, &format!("handoff = '{BACK}:7072'\n"))
}

fn splicing(host: &Host, directory: &Path, front: &Front) -> Result<Child> {
    levada(host, directory, front, "", "")
}

fn copying(host: &Host, directory: &Path, front: &Front) -> Result<Child> {
    levada(host, directory, front, "splice = false\n", "")
}

fn levada(host: &Host, directory: &Path, front: &Front, more: &str, server: &str) -> Result<Child> {
    let Front { port, .. } = front;
    let text = format!(
        "name = 'front'\n[[listen]]\naddress = '{SERVICE}:{port}'\n[log]\naccess = 'off'\n\
         [runtime]\nthreads = 1\n{more}[[site]]\nhosts = '*'\ncache = false\n\
         policy = {{ name = 'lard/r' }}\n[[site.server]]\nurl = 'http://{BACK}:8080'\n{server}"
    );
    let config = directory.join(format!("{port}.toml"));
    fs::write(&config, text)?;
    let mut command = on_core("0", &binary()?);
    command.args(["run", "--log-level", "warn", "-c"]).arg(config);
    Ok(host.start(command)?)
}

fn haproxy(host: &Host, directory: &Path, front: &Front) -> Result<Child> {
    let text = format!(
        "global\n    nbthread 1\n    maxconn 4096\n    tune.pipesize 1048576\n\ndefaults\n    mode http\n    option splice-response\n    \
         http-reuse always\n    timeout connect 5s\n    timeout client 60s\n    timeout server 60s\n\n\
         frontend clients\n    bind {SERVICE}:{port} backlog 4096\n    option forwardfor\n    \
         default_backend servers\n\nbackend servers\n    server one {BACK}:8080\n",
        port = front.port
    );
    let config = directory.join("haproxy.cfg");
    fs::write(&config, text)?;
    let mut command = on_core("0", Path::new("haproxy"));
    command.arg("-db").arg("-f").arg(config);
    Ok(host.start(command)?)
}

fn proxying_nginx(host: &Host, directory: &Path, front: &Front) -> Result<Child> {
    let text = format!(
        "user root;\nmaster_process off;\nerror_log /dev/null;\npid {dir}/front.pid;\ndaemon off;\n\
         events {{ worker_connections 4096; }}\nhttp {{ access_log off; tcp_nodelay on;\n\
         proxy_temp_path {dir}/proxied; keepalive_requests 100000000;\n\
         upstream servers {{ server {BACK}:8080; keepalive 128; keepalive_requests 100000000; }}\n\
         server {{ listen {SERVICE}:{port} backlog=4096;\nlocation / {{ proxy_pass http://servers;\n\
         proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }} }}\n",
        dir = directory.display(),
        port = front.port
    );
    let config = directory.join("front.conf");
    fs::write(&config, text)?;
    let mut command = on_core("0", Path::new("nginx"));
    command.arg("-c").arg(config);
    Ok(host.start(command)?)
}
