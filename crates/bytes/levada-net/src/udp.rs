//! The UDP sockets of one address: two, of which this process reads one.
//!
//! While another process takes over, both receive packets of one address: the new one those that begin
//! connections, each of them those of its own connections. A program in the kernel steers packets by the first
//! bit of their connection id (QUIC: RFC 9000 Sec. 5.1, 17.2), which is the number of the socket. Each process
//! keeps both sockets open, so that their numbers stay, and the next process reads the other one.
//!
//! ```text
//!   process 1 reads socket 0, process 2 reads socket 1, process 3 reads socket 0 again
//! ```

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::{AsRawFd as _, OwnedFd},
};

use socket2::{Domain, Protocol, Socket, Type};

/// Bytes that wait at a socket, as far as the system allows (`net.core.rmem_max`, `net.core.wmem_max`).
pub const BUFFER: usize = 4 << 20;

/// See the module.
#[derive(Debug)]
pub struct UdpSockets {
    sockets: [UdpSocket; 2],
    number: usize,
    /// Whether another process has connections at the address.
    is_shared: bool,
}

impl UdpSockets {
    /// Takes an address.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let first = bind(address)?;
        let second = bind(first.local_addr()?)?;
        let sockets = Self { sockets: [first, second], number: 0, is_shared: false };
        sockets.steer(false)?;
        Ok(sockets)
    }

    /// The sockets that another process has bound, of which this one reads the one of this number.
    ///
    /// # Errors
    /// When there are not two.
    pub fn passed(sockets: Vec<OwnedFd>, number: usize) -> io::Result<Self> {
        let sockets: Vec<UdpSocket> = sockets.into_iter().map(UdpSocket::from).collect();
        let sockets =
            <[UdpSocket; 2]>::try_from(sockets).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Self { sockets, number: number & 1, is_shared: true })
    }

    /// The number of the socket that this process reads.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The number of the socket that the next process reads.
    pub fn next(&self) -> usize {
        1 - self.number
    }

    /// A copy of the socket that this process reads.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn socket(&self) -> io::Result<UdpSocket> {
        self.sockets[self.number].try_clone()
    }

    /// Copies of both, for the next process.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn copies(&self) -> io::Result<[OwnedFd; 2]> {
        let [first, second] = &self.sockets;
        Ok([first.try_clone()?.into(), second.try_clone()?.into()])
    }

    /// The address, with the port that was taken.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.sockets[0].local_addr()
    }

    /// Takes the packets that begin connections from now on, and those of the connections of the process before
    /// when it is `gone`. Returns errors only.
    ///
    /// # Errors
    /// When the system refuses.
    pub async fn take_over(&self, gone: impl Future<Output = ()>) -> io::Result<()> {
        self.steer(self.is_shared)?;
        gone.await;
        self.steer(false)?;
        std::future::pending().await
    }

    /// Has packets that begin connections come to this process; with `shared`, those of other connections to the
    /// process that has the connection, else all of them to this one.
    ///
    /// # Errors
    /// When the system refuses.
    fn steer(&self, shared: bool) -> io::Result<()> {
        let own = self.number as u32;
        match shared {
            true => attach(&self.sockets[0], &by_connection(own)),
            false => attach(&self.sockets[0], &[step(RETURN, 0, 0, own)]),
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    // The system gives what it allows.
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_send_buffer_size(BUFFER)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

const LOAD_BYTE: u16 = 0x30;
const LOAD_WORD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_SET: u16 = 0x45;
const RETURN: u16 = 0x06;
const RETURN_LOADED: u16 = 0x16;

/// A packet with a long header (RFC 9000 Sec. 17.2).
const LONG: u32 = 0x80;
const TYPE: u32 = 0x30;
const HANDSHAKE: u32 = 0x20;
const VERSION_1: u32 = 1;

fn step(code: u16, if_true: u8, if_false: u8, operand: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: if_true, jf: if_false, k: operand }
}

/// The number of the socket for a packet: `own` for one that begins a connection, else the first bit of its
/// connection id. That is the second byte of a packet, behind a long header the seventh.
fn by_connection(own: u32) -> [libc::sock_filter; 12] {
    [
        step(LOAD_BYTE, 0, 0, 0),
        step(JUMP_IF_SET, 0, 6, LONG),
        step(AND, 0, 0, TYPE),
        step(JUMP_IF_EQUAL, 0, 7, HANDSHAKE),
        step(LOAD_WORD, 0, 0, 1),
        step(JUMP_IF_EQUAL, 0, 5, VERSION_1),
        step(LOAD_BYTE, 0, 0, 6),
        step(JUMP, 0, 0, 1),
        step(LOAD_BYTE, 0, 0, 1),
        step(AND, 0, 0, 1),
        step(RETURN_LOADED, 0, 0, 0),
        step(RETURN, 0, 0, own),
    ]
}

/// Attaches a program to all sockets of the address.
fn attach(socket: &UdpSocket, program: &[libc::sock_filter]) -> io::Result<()> {
    let described =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies `len` instructions from `filter`, and `program` has as many; the descriptor is
    // open while the socket is borrowed.
    #[expect(unsafe_code)]
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const described).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    /// The socket that has received the packet.
    fn receiver(sockets: &UdpSockets, packet: &[u8]) -> usize {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(packet, sockets.address().unwrap()).unwrap();
        let mut bytes = [0; 64];
        for _ in 0..1000 {
            for (number, socket) in sockets.sockets.iter().enumerate() {
                if socket.recv(&mut bytes).is_ok_and(|length| bytes[..length] == *packet) {
                    return number;
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("nobody has received the packet");
    }

    #[test]
    fn packets_reach_the_process_of_their_connection_while_another_takes_over() {
        let old = UdpSockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let short = |bit: u8| [0x40, 0xf0 | bit, 1, 2, 3];
        let long =
            |first: u8, version: u8, bit: u8| [first, 0, 0, 0, version, 8, 0xf0 | bit, 1, 2, 3];
        assert_eq!(receiver(&old, &short(1)), 0, "alone");
        let new = UdpSockets::passed(old.copies().unwrap().into(), old.next()).unwrap();
        new.steer(true).unwrap();
        for bit in [0_u8, 1] {
            assert_eq!(receiver(&old, &short(bit)), usize::from(bit));
            assert_eq!(receiver(&old, &long(0xe0, 1, bit)), usize::from(bit), "handshake");
            assert_eq!(receiver(&old, &long(0xc0, 1, bit)), 1, "initial");
            assert_eq!(receiver(&old, &long(0xd0, 1, bit)), 1, "0-RTT");
            assert_eq!(receiver(&old, &long(0xe0, 9, bit)), 1, "another version");
        }
        drop(old);
        new.steer(false).unwrap();
        assert_eq!(receiver(&new, &short(0)), 1);
        let third = UdpSockets::passed(new.copies().unwrap().into(), new.next()).unwrap();
        third.steer(true).unwrap();
        assert_eq!(receiver(&third, &long(0xc0, 1, 1)), 0);
        assert_eq!(receiver(&third, &short(1)), 1);
    }
}
