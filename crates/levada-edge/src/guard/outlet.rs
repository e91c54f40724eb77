//! How bytes leave, beside being written: parts of files that the system sends by itself.

use std::{
    fs::File,
    io,
    task::{Context, Poll},
};

use tokio::io::AsyncWrite;
#[cfg(any(target_os = "linux", test))]
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::dormant::Stream;

/// A connection to a client.
pub(crate) trait Outlet: AsyncWrite {
    /// Writes what more follows on at once: it need not leave by itself.
    fn poll_write_ahead(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Sends at most `count` bytes of a file from `at` on; 0 when it ends there.
    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        at: u64,
        count: usize,
    ) -> Poll<io::Result<usize>>;
}

/// Whether connections without TLS can be sent parts of files.
pub(crate) const SENDS_FILES: bool = cfg!(target_os = "linux");

#[cfg(target_os = "linux")]
impl Outlet for Stream {
    fn poll_write_ahead(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        use rustix::net::{SendFlags, send};
        poll_out(self, cx, |stream| send(stream, bytes, SendFlags::MORE | SendFlags::NOSIGNAL))
    }

    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        at: u64,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        use rustix::io::Errno;
        poll_out(self, cx, |stream| {
            match rustix::fs::sendfile(stream, file, Some(&mut { at }), count) {
                // Few file systems cannot.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    copy(stream, file, at, count)
                }
                sent => sent,
            }
        })
    }
}

/// Does what the stream has room for, when it has any, and lets those know who look after it.
#[cfg(target_os = "linux")]
fn poll_out(
    watched: &Stream,
    cx: &mut Context<'_>,
    mut out: impl FnMut(&TcpStream) -> rustix::io::Result<usize>,
) -> Poll<io::Result<usize>> {
    let stream = watched.stream();
    loop {
        std::task::ready!(stream.poll_write_ready(cx))?;
        let sent = stream.try_io(tokio::io::Interest::WRITABLE, || Ok(out(stream)?));
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
#[cfg(target_os = "linux")]
fn copy(stream: &TcpStream, file: &File, at: u64, count: usize) -> rustix::io::Result<usize> {
    use rustix::net::{SendFlags, send};
    let mut bytes = vec![0; count.min(64 << 10)];
    match rustix::io::pread(file, &mut bytes[..], at)? {
        0 => Ok(0),
        read => send(stream, &bytes[..read], SendFlags::NOSIGNAL),
    }
}

/// What cannot be sent parts of files.
macro_rules! writes_only {
    ($($stream:ty),*) => {$(
        impl Outlet for $stream {
            fn poll_write_ahead(
                &mut self,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                std::pin::Pin::new(self).poll_write(cx, bytes)
            }

            fn poll_send_file(
                &mut self,
                _: &mut Context<'_>,
                _: &File,
                _: u64,
                _: usize,
            ) -> Poll<io::Result<usize>> {
                Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
            }
        }
    )*};
}

writes_only!(TlsStream<Stream>);
#[cfg(not(target_os = "linux"))]
writes_only!(Stream);
#[cfg(test)]
writes_only!(TcpStream, tokio::io::DuplexStream);
