//! Lines to a syslog daemon: by RFC 5424 over UDP (RFC 5426) and TCP (RFC 6587, octet counting), and to the
//! daemon of this machine in the form that `syslog(3)` sends.

use std::{
    fmt,
    io::{self, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket},
    os::unix::net::UnixDatagram,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use crate::log::{output::Written, timestamp::iso_time};

/// A syslog daemon, and the place of lines in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syslog {
    /// The way to the daemon.
    pub transport: SyslogTransport,
    /// The position in [`FACILITIES`].
    pub facility: usize,
    /// The name of the node.
    pub node: String,
}

/// The way to a syslog daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogTransport {
    /// A socket of this machine for datagrams.
    Unix(PathBuf),
    /// Datagrams to a host and a port.
    Udp(String),
    /// A connection to a host and a port.
    Tcp(String),
}

/// The facilities in the order of their numbers (RFC 5424, Sec. 6.2.1).
pub const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];

/// Severity `info`.
const INFO: usize = 6;
/// The time after which a server that takes nothing is given up.
const SERVER_TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes that are sent by one call.
const BATCH: usize = 16 << 10;

/// A text is not a way to a daemon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be \"syslog\", or \"syslog:\" and unix:PATH, udp:HOST:PORT or tcp:HOST:PORT, such as \
     \"syslog:udp://10.0.0.9:514\""
)]
pub struct TransportError;

impl std::str::FromStr for SyslogTransport {
    type Err = TransportError;

    fn from_str(text: &str) -> Result<Self, TransportError> {
        if text == "syslog" {
            return Ok(Self::Unix("/dev/log".into()));
        }
        let (kind, place) =
            text.strip_prefix("syslog:").and_then(|t| t.split_once(':')).ok_or(TransportError)?;
        let host_and_port = || {
            let place = place.strip_prefix("//").unwrap_or(place);
            let (host, port) = place.rsplit_once(':')?;
            let host_is_one = match host.strip_prefix('[') {
                Some(address) => address.ends_with(']'),
                None => !host.contains([':', '/', ' ']),
            };
            let is_one = !host.is_empty() && host_is_one && port.parse().is_ok_and(|p: u16| p > 0);
            is_one.then(|| place.to_owned())
        };
        match kind {
            "unix" if place.starts_with('/') => Ok(Self::Unix(place.into())),
            "udp" => host_and_port().map(Self::Udp).ok_or(TransportError),
            "tcp" => host_and_port().map(Self::Tcp).ok_or(TransportError),
            _ => Err(TransportError),
        }
    }
}

impl fmt::Display for Syslog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.transport {
            SyslogTransport::Unix(path) => write!(f, "syslog at {}", path.display()),
            SyslogTransport::Udp(place) => write!(f, "syslog at {place} over UDP"),
            SyslogTransport::Tcp(place) => write!(f, "syslog at {place} over TCP"),
        }
    }
}

impl Syslog {
    fn priority(&self) -> usize {
        self.facility * 8 + INFO
    }

    /// The beginning of each message.
    fn head(&self) -> String {
        let (priority, process) = (self.priority(), std::process::id());
        match self.transport {
            // Local daemons know the time and the host.
            SyslogTransport::Unix(_) => format!("<{priority}>levada[{process}]: "),
            _ => {
                let is_allowed = |c: &char| c.is_ascii_graphic();
                let node: String = self.node.chars().filter(is_allowed).take(255).collect();
                let node = if node.is_empty() { "-".to_owned() } else { node };
                let time = iso_time(SystemTime::now());
                format!("<{priority}>1 {time} {node} levada {process} access - ")
            }
        }
    }
}

/// A connection to a daemon that is made when there are lines.
pub(crate) struct SyslogClient {
    target: Syslog,
    connection: Option<Connection>,
}

