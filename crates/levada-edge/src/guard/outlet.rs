//! How bytes leave, beside being written: those that the system moves by itself, from files and from other
//! sockets.

use std::{
    fs::File,
    io,
    task::{Context, Poll, ready},
};

use levada_net::pipe::Pipe;
use rustix::{
    io::Errno,
    net::{SendFlags, send},
};
use tokio::{io::AsyncWrite, net::TcpStream};
use tokio_rustls::server::TlsStream;

use crate::dormant::ClientSocket;

/// A connection to a client.
pub(crate) trait Outlet: AsyncWrite {
    /// The socket, for bytes that the system moves by itself.
    ///
    /// # Errors
    /// Where there is none, or what leaves has to be encrypted first.
    fn socket(&mut self) -> io::Result<&ClientSocket> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Outlet for ClientSocket {
    fn socket(&mut self) -> io::Result<&ClientSocket> {
        Ok(self)
    }
}

impl Outlet for TlsStream<ClientSocket> {}
#[cfg(test)]
impl Outlet for TcpStream {}
#[cfg(test)]
impl Outlet for tokio::io::DuplexStream {}

/// Writes what more follows on at once: it need not leave by itself.
pub(super) fn poll_write_ahead(
    to: &ClientSocket,
    cx: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    poll_out(to, cx, |stream| Ok(send(stream, bytes, SendFlags::MORE | SendFlags::NOSIGNAL)?))
}

/// Sends at most `count` bytes of a file from `at` on; 0 when it ends there.
pub(super) fn poll_send_file(
    to: &ClientSocket,
    cx: &mut Context<'_>,
    file: &File,
    at: u64,
    count: usize,
) -> Poll<io::Result<usize>> {
    poll_out(to, cx, |stream| {
        match rustix::fs::sendfile(stream, file, Some(&mut { at }), count) {
            // Few file systems cannot.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => copy(stream, file, at, count),
            sent => Ok(sent?),
        }
    })
}

/// Sends at most `count` bytes of what is in a pipe.
pub(super) fn poll_drain(
    to: &ClientSocket,
    cx: &mut Context<'_>,
    pipe: &Pipe,
    count: usize,
) -> Poll<io::Result<usize>> {
    poll_out(to, cx, |stream| pipe.drain(stream, count))
}

/// Does what the stream has room for, when it has any, and lets those know who look after it.
fn poll_out(
    watched: &ClientSocket,
    cx: &mut Context<'_>,
    mut out: impl FnMut(&TcpStream) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    let stream = watched.stream();
    loop {
        ready!(stream.poll_write_ready(cx))?;
        let sent = stream.try_io(tokio::io::Interest::WRITABLE, || out(stream));
        match sent {
            Err(e)
                if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            sent => {
                watched.wrote();
                return Poll::Ready(sent);
            }
        }
    }
}

/// Sends a piece of a file by way of this process.
fn copy(stream: &TcpStream, file: &File, at: u64, count: usize) -> io::Result<usize> {
    let mut bytes = vec![0; count.min(64 << 10)];
    match rustix::io::pread(file, &mut bytes[..], at)? {
        0 => Ok(0),
        read => Ok(send(stream, &bytes[..read], SendFlags::NOSIGNAL)?),
    }
}
