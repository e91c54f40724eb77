//! Connections taken from a listener before the runtime knows their sockets: one that leaves at once is
//! never registered, which costs two system calls and a place in the runtime's tables.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
};

use rustix::net::SocketFlags;
use tokio::io::{Interest, unix::AsyncFd};

/// A listener whose connections are waited for in the runtime that it was made in.
pub struct Incoming(AsyncFd<TcpListener>);

impl Incoming {
    /// Of a listener that does not block.
    ///
    /// # Errors
    /// When the runtime cannot wait for it.
    pub fn new(listener: TcpListener) -> io::Result<Self> {
        // SAFETY: a `TcpListener` has one and the same descriptor for as long as it lives, owns it, and is
        // not given away from within.
        #[expect(unsafe_code)]
        let waiting = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) };
        Ok(Self(waiting?))
    }

    /// The next connection, whose socket does not block. When none has come yet, `idle` is called before it
    /// is waited for.
    ///
    /// # Errors
    /// As accept(2): those of one connection, and those that pass when others end.
    pub async fn accept(&self, mut idle: impl FnMut()) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|listener| accept(listener.get_ref())) {
                Ok(accepted) => return accepted,
                Err(_) => idle(),
            }
        }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
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
