//! Connections that a listener has accepted and the runtime does not know yet. A connection that is
//! handed off at once is never registered, which saves two system calls and an entry in the
//! runtime's tables.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
};

use rustix::net::SocketFlags;
use tokio::io::{Interest, unix::AsyncFd};

/// A listener that the current runtime waits for.
pub struct Incoming(AsyncFd<TcpListener>);

impl Incoming {
    /// Wraps a non-blocking listener.
    ///
    /// # Errors
    /// When the runtime cannot wait for it.
    pub fn new(listener: TcpListener) -> io::Result<Self> {
        // SAFETY: a `TcpListener` owns one descriptor, which stays the same while it lives, and
        // cannot be moved out of it.
        #[expect(unsafe_code)]
        let waiting = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) };
        Ok(Self(waiting?))
    }

    /// The next connection, with a non-blocking socket. If there is none yet, calls `idle` before
    /// waiting.
    ///
    /// # Errors
    /// As accept(2): errors of a single connection, and errors that end when other connections
    /// close.
    pub async fn accept(&self, mut idle: impl FnMut()) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|listener| accept(listener.get_ref())) {
                Ok(accepted) => return accepted,
                Err(_) => idle(),
            }
        }
    }

    /// A connection that has come already.
    pub fn arrived(&self) -> Option<(TcpStream, SocketAddr)> {
        accept(self.0.get_ref()).ok()
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// When the system returns an error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().local_addr()
    }
}

fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, client) = rustix::net::acceptfrom_with(listener, flags)?;
    let client = client.ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((socket.into(), SocketAddr::try_from(client)?))
}
