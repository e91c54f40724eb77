//! The limit of what is sent to an address that is not proved: three times the bytes that came from there (RFC 9000
//! Sec. 8.1).
//!
//! quinn begins a packet as long as one byte of that is left, so that its last packet may be almost whole too much
//! (quinn-rs/quinn#1082). Here the bytes are counted once more, and a packet that would be too much is dropped, as a
//! network might: quinn repeats it when the client has sent more.
//!
//! Only packets with long headers are dropped, those of handshakes. Others are counted while a handshake is under way, when
//! they have the connection id of the client that began one. An address is proved by a packet with the id that this side
//! has chosen.
//!
//! ```text
//!   Initial from an address ──> received += length ──┐
//!   packet to it ──> sent + length <= 3 * received? ─┴─ no ──> dropped
//!   packet from it with our id ──> forgotten
//! ```

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use crate::session::VERSION;

/// How much is sent for a byte that came.
const FACTOR: usize = 3;
/// Addresses that are remembered, and as many before them. Those that are forgotten have the limit of quinn.
const MOST: usize = 1024;
/// The longest connection id (RFC 9000 Sec. 17.2).
const LONGEST_ID: usize = 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Amplification {
    addresses: Mutex<Addresses>,
    /// Handshakes that are under way.
    handshakes: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Addresses {
    newer: HashMap<SocketAddr, Balance>,
    older: HashMap<SocketAddr, Balance>,
}

/// The bytes from and to an address.
#[derive(Debug)]
struct Balance {
    received: usize,
    sent: usize,
    /// The connection id of the client.
    client: Id,
    /// The connection id of this side that the address has to know.
    own: Option<Id>,
}

/// A connection id, with zeros behind it.
type Id = ([u8; LONGEST_ID], usize);

impl Addresses {
    fn get(&mut self, address: &SocketAddr) -> Option<&mut Balance> {
        match self.newer.get_mut(address) {
            Some(balance) => Some(balance),
            None => self.older.get_mut(address),
        }
    }

    fn add(&mut self, address: SocketAddr, balance: Balance) {
        if self.newer.len() == MOST {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(address, balance);
    }
}

impl Amplification {
    pub(crate) fn new(handshakes: Arc<AtomicUsize>) -> Self {
        Self { addresses: Mutex::default(), handshakes }
    }

    /// Notes a packet that came.
    pub(crate) fn received(&self, from: SocketAddr, packet: &[u8]) {
        let Some(header) = LongHeader::read(packet) else { return };
        let (received, client) = (packet.len(), header.source);
        let mut addresses = self.addresses.lock();
        match addresses.get(&from) {
            Some(balance) if balance.own == Some(header.destination) => {
                addresses.newer.remove(&from);
                addresses.older.remove(&from);
            }
            Some(balance) => balance.received += received,
            None if header.is_initial => {
                addresses.add(from, Balance { received, sent: 0, client, own: None });
            }
            None => {}
        }
    }

    /// How many of these bytes may be sent, in whole packets of a length.
    pub(crate) fn allowed(&self, to: SocketAddr, packets: &[u8], length: usize) -> usize {
        let header = LongHeader::read(packets);
        if header.is_none() && self.handshakes.load(Relaxed) == 0 {
            return packets.len();
        }
        let mut addresses = self.addresses.lock();
        let Some(balance) = addresses.get(&to) else { return packets.len() };
        let Some(header) = header else {
            let (id, length) = &balance.client;
            if packets.get(1..).is_some_and(|behind| behind.starts_with(&id[..*length])) {
                balance.sent += packets.len();
            }
            return packets.len();
        };
        balance.own = Some(header.source);
        let left = (FACTOR * balance.received).saturating_sub(balance.sent);
        let allowed =
            if packets.len() <= left { packets.len() } else { left - left % length.max(1) };
        balance.sent += allowed;
        allowed
    }
}

/// The front of a packet of the version that is spoken, with a long header (RFC 9000 Sec. 17.2).
struct LongHeader {
    is_initial: bool,
    destination: Id,
    source: Id,
}

impl LongHeader {
    fn read(packet: &[u8]) -> Option<Self> {
        let (first, rest) = packet.split_first().filter(|(first, _)| **first & 0x80 != 0)?;
        let (version, rest) = rest.split_first_chunk()?;
        if u32::from_be_bytes(*version) != VERSION {
            return None;
        }
        let (destination, rest) = id(rest)?;
        let (source, _) = id(rest)?;
        Some(Self { is_initial: first & 0x30 == 0, destination, source })
    }
}

/// A connection id behind its length, and what follows.
fn id(bytes: &[u8]) -> Option<(Id, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let length = usize::from(*length);
    let (id, rest) = rest.split_at_checked(length)?;
    let mut padded = [0; LONGEST_ID];
    padded.get_mut(..length)?.copy_from_slice(id);
    Some(((padded, length), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    fn packet(first: u8, destination: &[u8], source: &[u8], length: usize) -> Vec<u8> {
        let lengths = [destination.len() as u8, source.len() as u8];
        let mut packet =
            [&[first, 0, 0, 0, 1][..], &lengths[..1], destination, &lengths[1..], source].concat();
        packet.resize(length, 7);
        packet
    }

    const INITIAL: u8 = 0xc0;
    const HANDSHAKE: u8 = 0xe0;

    #[test]
    fn an_address_gets_three_times_as_much_until_it_knows_the_id() {
        let limit = Amplification::new(Arc::new(AtomicUsize::new(1)));
        let send = |length, at_once| {
            limit.allowed(address(1), &packet(INITIAL, b"client", b"ours", length), at_once)
        };
        limit.received(address(1), &packet(INITIAL, b"chosen", b"client", 1250));
        assert_eq!((send(1200, 1200), send(1200, 1200), send(1200, 1200)), (1200, 1200, 1200));
        let short = [&b"@client"[..], &[0; 43]].concat();
        limit.allowed(address(1), &short, 50);
        limit.allowed(address(1), b"@another connection", 50);
        assert_eq!((send(101, 101), send(100, 100), send(40, 40)), (0, 100, 0));
        limit.received(address(1), &packet(HANDSHAKE, b"guessed", b"client", 100));
        assert_eq!((send(1000, 100), send(40, 40)), (300, 0), "whole packets");
        limit.received(address(1), &packet(INITIAL, b"ours", b"client", 100));
        assert_eq!(send(9000, 1200), 9000);
    }

    #[test]
    fn other_packets_pass_and_late_ones_limit_no_connection() {
        let limit = Amplification::new(Arc::new(AtomicUsize::new(1)));
        limit.received(address(1), &packet(INITIAL, b"chosen", b"client", 1200));
        let short = [&b"@client"[..], &[0; 4993]].concat();
        assert_eq!(limit.allowed(address(1), &short, 1200), 5000);
        let long = packet(INITIAL, b"client", b"ours", 5000);
        assert_eq!(limit.allowed(address(2), &long, 1200), 5000, "not known");
        limit.received(address(2), &packet(HANDSHAKE, b"ours", b"client", 100));
        limit.received(address(2), &short);
        assert_eq!(limit.allowed(address(2), &long, 1200), 5000);
        for cut in 0..20 {
            limit.received(address(3), &long[..cut]);
            limit.allowed(address(3), &long[..cut], cut);
        }
    }

    #[test]
    fn addresses_that_are_remembered_are_bounded() {
        let limit = Amplification::new(Arc::new(AtomicUsize::new(1)));
        for port in 0..u16::MAX {
            limit.received(address(port), &packet(INITIAL, b"chosen", b"client", 1200));
        }
        let addresses = limit.addresses.lock();
        assert!(addresses.newer.len() <= MOST && addresses.older.len() <= MOST);
        assert!(addresses.newer.contains_key(&address(u16::MAX - 1)));
    }
}
