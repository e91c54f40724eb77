//! The front-end's side: packets of connections that were handed off go on to where those are now.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    BpfError,
    assembler::{Assembler, Label, Register::*, Size::*},
    kernel::{self, Kind, Program, Table},
    packet::{self, ACK, FLOW_LENGTH, PASS, SYN},
    steer6::{Neighbour6, Steered6, Steering6},
};
use crate::{
    handoff::Connection,
    netlink::{Filter, Netlink, STEER},
};

/// Programs and table of one front-end. Dropped, nothing is steered any more; after a crash the kernel
/// goes on steering until the next start takes its place.
pub struct Steering {
    flows: Arc<Flows>,
    /// Attached, it would live without this; so operators find what it costs among the process's
    /// descriptors (`run_time_ns` in /proc/PID/fdinfo).
    _steer: Program,
    deaf: Program,
    _filters: Vec<Filter>,
    six: Steering6,
}

/// Where the packets of which connections go.
struct Flows {
    table: Table<FLOW_LENGTH, ENTRY_LENGTH>,
    /// Held while the table is changed.
    steered: Mutex<Numbers>,
}

/// Which steering is a flow's last: a client may begin anew with the same addresses before the end of its
/// old connection is known here, which then must not end the steering of the new one.
#[derive(Default)]
struct Numbers {
    /// How often something was steered.
    count: u64,
    last: HashMap<[u8; FLOW_LENGTH], u64>,
}

/// The hop's address and device, which steering it was, the last acknowledgement that was sent on, as it is
/// in the packet, and whether there was one.
const ENTRY_LENGTH: usize = 24;
const ACKNOWLEDGED: i16 = 16;
const HAS_ACKNOWLEDGED: i16 = 20;

/// A neighbour that packets are sent on to, those of each version of IP to its address of that version.
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

/// A connection whose packets are steered, until this is dropped.
pub struct Steered(Way);

enum Way {
    Four(Steered4),
    Six(Steered6),
}

struct Steered4 {
    flows: Arc<Flows>,
    flow: [u8; FLOW_LENGTH],
    number: u64,
}

impl Steering {
    /// Begins to look at what comes in at these devices; so many connections can be steered at once.
    ///
    /// # Errors
    /// Without the capabilities NET_ADMIN and BPF, on a kernel before 5.10, without such a device, or
    /// when another front-end steers there.
    pub fn start(devices: &[String], connections: u32) -> Result<Self, BpfError> {
        let table = Table::new("levada_flows", connections).map_err(BpfError::Table)?;
        let steer = Program::load(Kind::Classifier, "levada_steer", &program(table.as_fd()));
        let steer = steer.map_err(BpfError::Program)?;
        let deaf = Program::load(Kind::SocketFilter, "levada_deaf", &deaf());
        let deaf = deaf.map_err(BpfError::Program)?;
        let attach = |device: &String| Filter::attach(device, STEER, steer.as_fd());
        let filters = devices.iter().map(attach).collect::<Result<_, _>>()?;
        Ok(Self {
            flows: Arc::new(Flows { table, steered: Mutex::default() }),
            _steer: steer,
            deaf,
            _filters: filters,
            six: Steering6::start(devices, connections)?,
        })
    }

