//! The front-end's filter: it forwards packets of connections that were handed off to their
//! back-end.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, PoisonError},
};

use socket2::SockRef;

use super::{
    BpfError,
    assembler::{Assembler, JumpLabel, Register::*, Size::*},
    flows::{self, Flow, FlowHash, Flows, SLOT, SLOTS},
    kernel::{Program, ProgramType},
    latest::LatestSteerings,
    packet::{self, ACK, IcmpErrors, PASS, SYN},
    steer6::{Neighbour6, Steered6, Steering6},
};
use crate::{
    handoff::Connection,
    netlink::{DeviceSlot, Filter, Netlink, STEER},
};

/// The programs and the table of one front-end. Dropping it ends the steering. After a crash the
/// kernel keeps steering until the next start replaces the filters.
pub struct Steering {
    table: Arc<Mutex<SteeringTable>>,
    /// Kept only for operators: its descriptor shows the program's cost (`run_time_ns` in
    /// /proc/PID/fdinfo). The attached program would live without it.
    _steer: Program,
    input_blocker: InputBlocker,
    _filters: Vec<Filter>,
    six: Steering6,
}

/// The steered connections.
struct SteeringTable {
    flows: Flows,
    steerings: LatestSteerings<Flow>,
}

/// A neighbour to which packets are forwarded: packets of each IP version to its address of that
/// version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    four: Option<Neighbour>,
    six: Option<Neighbour6>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Neighbour {
    address: Ipv4Addr,
    device: u32,
}

/// A connection whose packets are steered until this is dropped.
pub struct Steered(ByVersion);

enum ByVersion {
    Four(Steered4),
    Six(Steered6),
}

struct Steered4 {
    table: Arc<Mutex<SteeringTable>>,
    flow: Flow,
    number: u64,
}

impl Steering {
    /// Attaches the filters to these devices; at most `connections` connections can be steered.
    ///
    /// # Errors
    /// Without the capabilities NET_ADMIN and BPF, on a kernel before 5.10, without such a device,
    /// or if two other front-ends steer there.
    pub fn start(devices: &[String], connections: u32) -> Result<Self, BpfError> {
        let slots = devices.iter().map(|device| DeviceSlot::claim(device, STEER));
        let slots: Vec<_> = slots.collect::<Result<_, _>>()?;
        let flows = Flows::new(connections).map_err(BpfError::Table)?;
        let program = program(flows.as_fd(), flows.hash());
        let steer = Program::load(ProgramType::Classifier, "levada_steer", &program);
        let steer = steer.map_err(BpfError::Program)?;
        let input_blocker = InputBlocker::new()?;
        let attach = |slot| Filter::attach(slot, STEER[0], steer.as_fd());
        let filters = slots.iter().map(attach).collect::<Result<_, _>>()?;
        Ok(Self {
            table: Arc::new(Mutex::new(SteeringTable {
                flows,
                steerings: LatestSteerings::default(),
            })),
            _steer: steer,
            input_blocker,
            _filters: filters,
            six: Steering6::start(&slots, connections)?,
        })
    }

    /// The neighbour with these addresses, at most one of each IP version.
    ///
    /// # Errors
    /// When an address is behind a router: a packet for the service address would not get there.
    pub fn hop(addresses: impl IntoIterator<Item = IpAddr>) -> Result<Hop, BpfError> {
        let mut hop = Hop { four: None, six: None };
        for address in addresses {
            let route = Netlink::open().and_then(|mut netlink| netlink.route(address));
            let route = route.map_err(|why| BpfError::KernelRoute { address, why })?;
            let device = route.device;
            if let Some(gateway) = route.gateway {
                return Err(BpfError::NoNeighbour { address, gateway });
            }
            match address {
                IpAddr::V4(address) => hop.four = Some(Neighbour { address, device }),
                IpAddr::V6(address) => hop.six = Some(Neighbour6 { address, device }),
            }
        }
        Ok(hop)
    }

