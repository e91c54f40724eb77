//! The state of a TCP connection, and socket options.

use std::{io, os::fd::AsFd, time::Duration};

use socket2::SockRef;

/// The kernel's state of a connection: a part of Linux' `struct tcp_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Whether it is closed, by a reset or by both sides.
    pub closed: bool,
    /// Whether neither side has ended it.
    pub established: bool,
    /// The size of a full segment in bytes.
    pub segment: u32,
    /// Consecutive timeout retransmissions without progress.
    pub retransmits: u8,
    /// Consecutive unanswered window probes.
    pub probes: u8,
    /// How often the timeout was doubled.
    pub backoff: u8,
    /// The current timeout, including doublings.
    pub timeout: Duration,
    /// Segments that are sent and not acknowledged.
    pub unacked: u32,
    /// The time since data was last sent or retransmitted.
    pub last_sent: Duration,
    /// The time since the last acknowledgement of any kind.
    pub last_ack: Duration,
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// The variation of the round-trip time (RFC 6298: `RTTVAR`).
    pub rtt_deviation: Duration,
    /// The total number of retransmitted segments.
    pub retransmitted: u32,
    /// The bytes that wait to be sent.
    pub unsent: u32,
    /// The bytes that were acknowledged since the connection began.
    pub acknowledged: u64,
}

impl TcpInfo {
    /// Reads it from the kernel.
    ///
    /// # Errors
    /// When it is not a TCP socket, or not on Linux.
    #[cfg(target_os = "linux")]
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let mut bytes = [0u8; 256];
        get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
        Ok(Self::read(&bytes))
    }

    /// Reads it from the kernel.
    ///
    /// # Errors
    /// Always: this system does not provide it.
    #[cfg(not(target_os = "linux"))]
    pub fn of(_socket: &impl AsFd) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Parses the structure by its offsets, which Linux never changes: it only appends fields.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code))]
    fn read(bytes: &[u8; 256]) -> Self {
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| {
            let mut long = [0; 8];
            long.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(long)
        };
        const ESTABLISHED: u8 = 1;
        const CLOSE: u8 = 7;
        Self {
            closed: bytes[0] == CLOSE,
            established: bytes[0] == ESTABLISHED,
            segment: word(16),
            retransmits: bytes[2],
            probes: bytes[3],
            backoff: bytes[4],
            timeout: Duration::from_micros(word(8).into()),
            unacked: word(24),
            last_sent: Duration::from_millis(word(44).into()),
            last_ack: Duration::from_millis(word(56).into()),
            rtt: Duration::from_micros(word(68).into()),
            rtt_deviation: Duration::from_micros(word(72).into()),
            retransmitted: word(100),
            unsent: word(144),
            acknowledged: long(120),
        }
    }
}

/// Makes the next close send a reset: unacknowledged data is discarded, and the peer learns at once
/// that no more will come.
///
/// # Errors
/// When the socket is not usable.
pub fn reset_on_close(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_linger(Some(Duration::ZERO))
}

/// Sends a segment without data that the peer must acknowledge, whatever the windows are. Linux does so when it
/// takes an established connection out of repair mode. It is in that mode for some microseconds: sending fails
/// by EINVAL then, and receiving by EPERM.
///
/// # Errors
/// Without the capability NET_ADMIN, and not on Linux.
#[cfg(target_os = "linux")]
pub fn probe(socket: &impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, 1)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, 0)?;
    // The mode has reset this option, and others may have to bind the same port.
    SockRef::from(socket).set_reuse_address(true)
}

/// Does nothing on this system.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn probe(_socket: &impl AsFd) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Sets TCP_RTO_MAX_MS (Linux 6.15): the longest timeout, whatever the number of retransmissions.
///
/// # Errors
/// When the kernel refuses.
#[cfg(target_os = "linux")]
pub fn limit_timeout(socket: &impl AsFd, most: Duration) -> io::Result<()> {
    const TCP_RTO_MAX_MS: libc::c_int = 44;
    let most = most.as_millis().try_into().map_err(io::Error::other)?;
    set(socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, most)
}

/// Does nothing on this system.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn limit_timeout(_socket: &impl AsFd, _most: Duration) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Sets TCP_NOTSENT_LOWAT, which accepted connections inherit from their listener: bytes that cannot be sent
/// yet stay with the writer, except for about this many.
///
/// # Errors
/// When the socket is not usable.
#[cfg(target_os = "linux")]
pub fn limit_unsent(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    SockRef::from(socket).set_tcp_notsent_lowat(bytes)
}

/// Does nothing on this system.
///
/// # Errors
/// Never.
#[cfg(not(target_os = "linux"))]
pub fn limit_unsent(_socket: &impl AsFd, _bytes: u32) -> io::Result<()> {
    Ok(())
}

/// Sets TCP_DEFER_ACCEPT: a listener's connections stay in the kernel until their clients have sent
/// data, for a few seconds at most.
///
/// # Errors
/// When it is not a listener.
#[cfg(target_os = "linux")]
pub fn accept_with_data(listener: &impl AsFd) -> io::Result<()> {
    const SECONDS: libc::c_int = 3;
    set(listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, SECONDS)
}

/// Sets SO_RCVLOWAT: readable only after `bytes` bytes or at end of stream.
///
/// # Errors
/// When the kernel refuses.
#[cfg(target_os = "linux")]
pub fn set_receive_low_water_mark(socket: &impl AsFd, bytes: u16) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes.into())
}

#[cfg(target_os = "linux")]
fn set(socket: &impl AsFd, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
    put(socket, level, option, &value.to_ne_bytes())
}

/// Sets an option of a socket whose value has no pointers.
#[cfg(target_os = "linux")]
pub(crate) fn put(socket: &impl AsFd, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;

    // SAFETY: the kernel reads `value` with its own length; the descriptor is open while it is
    // borrowed.
    #[expect(unsafe_code)]
    let status = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option of a socket.
#[cfg(target_os = "linux")]
pub(crate) fn get(socket: &impl AsFd, level: i32, option: i32, value: &mut [u8]) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;

    let mut length = value.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`, which is that large; the
    // descriptor is open while it is borrowed.
    #[expect(unsafe_code)]
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
    };

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn a_connection_without_outstanding_data_says_so() {
        let (mut client, mut server) = pair();
        server.write_all(b"word").unwrap();
        client.read_exact(&mut [0; 4]).unwrap();
        client.write_all(b"answer").unwrap();
        server.read_exact(&mut [0; 6]).unwrap();
        let info = TcpInfo::of(&server).unwrap();
        assert_eq!((info.unacked, info.retransmits, info.retransmitted), (0, 0, 0));
        assert_eq!(info.acknowledged, 4);
        assert!(info.timeout >= Duration::from_millis(1), "{info:?}");
        assert!(info.last_ack < Duration::from_secs(60), "{info:?}");
    }

    #[test]
    fn a_reader_that_stands_still_is_sent_little_more_than_the_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        limit_unsent(&listener, 64 << 10).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        server.set_nonblocking(true).unwrap();
        let piece = [0; 16 << 10];
        while server.write(&piece).is_ok() {}
        let unsent = TcpInfo::of(&server).unwrap().unsent;
        assert!(unsent > 0 && unsent <= 160 << 10, "{unsent}");
    }

    #[test]
    fn the_other_side_learns_of_a_reset() {
        let (mut client, server) = pair();
        reset_on_close(&server).unwrap();
        drop(server);
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
