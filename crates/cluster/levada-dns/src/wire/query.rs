//! A query as it came: header, question, EDNS.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{
    kind,
    name::{self, LONGEST_NAME},
};

/// The bytes of a header.
pub(crate) const HEADER: usize = 12;
/// The class of the Internet, and any class.
const CLASSES: [u16; 2] = [1, 255];
/// Codes of EDNS options: RFC 7871, 5001, 7873.
pub(crate) mod option {
    pub(crate) const NSID: u16 = 3;
    pub(crate) const CLIENT_SUBNET: u16 = 8;
    pub(crate) const COOKIE: u16 = 10;
}

/// A query with one question.
pub struct Query<'m> {
    /// Its number.
    pub id: u16,
    /// Header flags as they came.
    pub flags: u16,
    /// The question as it came, with the case of its letters: name, type and class.
    pub question: &'m [u8],
    name: &'m [u8],
    /// The type that was asked for.
    pub kind: u16,
    /// The class is the Internet's.
    pub is_internet: bool,
    /// EDNS, if the query has it.
    pub edns: Option<Edns<'m>>,
}

/// The EDNS record of a query (RFC 6891).
#[derive(Clone, Copy, Debug, Default)]
pub struct Edns<'m> {
    /// The largest response over UDP.
    pub size: u16,
    /// The version.
    pub version: u8,
    /// The client takes signatures (DO).
    pub dnssec: bool,
    /// The client takes compact denial with the code of a name that does not exist (CO, RFC 9824 Sec. 5.1).
    pub compact: bool,
    /// The network of the client (RFC 7871).
    pub subnet: Option<ClientSubnet>,
    /// The cookie (RFC 7873).
    pub cookie: Option<ClientCookie<'m>>,
    /// The client asks for the name of the server (RFC 5001).
    pub nsid: bool,
}

/// The network of a client, as its resolver states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientSubnet {
    /// Its address; bits beyond the prefix are zero.
    pub address: IpAddr,
    /// The length of the prefix.
    pub length: u8,
}

/// A cookie: the client's part, and the server's part that the client has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientCookie<'m> {
    /// The client's part.
    pub client: [u8; 8],
    /// The server's part, 8 to 32 bytes, or empty.
    pub server: &'m [u8],
}

/// Why there is no query in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It must not be answered: it is too short, or is itself a response.
    Silent,
    /// It is malformed.
    Malformed,
    /// It is of a kind that is not supported.
    Unsupported,
}

impl<'m> Query<'m> {
    /// Reads a message. The name in lower case is kept in `lower`.
    ///
    /// # Errors
    /// When it is no query with one question.
    pub fn parse(message: &'m [u8], lower: &'m mut [u8; LONGEST_NAME]) -> Result<Self, Bad> {
        let header = message.first_chunk::<HEADER>().ok_or(Bad::Silent)?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (id, flags) = (word(0), word(2));
        if flags & 0x8000 != 0 {
            return Err(Bad::Silent);
        }
        if flags & 0x7800 != 0 {
            return Err(Bad::Unsupported);
        }
        let [questions, answers, authorities, additional] = [word(4), word(6), word(8), word(10)];
        if questions != 1 || answers != 0 || authorities != 0 {
            return Err(Bad::Malformed);
        }
        let length = name::length(&message[HEADER..]).ok_or(Bad::Malformed)?;
        let end = HEADER + length + 4;
        let question = message.get(HEADER..end).ok_or(Bad::Malformed)?;
        lower[..length].copy_from_slice(&question[..length]);
        lower[..length].make_ascii_lowercase();
        let last = |back: usize| {
            u16::from_be_bytes([question[length + back], question[length + back + 1]])
        };
        let (kind, class) = (last(0), last(2));
        Ok(Self {
            id,
            flags,
            question,
            name: &lower[..length],
            kind,
            is_internet: CLASSES.contains(&class),
            edns: edns(&message[end..], additional).ok_or(Bad::Malformed)?,
        })
    }

    /// The name that was asked for, in lower case.
    pub fn name(&self) -> &[u8] {
        self.name
    }

    /// Whether the client takes signatures.
    pub fn takes_signatures(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec)
    }
}

/// The EDNS record among the additional ones; the outer `None` marks a malformed message.
fn edns(mut rest: &[u8], records: u16) -> Option<Option<Edns<'_>>> {
    let mut found = None;
    for _ in 0..records {
        let owner = owner_length(rest)?;
        let head = rest.get(owner..)?.first_chunk::<10>()?;
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let begin = owner + head.len();
        let end = begin + usize::from(word(8));
        let data = rest.get(begin..end)?;
        if word(0) == kind::OPT {
            // Exactly one, at the root (RFC 6891 Sec. 6.1.1).
            if found.is_some() || owner != 1 {
                return None;
            }
            let flags = word(6);
            let (dnssec, compact) = (flags & 0x8000 != 0, flags & 0x4000 != 0);
            let edns = Edns { size: word(2), version: head[5], dnssec, compact, ..Edns::default() };
            found = Some(options(edns, data)?);
        }
        rest = &rest[end..];
    }
    Some(found)
}

/// The length of an owner, which may end with a pointer. It is passed over only.
fn owner_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + usize::from(length),
            0xc0.. => return Some(at + 2),
            64..=191 => return None,
        }
        if at >= LONGEST_NAME {
            return None;
        }
    }
}

