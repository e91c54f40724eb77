//! The old process, as the new one sees it.

use std::{
    env,
    io::{self, ErrorKind},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
};

use levada_net::privileges;
use rustix::stdio;

use levada_store::disk::FORMAT;

use crate::upgrade::{
    channel::Channel,
    message::{LetGoMessage, Offer, Open, Prepared, Ready, Serving, TakenOver, VERSION},
    passed::PassedSockets,
    successor::{PREDECESSOR, SILENCE_TIMEOUT},
};

/// The most sockets of a node.
const MAX_SOCKETS: usize = 100_000;

/// See the module.
#[derive(Debug)]
pub struct Predecessor {
    channel: Channel,
    /// Its number.
    pub pid: u32,
    /// The directory of its disk tier.
    pub disk: Option<PathBuf>,
    /// Whether the entries of its memory tier can be read here.
    has_same_format: bool,
    /// Its listening sockets.
    pub sockets: PassedSockets,
    /// The way of stored entries.
    pub entries: Option<UnixStream>,
    /// The way of purge orders.
    pub orders: Option<UnixStream>,
    /// Its standard error.
    stderr: OwnedFd,
}

/// The old process has ended, or cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum PredecessorGone {
    /// Nothing or nonsense has come.
    #[error("the process that is to be replaced does not answer: {0}")]
    Io(#[from] io::Error),
    /// It is of another version.
    #[error(
        "the process that is to be replaced passes its state in version {theirs}, and this program takes \
         version {VERSION}: stop the node and start it again"
    )]
    Version {
        /// Its version.
        theirs: u32,
    },
}

/// The end of the preparation.
#[derive(Debug)]
pub enum LetGo {
    /// The old process has let go, with the state of its purges if it has no disk tier.
    Now(Option<String>),
    /// It has ended before that.
    Gone,
}

impl Predecessor {
    /// The process that has started this one to be replaced by it, if one has. The channel is the standard
    /// input, which is that of the old process from now on.
    ///
    /// # Errors
    /// When the old process does not say what it should.
    pub fn meet() -> Result<Option<Self>, PredecessorGone> {
        let started_by = env::var(PREDECESSOR).ok().and_then(|pid| pid.parse().ok());
        if started_by.is_none() || started_by != starter() {
            return Ok(None);
        }
        let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let channel = Channel::new(socket);
        channel.set_timeout(Some(SILENCE_TIMEOUT))?;
        let offer: Offer = channel.receive()?;
        if offer.version != VERSION {
            return Err(PredecessorGone::Version { theirs: offer.version });
        }
        let count = offer.sockets.iter().map(|one| one.count).fold(0, usize::saturating_add);
        if count > MAX_SOCKETS {
            return Err(io::Error::from(ErrorKind::InvalidData).into());
        }
        let mut received = channel.receive_descriptors(count + 4)?.into_iter();
        let mut next = || received.next().ok_or(ErrorKind::UnexpectedEof);
        let stdin = next().map_err(io::Error::from)?;
        let stderr = next().map_err(io::Error::from)?;
        let entries = next().map_err(io::Error::from)?;
        let orders = next().map_err(io::Error::from)?;
        stdio::dup2_stdin(stdin).map_err(io::Error::from)?;
        privileges::keep_from_children()?;
        Ok(Some(Self {
            channel,
            pid: offer.pid,
            disk: offer.disk,
            has_same_format: offer.format == FORMAT,
            sockets: PassedSockets::offered(&offer.sockets, received.collect()),
            entries: Some(entries.into()),
            orders: Some(orders.into()),
            stderr,
        }))
    }

    /// Says that this process could go on alone, and waits until the old one lets go. `memory`: whether the
    /// entries of its memory tier are useful here.
    ///
    /// # Errors
    /// When the old process cannot be understood.
    pub fn prepared(&mut self, memory: bool) -> Result<LetGo, PredecessorGone> {
        let memory = memory && self.has_same_format;
        let prepared = Prepared { taken: self.sockets.taken(), memory };
        // Of the others, the old process accepts what waits.
        self.sockets = PassedSockets::default();
        let answer = self.channel.send(&prepared).and_then(|()| self.channel.receive());
        match answer {
            Ok(LetGoMessage { purges }) => Ok(LetGo::Now(purges)),
            Err(error) if is_gone(&error) => Ok(LetGo::Gone),
            Err(error) => Err(error.into()),
        }
    }

    /// Says that this process can accept connections, and waits until the old one accepts none. An old process
    /// that has ended accepts none.
    pub fn ready(&mut self) {
        let answer = self.channel.send(&Ready).and_then(|()| self.channel.receive::<Open>());
        if let Err(error) = answer {
            tracing::warn!(%error, "the process that is to be replaced has ended early");
        }
    }

    /// Says that this process accepts connections. Standard error is that of the old process from now on.
    pub fn serving(&mut self) {
        if let Err(error) = stdio::dup2_stderr(&self.stderr) {
            tracing::warn!(%error, "the log cannot go where that of the former process went");
        }
        let _ = self.channel.send(&Serving);
    }

    /// Says what this process has taken over.
    pub fn took_over(&mut self, taken: &TakenOver) {
        let _ = self.channel.send(taken);
    }
}

/// The process that made the socket at the standard input. It need not be the parent: it may have ended by now.
#[cfg(target_os = "linux")]
fn starter() -> Option<i32> {
    let maker = rustix::net::sockopt::socket_peercred(io::stdin()).ok()?;
    Some(maker.pid.as_raw_pid())
}

/// Elsewhere a process that has ended by now is not known.
#[cfg(not(target_os = "linux"))]
fn starter() -> Option<i32> {
    rustix::process::getppid().map(|pid| pid.as_raw_pid())
}

/// Whether the other end has been closed.
fn is_gone(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}
