//! The state of a connection and its encoding.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The state of a connection without its socket: parameters that both sides agreed on, and their
/// progress. Values that a kernel learns by itself (round-trip times, congestion) are not moved.
///
/// ```text
///  0 version    1 options   2 send scale  3 receive scale
///  4 service address       20 client address                              (16 each)
/// 36 service port          38 client port
/// 40 next sequence number to send        44 next one to receive
/// 48 timestamp clock       52 largest segment   54 zero
/// 56 window: last update, to send, largest, to receive, last advertised        (5 x 4)
/// ```
/// Numbers are in network byte order; IPv4 addresses are mapped to IPv6 (RFC 4291 Sec. 2.5.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Our address: the one that the client connected to.
    pub service: SocketAddr,
    /// The client's address, of the same IP version.
    pub client: SocketAddr,
    /// The sequence number of the next byte that is sent.
    pub send_next: u32,
    /// The sequence number of the next byte that is expected.
    pub receive_next: u32,
    /// The largest segment that the client accepts.
    pub segment: u16,
    /// The window scales of the client and of us, if they were negotiated.
    pub scale: Option<(u8, u8)>,
    /// Whether selective acknowledgements were negotiated.
    pub sack: bool,
    /// The value of our timestamp clock, if timestamps were negotiated.
    pub timestamp: Option<u32>,
    /// The windows of both sides.
    pub window: Window,
}

/// Linux' `struct tcp_repair_window`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The sequence number of the segment that last moved the client's window.
    pub updated_at: u32,
    /// The client's window.
    pub send: u32,
    /// The largest window that the client ever had.
    pub largest: u32,
    /// Our window.
    pub receive: u32,
    /// The sequence number up to which our window was last advertised.
    pub told_at: u32,
}

/// The bytes are not a valid [`Connection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the state of a connection: {0}")]
pub struct MalformedState(&'static str);

const VERSION: u8 = 2;
const SCALED: u8 = 1;
const SACK: u8 = 2;
const TIMESTAMPS: u8 = 4;
/// The largest window scale (RFC 7323 Sec. 2.3).
const MOST_SCALE: u8 = 14;
/// The smallest segment size that Linux supports.
const LEAST_SEGMENT: u16 = 48;

impl Connection {
    /// The length of its encoding.
    pub const LENGTH: usize = 76;

    /// Encodes it.
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let (send, receive) = self.scale.unwrap_or_default();
        let options = u8::from(self.scale.is_some()) * SCALED
            + u8::from(self.sack) * SACK
            + u8::from(self.timestamp.is_some()) * TIMESTAMPS;
        bytes[..4].copy_from_slice(&[VERSION, options, send, receive]);
        bytes[4..20].copy_from_slice(&written(self.service.ip()));
        bytes[20..36].copy_from_slice(&written(self.client.ip()));
        bytes[36..38].copy_from_slice(&self.service.port().to_be_bytes());
        bytes[38..40].copy_from_slice(&self.client.port().to_be_bytes());
        bytes[52..54].copy_from_slice(&self.segment.to_be_bytes());
        let Window { updated_at, send, largest, receive, told_at } = self.window;
        let words = [
            (40, self.send_next),
            (44, self.receive_next),
            (48, self.timestamp.unwrap_or_default()),
            (56, updated_at),
            (60, send),
            (64, largest),
            (68, receive),
            (72, told_at),
        ];
        for (at, word) in words {
            bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Decodes it. A kernel can restore any decoded value without harm.
    ///
    /// # Errors
    /// When it is invalid, or has another version.
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Result<Self, MalformedState> {
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let [version, options, send, receive] = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if version != VERSION {
            return Err(MalformedState("another version"));
        }
        if options & !(SCALED | SACK | TIMESTAMPS) != 0 || half(54) != 0 {
            return Err(MalformedState("unknown options"));
        }
        let scaled = options & SCALED != 0;
        if send > MOST_SCALE || receive > MOST_SCALE || (!scaled && (send, receive) != (0, 0)) {
            return Err(MalformedState("no window scale"));
        }
        let stamped = options & TIMESTAMPS != 0;
        if !stamped && word(48) != 0 {
            return Err(MalformedState("a timestamp without timestamps"));
        }
        let end = |at: usize, port: usize| {
            let octets: [u8; 16] = *bytes[at..].first_chunk()?;
            let end = SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), half(port));
            (is_end(end.ip()) && end.port() != 0).then_some(end)
        };
        let (Some(service), Some(client)) = (end(4, 36), end(20, 38)) else {
            return Err(MalformedState("an address that no connection has"));
        };
        if service.is_ipv4() != client.is_ipv4() {
            return Err(MalformedState("addresses of two IP versions"));
        }
        if half(52) < LEAST_SEGMENT {
            return Err(MalformedState("no segment size"));
        }
        let window = Window {
            updated_at: word(56),
            send: word(60),
            largest: word(64),
            receive: word(68),
            told_at: word(72),
        };
        Ok(Self {
            service,
            client,
            send_next: word(40),
            receive_next: word(44),
            segment: half(52),
            scale: scaled.then_some((send, receive)),
            sack: options & SACK != 0,
            timestamp: stamped.then(|| word(48)),
            window,
        })
    }
}

fn written(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Whether a connection that moves can have this address. A link-local address is valid on one link
/// only.
pub(super) fn is_end(address: IpAddr) -> bool {
    let elsewhere = match address {
        IpAddr::V4(address) => address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(elsewhere || address.is_unspecified() || address.is_multicast())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Connection {
        Connection {
            service: "10.9.9.9:80".parse().unwrap(),
            client: "10.0.1.2:40001".parse().unwrap(),
            send_next: 0xffff_fff0,
            receive_next: 7,
            segment: 1460,
            scale: Some((7, 10)),
            sack: true,
            timestamp: Some(123_456_789),
            window: Window {
                updated_at: 7,
                send: 64_256,
                largest: 64_256,
                receive: 65_000,
                told_at: 7,
            },
        }
    }

    #[test]
    fn what_is_written_reads_as_what_it_was() {
        let plain = Connection { scale: None, sack: false, timestamp: None, ..connection() };
        let six = Connection {
            service: "[2001:db8::9]:80".parse().unwrap(),
            client: "[2001:db8:1::2]:40001".parse().unwrap(),
            ..connection()
        };
        for connection in [connection(), plain, six] {
            assert_eq!(Connection::from_bytes(&connection.to_bytes()), Ok(connection));
        }
    }

    #[test]
    fn what_no_connection_has_is_refused() {
        let spoilt: [(usize, &[u8]); 12] = [
            (0, &[1]),
            (1, &[0x17]),
            (2, &[15]),
            (3, &[15]),
            (16, &[0xff; 4]),
            (32, &[224]),
            (4, &[0; 16]),
            (4, &[0xfe, 0x80]),
            (4, &[0x20, 0x01]),
            (38, &[0; 2]),
            (52, &[0; 2]),
            (55, &[1]),
        ];
        for (at, values) in spoilt {
            let mut bytes = connection().to_bytes();
            bytes[at..at + values.len()].copy_from_slice(values);
            assert!(Connection::from_bytes(&bytes).is_err(), "byte {at} as {values:?}");
        }
    }
}
