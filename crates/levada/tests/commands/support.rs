//! The parts that the tests of commands share: processes that end with their test, and free ports.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
};

/// A process that ends with its test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Runs a command that says when it is ready. Returns it with what it has said until then, or only what it
    /// has said if it ends before.
    pub(crate) fn ready(command: &mut Command) -> Result<(Self, String), String> {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Self(command.spawn().unwrap());
        let mut stderr = BufReader::new(process.0.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("ready") {
            if stderr.read_line(&mut said).unwrap() == 0 {
                return Err(said);
            }
        }
        // A thread must read on, or the log would block the process.
        thread::spawn(move || stderr.lines().map_while(Result::ok).for_each(drop));
        Ok((process, said))
    }

    /// Runs the node of this file until it is ready.
    pub(crate) fn node(file: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        let started = Self::ready(command.args(["run", "-c"]).arg(file));
        started.unwrap_or_else(|said| panic!("the node does not start: {said}")).0
    }
}

/// A port of this machine that is free now. No two tests get the same one, and no outgoing connection takes it:
/// those have ports from 32768 on.
pub(crate) fn free() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // Test processes that run at the same time begin at different places.
        let place = std::process::id() * 97 + NEXT.fetch_add(1, Relaxed);
        let port = 10_000 + (place % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Runs the program to its end.
pub(crate) fn levada(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_levada")).args(arguments).output().unwrap()
}
