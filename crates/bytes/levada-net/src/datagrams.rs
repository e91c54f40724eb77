//! Datagrams in batches: all that wait at a socket, up to a number, are received by one system call, and their
//! answers are sent by another one (recvmmsg, sendmmsg). Under load this halves the cost of a short answer.

#![allow(unsafe_code)]

use std::{
    io,
    mem::{self, MaybeUninit},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};

/// Datagrams that are received at once.
const BATCH: usize = 32;
/// The longest datagram that is received whole.
const LONGEST: usize = 4096;
/// Bytes for the address at which a datagram arrived.
const CONTROL: usize = 64;
/// How often a thread that waits for datagrams looks whether it is to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Opens a socket at an address that other sockets of this process share. Its reads end after a quarter of a second
/// without a datagram, and answers leave from the address at which the datagram arrived.
///
/// # Errors
/// When the system refuses.
pub fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if address.ip().is_unspecified() {
        let (level, option) = match address {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        };
        switch_on(&socket, level, option)?;
    }
    // The system may allow less.
    let _ = socket.set_recv_buffer_size(crate::udp::BUFFER);
    socket.set_read_timeout(Some(LOOK_INTERVAL))?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn switch_on(socket: &Socket, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is a number, which is alive during the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), size)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Room for the datagrams of one batch and for their answers.
pub struct Batch {
    slots: Vec<Slot>,
    /// The longest answer.
    answer: usize,
}

struct Slot {
    datagram: Box<[u8]>,
    answer: Box<[u8]>,
    sender: libc::sockaddr_storage,
    control: Control,
}

/// Control messages begin where the system wants them to.
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

impl Batch {
    /// Room for answers of up to `answer` bytes.
    pub fn new(answer: usize) -> Self {
        let slot = |_| Slot {
            datagram: vec![0; LONGEST].into(),
            answer: vec![0; answer].into(),
            // SAFETY: all zero is an address of no family.
            sender: unsafe { mem::zeroed() },
            control: Control([0; CONTROL]),
        };
        Self { slots: (0..BATCH).map(slot).collect(), answer }
    }

    /// The longest answer.
    pub fn longest_answer(&self) -> usize {
        self.answer
    }

    /// Waits for datagrams, passes each one to `answer` with its sender, and sends the answers. `answer` writes into
    /// the bytes that it gets, and returns their number, or `None` for no answer. Returns how many were received: 0
    /// when there was none for a quarter of a second.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn turn(
        &mut self,
        socket: &UdpSocket,
        mut answer: impl FnMut(&[u8], SocketAddr, &mut [u8]) -> Option<usize>,
    ) -> io::Result<usize> {
        let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
        let mut heads = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
        for ((slot, piece), head) in self.slots.iter_mut().zip(&mut pieces).zip(&mut heads) {
            let piece = piece.write(libc::iovec {
                iov_base: slot.datagram.as_mut_ptr().cast(),
                iov_len: slot.datagram.len(),
            });
            head.write(slot_head(&mut slot.sender, &mut slot.control, piece));
        }
        // SAFETY: all heads are written, and point to buffers of the slots and to pieces, which are alive and are not
        // used otherwise during the call.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                heads.as_mut_ptr().cast(),
                BATCH as libc::c_uint,
                libc::MSG_WAITFORONE as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(received) = usize::try_from(received) else {
            return silence(io::Error::last_os_error());
        };
        let mut answers = 0;
        for at in 0..received {
            // SAFETY: the system has filled in this head.
            let head = unsafe { heads[at].assume_init_ref() };
            let (length, control) = (head.msg_len as usize, head.msg_hdr.msg_controllen);
            let (whole, name) =
                (head.msg_hdr.msg_flags & libc::MSG_TRUNC == 0, head.msg_hdr.msg_namelen);
            let slot = &mut self.slots[at];
            let Some(sender) = address(&slot.sender).filter(|_| whole) else { continue };
            let Some(length) = answer(&slot.datagram[..length], sender, &mut slot.answer) else {
                continue;
            };
            // It has another type with musl.
            #[allow(clippy::unnecessary_cast)]
            from_any_interface(&mut slot.control.0, control as usize);
            let piece = pieces[answers].write(libc::iovec {
                iov_base: slot.answer.as_mut_ptr().cast(),
                iov_len: length.min(slot.answer.len()),
            });
            let mut head = slot_head(&mut slot.sender, &mut slot.control, piece);
            head.msg_hdr.msg_namelen = name;
            head.msg_hdr.msg_controllen = control;
            if control == 0 {
                head.msg_hdr.msg_control = std::ptr::null_mut();
            }
            // At or before the one that was just read.
            heads[answers].write(head);
            answers += 1;
        }
        let mut sent = 0;
        while sent < answers {
            // SAFETY: the first `answers` heads are written, and point to buffers of the slots and to pieces, which are
            // alive and are not used otherwise during the call.
            let more = unsafe {
                let first = heads.as_mut_ptr().add(sent).cast();
                libc::sendmmsg(socket.as_raw_fd(), first, (answers - sent) as libc::c_uint, 0)
            };
            // One that cannot be sent, because its client cannot be reached, is left out.
            sent += usize::try_from(more).unwrap_or(1).max(1);
        }
        Ok(received)
    }
}

