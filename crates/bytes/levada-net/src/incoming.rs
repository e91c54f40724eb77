//! Connections that a listener has accepted and the runtime does not know yet. A connection that is
//! handed off at once is never registered, which saves two system calls and an entry in the
//! runtime's tables.
//!
//! Where places or open files run out, connections that rest give way to the ones that come.

use std::{
    future::pending,
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd as _, RawFd},
    pin::pin,
    sync::Arc,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::SocketFlags,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{listening::ACCEPT_BACKOFF, open_files, resting::RestingConnections};

/// A listener that the current runtime waits for.
pub struct Incoming {
    listener: AsyncFd<TcpListener>,
    resting: Arc<RestingConnections>,
    /// A file of this number shows that few more can be opened: the system gives out the lowest free number.
    scarce: RawFd,
}

/// The part of the open files that connections which rest do not take from others: connections to servers need some
/// as well.
const SPARE: u64 = 8;
/// As many give way when no file can be opened, so that it does not happen again at once.
const AT_ONCE: usize = 8;

impl Incoming {
    /// Wraps a non-blocking listener. Its connections take the room of those that rest.
    ///
    /// # Errors
    /// When the runtime cannot wait for it.
    pub fn new(listener: TcpListener, resting: Arc<RestingConnections>) -> io::Result<Self> {
        // SAFETY: a `TcpListener` owns one descriptor, which stays the same while it lives, and
        // cannot be moved out of it.
        #[expect(unsafe_code)]
        let listener = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) }?;
        let scarce = open_files::limit().map(|limit| limit - limit / SPARE);
        let scarce = scarce.and_then(|files| files.try_into().ok()).unwrap_or(RawFd::MAX);
        Ok(Self { listener, resting, scarce })
    }

    /// A place for the next connection. If none is free, connections that rest give way as soon as one comes.
    /// `None` if there will be none.
    pub async fn place(&self, places: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        let mut free = pin!(places.clone().acquire_owned());
        loop {
            tokio::select! {
                biased;
                place = &mut free => return place.ok(),
                () = self.has_come() => self.resting.give_way(1),
            }
            if let Ok(place) = timeout(ACCEPT_BACKOFF, &mut free).await {
                return place.ok();
            }
        }
    }

    /// Returns when a connection waits to be accepted.
    async fn has_come(&self) {
        while let Ok(mut ready) = self.listener.readable().await {
            let mut waiting = [PollFd::new(self.listener.get_ref(), PollFlags::IN)];
            if poll(&mut waiting, Some(&Timespec::default())).is_ok_and(|count| count > 0) {
                return;
            }
            ready.clear_ready();
        }
        pending().await
    }

    /// The next connection, with a non-blocking socket. If there is none yet, calls `idle` before
    /// waiting.
    ///
    /// # Errors
    /// As accept(2): errors of a single connection, and errors that end when other connections
    /// close.
    pub async fn accept(&self, mut idle: impl FnMut()) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let mut ready = self.listener.readable().await?;
            match ready.try_io(|listener| accept(listener.get_ref())) {
                Ok(accepted) => {
                    self.resting.give_way(self.too_many(&accepted));
                    return accepted;
                }
                Err(_) => idle(),
            }
        }
    }

    /// How many connections that rest have to give way.
    fn too_many(&self, accepted: &io::Result<(TcpStream, SocketAddr)>) -> usize {
        match accepted {
            // One for this connection, and another one until the spare files are free again.
            Ok((socket, _)) if socket.as_raw_fd() >= self.scarce => 2,
            Err(error) if open_files::ran_out(error) => AT_ONCE,
            _ => 0,
        }
    }

    /// A connection that has come already.
    pub fn arrived(&self) -> Option<(TcpStream, SocketAddr)> {
        accept(self.listener.get_ref()).ok()
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// When the system returns an error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.get_ref().local_addr()
    }
}

fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, client) = rustix::net::acceptfrom_with(listener, flags)?;
    let client = client.ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((socket.into(), SocketAddr::try_from(client)?))
}
