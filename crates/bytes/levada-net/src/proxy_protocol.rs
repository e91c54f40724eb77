//! The PROXY protocol, versions 1 and 2: a header before the first byte of a connection, in which a proxy that
//! passes on the bytes of a TCP connection states the client's address.
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use ppp::{PartialResult as _, v1, v2};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;

use crate::{client::ClientSocket, first_bytes};

/// Bytes of the longest header that is accepted. Addresses take 52 at most; the rest is for the extensions of
/// version 2, such as a TLS certificate's name.
pub const MAX_HEADER: usize = 2048;
/// Bytes of the longest line of version 1.
const MAX_LINE: usize = 107;
/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

impl ProxyVersion {
    /// The header of a connection to `server` for this client; `None`: the proxy speaks for itself. The port of
    /// the client is 0, because requests of several connections may share this one.
    pub fn header(self, client: Option<IpAddr>, server: Option<SocketAddr>) -> Vec<u8> {
        let server = server.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
        let (to, port) = (server.ip().to_canonical(), server.port());
        match (client.map(|client| client.to_canonical()), to) {
            (None, _) => self.unstated(),
            (Some(IpAddr::V4(from)), IpAddr::V4(to)) => match self {
                Self::V1 => v1::Addresses::new_tcp4(from, to, 0, port).to_string().into(),
                Self::V2 => v2_header(v2::Command::Proxy, v2::IPv4::new(from, to, 0, port)),
            },
            // Both addresses of a header are of one version.
            (Some(from), to) => match (self, as_v6(from), as_v6(to)) {
                (Self::V1, from, to) => {
                    v1::Addresses::new_tcp6(from, to, 0, port).to_string().into()
                }
                (Self::V2, from, to) => {
                    v2_header(v2::Command::Proxy, v2::IPv6::new(from, to, 0, port))
                }
            },
        }
    }

    /// The header of a connection for no client.
    fn unstated(self) -> Vec<u8> {
        match self {
            Self::V1 => v1::Addresses::Unknown.to_string().into(),
            Self::V2 => v2_header(v2::Command::Local, v2::Addresses::Unspecified),
        }
    }
}

/// A complete header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Its bytes.
    pub length: usize,
    /// The client's address; `None` if the proxy speaks for itself (a health check), or if the client has no IP
    /// address.
    pub client: Option<IpAddr>,
}

impl ProxyHeader {
    /// The header that `bytes` begin with; `None` if more bytes are needed.
    ///
    /// # Errors
    /// If they do not begin with a header.
    pub fn parse(bytes: &[u8]) -> io::Result<Option<Self>> {
        if begins(bytes, v2::PROTOCOL_PREFIX) {
            return Self::parse_v2(bytes);
        }
        if !begins(bytes, v1::PROTOCOL_PREFIX.as_bytes()) {
            return Err(invalid("the connection begins with something else"));
        }
        let line = &bytes[..bytes.len().min(MAX_LINE)];
        match line.iter().position(|byte| *byte == b'\n') {
            Some(end) => Self::parse_v1(&bytes[..=end]).map(Some),
            None if line.len() < MAX_LINE => Ok(None),
            None => Err(invalid("the line is longer than 107 bytes")),
        }
    }

    fn parse_v1(line: &[u8]) -> io::Result<Self> {
        let header = v1::Header::try_from(line).map_err(|error| invalid(&error.to_string()))?;
        let client = match header.addresses {
            v1::Addresses::Unknown => None,
            v1::Addresses::Tcp4(pair) => Some(pair.source_address.into()),
            v1::Addresses::Tcp6(pair) => Some(IpAddr::from(pair.source_address).to_canonical()),
        };
        Ok(Self { length: line.len(), client })
    }

    fn parse_v2(bytes: &[u8]) -> io::Result<Option<Self>> {
        let header = v2::Header::try_from(bytes);
        if header.is_incomplete() && bytes.len() < MAX_HEADER {
            return Ok(None);
        }
        let header = header.map_err(|error| invalid(&error.to_string()))?;
        let client = match (header.command, header.addresses) {
            (v2::Command::Proxy, v2::Addresses::IPv4(pair)) => Some(pair.source_address.into()),
            (v2::Command::Proxy, v2::Addresses::IPv6(pair)) => {
                Some(IpAddr::from(pair.source_address).to_canonical())
            }
            _ => None,
        };
        Ok(Some(Self { length: header.len(), client }))
    }

