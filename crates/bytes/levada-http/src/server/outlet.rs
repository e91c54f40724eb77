//! Bytes that leave without being written: the system moves them by itself, from files and from other
//! sockets.

use std::{
    fs::File,
    io,
    task::{Context, Poll, ready},
};

use levada_net::{
    dormant::MonitoredStream,
    pipe::Pipe,
    tcp::{self, TcpInfo},
};
use rustix::{
    io::Errno,
    net::{SendFlags, send},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

/// A connection to a client.
pub trait Outlet: AsyncWrite {
    /// The socket, for bytes that the system moves by itself.
    ///
    /// # Errors
    /// Where there is none, or where bytes have to be encrypted before they leave.
    fn socket(&mut self) -> io::Result<&TcpStream> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Has the system reset the connection when it is closed. Returns whether bytes would be lost, because they
    /// are not acknowledged.
    fn reset_on_close(&mut self) -> bool {
        let Ok(socket) = self.socket() else { return false };
        // A connection that is gone already needs no reset.
        tcp::reset_on_close(socket).is_ok()
            && TcpInfo::of(socket).is_ok_and(|info| !info.closed && info.unacked + info.unsent > 0)
    }

    /// The bytes that the client has acknowledged so far, if the system tells.
    fn acknowledged(&mut self) -> Option<u64> {
        TcpInfo::of(self.socket().ok()?).ok().map(|info| info.acknowledged)
    }

    /// Ready when the client has sent something, or has ended the connection.
    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.socket() {
            Ok(socket) => socket.poll_read_ready(cx).map(drop),
            Err(_) => Poll::Ready(()),
        }
    }

    /// Keeps the system from sending the last bytes before our side of the connection is closed: their packet then
    /// tells its end as well.
    fn hold_rest(&mut self) {
        if let Ok(socket) = self.socket() {
            // Without it, there is a packet more.
            let _ = rustix::net::sockopt::set_tcp_cork(socket, true);
        }
    }

    /// Called after bytes have left by [`Self::socket`].
    fn wrote(&mut self) {}

    /// Whether what was done to [`Self::socket`] has to be repeated, once: it met a probe of the client.
    fn has_met_probe(&self, _error: &io::Error) -> bool {
        false
    }
}

impl<T> Outlet for MonitoredStream<T> {
    fn socket(&mut self) -> io::Result<&TcpStream> {
        Ok(self.stream())
    }

    fn wrote(&mut self) {
        Self::wrote(self);
    }

    fn has_met_probe(&self, error: &io::Error) -> bool {
        Self::has_met_probe(self, error)
    }
}

impl<S: AsyncRead + Outlet + Unpin> Outlet for TlsStream<S> {
    fn reset_on_close(&mut self) -> bool {
        self.get_mut().0.reset_on_close()
    }

    fn acknowledged(&mut self) -> Option<u64> {
        self.get_mut().0.acknowledged()
    }

    /// Nothing decrypted is held back: the stream was read until there was nothing more.
    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().0.poll_arrived(cx)
    }
}
/// A stream that would be large where it is kept.
impl<S: AsyncRead + Outlet + Unpin> Outlet for Box<S> {
    fn socket(&mut self) -> io::Result<&TcpStream> {
        (**self).socket()
    }

    fn reset_on_close(&mut self) -> bool {
        (**self).reset_on_close()
    }

    fn acknowledged(&mut self) -> Option<u64> {
        (**self).acknowledged()
    }

    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        (**self).poll_arrived(cx)
    }

    fn wrote(&mut self) {
        (**self).wrote();
    }

    fn has_met_probe(&self, error: &io::Error) -> bool {
        (**self).has_met_probe(error)
    }
}

#[cfg(test)]
impl Outlet for TcpStream {
    fn socket(&mut self) -> io::Result<&TcpStream> {
        Ok(self)
    }
}
#[cfg(test)]
impl Outlet for tokio::io::DuplexStream {}

/// Writes bytes that more will follow at once: they need not leave by themselves.
pub(super) fn poll_write_ahead(
    to: &mut impl Outlet,
    cx: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    poll_out(to, cx, |stream| Ok(send(stream, bytes, SendFlags::MORE | SendFlags::NOSIGNAL)?))
}

/// Sends at most `count` bytes of a file from `at` on; 0 when it ends there.
pub(super) fn poll_send_file(
    to: &mut impl Outlet,
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

/// Sends at most `count` bytes of those in a pipe.
pub(super) fn poll_drain(
    to: &mut impl Outlet,
    cx: &mut Context<'_>,
    pipe: &Pipe,
    count: usize,
) -> Poll<io::Result<usize>> {
    poll_out(to, cx, |stream| pipe.drain(stream, count))
}

/// Calls `out` when the socket has room, until it has sent something.
fn poll_out(
    to: &mut impl Outlet,
    cx: &mut Context<'_>,
    mut out: impl FnMut(&TcpStream) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    let mut repeated = false;
    let sent = loop {
        let stream = to.socket()?;
        ready!(stream.poll_write_ready(cx))?;
        match stream.try_io(Interest::WRITABLE, || out(stream)) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) if !repeated && to.has_met_probe(&error) => repeated = true,
            sent => break sent,
        }
    };
    to.wrote();
    Poll::Ready(sent)
}

/// Sends a piece of a file by way of this process.
fn copy(stream: &TcpStream, file: &File, at: u64, count: usize) -> io::Result<usize> {
    let mut bytes = vec![0; count.min(64 << 10)];
    match rustix::io::pread(file, &mut bytes[..], at)? {
        0 => Ok(0),
        read => Ok(send(stream, &bytes[..read], SendFlags::NOSIGNAL)?),
    }
}
