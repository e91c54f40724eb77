//! Extracting a connection from its socket, and restoring it into a new one.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    os::fd::AsFd,
};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::{Connection, Window, state::is_end};
use crate::{
    bpf::{InputBlocker, unblock_input},
    tcp,
};

/// Checks whether this process may use `TCP_REPAIR`.
///
/// # Errors
/// Without the capability NET_ADMIN.
pub fn is_possible() -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    set(&socket, REPAIR, ON)
}

/// The reason why a connection cannot be moved now.
#[derive(Debug, thiserror::Error)]
pub enum NotMovable {
    /// Received data was not read.
    #[error("received data was not read")]
    Unread,
    /// Any other reason.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The two addresses of a connection, ours first.
///
/// # Errors
/// When it is not a TCP connection, or the addresses are link-local.
pub fn ends(socket: &impl AsFd) -> io::Result<(SocketAddr, SocketAddr)> {
    let socket = SockRef::from(socket);
    let known = |address: socket2::SockAddr| address.as_socket().ok_or_else(|| refuse("not of IP"));
    between(known(socket.local_addr()?)?, known(socket.peer_addr()?)?)
}

/// The same for known addresses.
///
/// # Errors
/// When they are link-local.
pub fn between(service: SocketAddr, client: SocketAddr) -> io::Result<(SocketAddr, SocketAddr)> {
    Ok((end(service)?, end(client)?))
}

/// Extracts the state of a connection with these [`ends`]. Closing the socket then sends nothing to
/// the client. [`undo_extract`] undoes this.
///
/// The socket's input must be blocked before ([`InputBlocker`]), or data that arrives
/// meanwhile is lost. If the caller has read all data that was ever read from the socket, it can
/// pass its length in `read`, which saves a system call.
///
/// # Errors
/// When it cannot be moved now: unread data, data in flight, or an end that was already sent. The
/// socket then stays as it was.
pub fn extract(
    socket: &impl AsFd,
    ends: (SocketAddr, SocketAddr),
    read: Option<u64>,
) -> Result<Connection, NotMovable> {
    set(socket, REPAIR, ON)?;
    let read = read_off(socket, ends, read);
    if read.is_err() {
        undo_extract(socket)?;
    }
    read
}

/// Turns an extracted socket into an ordinary one again.
///
/// # Errors
/// When it is no longer an extracted socket.
pub fn undo_extract(socket: &impl AsFd) -> io::Result<()> {
    set(socket, REPAIR, OFF_WITHOUT_PROBE)
}

fn read_off(
    socket: &impl AsFd,
    (service, client): (SocketAddr, SocketAddr),
    read: Option<u64>,
) -> Result<Connection, NotMovable> {
    let mut info = [0; 232];
    get(socket, libc::TCP_INFO, &mut info)?;
    if info[STATE] != ESTABLISHED {
        return Err(refuse("one side has closed it").into());
    }
    if word(&info, UNACKED) != 0 || word(&info, UNSENT) != 0 {
        return Err(refuse("data is in flight").into());
    }
    let unread = match read {
        Some(read) => double_word(&info, RECEIVED) - read.min(double_word(&info, RECEIVED)),
        None => rustix::io::ioctl_fionread(socket).map_err(io::Error::from)?,
    };
    if unread != 0 {
        return Err(NotMovable::Unread);
    }
    set(socket, REPAIR_QUEUE, SEND_QUEUE)?;
    let send_next = get_word(socket, QUEUE_SEQ)?;
    set(socket, REPAIR_QUEUE, RECEIVE_QUEUE)?;
    let receive_next = get_word(socket, QUEUE_SEQ)?;
    let mut window = [0; 20];
    get(socket, REPAIR_WINDOW, &mut window)?;
    let options = info[OPTIONS];
    let has = |option: u8| options & option != 0;
    let timestamp = match has(TIMESTAMPS) {
        true => Some(get_word(socket, TIMESTAMP)?),
        false => None,
    };
    let largest = word(&window, 8);
    // The payload of a segment with its options; less if windows are small.
    let used = word(&info, SEGMENT) + if timestamp.is_some() { TIMESTAMPS_LENGTH } else { 0 };
    let segment = match largest >= 4 * used {
        true => used,
        false => get_word(socket, libc::TCP_MAXSEG)?,
    };
    Ok(Connection {
        service,
        client,
        send_next,
        receive_next,
        segment: u16::try_from(segment).unwrap_or(u16::MAX),
        // Two halves of a byte; the bit order of the machine decides which is which.
        scale: has(SCALED).then_some(match cfg!(target_endian = "little") {
            true => (info[SCALES] & 15, info[SCALES] >> 4),
            false => (info[SCALES] >> 4, info[SCALES] & 15),
        }),
        sack: has(SACK),
        timestamp,
        window: Window {
            updated_at: word(&window, 0),
            send: word(&window, 4),
            largest,
            receive: word(&window, 12),
            told_at: word(&window, 16),
        },
    })
}

/// Creates the connection's socket on this machine: established without a packet, and silent until
/// it is [activated](activate). If it is closed before that, no packet is ever sent, and nothing that the client
/// sends meanwhile is lost: the client sends it again. It is non-blocking, and cannot be read yet.
///
/// # Errors
/// When the address does not belong to this machine, the connection exists here already (or was
/// closed here a moment ago), or without the capability.
pub fn restore(connection: &Connection, input_blocker: &InputBlocker) -> io::Result<TcpStream> {
    let domain = Domain::for_address(connection.service);
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    // The kernel answers packets even in repair mode: at first by a clock that is not the connection's, so that
    // the client would drop all later answers as older (RFC 7323 Sec. 5), and later it acknowledges bytes that are
    // lost if the connection goes elsewhere.
    input_blocker.block_input(&socket)?;
    // Repair mode allows it to bind to an address on which others listen; SO_REUSEADDR would end
    // that.
    set(&socket, REPAIR, ON)?;
    socket.bind(&connection.service.into())?;
    // Sequence numbers can be set only before it is connected.
    for (queue, next) in
        [(SEND_QUEUE, connection.send_next), (RECEIVE_QUEUE, connection.receive_next)]
    {
        set(&socket, REPAIR_QUEUE, queue)?;
        set(&socket, QUEUE_SEQ, next)?;
    }
    // The kernel ignores the option below until the path changes, so that segments would have the
    // default size until then.
    if connection.segment >= LEAST_SEGMENT {
        set(&socket, libc::TCP_MAXSEG, connection.segment.into())?;
    }
    socket.connect(&connection.client.into())?;
    let mut options = Vec::with_capacity(4);
    options.push([SEGMENT_OPTION, connection.segment.into()]);
    // A scale of zero where none was negotiated: the kernel has chosen one for a connection that it opens
    // itself, and would divide our window by it.
    let (send, receive) = connection.scale.unwrap_or_default();
    options.push([SCALE_OPTION, u32::from(send) | u32::from(receive) << 16]);
    if connection.sack {
        options.push([SACK_OPTION, 0]);
    }
    if connection.timestamp.is_some() {
        options.push([TIMESTAMP_OPTION, 0]);
    }
    put(&socket, REPAIR_OPTIONS, &bytes_of(options.as_flattened()))?;
    if let Some(timestamp) = connection.timestamp {
        set(&socket, TIMESTAMP, timestamp)?;
    }
    let Window { updated_at, send, largest, receive, told_at } = connection.window;
    put(&socket, REPAIR_WINDOW, &bytes_of(&[updated_at, send, largest, receive, told_at]))?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// Activates a restored connection.
///
/// # Errors
/// When the socket is not usable.
pub fn activate(socket: &impl AsFd) -> io::Result<()> {
    unblock_input(socket)?;
    set(socket, REPAIR, OFF_WITHOUT_PROBE)
}

// Constants of linux/tcp.h; libc does not have all of them for every architecture.
const REPAIR: i32 = 19;
const REPAIR_QUEUE: i32 = 20;
const QUEUE_SEQ: i32 = 21;
const REPAIR_OPTIONS: i32 = 22;
const TIMESTAMP: i32 = 24;
const REPAIR_WINDOW: i32 = 29;

const ON: u32 = 1;
/// Switches repair mode off without a window probe to the client.
const OFF_WITHOUT_PROBE: u32 = u32::MAX;
/// The smallest segment size that can be set.
const LEAST_SEGMENT: u16 = 88;
const RECEIVE_QUEUE: u32 = 1;
const SEND_QUEUE: u32 = 2;

// The kinds of TCP options (RFC 9293 Sec. 3.1, RFC 7323, RFC 2018).
const SEGMENT_OPTION: u32 = 2;
const SCALE_OPTION: u32 = 3;
const SACK_OPTION: u32 = 4;
const TIMESTAMP_OPTION: u32 = 8;

// Offsets within `struct tcp_info`, and values there.
const STATE: usize = 0;
const OPTIONS: usize = 5;
const SCALES: usize = 6;
const SEGMENT: usize = 16;
const UNACKED: usize = 24;
const RECEIVED: usize = 128;
const UNSENT: usize = 144;
const ESTABLISHED: u8 = 1;
const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const SCALED: u8 = 4;
/// With padding.
const TIMESTAMPS_LENGTH: u32 = 12;

fn refuse(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// The address without its parts that are local to this machine. A dual-stack listener sees IPv4
/// addresses within IPv6.
fn end(address: SocketAddr) -> io::Result<SocketAddr> {
    let ip = address.ip().to_canonical();
    match is_end(ip) {
        true => Ok(SocketAddr::new(ip, address.port())),
        false => Err(refuse("a connection with a link-local address cannot be moved")),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn double_word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn set(socket: &impl AsFd, option: i32, value: u32) -> io::Result<()> {
    put(socket, option, &value.to_ne_bytes())
}

fn get_word(socket: &impl AsFd, option: i32) -> io::Result<u32> {
    let mut bytes = [0; 4];
    get(socket, option, &mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}

fn put(socket: &impl AsFd, option: i32, value: &[u8]) -> io::Result<()> {
    tcp::put(socket, libc::IPPROTO_TCP, option, value)
}

fn get(socket: &impl AsFd, option: i32, value: &mut [u8]) -> io::Result<()> {
    tcp::get(socket, libc::IPPROTO_TCP, option, value)
}
