//! A node as a process that changes: its file, its number, its log.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::origin::Origin;

/// The longest wait for anything.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// An address that is free now. Each test has a network of its own, so that tests take none from each other.
pub(crate) fn free_address() -> SocketAddr {
    let host = [127, 66, (std::process::id() >> 8) as u8, std::process::id() as u8];
    TcpListener::bind(SocketAddr::from((host, 0))).unwrap().local_addr().unwrap()
}

/// The file of a node.
#[derive(Clone)]
pub(crate) struct Plan {
    directory: Arc<tempfile::TempDir>,
    origin: SocketAddr,
    clients: SocketAddr,
    tls: Option<SocketAddr>,
    admin: SocketAddr,
    more: String,
    disk: bool,
    threads: usize,
    user: &'static str,
    peers: String,
}

impl Plan {
    pub(crate) fn new(origin: &Origin) -> Self {
        let directory = tempfile::Builder::new().prefix("levada").tempdir_in("/tmp").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let plan = Self {
            directory: Arc::new(directory),
            origin: origin.address,
            clients: free_address(),
            tls: None,
            admin: free_address(),
            more: String::new(),
            disk: false,
            threads: 2,
            user: "",
            peers: String::new(),
        };
        plan.written()
    }

    pub(crate) fn with_disk(mut self) -> Self {
        self.disk = true;
        self.written()
    }

    pub(crate) fn with_tls(mut self) -> Self {
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(self.path("cert.pem"), certified.cert.pem()).unwrap();
        fs::write(self.path("key.pem"), certified.signing_key.serialize_pem()).unwrap();
        self.tls = Some(free_address());
        self.written()
    }

    pub(crate) fn run_by_nobody(mut self) -> Self {
        self.user = "user = \"nobody\"\n";
        self.written()
    }

    pub(crate) fn with_absent_peers(mut self) -> Self {
        let peer = |name| {
            let address = free_address();
            format!("[[peer]]\nname = \"{name}\"\naddress = \"{address}\"\n")
        };
        self.peers = format!(
            "[peering]\nlisten = \"{}\"\nsecret = \"a secret of some length\"\ncatch_up = \"3s\"\n{}{}{}",
            free_address(),
            peer("a"),
            peer("b"),
            peer("c")
        );
        self.written()
    }

    /// Writes access logs to a file of this name.
    pub(crate) fn log_to(&mut self, name: &str) {
        self.more = format!("[log]\naccess = \"{}\"\n", self.path(name).display());
        self.write();
    }

    pub(crate) fn set_threads(&mut self, threads: usize) {
        self.threads = threads;
        self.write();
    }

    pub(crate) fn listen_at(&mut self, address: SocketAddr) {
        self.clients = address;
        self.write();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn file(&self) -> &'static Path {
        Box::leak(self.path("levada.toml").into_boxed_path())
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.path("cache")
    }

    pub(crate) fn clients(&self) -> SocketAddr {
        self.clients
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// A program in the directory of the node.
    pub(crate) fn write_program(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    fn written(self) -> Self {
        self.write();
        self
    }

    fn write(&self) {
        let tls = self.tls.map_or(String::new(), |address| {
            format!(
                "[[listen]]\naddress = \"{address}\"\ntls = [{{ certificate = \"cert.pem\", key = \"key.pem\" }}]\n"
            )
        });
        let disk = match self.disk {
            true => {
                let path = self.cache();
                format!("[cache.disk]\npath = \"{}\"\nsize = \"64MiB\"\n", path.display())
            }
            false => String::new(),
        };
        let Self { clients, admin, origin, more, user, peers, .. } = self;
        let text = format!(
            r#"name = "a"
[runtime]
mode = "per_core"
threads = {}
{user}
[[listen]]
address = "{clients}"
h2c = true
{tls}
[admin]
listen = "{admin}"
[purge]
token = "a token of some length"
[limits]
drain_timeout = "20s"
{disk}
{peers}
{more}
[[site]]
hosts = "*"
origin = "http://{origin}"
"#,
            self.threads
        );
        fs::write(self.path("levada.toml"), text).unwrap();
    }
}

/// A node, whose processes end with it.
pub(crate) struct Node {
    plan: Plan,
    child: Child,
    pid: u32,
    all: Vec<u32>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.all.iter().chain([&self.pid]).for_each(|pid| kill(*pid));
        let _ = self.child.wait();
    }
}

impl Node {
    /// Starts a node, and waits until it serves.
    pub(crate) fn start(plan: &Plan) -> Self {
        let node = Self::spawn(plan);
        eventually("the node starts", || {
            let ready = node.admin_get("/readyz").is_some_and(|said| said.contains(" 200 "));
            let state = fs::read_to_string(format!("/proc/{}/stat", node.pid)).unwrap_or_default();
            assert!(!state.contains(") Z "), "it ends: {}", plan.log());
            ready
        });
        node
    }