/// No datagram in time is no failure.
fn silence(error: io::Error) -> io::Result<usize> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(0),
        // An answer before met a closed port.
        io::ErrorKind::ConnectionRefused => Ok(0),
        _ => Err(error),
    }
}

fn slot_head(
    sender: &mut libc::sockaddr_storage,
    control: &mut Control,
    piece: &mut libc::iovec,
) -> libc::mmsghdr {
    // SAFETY: all zero is a head without buffers.
    let mut head: libc::mmsghdr = unsafe { mem::zeroed() };
    head.msg_hdr.msg_name = (&raw mut *sender).cast();
    head.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    head.msg_hdr.msg_iov = piece;
    head.msg_hdr.msg_iovlen = 1;
    head.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
    head.msg_hdr.msg_controllen = CONTROL as _;
    head
}

fn address(of: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let pointer = &raw const *of;
    match i32::from(of.ss_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family is a `sockaddr_in`, for which a storage has room and alignment.
            let v4 = unsafe { &*pointer.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family is a `sockaddr_in6`, for which a storage has room and alignment.
            let v6 = unsafe { &*pointer.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddr::new(IpAddr::V6(ip), u16::from_be(v6.sin6_port)))
        }
        _ => None,
    }
}

/// An answer leaves from the address at which the query arrived, over the interface that the routes choose: the first
/// number of IP_PKTINFO, and the last one of IPV6_PKTINFO, is that of the interface.
fn from_any_interface(control: &mut [u8; CONTROL], length: usize) {
    const HEAD: usize = size_of::<libc::cmsghdr>();
    let (v4, v6) = (size_of::<libc::in_pktinfo>(), size_of::<libc::in6_pktinfo>());
    if length < HEAD + v4 {
        return;
    }
    let word = |at: usize| {
        i32::from_ne_bytes([control[at], control[at + 1], control[at + 2], control[at + 3]])
    };
    let place = size_of::<libc::size_t>();
    let at = match (word(place), word(place + 4)) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => HEAD,
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if length >= HEAD + v6 => HEAD + v6 - 4,
        _ => return,
    };
    control[at..at + 4].fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_from_the_address_that_was_asked() {
        for (listen, ask) in
            [("127.0.0.1:0", "127.0.0.1"), ("0.0.0.0:0", "127.0.0.2"), ("[::]:0", "::1")]
        {
            let socket = bind(listen.parse().unwrap()).unwrap();
            let server = SocketAddr::new(ask.parse().unwrap(), socket.local_addr().unwrap().port());
            let any = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
            let client = UdpSocket::bind(any).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut batch = Batch::new(512);
            for number in 0..40u8 {
                client.send_to(&[number, 1], server).unwrap();
            }
            let mut received = 0;
            while received < 40 {
                let from = client.local_addr().unwrap();
                received += batch
                    .turn(&socket, |datagram, sender, answer| {
                        assert_eq!(sender, from);
                        answer[0] = datagram[0];
                        (datagram[0] % 2 == 0).then_some(1)
                    })
                    .unwrap();
            }
            let mut answers = Vec::new();
            for _ in 0..20 {
                let mut bytes = [0; 8];
                let (length, from) = client.recv_from(&mut bytes).unwrap();
                assert_eq!((length, from), (1, server));
                answers.push(bytes[0]);
            }
            assert_eq!(answers, (0..40).step_by(2).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn silence_ends_a_turn() {
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_eq!(Batch::new(512).turn(&socket, |_, _, _| None).unwrap(), 0);
    }
}