    /// Forwards the client's packets to `hop` from now on.
    ///
    /// # Errors
    /// When the limit of steered connections is reached, or the hop has no address of this IP
    /// version.
    pub fn steer(&self, service: SocketAddr, client: SocketAddr, hop: Hop) -> io::Result<Steered> {
        match (service, client) {
            (SocketAddr::V4(service), SocketAddr::V4(client)) => self
                .steer4(service, client, hop.four()?)
                .map(|steered| Steered(ByVersion::Four(steered))),
            (SocketAddr::V6(service), SocketAddr::V6(client)) => {
                let steered = self.six.steer(service, client, hop.six()?);
                steered.map(|steered| Steered(ByVersion::Six(steered)))
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn steer4(
        &self,
        service: SocketAddrV4,
        client: SocketAddrV4,
        hop: Neighbour,
    ) -> io::Result<Steered4> {
        let flow = Flow::of(service, client);
        let mut table = lock(&self.table);
        if !table.flows.put(&flow, hop.address, hop.device) {
            return Err(io::Error::other("the limit of steered connections is reached"));
        }
        let number = table.steerings.next();
        table.steerings.begin(flow, number);
        Ok(Steered4 { table: self.table.clone(), flow, number })
    }

    /// Whether the packets of this connection are steered.
    ///
    /// # Errors
    /// When the kernel returns an error.
    pub fn steers(&self, connection: &Connection) -> io::Result<bool> {
        match (connection.service, connection.client) {
            (SocketAddr::V4(service), SocketAddr::V4(client)) => {
                Ok(lock(&self.table).flows.has(&Flow::of(service, client)))
            }
            (SocketAddr::V6(service), SocketAddr::V6(client)) => self.six.steers(service, client),
            _ => Ok(false),
        }
    }

    /// Blocks the input of sockets.
    pub fn input_blocker(&self) -> &InputBlocker {
        &self.input_blocker
    }
}

/// Unblocks the input of a socket.
///
/// # Errors
/// When it was not blocked.
pub fn unblock_input(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).detach_filter()
}

/// Blocks the input of sockets: the kernel neither takes nor answers what comes for them.
pub struct InputBlocker(Program);

impl InputBlocker {
    /// # Errors
    /// Without the capability BPF.
    pub fn new() -> Result<Self, BpfError> {
        let block_all = Program::load(ProgramType::SocketFilter, "levada_block", &block_all());
        block_all.map(Self).map_err(BpfError::Program)
    }

    /// Blocks all input of this socket.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn block_input(&self, socket: &impl AsFd) -> io::Result<()> {
        self.0.filter(socket)
    }
}

impl Steered {
    /// Forwards its packets to another neighbour.
    ///
    /// # Errors
    /// When the kernel refuses, or the hop has no address of this version of IP.
    pub fn turn(&self, hop: Hop) -> io::Result<()> {
        match &self.0 {
            ByVersion::Four(steered) => steered.turn(hop.four()?),
            ByVersion::Six(steered) => steered.turn(hop.six()?),
        }
    }

    /// Tells the number of the next byte from the client, when the connection has left its socket. From then on late
    /// copies of the SYN that began it are dropped; without this, they look like a new connection.
    ///
    /// # Errors
    /// When the kernel returns an error.
    pub fn expect(&self, receive_next: u32) -> io::Result<()> {
        match &self.0 {
            ByVersion::Four(steered) => {
                steered.expect(receive_next);
                Ok(())
            }
            ByVersion::Six(steered) => steered.expect(receive_next),
        }
    }

    /// The sequence number up to which the client has acknowledged data since the connection was
    /// steered to its current neighbour; `None` if no acknowledgement passed. This shows whether
    /// the client got a response if the back-end does not report it.
    ///
    /// # Errors
    /// When the kernel returns an error.
    pub fn acknowledged(&self) -> io::Result<Option<u32>> {
        match &self.0 {
            ByVersion::Four(steered) => Ok(steered.acknowledged()),
            ByVersion::Six(steered) => steered.acknowledged(),
        }
    }
}

impl Steered4 {
    fn turn(&self, hop: Neighbour) -> io::Result<()> {
        let table = lock(&self.table);
        // The program removes the flow on the client's next SYN.
        let turned = table.steerings.is_latest(&self.flow, self.number)
            && table.flows.turn(&self.flow, hop.address, hop.device);
        if turned { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn expect(&self, receive_next: u32) {
        let table = lock(&self.table);
        if table.steerings.is_latest(&self.flow, self.number) {
            table.flows.expect(&self.flow, receive_next);
        }
    }

    fn acknowledged(&self) -> Option<u32> {
        lock(&self.table).flows.acknowledged(&self.flow)
    }
}

impl Drop for Steered4 {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        if table.steerings.end(&self.flow, self.number) {
            // The program may have removed it already.
            table.flows.remove(&self.flow);
        }
    }
}

/// No code under the lock can panic and leave the table inconsistent.
fn lock(table: &Mutex<SteeringTable>) -> std::sync::MutexGuard<'_, SteeringTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hop {
    fn four(self) -> io::Result<Neighbour> {
        self.four.ok_or_else(|| unknown("IPv4"))
    }

