//! The new process, as the old one sees it.
//!
//! All that waits here blocks its thread, for [`SILENCE_TIMEOUT`] at most. A successor that is dropped before it serves
//! is killed.

use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    process::{Child, ChildStderr, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use levada_net::privileges;
use rustix::stdio;
use serde::{Serialize, de::DeserializeOwned};

use levada_store::disk::FORMAT;

use crate::upgrade::{
    channel::Channel,
    message::{
        LetGoMessage, Offer, OfferedSockets, Open, Prepared, Ready, Serving, TakenOver, VERSION,
    },
    program::Program,
};

/// The variable by which the new process knows that the old one has started it.
pub(crate) const PREDECESSOR: &str = "LEVADA_PREDECESSOR";
/// How long the other process may send nothing, no step and no entry: a process that works is never silent for long.
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a process that has closed its side may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval of checks whether it has ended.
const END_INTERVAL: Duration = Duration::from_millis(10);
/// The last bytes of its standard error that are kept.
const KEPT: usize = 16 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Successor {
    process: SuccessorProcess,
    channel: Channel,
    said: Arc<Mutex<Vec<u8>>>,
    /// The way of stored entries.
    pub entries: UnixStream,
    /// The way of purge orders.
    pub orders: Option<UnixStream>,
    /// The listeners that were offered.
    listeners: usize,
    serves: bool,
}

/// The handle by which the new process is ended.
#[derive(Clone, Debug)]
pub(crate) struct SuccessorProcess(Arc<Mutex<Child>>);

/// Why the new process does not take over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SuccessorFailed {
    /// It cannot be started.
    #[error("the new process cannot be started: {0}")]
    Start(io::Error),
    /// It has ended.
    #[error("the new process has ended ({status}):\n{said}")]
    Ended {
        /// How.
        status: ExitStatus,
        /// The end of its standard error.
        said: String,
    },
    /// It says nothing.
    #[error("the new process said nothing for {} seconds and was killed; its log:\n{said}", SILENCE_TIMEOUT.as_secs())]
    Silent {
        /// The end of its standard error.
        said: String,
    },
    /// It says something else than it should.
    #[error("the new process cannot be understood ({why}) and was killed; its log:\n{said}")]
    Misunderstood {
        /// The problem.
        why: io::Error,
        /// The end of its standard error.
        said: String,
    },
}

impl Successor {
    /// Starts the program, and offers it sockets, which are those of `offered` in order. The offer is on its way before
    /// the program runs: it arrives also when this process is killed meanwhile.
    ///
    /// # Errors
    /// When it cannot be run.
    pub(crate) fn start(
        program: &Program,
        offered: Vec<OfferedSockets>,
        sockets: &[OwnedFd],
        disk: Option<PathBuf>,
    ) -> Result<Self, SuccessorFailed> {
        Self::spawned(program, offered, sockets, disk).map_err(SuccessorFailed::Start)
    }

    fn spawned(
        program: &Program,
        offered: Vec<OfferedSockets>,
        sockets: &[OwnedFd],
        disk: Option<PathBuf>,
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let (entries, their_entries) = UnixStream::pair()?;
        let (orders, their_orders) = UnixStream::pair()?;
        entries.set_write_timeout(Some(SILENCE_TIMEOUT))?;
        let channel = Channel::new(ours);
        channel.set_timeout(Some(SILENCE_TIMEOUT))?;
        let listeners = offered.len();
        let pid = std::process::id();
        let offer = Offer { version: VERSION, pid, sockets: offered, disk, format: FORMAT };
        let own = [stdio::stdin(), stdio::stderr(), their_entries.as_fd(), their_orders.as_fd()];
        let all: Vec<BorrowedFd<'_>> =
            own.into_iter().chain(sockets.iter().map(OwnedFd::as_fd)).collect();
        channel.send(&offer)?;
        channel.send_descriptors(&all)?;
        drop((their_entries, their_orders));
        let mut command = program.command();
        command.env(PREDECESSOR, pid.to_string());
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stderr(Stdio::piped());
        // On a thread of its own: the capabilities of a thread go to the processes that it starts.
        let spawned = thread::spawn(move || {
            privileges::pass_to_children()?;
            command.spawn()
        });
        let mut child = spawned.join().map_err(|_| io::Error::other("a thread failed"))??;
        let said = Arc::<Mutex<Vec<u8>>>::default();
        if let Some(stderr) = child.stderr.take() {
            let kept = said.clone();
            thread::spawn(move || pass_on(stderr, &kept));
        }
        Ok(Self {
            process: SuccessorProcess(Arc::new(Mutex::new(child))),
            channel,
            said,
            entries,
            orders: Some(orders),
            listeners,
            serves: false,
        })
    }

