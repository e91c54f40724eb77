//! [`steer`](super::steer) for IPv6: a separate program and table, so that IPv4 packets do not pay
//! for longer addresses.

use std::{
    io,
    net::{Ipv6Addr, SocketAddrV6},
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    BpfError,
    assembler::{Assembler, JumpLabel, Register::*, Size::*},
    kernel::{HashTable, Program, ProgramType},
    latest::LatestSteerings,
    packet::{self, ACK, FLOW6_LENGTH, IcmpErrors, PASS, SYN},
};
use crate::netlink::{DeviceSlot, Filter, STEER};

/// The program and the table for connections over IPv6.
pub(super) struct Steering6 {
    flows: Arc<Flows6>,
    _steer: Program,
    _filters: Vec<Filter>,
}

struct Flows6 {
    table: HashTable<FLOW6_LENGTH, ENTRY_LENGTH>,
    /// Locked while the table changes.
    steerings: Mutex<LatestSteerings<Flow6>>,
}

/// A key of the table: source, destination and ports, as in the client's packets.
type Flow6 = [u8; FLOW6_LENGTH];

/// The hop's address in the form of `struct bpf_redir_neigh`, its device, the number of the
/// steering, the last forwarded acknowledgement in the packet's byte order, whether there was one, and
/// the number of the next byte from the client when it was steered.
type Entry = [u8; ENTRY_LENGTH];
const ENTRY_LENGTH: usize = 44;
const NEIGHBOUR_LENGTH: i32 = 20;
const DEVICE: i16 = 20;
const NUMBER: usize = 24;
const ACKNOWLEDGED: i16 = 32;
const HAS_ACKNOWLEDGED: i16 = 36;
const EXPECTED: i16 = 40;

/// The neighbour to which packets are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour6 {
    pub(super) address: Ipv6Addr,
    pub(super) device: u32,
}

/// A connection whose packets are steered until this is dropped.
pub(super) struct Steered6 {
    flows: Arc<Flows6>,
    flow: Flow6,
    number: u64,
}

impl Steering6 {
    pub(super) fn start(slots: &[Arc<DeviceSlot>], connections: u32) -> Result<Self, BpfError> {
        let table = HashTable::new("levada_flows6", connections).map_err(BpfError::Table)?;
        let steer =
            Program::load(ProgramType::Classifier, "levada_steer6", &program(table.as_fd()));
        let steer = steer.map_err(BpfError::Program)?;
        let attach = |slot| Filter::attach(slot, STEER[1], steer.as_fd());
        let filters = slots.iter().map(attach).collect::<Result<_, _>>()?;
        let flows = Arc::new(Flows6 { table, steerings: Mutex::default() });
        Ok(Self { flows, _steer: steer, _filters: filters })
    }

    pub(super) fn steer(
        &self,
        service: SocketAddrV6,
        client: SocketAddrV6,
        hop: Neighbour6,
    ) -> io::Result<Steered6> {
        let flow = flow(service, client);
        let mut steerings = self.flows.steerings();
        let number = steerings.next();
        self.flows.table.put(&flow, &hop.entry(number))?;
        steerings.begin(flow, number);
        drop(steerings);
        Ok(Steered6 { flows: self.flows.clone(), flow, number })
    }

    pub(super) fn steers(&self, service: SocketAddrV6, client: SocketAddrV6) -> io::Result<bool> {
        self.flows.table.get(&flow(service, client)).map(|entry| entry.is_some())
    }
}

impl Steered6 {
    pub(super) fn turn(&self, hop: Neighbour6) -> io::Result<()> {
        self.change(|entry| {
            let expected = entry[EXPECTED as usize..].to_owned();
            *entry = hop.entry(self.number);
            entry[EXPECTED as usize..].copy_from_slice(&expected);
        })
    }

    pub(super) fn expect(&self, receive_next: u32) -> io::Result<()> {
        self.change(|entry| {
            entry[EXPECTED as usize..].copy_from_slice(&receive_next.to_ne_bytes());
        })
    }

    fn change(&self, change: impl FnOnce(&mut Entry)) -> io::Result<()> {
        let _steerings = self.flows.steerings();
        // The program removes the flow on the client's next SYN.
        let entry = self.flows.table.get(&self.flow)?;
        let number = self.number.to_ne_bytes();
        let Some(mut entry) = entry.filter(|entry| entry[NUMBER..].starts_with(&number)) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        change(&mut entry);
        self.flows.table.put(&self.flow, &entry)
    }

