//! The table of steered connections and their destinations. The steering program and this process
//! share its memory, so that adding or removing an entry needs no system call.
//!
//! ```text
//! bucket   four slots, at the upper bits of the flow's product with a secret number
//! slot     flow:96 used:8 has_acknowledged:8 0:16 address:32 device:32 acknowledged:32 expected:32
//! ```
//! A flow is in one slot of its bucket or not in the table. There are twice as many buckets as
//! connections allowed, so all four slots of a bucket are used in one of 570 buckets when the limit
//! is reached; a connection without a slot is proxied. `used` is written last when a slot is taken,
//! and first when it is freed.

use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use super::{
    kernel::Shared,
    packet::{FLOW_LENGTH, FLOW_WORDS},
};

/// The table.
pub(super) struct Flows {
    shared: Shared,
    hash: FlowHash,
    /// The slot of a bucket at which the next search begins. A slot that was just freed is reused
    /// last, because the program may still be reading it.
    turn: usize,
}

/// The hash of a flow's bucket: multiplicative, with a secret factor.
#[derive(Clone, Copy)]
pub(super) struct FlowHash {
    pub(super) factor: u64,
    pub(super) bits: u32,
}

/// The identity of a connection's packets: source, destination and ports, as in the packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Flow([u32; FLOW_WORDS]);

/// Byte offsets within a bucket.
pub(super) const SLOT: i16 = 32;
pub(super) const SLOTS: i16 = 4;
pub(super) const USED: i16 = FLOW_LENGTH as i16;
pub(super) const HAS_ACKNOWLEDGED: i16 = USED + 1;
pub(super) const ADDRESS: i16 = 16;
pub(super) const DEVICE: i16 = 20;
pub(super) const ACKNOWLEDGED: i16 = 24;
pub(super) const EXPECTED: i16 = 28;

/// The word at `USED` of a slot that was taken, and what the program adds to it.
const TAKEN: u32 = u32::from_ne_bytes([1, 0, 0, 0]);
const ACKNOWLEDGING: u32 = u32::from_ne_bytes([0, 1, 0, 0]);

/// In words of 32 bits.
const BUCKET_WORDS: usize = (SLOT as usize / 4) * SLOTS as usize;
const MOST_BITS: u32 = 24;

impl Flows {
    /// A table with room for `connections` flows.
    pub(super) fn new(connections: u32) -> io::Result<Self> {
        let buckets = u64::from(connections.max(1)) * 2;
        let bits = buckets.next_power_of_two().trailing_zeros().min(MOST_BITS);
        let mut factor = [0; 8];
        random(&mut factor)?;
        let hash = FlowHash { factor: u64::from_ne_bytes(factor) | 1, bits };
        let shared = Shared::new("levada_flows", 1 << bits, BUCKET_WORDS)?;
        Ok(Self { shared, hash, turn: 0 })
    }

    pub(super) fn hash(&self) -> FlowHash {
        self.hash
    }

    /// Steers a flow to a neighbour; returns false if there is no room for it.
    pub(super) fn put(&mut self, flow: &Flow, address: Ipv4Addr, device: u32) -> bool {
        if self.turn(flow, address, device) {
            return true;
        }
        self.turn += 1;
        let slots = (0..SLOTS as usize).map(|at| (self.turn + at) % SLOTS as usize);
        let bucket = self.bucket(flow);
        let free = slots.map(|at| slot(bucket, at)).find(|slot| !is_used(slot));
        let Some(slot) = free else { return false };
        slot.iter().zip(flow.0).for_each(|(place, value)| place.store(value, Relaxed));
        slot[word(EXPECTED)].store(0, Relaxed);
        direct(slot, address, device);
        slot[word(USED)].store(TAKEN, Release);
        true
    }

    /// Steers a flow of the table to another neighbour; returns false if it is not in the table.
    /// The program removes it on the client's next SYN.
    pub(super) fn turn(&self, flow: &Flow, address: Ipv4Addr, device: u32) -> bool {
        let found = self.find(flow);
        found.into_iter().for_each(|slot| {
            // It stays free if the program frees it now.
            slot[word(USED)].fetch_and(TAKEN, Relaxed);
            direct(slot, address, device);
        });
        found.is_some()
    }

