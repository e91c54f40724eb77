//! A listener for operators: in the network, or a Unix socket whose file permissions say who may connect.

use std::{
    fs,
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr, TcpListener as StdTcpListener},
    os::{
        fd::OwnedFd,
        unix::{
            fs::{FileTypeExt as _, PermissionsExt as _},
            net::{UnixListener as StdUnixListener, UnixStream},
        },
    },
    path::Path,
    pin::Pin,
    task::{Context, Poll},
};

use rustix::{
    fs::{Mode, fchmod},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with},
};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream as UnixConnection},
};

/// A listener for operators that no runtime knows yet.
#[derive(Debug)]
pub struct StdAdminListener(Inner);

#[derive(Debug)]
enum Inner {
    Tcp(StdTcpListener),
    Unix(StdUnixListener),
}

impl From<StdTcpListener> for StdAdminListener {
    /// The listener must not block.
    fn from(listener: StdTcpListener) -> Self {
        Self(Inner::Tcp(listener))
    }
}

impl StdAdminListener {
    /// Listens on a Unix socket whose file has these permissions. The file of a process that has ended is
    /// replaced.
    ///
    /// # Errors
    /// When another process listens there, something else has this path, or the system refuses.
    pub fn unix(path: &Path, mode: u32) -> io::Result<Self> {
        listen_unix(path, mode).map(|listener| Self(Inner::Unix(listener)))
    }

    /// The listening socket that another process has opened.
    ///
    /// # Errors
    /// When it is none.
    pub fn passed(socket: OwnedFd) -> io::Result<Self> {
        let is_unix = SockRef::from(&socket).local_addr()?.is_unix();
        SockRef::from(&socket).set_nonblocking(true)?;
        Ok(Self(match is_unix {
            true => Inner::Unix(socket.into()),
            false => Inner::Tcp(socket.into()),
        }))
    }

    /// Another descriptor of the same socket.
    ///
    /// # Errors
    /// When the system has none left.
    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        match &self.0 {
            Inner::Tcp(listener) => listener.try_clone().map(Into::into),
            Inner::Unix(listener) => listener.try_clone().map(Into::into),
        }
    }

    /// The address in the network, if it is there.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.0 {
            Inner::Tcp(listener) => listener.local_addr().ok(),
            Inner::Unix(_) => None,
        }
    }

    /// The listener, as the present runtime knows it.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn start(self) -> io::Result<AdminListener> {
        Ok(AdminListener(match self.0 {
            Inner::Tcp(listener) => Open::Tcp(TcpListener::from_std(listener)?),
            Inner::Unix(listener) => Open::Unix(UnixListener::from_std(listener)?),
        }))
    }
}

/// A listener for operators.
#[derive(Debug)]
pub struct AdminListener(Open);

#[derive(Debug)]
enum Open {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// An operator's connection.
#[derive(Debug)]
pub struct AdminStream(Connection);

#[derive(Debug)]
enum Connection {
    Tcp(TcpStream),
    Unix(UnixConnection),
}

impl AdminListener {
    /// The next connection, and the address that it comes from; `None`: it came by the Unix socket.
    ///
    /// # Errors
    /// When the system has no connection to give.
    pub async fn accept(&self) -> io::Result<(AdminStream, Option<IpAddr>)> {
        match &self.0 {
            Open::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                Ok((AdminStream(Connection::Tcp(stream)), Some(from.ip())))
            }
            Open::Unix(listener) => {
                Ok((AdminStream(Connection::Unix(listener.accept().await?.0)), None))
            }
        }
    }
}

impl AdminStream {
    /// The addresses of its client and of this end; `None`: it came by the Unix socket.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        match &self.0 {
            Connection::Tcp(stream) => Some((stream.peer_addr().ok()?, stream.local_addr().ok()?)),
            Connection::Unix(_) => None,
        }
    }
}

impl AsyncRead for AdminStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Connection::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Connection::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for AdminStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Connection::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Connection::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Connection::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Connection::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Connection::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Connection::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

fn listen_unix(path: &Path, mode: u32) -> io::Result<StdUnixListener> {
    remove_if_stale(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file never has more permissions than these: it is made with those of the socket.
    fchmod(&socket, Mode::from_raw_mode(mode))?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    // The mask of the process may have taken some away.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn remove_if_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            let text = "the path belongs to something else than a socket";
            return Err(io::Error::new(ErrorKind::AlreadyExists, text));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        // Its process has ended: nobody listens.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(error),
        Ok(_) | Err(_) => {
            Err(io::Error::new(ErrorKind::AddrInUse, "another process listens there"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_of_a_process_that_has_ended_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin.sock");
        let live = listen_unix(&path, 0o600).unwrap();
        assert_eq!(listen_unix(&path, 0o600).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(live);
        assert!(path.exists(), "as a process leaves it that is killed");
        // A process that another test has just forked holds the socket until it runs its program.
        while UnixStream::connect(&path).is_ok() {
            std::thread::yield_now();
        }
        let _live = listen_unix(&path, 0o600).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn file_of_the_socket_has_the_permissions_that_were_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        for mode in [0o600, 0o660, 0o666] {
            let path = directory.path().join(format!("{mode:o}"));
            let _live = listen_unix(&path, mode).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
        }
    }

    #[test]
    fn file_that_is_no_socket_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes");
        fs::write(&path, "important").unwrap();
        assert_eq!(listen_unix(&path, 0o600).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"important");
    }
}
