//! The user whose process has the other end of a TCP connection within this machine.

use std::net::SocketAddr;

use crate::netlink::Netlink;

/// Whether the process at the other end of a connection within this machine runs as root or as the user of this
/// process. The connection must still be open there.
pub fn is_own(client: SocketAddr, server: SocketAddr) -> bool {
    let own = rustix::process::geteuid().as_raw();
    user(client, server).is_some_and(|user| user == 0 || user == own)
}

/// The user of the process that has the socket at `client`, connected to `server`.
///
/// Older kernels show root as the user of a socket that its process has just closed. A socket never comes back
/// from that state, so that a second look in which it is open confirms the first.
fn user(client: SocketAddr, server: SocketAddr) -> Option<u32> {
    let mut netlink = Netlink::of_sockets().ok()?;
    let mut look = || netlink.owner(client, server).ok();
    look().filter(|user| look() == Some(*user))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connection_is_of_the_user_of_its_process_while_that_has_it() {
        for (listens, connects) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
            ("127.0.0.1:0", "::ffff:127.0.0.1"),
        ] {
            let Ok(listener) = TcpListener::bind(listens) else { continue };
            let to = (connects.parse::<IpAddr>().unwrap(), listener.local_addr().unwrap().port());
            let client = TcpStream::connect(to).unwrap();
            let (server, from) = listener.accept().unwrap();
            let own = rustix::process::geteuid().as_raw();
            let here = server.local_addr().unwrap();
            assert_eq!(user(from, here), Some(own), "{listens} {connects}");
            assert!(is_own(from, here));
            let other = SocketAddr::new(from.ip(), here.port());
            assert_eq!(user(other, here), None, "a listener is no connection");
            drop(client);
            assert_eq!(user(from, here), None, "no process has the other end");
        }
    }
}