    /// The handle by which it can be ended.
    pub(crate) fn process(&self) -> SuccessorProcess {
        self.process.clone()
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.process.lock().id()
    }

    /// Waits until the new process could go on alone.
    ///
    /// # Errors
    /// When it does not come that far.
    pub(crate) fn prepared(&mut self) -> Result<Prepared, SuccessorFailed> {
        let prepared: Prepared = self.answer()?;
        match prepared.taken.len() == self.listeners {
            true => Ok(prepared),
            false => Err(self.failed(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Says that this process has let go of the disk tier, with the state of its purges if that does not have
    /// it. Waits until the new process is ready to accept connections.
    ///
    /// # Errors
    /// When it does not come that far.
    pub(crate) fn let_go(&mut self, purges: Option<String>) -> Result<(), SuccessorFailed> {
        self.tell::<_, Ready>(&LetGoMessage { purges }).map(drop)
    }

    /// Says that this process accepts no more connections, and waits until the new one does.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn open(&mut self) -> Result<(), SuccessorFailed> {
        self.tell::<_, Serving>(&Open)?;
        self.serves = true;
        Ok(())
    }

    /// Waits until the new process has kept all entries that were sent.
    ///
    /// # Errors
    /// When it has ended before.
    pub(crate) fn taken_over(&mut self) -> Result<TakenOver, SuccessorFailed> {
        let _ = self.entries.shutdown(std::net::Shutdown::Write);
        self.answer()
    }

    fn tell<M: Serialize, T: DeserializeOwned>(&mut self, m: &M) -> Result<T, SuccessorFailed> {
        self.channel.send(m).map_err(|error| self.failed(error))?;
        self.answer()
    }

    fn answer<T: DeserializeOwned>(&mut self) -> Result<T, SuccessorFailed> {
        self.channel.receive().map_err(|error| self.failed(error))
    }

    fn failed(&self, why: io::Error) -> SuccessorFailed {
        let mut child = self.process.lock();
        let deadline = Instant::now() + END_TIMEOUT;
        let is_silent = matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        while !is_silent && Instant::now() < deadline {
            if let Ok(Some(status)) = child.try_wait() {
                return SuccessorFailed::Ended { status, said: self.said() };
            }
            thread::sleep(END_INTERVAL);
        }
        let _ = child.kill();
        let _ = child.wait();
        let said = self.said();
        match is_silent {
            true => SuccessorFailed::Silent { said },
            false => SuccessorFailed::Misunderstood { why, said },
        }
    }

    /// The end of its standard error, when it has come.
    fn said(&self) -> String {
        let deadline = Instant::now() + END_TIMEOUT;
        // The thread that reads it drops its half at the end.
        while Arc::strong_count(&self.said) > 1 && Instant::now() < deadline {
            thread::sleep(END_INTERVAL);
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said).trim_end().to_owned()
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.serves {
            self.process.end();
        }
    }
}

impl SuccessorProcess {
    /// Kills it.
    pub(crate) fn end(&self) {
        let mut child = self.lock();
        let _ = child.kill();
        let _ = child.wait();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Child> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes on what the new process says, until it has this process's standard error.
fn pass_on(mut from: ChildStderr, kept: &Mutex<Vec<u8>>) {
    let mut some = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut some) {
        let _ = io::stderr().write_all(&some[..count]);
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&some[..count]);
        let beyond = kept.len().saturating_sub(KEPT);
        kept.drain(..beyond);
    }
}
