//! A directory for the files of both servers, and their processes.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A directory that goes with the comparison.
pub(super) struct Stage(TempDir);

impl Stage {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self(tempfile::Builder::new().prefix("levada-compare-").tempdir()?))
    }

    /// A directory in it that shows all files of `original`, so that relative names in a configuration lead there.
    pub(super) fn like(&self, name: &str, original: &Path) -> anyhow::Result<PathBuf> {
        let directory = self.0.path().join(name);
        fs::create_dir(&directory)?;
        let original = match original.as_os_str().is_empty() {
            true => Path::new("."),
            false => original,
        };
        let original = fs::canonicalize(original)
            .with_context(|| format!("cannot read {}", original.display()))?;
        for entry in fs::read_dir(original)? {
            let entry = entry?;
            symlink(entry.path(), directory.join(entry.file_name()))?;
        }
        Ok(directory)
    }

    /// An empty directory in it.
    pub(super) fn directory(&self, name: &str) -> anyhow::Result<PathBuf> {
        let directory = self.0.path().join(name);
        fs::create_dir(&directory)?;
        Ok(directory)
    }
}

/// Addresses that nobody listens at. They are held until a process takes them.
#[derive(Default)]
pub(super) struct Free(Vec<TcpListener>);

impl Free {
    pub(super) fn next(&mut self) -> anyhow::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        self.0.push(listener);
        Ok(address)
    }
}

/// A server that was started. Dropping it ends it.
pub(super) struct Process(Child);

impl Process {
    /// Starts a program that writes its messages to `log`, and waits until it listens at all addresses.
    pub(super) fn start(
        command: &mut Command,
        log: &Path,
        held: Free,
        addresses: &[SocketAddr],
    ) -> anyhow::Result<Self> {
        const PATIENCE: Duration = Duration::from_secs(30);
        let program = command.get_program().to_string_lossy().into_owned();
        let messages = fs::File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(messages.try_clone()?).stderr(messages);
        drop(held);
        let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        let mut process = Self(child);
        let end = Instant::now() + PATIENCE;
        for address in addresses {
            while TcpStream::connect(address).is_err() {
                let ended = process.0.try_wait()?;
                if ended.is_some() || Instant::now() > end {
                    let said = fs::read_to_string(log).unwrap_or_default();
                    let lines: Vec<_> = said.lines().collect();
                    let last = lines[lines.len().saturating_sub(20)..].join("\n");
                    bail!("{program} does not start:\n{last}");
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A program with processes of its own ends them, if it may.
        const PATIENCE: Duration = Duration::from_secs(3);
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let end = Instant::now() + PATIENCE;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
