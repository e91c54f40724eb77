//! A node under callgrind, and its counters.

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    Result,
    counts::{Counts, calls, profile, threads},
};

/// Emulated, a debug build takes some seconds to start.
const START_TIMEOUT: Duration = Duration::from_secs(120);
const REST_TIMEOUT: Duration = Duration::from_secs(60);
/// The system calls in which a thread waits for work, by their numbers on x86-64: poll, nanosleep, futex,
/// restart_syscall, clock_nanosleep, epoll_wait and epoll_pwait.
const WAITS: [&str; 7] = ["7", "35", "202", "219", "230", "232", "281"];

/// The function in which a connection of HTTP/1 is served, as the profile names it.
const CONNECTION: &str = "levada_http::server::serve::serve_http1::{{closure}}";

/// The ports of a node on 127.0.0.1. Each way to speak has one of its own, so that none pays for another.
#[derive(Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) http1: u16,
    pub(crate) h2c: u16,
    pub(crate) tls: u16,
    pub(crate) http3: u16,
}

pub(crate) struct Node {
    child: Child,
    pub(crate) ports: Ports,
    /// Its files: what it prints, its trace of system calls, and profiles.
    dir: PathBuf,
    profiles: u32,
    /// The length of the trace when counting began.
    begun: u64,
}

impl Ports {
    pub(crate) fn free() -> Result<Self> {
        Ok(Self { http1: free_port()?, h2c: free_port()?, tls: free_port()?, http3: free_port()? })
    }
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Node {
    /// Starts a node with this configuration, in a directory that exists.
    pub(crate) fn start(
        program: &Path,
        dir: &Path,
        text: &str,
        ports: Ports,
        gate: bool,
    ) -> Result<Self> {
        fs::write(dir.join("levada.toml"), text)?;
        let printed = File::create(dir.join("printed"))?;
        // It ends with this program, however that ends.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "valgrind", "--tool=callgrind", "--trace-syscalls=yes"])
            .arg("--separate-threads=yes")
            .args(gate.then(|| format!("--toggle-collect={CONNECTION}")))
            .args(["--vgdb-prefix=vgdb", "--log-file=calls", "--callgrind-out-file=profile"])
            .arg(program)
            .args(["run", "-c", "levada.toml"])
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(printed.try_clone()?)
            .stderr(printed)
            .spawn()
            .map_err(|e| format!("setpriv: {e}; install util-linux"))?;
        Ok(Self { child, ports, dir: dir.to_owned(), profiles: 0, begun: 0 })
    }

    /// Waits until it listens and has nothing more to do.
    pub(crate) fn ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(("127.0.0.1", self.ports.http1)).is_err() {
            if self.child.try_wait()?.is_some() || Instant::now() > deadline {
                let read = |name| fs::read_to_string(self.dir.join(name)).unwrap_or_default();
                let (printed, calls) = (read("printed"), read("calls"));
                let errors: Vec<_> = calls.lines().filter(|line| line.starts_with("==")).collect();
                return Err(format!("does not listen: {printed}\n{}", errors.join("\n")).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.rest()
    }

    /// Waits until every thread waits for work.
    pub(crate) fn rest(&self) -> Result<()> {
        let deadline = Instant::now() + REST_TIMEOUT;
        let tasks = format!("/proc/{}/task", self.child.id());
        loop {
            let rests = fs::read_dir(&tasks)?.all(|task| {
                let call = task.and_then(|task| fs::read_to_string(task.path().join("syscall")));
                call.is_ok_and(|call| WAITS.contains(&call.split(' ').next().unwrap_or_default()))
            });
            if rests {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err("the node does not come to rest".into());
            }
            // The emulated program has the processor meanwhile, should there be but one.
            thread::yield_now();
        }
    }

    /// Begins to count.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.tell("zero")?;
        self.rest()?;
        self.begun = fs::metadata(self.dir.join("calls"))?.len();
        Ok(())
    }

    /// The counts since it began, of a node that rests.
    pub(crate) fn end(&mut self) -> Result<Counts> {
        let threads = threads(&self.traced(self.begun)?);
        self.tell("dump")?;
        self.profiles += 1;
        let mut counts = calls(&threads);
        for number in 1.. {
            let file = self.dir.join(format!("profile.{}-{number:02}", self.profiles));
            let Ok(text) = fs::read_to_string(file) else { break };
            if !threads.get(&number).is_some_and(|thread| thread.sleeps) {
                let (instructions, allocations) =
                    profile(&text).ok_or("a profile without totals")?;
                counts.instructions += instructions;
                counts.allocations += allocations;
            }
        }
        Ok(counts)
    }

    /// The trace of system calls from here on.
    fn traced(&self, from: u64) -> Result<String> {
        let mut file = File::open(self.dir.join("calls"))?;
        file.seek(SeekFrom::Start(from))?;
        let mut trace = Vec::new();
        file.read_to_end(&mut trace)?;
        Ok(String::from_utf8_lossy(&trace).into_owned())
    }

    /// Tells callgrind to begin from zero, or to write a profile.
    fn tell(&self, command: &str) -> Result<()> {
        let output = Command::new("vgdb")
            .arg(format!("--pid={}", self.child.id()))
            .args(["--vgdb-prefix=vgdb", command])
            .current_dir(&self.dir)
            .output()
            .map_err(|e| format!("vgdb: {e}; install valgrind"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("vgdb {command}: {}", String::from_utf8_lossy(&output.stderr)).into())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