    fn six(self) -> io::Result<Neighbour6> {
        self.six.ok_or_else(|| unknown("IPv6"))
    }
}

fn unknown(version: &str) -> io::Error {
    io::Error::other(format!("`handoff` has no address of {version} for the back-end"))
}

const LOOKUP: i32 = 1;
/// `bpf_redirect_neigh` (Linux 5.10): forwards the packet unchanged, in a frame to the neighbour.
const REDIRECT: i32 = 152;

/// ```c
/// if (!tcp_over_ipv4(packet) && !icmp_error_about_tcp(packet)) return NO_OPINION;
/// u32 number = ((u64)flow.ports << 32 | flow.source) * factor >> (64 - bits);
/// struct slot *slot = lookup(&flows, &number);
/// for (end = slot + 4; ; slot++) {                                       // unrolled
///     if (slot == end) return NO_OPINION;
///     if (slot->used && slot->flow == flow) break;
/// }
/// if ((flags & (SYN | ACK)) == SYN) {
///     if (slot->expected - 1 - ntohl(tcp->seq) < 1 << 20) return DROP;
///     slot->used = 0;
///     return NO_OPINION;
/// }
/// if (flags & ACK) { slot->acknowledged = tcp->ack_seq; slot->has_acknowledged = 1; }
/// struct bpf_redir_neigh to = { .nh_family = AF_INET, .ipv4_nh = slot->address };
/// return bpf_redirect_neigh(slot->device, &to, sizeof(to), 0);
/// ```
/// A packet's cost is mostly access to uncached memory. So all data of a flow is usually in one
/// cache line.
fn program(table: BorrowedFd<'_>, hash: FlowHash) -> Vec<u64> {
    const FOUND: JumpLabel = JumpLabel(1);
    const BEGIN: JumpLabel = JumpLabel(2);
    const FORGET: JumpLabel = JumpLabel(3);
    const FORWARD: JumpLabel = JumpLabel(4);
    const FIRST: usize = 5;
    /// On the stack: the number of the bucket.
    const NUMBER: i16 = -4;
    /// On the stack: `struct bpf_redir_neigh`.
    const TO: i16 = -88;
    const TO_LENGTH: i16 = 20;
    let mut asm = Assembler::default();
    packet::read_headers(&mut asm, IcmpErrors::Follow);
    for (register, at) in [(R7, 0), (R8, 4), (R9, 8)] {
        asm.load(Word, register, R10, packet::FLOW + at);
    }
    asm.copy(R1, R9);
    asm.shift_left(R1, 32);
    asm.or(R1, R7);
    asm.set_double(R2, hash.factor);
    asm.multiply(R1, R2);
    asm.shift_right(R1, 64 - hash.bits as i32);
    asm.store(Word, R10, NUMBER, R1);
    asm.load_map(R1, table);
    asm.copy(R2, R10);
    asm.add(R2, NUMBER.into());
    asm.call(LOOKUP);
    asm.jump_if_equal(R0, 0, PASS);
    for at in 0..SLOTS as usize {
        let next = JumpLabel(FIRST + at);
        asm.load(Byte, R1, R0, flows::USED);
        asm.jump_if_equal(R1, 0, next);
        // Ports differ most often.
        for (register, at) in [(R9, 8), (R7, 0), (R8, 4)] {
            asm.load(Word, R1, R0, at);
            asm.jump_if_different(R1, register, next);
        }
        asm.jump_always(FOUND);
        asm.place(next);
        // A pointer beyond the bucket, even if it is not used, is allowed only with the capability PERFMON.
        if at + 1 < SLOTS as usize {
            asm.add(R0, SLOT.into());
        }
    }
    asm.jump_always(PASS);
    asm.place(FOUND);
    packet::load_flags(&mut asm, SYN | ACK);
    asm.jump_if_equal(R1, SYN, BEGIN);
    // An ICMP error, or a reset without an acknowledgement.
    asm.jump_if_equal(R1, 0, FORWARD);
    packet::load_acknowledgement(&mut asm);
    asm.store(Word, R0, flows::ACKNOWLEDGED, R1);
    asm.store_value(Byte, R0, flows::HAS_ACKNOWLEDGED, 1);
    asm.place(FORWARD);
    asm.store_value(Word, R10, TO, libc::AF_INET);
    asm.load(Word, R1, R0, flows::ADDRESS);
    asm.store(Word, R10, TO + 4, R1);
    for at in (8..TO_LENGTH).step_by(4) {
        asm.store_value(Word, R10, TO + at, 0);
    }
    asm.load(Word, R1, R0, flows::DEVICE);
    asm.copy(R2, R10);
    asm.add(R2, TO.into());
    asm.set(R3, TO_LENGTH.into());
    asm.set(R4, 0);
    asm.call(REDIRECT);
    asm.exit();
    asm.place(BEGIN);
    packet::drop_late_syn(&mut asm, flows::EXPECTED, FORGET);
    // The client opens a new connection, so its old one no longer exists anywhere.
    asm.place(FORGET);
    asm.store_value(Byte, R0, flows::USED, 0);
    packet::pass(&mut asm);
    asm.finish()
}

/// A program that delivers no byte of any packet.
fn block_all() -> Vec<u64> {
    let mut asm = Assembler::default();
    asm.set(R0, 0);
    asm.exit();
    asm.finish()
}