    /// The neighbour that has these addresses, at most one of each version of IP.
    ///
    /// # Errors
    /// When one is behind a router: a packet for the service address would not get there.
    pub fn hop(addresses: impl IntoIterator<Item = IpAddr>) -> Result<Hop, BpfError> {
        let mut hop = Hop { four: None, six: None };
        for address in addresses {
            let route = Netlink::open().and_then(|mut netlink| netlink.route(address));
            let route = route.map_err(|why| BpfError::Route { address, why })?;
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

    /// Sends what the client sends from now on to `hop`.
    ///
    /// # Errors
    /// When as many are steered as may be, or the hop has no address of this version of IP.
    pub fn steer(&self, service: SocketAddr, client: SocketAddr, hop: Hop) -> io::Result<Steered> {
        match (service, client) {
            (SocketAddr::V4(service), SocketAddr::V4(client)) => {
                self.steer4(service, client, hop.four()?).map(|steered| Steered(Way::Four(steered)))
            }
            (SocketAddr::V6(service), SocketAddr::V6(client)) => {
                let steered = self.six.steer(service, client, hop.six()?);
                steered.map(|steered| Steered(Way::Six(steered)))
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
        let flow = flow(service, client);
        let number = {
            let mut steered = self.flows.steered();
            steered.count += 1;
            self.flows.table.put(&flow, &hop.entry(steered.count))?;
            let number = steered.count;
            steered.last.insert(flow, number);
            number
        };
        Ok(Steered4 { flows: self.flows.clone(), flow, number })
    }

    /// Whether this connection's packets are steered.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn steers(&self, connection: &Connection) -> io::Result<bool> {
        match (connection.service, connection.client) {
            (SocketAddr::V4(service), SocketAddr::V4(client)) => {
                self.flows.table.get(&flow(service, client)).map(|hop| hop.is_some())
            }
            (SocketAddr::V6(service), SocketAddr::V6(client)) => self.six.steers(service, client),
            _ => Ok(false),
        }
    }

    /// Lets nothing come in at this socket any more.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn deafen(&self, socket: &impl AsFd) -> io::Result<()> {
        self.deaf.filter(socket)
    }
}

/// Lets things come in again at a socket that was deafened.
///
/// # Errors
/// When it was not.
pub fn undeafen(socket: &impl AsFd) -> io::Result<()> {
    kernel::unfilter(socket)
}

/// What makes sockets deaf, where nothing is steered.
pub struct Deafness(Program);

impl Deafness {
    /// # Errors
    /// Without the capability BPF.
    pub fn new() -> Result<Self, BpfError> {
        let deaf = Program::load(Kind::SocketFilter, "levada_deaf", &deaf());
        deaf.map(Self).map_err(BpfError::Program)
    }

    /// Lets nothing come in at this socket any more.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn deafen(&self, socket: &impl AsFd) -> io::Result<()> {
        self.0.filter(socket)
    }
}

impl Steered {
    /// Sends them to another neighbour instead.
    ///
    /// # Errors
    /// When the kernel refuses, or the hop has no address of this version of IP.
    pub fn turn(&self, hop: Hop) -> io::Result<()> {
        match &self.0 {
            Way::Four(steered) => steered.turn(hop.four()?),
            Way::Six(steered) => steered.turn(hop.six()?),
        }
    }

    /// Up to which sequence number the client has acknowledged what it got since it was steered here, or
    /// turned; nothing when nothing of it came by. What nobody else tells, the client does: whether it
    /// was answered.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn acknowledged(&self) -> io::Result<Option<u32>> {
        match &self.0 {
            Way::Four(steered) => steered.acknowledged(),
            Way::Six(steered) => steered.acknowledged(),
        }
    }
}

