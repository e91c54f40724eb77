//! A fleet in a test: machines are directories and loopback addresses.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU8, Ordering::Relaxed},
    thread,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{Process, TEST_TIMEOUT, etcd::Etcd, wait};

/// A fleet, whose state the first machine keeps or which is in etcd.
pub(crate) struct Fleet {
    pub(crate) root: TempDir,
    pub(crate) machines: Vec<Machine>,
    pub(crate) etcd: Option<Etcd>,
    /// The token by which machines join.
    pub(crate) join: String,
}

pub(crate) struct Machine {
    pub(crate) name: &'static str,
    region: &'static str,
    ip: Ipv4Addr,
    pub(crate) home: PathBuf,
    process: Option<Process>,
    /// Variables that change its clock.
    clock: Vec<(String, String)>,
}

impl Fleet {
    /// A fleet whose state its first machine keeps.
    pub(crate) fn kept(names: &[&'static str]) -> Self {
        Self::kept_by(names, names)
    }

    /// The same, of which only these machines have joined.
    pub(crate) fn kept_by(names: &[&'static str], joined: &[&'static str]) -> Self {
        let mut fleet = Self::empty(names, None);
        let listen = format!("{}:7080", fleet.machines[0].ip);
        fleet.init(&["--listen", &listen]);
        fleet.start(joined);
        // The process that has joined becomes the node, and keeps the state again.
        if !joined.is_empty() {
            wait("the state", || fleet.order(&["history"]).status.success());
        }
        fleet
    }

    /// A fleet with its state in etcd. `None` if there is no etcd.
    pub(crate) fn in_etcd(names: &[&'static str]) -> Option<Self> {
        Self::in_etcd_by(names, names)
    }

    /// The same, of which only these machines have joined.
    pub(crate) fn in_etcd_by(names: &[&'static str], joined: &[&'static str]) -> Option<Self> {
        let etcd = Etcd::start()?;
        let endpoint = format!("http://{}", etcd.client);
        let mut fleet = Self::empty(names, Some(etcd));
        fleet.init(&["--etcd", &endpoint]);
        fleet.start(joined);
        Some(fleet)
    }

    /// The directory of a fleet that no machine has joined.
    pub(crate) fn empty(names: &[&'static str], etcd: Option<Etcd>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let machine = |name: &&'static str| Machine {
            name,
            region: name.split('-').next().unwrap(),
            ip: unused_ip(),
            home: root.path().join(name),
            process: None,
            clock: Vec::new(),
        };
        let machines = names.iter().map(machine).collect();
        let fleet = Self { root, machines, etcd, join: String::new() };
        fleet.write(
            "fleet.toml",
            "[fleet]\nname = \"web\"\n[[region]]\nname = \"eu\"\n[[region]]\nname = \"us\"\n",
        );
        fleet.write(
            "node.toml",
            "[[listen]]\naddress = \"${FLEET_IP}:8080\"\n[admin]\nlisten = \"${FLEET_IP}:9180\"\n",
        );
        fleet
    }

    fn init(&mut self, place: &[&str]) {
        let made = self.order(&[&["init", "--name", "web"], place].concat());
        let text = stdout(&made);
        assert!(made.status.success(), "{made:?}");
        let join = text.lines().find_map(|line| line.trim().strip_prefix("levada join "));
        self.join = join.unwrap_or_else(|| panic!("{text}")).to_owned();
    }

    /// Lets machines join and run.
    pub(crate) fn start(&mut self, names: &[&str]) {
        let join = self.join.clone();
        for machine in self.machines.iter_mut().filter(|machine| names.contains(&machine.name)) {
            let home = machine.home.to_string_lossy().into_owned();
            machine.spawn(&[
                "join",
                &join,
                "--name",
                machine.name,
                "--region",
                machine.region,
                "--address",
                &format!("{}:7070", machine.ip),
                "--directory",
                &home,
            ]);
            let home = machine.home.join("member.json");
            wait(machine.name, || home.exists() || machine.log().contains("levada:"));
            assert!(home.exists(), "{}", machine.log());
        }
    }

    /// The directory under version control.
    pub(crate) fn directory(&self) -> PathBuf {
        self.root.path().join("fleet")
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.directory().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes a site with this origin.
    pub(crate) fn serve(&self, origin: SocketAddr) {
        self.write(
            "sites/www.toml",
            &format!("[[site]]\nhosts = \"*\"\norigin = \"http://{origin}\"\n"),
        );
    }

    /// `levada fleet`, on the first machine.
    pub(crate) fn order(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        command.arg("fleet").arg("--directory").arg(&self.machines[0].home).args(arguments);
        command.env_remove("LEVADA_FLEET_TOKEN").stdin(Stdio::null());
        command
    }

    /// `levada fleet apply` of the directory.
    pub(crate) fn apply(&self, arguments: &[&str]) -> Output {
        let directory = self.directory().to_string_lossy().into_owned();
        self.order(&[&["apply", &directory], arguments].concat())
    }

    /// Applies to all nodes at once, which must succeed.
    pub(crate) fn applied(&self) {
        let output = self.apply(&["--at-once", "--timeout", "60s"]);
        assert!(output.status.success(), "{output:?}\n{}", self.logs());
    }

    /// The answers of all machines.
    pub(crate) fn answers(&self) -> Vec<String> {
        self.machines.iter().map(Machine::answer).collect()
    }

    /// Waits until the machines give these answers.
    pub(crate) fn wait_for(&self, answers: &[&str]) {
        wait(&answers.join(" "), || self.answers() == answers);
    }

    /// The node of a name, as `levada fleet status` shows it.
    pub(crate) fn status(&self, name: &str) -> Value {
        let status: Value =
            serde_json::from_slice(&self.order(&["status", "--json"]).stdout).unwrap_or_default();
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        nodes.into_iter().find(|node| node["name"] == name).unwrap_or_default()
    }

    pub(crate) fn logs(&self) -> String {
        self.machines.iter().map(|one| format!("{}: {}\n", one.name, one.log())).collect()
    }
}

impl Machine {
    fn spawn(&mut self, arguments: &[&str]) {
        fs::create_dir_all(&self.home).unwrap();
        let log = self.home.join("log");
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        command.args(arguments).stdin(Stdio::null()).envs(self.clock.iter().cloned());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(Process(command.spawn().unwrap()));
    }

    /// Gives it a clock that is wrong by this text, such as `+1h`. Returns whether that can be done here.
    pub(crate) fn set_clock(&mut self, difference: &str) -> bool {
        self.clock = faketime(difference);
        !self.clock.is_empty()
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again, as a service manager does.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let home = self.home.to_string_lossy().into_owned();
        self.spawn(&["run", "--fleet", &home]);
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.home.join("log")).unwrap_or_default()
    }

    /// The addresses that its name server gives to a client of no region that is known, in order.
    pub(crate) fn named(&self, name: &str) -> Vec<String> {
        let mut kdig = Command::new("kdig");
        kdig.arg(format!("@{}", self.ip)).args(["-p", "5353", "+short", "+time=5", name]);
        let answer = kdig.output().unwrap().stdout;
        let mut all: Vec<_> = String::from_utf8_lossy(&answer).lines().map(str::to_owned).collect();
        all.sort();
        all
    }

    /// Its address.
    pub(crate) fn ip(&self) -> String {
        self.ip.to_string()
    }

    pub(crate) fn clients(&self) -> SocketAddr {
        (self.ip, 8080).into()
    }

    fn answer(&self) -> String {
        get_body(self.clients(), "/")
    }

    /// Status and body at its admin listener.
    pub(crate) fn admin(&self, path: &str) -> Option<(u16, String)> {
        get((self.ip, 9180).into(), path)
    }
}

/// The body of an answer, or the status that is not 200, or nothing.
pub(crate) fn get_body(at: SocketAddr, path: &str) -> String {
    match get(at, path) {
        Some((200, body)) => body,
        Some((status, _)) => status.to_string(),
        None => String::new(),
    }
}

fn get(at: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(at).ok()?;
    stream.set_read_timeout(Some(TEST_TIMEOUT)).ok()?;
    let host = at.ip();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
}

/// A server that answers each request so, and is not cached.
pub(crate) fn origin(status: &'static str, body: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
                    if line == "\r\n" {
                        let answer = format!(
                            "HTTP/1.1 {status}\r\nCache-Control: no-store\r\nContent-Length: {}\r\n\r\n{body}",
                            body.len()
                        );
                        if stream.get_mut().write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                    }
                    line.clear();
                }
            });
        }
    });
    address
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The variables of a clock that is wrong; none without faketime.
pub(crate) fn faketime(difference: &str) -> Vec<(String, String)> {
    let Ok(output) = Command::new("faketime").args(["-f", difference, "env"]).output() else {
        levada_skip::skipped("faketime is missing (Debian: faketime)");
        return Vec::new();
    };
    let variables = stdout(&output);
    let variables = variables.lines().filter_map(|line| line.split_once('='));
    variables
        .filter(|(name, _)| matches!(*name, "LD_PRELOAD" | "FAKETIME"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Replaces a file by its copy.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap();
}

/// An address of this machine that no other test uses.
pub(crate) fn unused_ip() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let process = std::process::id();
    let [low, high] = [(process % 250) as u8, (process / 250 % 120) as u8];
    Ipv4Addr::new(127, 100 + high, low, NEXT.fetch_add(1, Relaxed))
}
