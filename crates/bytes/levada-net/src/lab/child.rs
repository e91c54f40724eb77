//! A program on a host. It ends with the network.

use std::{
    io,
    os::unix::process::CommandExt as _,
    process::{self, Command, ExitStatus},
};

use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};

use super::{Namespace, leftovers};

/// A running program; dropping this kills it and everything that it started.
pub struct Child {
    /// The running program, for access to its pipes.
    pub process: process::Child,
    group: bool,
}

impl Child {
    pub(super) fn spawn(
        namespace: &Namespace,
        network: &str,
        mut command: Command,
        group: bool,
    ) -> io::Result<Self> {
        command.env(leftovers::VARIABLE, network);
        if group {
            command.process_group(0);
        }
        // SAFETY: the closure makes one system call on values of its own, so it does not depend on
        // state that a fork of a multi-threaded process can leave inconsistent.
        #[expect(unsafe_code)]
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?))
        };
        let process = namespace.on_resident(move || command.spawn())?;
        Ok(Self { process, group })
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// As [`process::Child::wait`].
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.process.wait()
    }

    /// Sends it a signal, as an operator would.
    ///
    /// # Errors
    /// When it has already ended.
    pub fn tell(&self, signal: Signal) -> io::Result<()> {
        let pid = self.pid().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.process.id()).ok()?)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let (true, Some(pid)) = (self.group, self.pid()) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