    /// Takes the header from the beginning of a connection.
    ///
    /// # Errors
    /// If the connection fails or does not begin with a header.
    pub async fn take(stream: &mut ClientSocket) -> io::Result<Self> {
        let (mut bytes, mut seen) = (vec![0; MAX_HEADER], 0);
        loop {
            let before = seen;
            seen = first_bytes::beyond(stream.stream(), before, &mut bytes).await?;
            if seen == before {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(header) = Self::parse(&bytes[..seen])? {
                stream.read_exact(&mut bytes[..header.length]).await?;
                return Ok(header);
            }
        }
    }
}

fn v2_header(command: v2::Command, addresses: impl Into<v2::Addresses>) -> Vec<u8> {
    let protocol = match command {
        v2::Command::Local => v2::Protocol::Unspecified,
        v2::Command::Proxy => v2::Protocol::Stream,
    };
    let version_command = v2::Version::Two | command;
    let built = v2::Builder::with_addresses(version_command, protocol, addresses).build();
    // Only a payload of more than 64 KiB is refused.
    built.unwrap_or_default()
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Whether the bytes begin with `prefix`, as far as they have come.
fn begins(bytes: &[u8], prefix: &[u8]) -> bool {
    bytes.iter().zip(prefix).all(|(one, other)| one == other)
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no PROXY protocol: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_both_versions_state_the_client() {
        let v1 = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n";
        let header = ProxyHeader { length: v1.len(), client: Some([192, 0, 2, 1].into()) };
        assert_eq!(
            ProxyHeader::parse(&[v1, &b"GET / HTTP/1.1\r\n"[..]].concat()).unwrap(),
            Some(header)
        );

        let mut v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0f".to_vec();
        v2.extend([192, 0, 2, 1, 198, 51, 100, 1, 0, 1, 0, 2, /* an extension */ 4, 0, 0]);
        let header = ProxyHeader { length: v2.len(), ..header };
        assert_eq!(ProxyHeader::parse(&[&v2, &b"GET"[..]].concat()).unwrap(), Some(header));
        for end in 1..v2.len() {
            assert_eq!(ProxyHeader::parse(&v2[..end]).unwrap(), None, "{end}");
        }
        v2[12] = 0x20;
        assert_eq!(ProxyHeader::parse(&v2).unwrap().unwrap().client, None, "LOCAL");
        assert_eq!(ProxyHeader::parse(b"PROXY UNKNOWN\r\n").unwrap().unwrap().client, None);
    }

    #[test]
    fn headers_that_are_sent_state_the_same_client_where_they_arrive() {
        let server = |text: &str| Some(text.parse().unwrap());
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            for (client, server) in [
                ("192.0.2.1", server("198.51.100.1:80")),
                ("192.0.2.1", server("[2001:db8::2]:80")),
                ("2001:db8::1", server("[2001:db8::2]:80")),
                ("2001:db8::1", server("198.51.100.1:80")),
                ("192.0.2.1", None),
                ("2001:db8::1", None),
            ] {
                let client = client.parse().unwrap();
                let bytes = version.header(Some(client), server);
                let expected = ProxyHeader { length: bytes.len(), client: Some(client) };
                assert_eq!(ProxyHeader::parse(&bytes).unwrap(), Some(expected), "{version:?}");
            }
            let own = version.header(None, server("198.51.100.1:80"));
            assert_eq!(ProxyHeader::parse(&own).unwrap().unwrap().client, None, "{version:?}");
        }
        let line =
            ProxyVersion::V1.header(server("192.0.2.1:9").map(|at: SocketAddr| at.ip()), None);
        assert_eq!(line, b"PROXY TCP4 192.0.2.1 0.0.0.0 0 0\r\n");
    }

    #[test]
    fn part_of_a_header_is_waited_for_and_anything_else_is_an_error() {
        let v1 = b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n";
        for end in 1..v1.len() {
            assert_eq!(ProxyHeader::parse(&v1[..end]).unwrap(), None, "{end}");
        }
        let long = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff"[..], &[0; MAX_HEADER]].concat();
        for bytes in
            [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PROXY TCP4 a b 1 2\r\n", &long[..MAX_HEADER]]
        {
            assert!(ProxyHeader::parse(bytes).is_err());
        }
    }
}