fn options<'m>(mut edns: Edns<'m>, mut data: &'m [u8]) -> Option<Edns<'m>> {
    while !data.is_empty() {
        let head = data.first_chunk::<4>()?;
        let code = u16::from_be_bytes([head[0], head[1]]);
        let end = 4 + usize::from(u16::from_be_bytes([head[2], head[3]]));
        let value = data.get(4..end)?;
        match code {
            option::CLIENT_SUBNET => edns.subnet = Some(ClientSubnet::parse(value)?),
            option::COOKIE => edns.cookie = Some(ClientCookie::parse(value)?),
            option::NSID => edns.nsid = true,
            _ => {}
        }
        data = &data[end..];
    }
    Some(edns)
}

impl ClientSubnet {
    /// Reads the option (RFC 7871 Sec. 6 and 7.2.1): the address has as many bytes as the prefix needs, and no bits
    /// beyond it; a query has no scope.
    fn parse(value: &[u8]) -> Option<Self> {
        let (head, bytes) = value.split_first_chunk::<4>()?;
        let [_, family, length, scope] = *head;
        let longest = match (head[0], family) {
            (0, 1) => 32,
            (0, 2) => 128,
            _ => return None,
        };
        if length > longest || scope != 0 || bytes.len() != usize::from(length).div_ceil(8) {
            return None;
        }
        let beyond = (8 - length % 8) % 8;
        if bytes.last().is_some_and(|last| u32::from(*last) & ((1 << beyond) - 1) != 0) {
            return None;
        }
        let mut whole = [0; 16];
        whole[..bytes.len()].copy_from_slice(bytes);
        let [a, b, c, d, ..] = whole;
        let address = match family {
            1 => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            _ => IpAddr::V6(Ipv6Addr::from(whole)),
        };
        Some(Self { address, length })
    }
}

impl<'m> ClientCookie<'m> {
    fn parse(value: &'m [u8]) -> Option<Self> {
        let (client, server) = value.split_first_chunk::<8>()?;
        let is_good = matches!(server.len(), 0 | 8..=32);
        is_good.then_some(Self { client: *client, server })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(flags: u16, counts: [u16; 4], rest: &[u8]) -> Vec<u8> {
        let words = [7, flags].into_iter().chain(counts);
        let mut message: Vec<u8> = words.flat_map(u16::to_be_bytes).collect();
        message.extend_from_slice(rest);
        message
    }

    const QUESTION: &[u8] = b"\x03wWw\x01a\0\0\x01\0\x01";

    fn with_option(code: u8, value: &[u8]) -> Vec<u8> {
        let length = value.len() as u8;
        let opt = [0, 0, 41, 4, 208, 0, 0, 128, 0, 0, length + 4, 0, code, 0, length];
        query(0x0100, [1, 0, 0, 1], &[QUESTION, &opt, value].concat())
    }

    #[test]
    fn question_is_kept_as_it_came_and_compared_in_lower_case() {
        let message = query(0x0100, [1, 0, 0, 0], QUESTION);
        let mut lower = [0; LONGEST_NAME];
        let query = Query::parse(&message, &mut lower).unwrap();
        assert_eq!((query.question, query.name()), (QUESTION, &b"\x03www\x01a\0"[..]));
        assert_eq!((query.id, query.kind, query.is_internet), (7, kind::A, true));
    }

    #[test]
    fn message_that_is_no_query_is_said_to_be_bad() {
        for (message, bad) in [
            (Vec::new(), Bad::Silent),
            (query(0x8000, [1, 0, 0, 0], QUESTION), Bad::Silent),
            (query(0x2800, [1, 0, 0, 0], QUESTION), Bad::Unsupported),
            (query(0, [2, 0, 0, 0], QUESTION), Bad::Malformed),
            (query(0, [1, 1, 0, 0], QUESTION), Bad::Malformed),
            (query(0, [1, 0, 0, 0], &QUESTION[..6]), Bad::Malformed),
            (query(0, [1, 0, 0, 0], b"\xc0\x0c\0\x01\0\x01"), Bad::Malformed),
            (query(0, [1, 0, 0, 1], QUESTION), Bad::Malformed),
        ] {
            assert_eq!(
                Query::parse(&message, &mut [0; LONGEST_NAME]).err(),
                Some(bad),
                "{message:?}"
            );
        }
    }

    #[test]
    fn network_of_the_client_has_no_bits_beyond_its_prefix() {
        let subnet = |value: &[u8]| {
            let message = with_option(8, value);
            Query::parse(&message, &mut [0; LONGEST_NAME])
                .map(|query| query.edns.unwrap().subnet.unwrap())
        };
        let parsed =
            |address: &str, length| Ok(ClientSubnet { address: address.parse().unwrap(), length });
        assert_eq!(subnet(&[0, 1, 24, 0, 192, 0, 2]), parsed("192.0.2.0", 24));
        assert_eq!(subnet(&[0, 1, 0, 0]), parsed("0.0.0.0", 0));
        assert_eq!(subnet(&[0, 2, 20, 0, 0x20, 1, 0x10]), parsed("2001:1000::", 20));
        for wrong in [
            &[0, 1, 24, 0, 192, 0][..],
            &[0, 1, 24, 0, 192, 0, 2, 0],
            &[0, 1, 23, 0, 192, 0, 3],
            &[0, 1, 33, 0, 192, 0, 2, 1, 0],
            &[0, 1, 24, 24, 192, 0, 2],
            &[0, 3, 8, 0, 1],
            &[0, 1, 24],
        ] {
            assert_eq!(subnet(wrong), Err(Bad::Malformed), "{wrong:?}");
        }
    }

    #[test]
    fn cookie_has_the_lengths_of_the_standard() {
        for (length, good) in
            [(7, false), (8, true), (15, false), (16, true), (40, true), (41, false)]
        {
            let message = with_option(10, &vec![1; length]);
            assert_eq!(Query::parse(&message, &mut [0; LONGEST_NAME]).is_ok(), good, "{length}");
        }
    }
}
