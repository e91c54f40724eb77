//! Listening sockets, which take their address before they listen.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::tcp;

/// The most connections that wait in the kernel to be accepted.
const BACKLOG: i32 = 4096;

/// The wait before the next connection is accepted after one that failed. The usual cause is a lack of file
/// descriptors, which passes when connections end.
pub const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Bytes of a connection that the system holds while it cannot send them. Without this bound they are
/// megabytes, and copying them for a thousand readers that stand still delays the next client.
const UNSENT: u32 = 128 << 10;

/// Takes an address without listening on it yet: connections are refused. With `share`, several sockets
/// may listen on one address, and the kernel spreads the connections over them.
pub fn bind(address: SocketAddr, share: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if share {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    // Accepted connections inherit these options.
    socket.set_tcp_nodelay(true)?;
    tcp::limit_unsent(&socket, UNSENT)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Listens on the address that was taken.
pub fn listen(listener: &TcpListener) -> io::Result<()> {
    SockRef::from(listener).listen(BACKLOG)
}

/// Gives a listening socket that another program has opened the properties of those from [`bind`].
pub fn adopt(listener: &TcpListener) -> io::Result<()> {
    let socket = SockRef::from(listener);
    if !socket.is_listener()? {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    tcp::limit_unsent(listener, UNSENT)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::net::TcpStream;

    use super::*;
    use crate::incoming::Incoming;

    #[tokio::test]
    async fn connections_do_not_wait_to_fill_segments() {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).unwrap();
        listen(&listener).unwrap();
        let address = listener.local_addr().unwrap();
        let incoming = Incoming::new(listener, Arc::default()).unwrap();
        let _client = TcpStream::connect(address).await.unwrap();
        let (stream, _) = incoming.accept(|| ()).await.unwrap();
        assert!(stream.nodelay().unwrap());
    }
}