impl Steered4 {
    fn turn(&self, hop: Neighbour) -> io::Result<()> {
        let _steered = self.flows.steered();
        // The program forgets it on the client's next SYN.
        let entry = self.flows.table.get(&self.flow)?;
        match entry.is_some_and(|entry| entry[8..16] == self.number.to_ne_bytes()) {
            true => self.flows.table.put(&self.flow, &hop.entry(self.number)),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn acknowledged(&self) -> io::Result<Option<u32>> {
        let entry = self.flows.table.get(&self.flow)?;
        let at = |from: i16| from as usize;
        Ok(entry.filter(|entry| entry[at(HAS_ACKNOWLEDGED)] != 0).and_then(|entry| {
            let number = entry[at(ACKNOWLEDGED)..].first_chunk()?;
            Some(u32::from_be_bytes(*number))
        }))
    }
}

impl Drop for Steered4 {
    fn drop(&mut self) {
        let mut steered = self.flows.steered();
        if steered.last.get(&self.flow) == Some(&self.number) {
            steered.last.remove(&self.flow);
            // The program may have been first.
            let _ = self.flows.table.remove(&self.flow);
        }
    }
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

impl Neighbour {
    fn entry(self, number: u64) -> [u8; ENTRY_LENGTH] {
        let mut bytes = [0; ENTRY_LENGTH];
        bytes[..4].copy_from_slice(&self.address.octets());
        bytes[4..8].copy_from_slice(&self.device.to_ne_bytes());
        bytes[8..16].copy_from_slice(&number.to_ne_bytes());
        bytes
    }
}

impl Flows {
    fn steered(&self) -> std::sync::MutexGuard<'_, Numbers> {
        // Nothing that is done under the lock can panic half way.
        self.steered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key: source, destination, ports, as they are in the client's packets.
fn flow(service: SocketAddrV4, client: SocketAddrV4) -> [u8; FLOW_LENGTH] {
    let mut flow = [0; FLOW_LENGTH];
    flow[..4].copy_from_slice(&client.ip().octets());
    flow[4..8].copy_from_slice(&service.ip().octets());
    flow[8..10].copy_from_slice(&client.port().to_be_bytes());
    flow[10..].copy_from_slice(&service.port().to_be_bytes());
    flow
}

const LOOKUP: i32 = 1;
const DELETE: i32 = 3;
/// `bpf_redirect_neigh` (Linux 5.10): the packet leaves as it is, in a frame to the neighbour.
const REDIRECT: i32 = 152;

/// ```c
/// if (!tcp_over_ipv4(packet)) return NO_OPINION;
/// struct hop *hop = lookup(&flows, &flow);
/// if (!hop) return NO_OPINION;
/// if ((flags & (SYN | ACK)) == SYN) { delete(&flows, &flow); return NO_OPINION; }
/// hop->acknowledged = tcp->ack_seq; hop->has_acknowledged = 1;
/// struct bpf_redir_neigh to = { .nh_family = AF_INET, .ipv4_nh = hop->address };
/// return bpf_redirect_neigh(hop->device, &to, sizeof(to), 0);
/// ```
fn program(table: BorrowedFd<'_>) -> Vec<u64> {
    const FORGET: Label = Label(1);
    /// `struct bpf_redir_neigh`, on the stack.
    const TO: i16 = -88;
    const TO_LENGTH: i16 = 20;
    let mut asm = Assembler::default();
    packet::read_headers(&mut asm);
    asm.load_map(R1, table);
    packet::address_of_flow(&mut asm, R2);
    asm.call(LOOKUP);
    asm.jump_if_equal(R0, 0, PASS);
    // The client begins anew: its old connection is gone, wherever that was.
    packet::load_flags(&mut asm, SYN | ACK);
    asm.jump_if_equal(R1, SYN, FORGET);
    packet::load_acknowledgement(&mut asm);
    asm.store(Word, R0, ACKNOWLEDGED, R1);
    asm.store_value(Byte, R0, HAS_ACKNOWLEDGED, 1);
    asm.store_value(Word, R10, TO, libc::AF_INET);
    asm.load(Word, R1, R0, 0);
    asm.store(Word, R10, TO + 4, R1);
    for at in (8..TO_LENGTH).step_by(4) {
        asm.store_value(Word, R10, TO + at, 0);
    }
    asm.load(Word, R1, R0, 4);
    asm.copy(R2, R10);
    asm.add(R2, TO.into());
    asm.set(R3, TO_LENGTH.into());
    asm.set(R4, 0);
    asm.call(REDIRECT);
    asm.exit();
    asm.place(FORGET);
    asm.load_map(R1, table);
    packet::address_of_flow(&mut asm, R2);
    asm.call(DELETE);
    packet::pass(&mut asm);
    asm.finish()
}

/// No byte of any packet.
fn deaf() -> Vec<u64> {
    let mut asm = Assembler::default();
    asm.set(R0, 0);
    asm.exit();
    asm.finish()
}