    pub(crate) fn spawn(plan: &Plan) -> Self {
        Self::spawn_by(plan, Command::new(env!("CARGO_BIN_EXE_levada")))
    }

    /// Starts a node by a command, to which its arguments are added.
    pub(crate) fn spawn_by(plan: &Plan, mut command: Command) -> Self {
        let log = fs::File::options().append(true).create(true).open(plan.path("log")).unwrap();
        command.args(["run", "-c"]).arg(plan.file()).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let pid = child.id();
        Self { plan: plan.clone(), child, pid, all: Vec::new() }
    }

    pub(crate) fn clients(&self) -> SocketAddr {
        self.plan.clients
    }

    pub(crate) fn tls(&self) -> Option<SocketAddr> {
        self.plan.tls
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.plan.admin
    }

    /// The number of its present process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn levada(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        command.args(arguments);
        if !arguments.contains(&"--admin") {
            command.arg("-c").arg(self.plan.file());
        }
        command
    }

    /// Upgrades the node, and follows it to its new process.
    pub(crate) fn upgrade(&mut self, arguments: &[&str]) -> Output {
        let output = self.upgrading(arguments).wait_with_output().unwrap();
        if output.status.success() {
            self.follow();
        }
        output
    }

    pub(crate) fn upgrading(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(&[&["upgrade"], arguments].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Notes the number of the process that listens now.
    pub(crate) fn follow(&mut self) {
        self.all.push(self.pid);
        let log = self.plan.file().display().to_string();
        let mut running: Vec<u32> = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| {
                let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                line.contains("\0run\0") && line.contains(&log) && !self.all.contains(pid)
            })
            .collect();
        self.pid = running.pop().expect("the new process runs");
    }

    /// The processes that it has started.
    pub(crate) fn children(&self) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten();
        let children = tasks.flatten().map(|task| {
            let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
        });
        children.flatten().collect()
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn signal(&self, number: Signal) {
        signal(self.pid, number);
    }

    pub(crate) fn kill_process(&self) {
        kill(self.pid);
    }

    /// Whether the process that was started has ended with success.
    pub(crate) fn has_ended_well(mut self) -> bool {
        let mut status = None;
        eventually("it ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.is_some_and(|status| status.success())
    }

    pub(crate) fn admin_get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.plan.admin).ok()?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = self.admin_get("/metrics").unwrap_or_default();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or(0.0)
    }
}

pub(crate) fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

pub(crate) fn hang_up(pid: u32) {
    signal(pid, Signal::HUP);
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// The process that has locked a file.
pub(crate) fn lock_holder(path: &Path) -> Option<u32> {
    let inode = format!(":{}", fs::metadata(path).ok()?.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let mut lines = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find(|words| words.get(5).is_some_and(|of| of.ends_with(&inode)))?.get(4)?.parse().ok()
}

pub(crate) fn user_of(pid: u32) -> u32 {
    fs::metadata(format!("/proc/{pid}/status")).unwrap().uid()
}

/// Whether the tests may become another user.
pub(crate) fn can_become_nobody() -> bool {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let here = rustix::process::geteuid().is_root() && passwd.contains("nobody:x:65534:");
    if !here {
        levada_skip::skipped("needs root, and the user nobody");
    }
    here
}