    /// Notes the number of the next byte from the client of a flow.
    pub(super) fn expect(&self, flow: &Flow, number: u32) {
        if let Some(slot) = self.find(flow) {
            slot[word(EXPECTED)].store(number, Relaxed);
        }
    }

    pub(super) fn has(&self, flow: &Flow) -> bool {
        self.find(flow).is_some()
    }

    /// The last acknowledgement that was forwarded since the flow got its current neighbour.
    pub(super) fn acknowledged(&self, flow: &Flow) -> Option<u32> {
        let slot = self.find(flow)?;
        let has = slot[word(USED)].load(Acquire) & ACKNOWLEDGING != 0;
        has.then(|| u32::from_be(slot[word(ACKNOWLEDGED)].load(Relaxed)))
    }

    pub(super) fn remove(&self, flow: &Flow) {
        if let Some(slot) = self.find(flow) {
            slot[word(USED)].store(0, Release);
        }
    }

    fn bucket(&self, flow: &Flow) -> &[AtomicU32] {
        let at = self.hash.bucket(flow) * BUCKET_WORDS;
        &self.shared.words()[at..at + BUCKET_WORDS]
    }

    fn find(&self, flow: &Flow) -> Option<&[AtomicU32]> {
        let slots = self.bucket(flow).chunks_exact(word(SLOT));
        let same = |slot: &[AtomicU32]| {
            slot.iter().zip(flow.0).all(|(place, value)| place.load(Relaxed) == value)
        };
        slots.into_iter().find(|slot| is_used(slot) && same(slot))
    }
}

impl AsFd for Flows {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.as_fd()
    }
}

impl FlowHash {
    /// The bucket of a flow, computed as in the program.
    fn bucket(self, flow: &Flow) -> usize {
        let key = u64::from(flow.0[0]) | u64::from(flow.0[2]) << 32;
        (key.wrapping_mul(self.factor) >> (64 - self.bits)) as usize
    }
}

impl Flow {
    pub(super) fn of(service: SocketAddrV4, client: SocketAddrV4) -> Self {
        let [client_ip, service_ip] = [client, service].map(|end| end.ip().octets());
        let [[a, b], [c, d]] = [client, service].map(|end| end.port().to_be_bytes());
        Self([client_ip, service_ip, [a, b, c, d]].map(u32::from_ne_bytes))
    }
}

const fn word(at: i16) -> usize {
    at as usize / 4
}

fn slot(bucket: &[AtomicU32], at: usize) -> &[AtomicU32] {
    &bucket[at * word(SLOT)..][..word(SLOT)]
}

fn is_used(slot: &[AtomicU32]) -> bool {
    slot[word(USED)].load(Acquire) & TAKEN != 0
}

/// A packet between the two writes goes to a wrong destination. It is dropped there, and the client
/// sends it again.
fn direct(slot: &[AtomicU32], address: Ipv4Addr, device: u32) {
    slot[word(DEVICE)].store(device, Relaxed);
    slot[word(ADDRESS)].store(u32::from_ne_bytes(address.octets()), Release);
}

fn random(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the kernel writes at most as many bytes as the slice is long.
    #[expect(unsafe_code)]
    let read = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if read == bytes.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_a_packets_bytes() {
        let service = "10.9.9.9:80".parse().unwrap();
        let client = "10.0.1.2:40001".parse().unwrap();
        let bytes: Vec<u8> = Flow::of(service, client).0.map(u32::to_ne_bytes).concat();
        assert_eq!(bytes, [10, 0, 1, 2, 10, 9, 9, 9, 0x9c, 0x41, 0, 80]);
    }

    #[test]
    fn buckets_are_filled_evenly() {
        let hash = FlowHash { factor: 0x9e37_79b9_7f4a_7c15, bits: 10 };
        let mut filled = vec![0; 1 << 10];
        for port in 0..1024 {
            let client = SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, 2), 30_000 + port);
            filled[hash.bucket(&Flow::of("10.9.9.9:80".parse().unwrap(), client))] += 1;
        }
        assert!(filled.iter().filter(|count| **count > SLOTS).count() <= 8);
    }
}
