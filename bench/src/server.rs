//! A server under measurement: started on a core of its own, read from `/proc`, stopped when dropped.

use std::{
    fs::{self, File},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::Result;

/// Servers have this core for themselves; clients and origin have the other.
const SERVER_CORE: &str = "0";
const LOAD_CORE: &str = "1";

/// The timeout for a server to listen: it starts within a second, on a busy machine some.
const START_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    /// The directory of its files, removed when it is dropped.
    dir: PathBuf,
}

/// Resident memory in MiB, now and at its highest.
pub(crate) struct Memory {
    pub(crate) now: f64,
    pub(crate) peak: f64,
}

impl Server {
    /// Starts a server and waits until it listens. Its output goes to a file in its directory.
    pub(crate) fn start(command: &Command, port: u16, dir: PathBuf) -> Result<Self> {
        let printed = dir.join("printed");
        let file = File::create(&printed)?;
        // It ends with this program, however that ends.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "taskset", "-c", SERVER_CORE])
            .arg(command.get_program())
            .args(command.get_args())
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .map_err(|e| format!("setpriv: {e}; install util-linux"))?;
        let mut server = Self { child, port, dir };
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.child.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                let printed = fs::read_to_string(&printed).unwrap_or_default();
                return Err(format!("does not listen: {command:?}\n{printed}").into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        // Traffic Server lets some of its threads run anywhere.
        for pid in tree(server.child.id()) {
            pin(pid, SERVER_CORE)?;
        }
        Ok(server)
    }

    /// Its processes.
    pub(crate) fn processes(&self) -> Vec<u32> {
        tree(self.child.id())
    }

    /// Seconds of CPU, user and system, that all its processes have used.
    pub(crate) fn cpu(&self) -> Result<f64> {
        let mut ticks = 0;
        for pid in self.processes() {
            // Helpers, such as nginx's loader of its cache, may have ended.
            let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
            // The name, in brackets, may hold spaces. utime and stime are fields 14 and 15.
            let fields: Vec<&str> =
                stat.rsplit_once(')').ok_or("stat")?.1.split_whitespace().collect();
            ticks += fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        }
        // The kernel accounts in hundredths of a second, on every architecture that Debian ships.
        Ok(ticks as f64 / 100.0)
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        let mut sum = Memory { now: 0.0, peak: 0.0 };
        for pid in self.processes() {
            let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
            let mib = |name: &str| -> Result<f64> {
                let line = status.lines().find(|line| line.starts_with(name)).ok_or(name)?;
                let kib = line.split_whitespace().nth(1).ok_or(name)?;
                Ok(kib.parse::<f64>()? / 1024.0)
            };
            sum.now += mib("VmRSS:")?;
            sum.peak += mib("VmHWM:")?;
        }
        Ok(sum)
    }
}

impl Drop for Server {
    /// Asks it to end, then ends it.
    fn drop(&mut self) {
        let pids = tree(self.child.id());
        signal("TERM", &pids);
        let deadline = Instant::now() + Duration::from_secs(5);
        while pids.iter().any(|pid| runs(*pid)) && Instant::now() < deadline {
            let _ = self.child.try_wait();
            thread::sleep(Duration::from_millis(20));
        }
        signal("KILL", &pids.into_iter().filter(|pid| runs(*pid)).collect::<Vec<_>>());
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub(crate) fn signal(name: &str, pids: &[u32]) {
    if !pids.is_empty() {
        let pids = pids.iter().map(u32::to_string);
        let _ = Command::new("kill").arg("-s").arg(name).args(pids).stderr(Stdio::null()).status();
    }
}

fn runs(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// The process and its descendants.
fn tree(root: u32) -> Vec<u32> {
    let mut all = vec![root];
    let mut next = 0;
    while let Some(pid) = all.get(next).copied() {
        next += 1;
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children = fs::read_to_string(path).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    all
}

/// Moves this program and its clients to the core that the servers do not use.
pub(crate) fn leave_their_core() -> Result<()> {
    if thread::available_parallelism()?.get() < 2 {
        return Err("one core for the servers and one for the load are needed".into());
    }
    pin(std::process::id(), LOAD_CORE)
}

/// Puts all threads of a process on a core.
fn pin(pid: u32, core: &str) -> Result<()> {
    let status = Command::new("taskset")
        .args(["-a", "-c", "-p", core])
        .arg(pid.to_string())
        .stdout(Stdio::null())
        .status()
        .map_err(|e| format!("taskset: {e}; install util-linux"))?;
    if status.success() || !runs(pid) { Ok(()) } else { Err("taskset refused".into()) }
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Finds a program, also in the directories of system administrators.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}