enum Connection {
    Unix(UnixDatagram),
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl SyslogClient {
    pub(crate) fn new(target: Syslog) -> Self {
        Self { target, connection: None }
    }

    /// Sends lines. After a failure, the rest may be sent again.
    pub(crate) fn write(&mut self, lines: &[u8]) -> Written {
        let head = self.target.head();
        let (mut bytes, mut lost) = (0, 0);
        let result = loop {
            if bytes == lines.len() {
                break Ok(());
            }
            let connection = match self.connected() {
                Ok(connection) => connection,
                Err(error) => break Err(error),
            };
            let sent = connection.send(&head, &lines[bytes..]);
            bytes += sent.bytes;
            lost += sent.lost;
            if let Err(error) = sent.result {
                self.connection = None;
                break Err(error);
            }
        };
        Written { bytes, lost, result }
    }

    fn connected(&mut self) -> io::Result<&mut Connection> {
        self.connection.take_if(|connection| connection.is_closed());
        match &mut self.connection {
            Some(connection) => Ok(connection),
            empty => Ok(empty.insert(Connection::open(&self.target.transport)?)),
        }
    }
}

impl Connection {
    fn open(transport: &SyslogTransport) -> io::Result<Self> {
        match transport {
            SyslogTransport::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_write_timeout(Some(SERVER_TIMEOUT))?;
                Ok(Self::Unix(socket))
            }
            SyslogTransport::Udp(place) => first_of(place, |address| {
                let any: SocketAddr = match address {
                    SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
                    SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                socket.set_write_timeout(Some(SERVER_TIMEOUT))?;
                Ok(Self::Udp(socket))
            }),
            SyslogTransport::Tcp(place) => first_of(place, |address| {
                let stream = TcpStream::connect_timeout(&address, SERVER_TIMEOUT)?;
                stream.set_write_timeout(Some(SERVER_TIMEOUT))?;
                Ok(Self::Tcp(stream))
            }),
        }
    }

    /// Whether the server has closed the connection. A write would succeed once more, and its lines be lost.
    fn is_closed(&self) -> bool {
        let Self::Tcp(stream) = self else { return false };
        let look = || {
            stream.set_nonblocking(true)?;
            let seen = stream.peek(&mut [0]);
            stream.set_nonblocking(false)?;
            seen
        };
        match look() {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Sends a part of the lines, at least one.
    fn send(&mut self, head: &str, lines: &[u8]) -> Written {
        let end = |from: usize| {
            let rest = lines[from..].iter().position(|byte| *byte == b'\n');
            rest.map_or(lines.len(), |at| from + at + 1)
        };
        match self {
            Self::Unix(socket) => {
                let (bytes, message) = one_message(head, &lines[..end(0)]);
                datagram(bytes, socket.send(&message))
            }
            Self::Udp(socket) => {
                let (bytes, message) = one_message(head, &lines[..end(0)]);
                // An error of the network is about a datagram before this one: nothing tells which.
                match socket.send(&message) {
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        Written { bytes, lost: 1, result: Ok(()) }
                    }
                    sent => datagram(bytes, sent),
                }
            }
            Self::Tcp(stream) => {
                let (mut frames, mut ends) = (Vec::new(), Vec::new());
                let mut bytes = 0;
                while bytes < lines.len() && frames.len() < BATCH {
                    let (taken, message) = one_message(head, &lines[bytes..end(bytes)]);
                    frames.extend_from_slice(format!("{} ", message.len()).as_bytes());
                    frames.extend_from_slice(&message);
                    bytes += taken;
                    ends.push((frames.len(), bytes));
                }
                let (sent, result) = write_counted(stream, &frames);
                let whole = ends.iter().rfind(|(end, _)| *end <= sent);
                Written { bytes: whole.map_or(0, |(_, bytes)| *bytes), lost: 0, result }
            }
        }
    }
}

/// The message of one line, and the bytes of the line with its end.
fn one_message(head: &str, line: &[u8]) -> (usize, Vec<u8>) {
    (line.len(), [head.as_bytes(), line.strip_suffix(b"\n").unwrap_or(line)].concat())
}

/// The result of sending a datagram. One that is too long can never be sent.
fn datagram(bytes: usize, sent: io::Result<usize>) -> Written {
    match sent {
        Ok(_) => Written { bytes, lost: 0, result: Ok(()) },
        Err(error) if error.raw_os_error() == Some(EMSGSIZE) => {
            Written { bytes, lost: 1, result: Ok(()) }
        }
        Err(error) => Written { bytes: 0, lost: 0, result: Err(error) },
    }
}

/// "Message too long", which [`io::ErrorKind`] has no name for.
const EMSGSIZE: i32 = if cfg!(target_os = "linux") { 90 } else { 40 };

fn write_counted(out: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut done = 0;
    while done < bytes.len() {
        match out.write(&bytes[done..]) {
            Ok(0) => return (done, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (done, Err(error)),
        }
    }
    (done, Ok(()))
}

/// Opens a connection to the first address of `place` that lets it.
fn first_of<T>(place: &str, open: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{place} has no address"));
    for address in place.to_socket_addrs()? {
        match open(address) {
            Ok(opened) => return Ok(opened),
            Err(error) => last = error,
        }
    }
    Err(last)
}