    pub(super) fn acknowledged(&self) -> io::Result<Option<u32>> {
        let entry = self.flows.table.get(&self.flow)?;
        let at = |from: i16| from as usize;
        Ok(entry.filter(|entry| entry[at(HAS_ACKNOWLEDGED)] != 0).and_then(|entry| {
            let number = entry[at(ACKNOWLEDGED)..].first_chunk()?;
            Some(u32::from_be_bytes(*number))
        }))
    }
}

impl Drop for Steered6 {
    fn drop(&mut self) {
        let mut steerings = self.flows.steerings();
        if steerings.end(&self.flow, self.number) {
            // The program may have removed it already.
            let _ = self.flows.table.remove(&self.flow);
        }
    }
}

impl Flows6 {
    fn steerings(&self) -> MutexGuard<'_, LatestSteerings<Flow6>> {
        // No code under the lock can panic and leave the numbers inconsistent.
        self.steerings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Neighbour6 {
    fn entry(self, number: u64) -> Entry {
        let mut bytes = [0; ENTRY_LENGTH];
        bytes[..4].copy_from_slice(&(libc::AF_INET6 as u32).to_ne_bytes());
        bytes[4..20].copy_from_slice(&self.address.octets());
        bytes[20..24].copy_from_slice(&self.device.to_ne_bytes());
        bytes[NUMBER..NUMBER + 8].copy_from_slice(&number.to_ne_bytes());
        bytes
    }
}

fn flow(service: SocketAddrV6, client: SocketAddrV6) -> Flow6 {
    let mut flow = [0; FLOW6_LENGTH];
    flow[..16].copy_from_slice(&client.ip().octets());
    flow[16..32].copy_from_slice(&service.ip().octets());
    flow[32..34].copy_from_slice(&client.port().to_be_bytes());
    flow[34..].copy_from_slice(&service.port().to_be_bytes());
    flow
}

const LOOKUP: i32 = 1;
const DELETE: i32 = 3;
/// `bpf_redirect_neigh` (Linux 5.10): forwards the packet unchanged, in a frame to the neighbour.
const REDIRECT: i32 = 152;

/// ```c
/// if (!tcp_over_ipv6(packet) && !icmp_error_about_tcp(packet)) return NO_OPINION;
/// struct entry *entry = lookup(&flows, &flow);
/// if (!entry) return NO_OPINION;
/// if ((flags & (SYN | ACK)) == SYN) {
///     if (entry->expected - 1 - ntohl(tcp->seq) < 1 << 20) return DROP;
///     delete(&flows, &flow);
///     return NO_OPINION;
/// }
/// if (flags & ACK) { entry->acknowledged = tcp->ack_seq; entry->has_acknowledged = 1; }
/// return bpf_redirect_neigh(entry->device, &entry->neighbour, sizeof(entry->neighbour), 0);
/// ```
fn program(table: BorrowedFd<'_>) -> Vec<u64> {
    const BEGIN: JumpLabel = JumpLabel(1);
    const FORGET: JumpLabel = JumpLabel(2);
    const FORWARD: JumpLabel = JumpLabel(3);
    let mut asm = Assembler::default();
    packet::read_headers6(&mut asm, IcmpErrors::Follow);
    asm.load_map(R1, table);
    packet::address_of_flow6(&mut asm, R2);
    asm.call(LOOKUP);
    asm.jump_if_equal(R0, 0, PASS);
    packet::load_flags(&mut asm, SYN | ACK);
    asm.jump_if_equal(R1, SYN, BEGIN);
    // An ICMP error, or a reset without an acknowledgement.
    asm.jump_if_equal(R1, 0, FORWARD);
    packet::load_acknowledgement(&mut asm);
    asm.store(Word, R0, ACKNOWLEDGED, R1);
    asm.store_value(Byte, R0, HAS_ACKNOWLEDGED, 1);
    asm.place(FORWARD);
    asm.load(Word, R1, R0, DEVICE);
    asm.copy(R2, R0);
    asm.set(R3, NEIGHBOUR_LENGTH);
    asm.set(R4, 0);
    asm.call(REDIRECT);
    asm.exit();
    asm.place(BEGIN);
    packet::drop_late_syn(&mut asm, EXPECTED, FORGET);
    // The client opens a new connection, so its old one no longer exists anywhere.
    asm.place(FORGET);
    asm.load_map(R1, table);
    packet::address_of_flow6(&mut asm, R2);
    asm.call(DELETE);
    packet::pass(&mut asm);
    asm.finish()
}
