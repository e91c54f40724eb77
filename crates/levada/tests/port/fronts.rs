//! nginx with the configuration of 18 items, and Levada with what `levada convert nginx` makes of it.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

/// A process with its addresses, plain and TLS. Dropping it ends the process.
pub(crate) struct Front {
    pub(crate) addresses: [SocketAddr; 2],
    process: Child,
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether nginx can be run. If not, the output says that nothing was compared.
pub(crate) fn nginx_is_here() -> bool {
    !levada_skip::lacks("nginx", "nginx-light")
}

/// The configuration with the directories and servers of the test, and these addresses for clients.
pub(crate) fn configuration(
    directory: &Path,
    servers: &[SocketAddr],
    clients: [SocketAddr; 2],
) -> String {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tools/levada-convert/tests/fixtures/nginx/eighteen.conf");
    let root = directory.display().to_string();
    let mut text = fs::read_to_string(fixture).unwrap();
    for (at, server) in servers.iter().enumerate() {
        text = text.replace(&format!("127.0.0.1:900{at}"), &server.to_string());
    }
    text.replace("user www-data;", "")
        .replace("/etc/nginx/mime.types", &format!("{root}/mime.types"))
        .replace("/etc/nginx", &root)
        .replace("/srv", &format!("{root}/srv"))
        .replace("/var/cache/nginx", &format!("{root}/cache"))
        .replace("/var/log/nginx/access.log", &format!("{root}/access.log"))
        .replace("listen 80;", &format!("listen {};", clients[0]))
        .replace("listen 443 ssl;", &format!("listen {} ssl;", clients[1]))
}

/// Starts nginx with the configuration for these addresses of clients. Its ports may be taken by others before it has
/// them: then it is tried again.
pub(crate) fn nginx(directory: &Path, of: &dyn Fn([SocketAddr; 2]) -> String) -> Front {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {}/{kind};", directory.display()))
        .concat();
    let log = directory.join("error.log");
    for _ in 0..10 {
        let held = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = held.each_ref().map(|listener| listener.local_addr().unwrap());
        drop(held);
        let text = of(addresses).replace("http {", &format!("http {{ {temporary}"));
        let ready = if text.contains(&addresses[1].to_string()) { 1 } else { 0 };
        let head = format!("daemon off; master_process off; pid {}/pid;\n", directory.display());
        let file = directory.join("nginx.conf");
        fs::write(&file, head + &text).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-e").arg(&log).arg("-c").arg(&file).stdin(Stdio::null()).stderr(Stdio::null());
        let mut front = Front { addresses, process: command.spawn().unwrap() };
        for _ in 0..300 {
            if front.process.try_wait().unwrap().is_some() {
                break;
            }
            if TcpStream::connect(addresses[ready]).is_ok() {
                return front;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
    panic!("nginx does not start: {}", fs::read_to_string(log).unwrap_or_default());
}

/// The words of `levada convert`.
pub(crate) struct Account {
    pub(crate) report: String,
}

impl Account {
    /// The statements that were left, with their reasons.
    pub(crate) fn left(&self) -> Vec<&str> {
        let left = self.report.lines().skip_while(|line| *line != "Not converted:").skip(1);
        left.take_while(|line| line.starts_with("  ")).map(str::trim).collect()
    }
}

/// Converts the configuration, to `levada.toml` with ports that the system chooses.
pub(crate) fn convert(directory: &Path, of: &dyn Fn([SocketAddr; 2]) -> String) -> Account {
    let any = [SocketAddr::from(([127, 0, 0, 1], 1)), SocketAddr::from(([127, 0, 0, 1], 2))];
    fs::write(directory.join("from.conf"), of(any)).unwrap();
    let mut convert = Command::new(env!("CARGO_BIN_EXE_levada"));
    convert.current_dir(directory).args(["convert", "nginx", "from.conf", "-o", "levada.toml"]);
    let output = convert.output().unwrap();
    let report = String::from_utf8(output.stderr).unwrap();
    let file = directory.join("levada.toml");
    let toml = fs::read_to_string(&file).unwrap();
    let toml = toml
        .replace("\"127.0.0.1:1\"", "\"127.0.0.1:0\"")
        .replace("\"127.0.0.1:2\"", "\"127.0.0.1:0\"");
    fs::write(&file, toml).unwrap();
    Account { report }
}

/// Starts a node with the `levada.toml` of the directory.
pub(crate) fn levada(directory: &Path) -> Front {
    let file = directory.join("levada.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.arg("run").arg("-c").arg(&file).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let mut said = String::new();
    while !said.contains("ready") {
        let line = lines.next().unwrap_or_else(|| panic!("the node starts: {said}"));
        said += &line.unwrap();
        said += "\n";
    }
    // Its later lines must not fill the pipe.
    thread::spawn(move || lines.for_each(drop));
    let ports = said.split("127.0.0.1:").skip(1).map(|rest| {
        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
        SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()))
    });
    let ports: Vec<_> = ports.collect();
    Front { addresses: [ports[0], *ports.get(1).unwrap_or(&ports[0])], process }
}
