//! Requests to the kernel over netlink: filters at devices, routes, owners of connections.
//!
//! ```text
//! message    = length:32 type:16 flags:16 sequence:32 port:32, header, attributes
//! attribute  = length:16 type:16, value, zeros up to a multiple of 4
//! ```
//! Numbers are in the machine's byte order.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::{
        fd::{AsRawFd as _, BorrowedFd, OwnedFd},
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
    sync::Arc,
};

use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::bpf::BpfError;

/// A BPF program at a device's tc ingress; removed on drop.
pub(crate) struct Filter {
    place: FilterPlace,
    /// A socket in the device's namespace, on any thread that drops this.
    netlink: Netlink,
    slot: Arc<DeviceSlot>,
}

/// The position of a filter among the device's filters, and its name.
#[derive(Clone, Copy)]
pub(crate) struct FilterPlace {
    name: &'static str,
    priority: u16,
    /// The protocol of the packets it sees, as in their frames.
    protocol: u16,
}

/// The filters of one process at one device, which may be of both versions of IP.
pub(crate) type FilterPair = [FilterPlace; 2];

/// The filters of the front-end.
pub(crate) const STEER: FilterPair = [
    FilterPlace { name: "levada-steer", priority: 7100, protocol: ALL },
    FilterPlace { name: "levada-steer6", priority: 7102, protocol: IPV6 },
];
/// The filters of the back-end.
pub(crate) const GUARD: FilterPair = [
    FilterPlace { name: "levada-guard", priority: 7101, protocol: ALL },
    FilterPlace { name: "levada-guard6", priority: 7103, protocol: IPV6 },
];

/// A process's slot for its filters at a device. There are two: a process that is about to end keeps its
/// filters together with those of the next one, and each program passes on the packets of connections that are not in
/// its own table.
pub(crate) struct DeviceSlot {
    device: u32,
    name: String,
    /// The distance of its filters' priorities from those of the first slot.
    offset: u16,
    /// A lock that shows that the slot is in use. It ends with the process, so that a filter left behind by a
    /// crash is distinguished from an active one.
    _claim: UnixListener,
}

/// The slots of a device.
const OFFSETS: [u16; 2] = [0, 10];

impl DeviceSlot {
    /// Claims a slot for these filters, and removes filters from it and from the other one that a crash has left
    /// behind.
    pub(crate) fn claim(device: &str, filters: FilterPair) -> Result<Arc<Self>, BpfError> {
        let name = device.to_owned();
        let index = index_of(device);
        let index = index.map_err(|why| BpfError::NoDevice { device: name.clone(), why })?;
        let free = OFFSETS.into_iter().filter_map(|offset| {
            let suffix = if offset == 0 { String::new() } else { format!("-{offset}") };
            let address = format!("{}{suffix}@{index}", filters[0].name);
            let claim = UnixListener::bind_addr(&SocketAddr::from_abstract_name(address).ok()?);
            Some(Self { device: index, name: name.clone(), offset, _claim: claim.ok()? })
        });
        let free: Vec<Self> = free.collect();
        let left_behind = || -> io::Result<()> {
            let mut netlink = Netlink::open()?;
            for (slot, filter) in free.iter().flat_map(|slot| filters.map(|filter| (slot, filter)))
            {
                netlink.remove_filter(index, slot.place(filter))?;
            }
            Ok(())
        };
        left_behind().map_err(|why| BpfError::Attach { device: name.clone(), why })?;
        let first = free.into_iter().next();
        first.map(Arc::new).ok_or(BpfError::Taken { device: name })
    }

    fn place(&self, filter: FilterPlace) -> FilterPlace {
        FilterPlace { priority: filter.priority + self.offset, ..filter }
    }
}

impl Filter {
    /// Attaches a program.
    pub(crate) fn attach(
        slot: &Arc<DeviceSlot>,
        filter: FilterPlace,
        program: BorrowedFd<'_>,
    ) -> Result<Self, BpfError> {
        let place = slot.place(filter);
        let put = || {
            let mut netlink = Netlink::open()?;
            netlink.make_ingress(slot.device)?;
            netlink.add_filter(slot.device, place, program)?;
            Ok(netlink)
        };
        let netlink = put().map_err(|why| BpfError::Attach { device: slot.name.clone(), why })?;
        Ok(Self { place, netlink, slot: slot.clone() })
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // The device may have been removed before.
        drop(self.netlink.remove_filter(self.slot.device, self.place));
    }
}

/// The route to an address.
pub(crate) struct KernelRoute {
    pub(crate) device: u32,
    pub(crate) gateway: Option<IpAddr>,
}

/// A netlink socket.
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        // The default protocol is NETLINK_ROUTE.
        Self::of(None)
    }

    /// For questions about sockets.
    pub(crate) fn of_sockets() -> io::Result<Self> {
        Self::of(Some(rustix::net::netlink::SOCK_DIAG))
    }

    fn of(protocol: Option<Protocol>) -> io::Result<Self> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, protocol)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// The user of the process that has the TCP socket at `local`, connected to `remote`. An error if no process has
    /// one open.
    pub(crate) fn owner(
        &mut self,
        local: std::net::SocketAddr,
        remote: std::net::SocketAddr,
    ) -> io::Result<u32> {
        const LISTENS: u8 = 10;
        /// Offsets in struct inet_diag_msg.
        const STATE: usize = 1;
        const USER: usize = 64;
        const INODE: usize = 68;
        let octets = |address: IpAddr| match address.to_canonical() {
            IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
            IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
        };
        let (family, from) = octets(local.ip());
        let (_, to) = octets(remote.ip());
        let mut message = NetlinkMessage::new(SOCKETS_OF_FAMILY, 0);
        // struct inet_diag_req_v2: connections of any state, and the two ends, without a cookie.
        message.0.extend([family as u8, libc::IPPROTO_TCP as u8, 0, 0, 255, 255, 255, 255]);
        message.0.extend([local.port().to_be_bytes(), remote.port().to_be_bytes()].concat());
        for mut address in [from, to] {
            address.resize(16, 0);
            message.0.extend(address);
        }
        message.0.extend([0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
        let answer = self.ask(message)?;
        let word = |at: usize| answer.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes);
        // The kernel falls back to a socket that listens at the port. A socket without an inode was closed.
        let has_inode = word(INODE).is_some_and(|inode| inode != 0);
        let is_open = has_inode && answer.get(STATE).is_some_and(|state| *state != LISTENS);
        word(USER).filter(|_| is_open).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Creates the qdisc that filters need.
    fn make_ingress(&mut self, device: u32) -> io::Result<()> {
        const CLSACT: u32 = 0xffff_fff1;
        const ITSELF: u32 = 0xffff_0000;
        let mut message = NetlinkMessage::new(NEW_QDISC, ACK | CREATE | EXCLUSIVE);
        message.traffic(device, ITSELF, CLSACT, 0);
        message.text(KIND, "clsact");
        match self.ask(message) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            done => done.map(drop),
        }
    }

    fn add_filter(
        &mut self,
        device: u32,
        place: FilterPlace,
        program: BorrowedFd<'_>,
    ) -> io::Result<()> {
        const OPTIONS: u16 = 2;
        const BPF_FD: u16 = 6;
        const BPF_NAME: u16 = 7;
        const BPF_FLAGS: u16 = 8;
        /// The result of the program is the action for the packet.
        const DIRECT: u32 = 1;
        let mut message = NetlinkMessage::new(NEW_FILTER, ACK | CREATE | EXCLUSIVE);
        message.traffic(device, 1, INGRESS, place.info());
        message.text(KIND, "bpf");
        let mut options = NetlinkMessage::default();
        options.number(BPF_FD, program.as_raw_fd() as u32);
        options.text(BPF_NAME, place.name);
        options.number(BPF_FLAGS, DIRECT);
        message.attribute(OPTIONS, &options.0);
        self.ask(message).map(drop)
    }

    fn remove_filter(&mut self, device: u32, place: FilterPlace) -> io::Result<()> {
        let mut message = NetlinkMessage::new(DELETE_FILTER, ACK);
        message.traffic(device, 0, INGRESS, place.info());
        match self.ask(message) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => {
                Ok(())
            }
            done => done.map(drop),
        }
    }

    /// The route to an address.
    pub(crate) fn route(&mut self, to: IpAddr) -> io::Result<KernelRoute> {
        const DESTINATION: u16 = 1;
        const DEVICE: u16 = 4;
        const GATEWAY: u16 = 5;
        /// Offset of the route type in the header; from 6 on, packets are not delivered.
        const KIND: usize = 7;
        const BLACKHOLE: u8 = 6;
        let (family, octets) = match to {
            IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
            IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
        };
        let mut message = NetlinkMessage::new(GET_ROUTE, 0);
        // struct rtmsg: the family, the length of the destination in bits; the kernel fills in the
        // rest.
        let mut about = [0; ROUTE_HEADER];
        about[..2].copy_from_slice(&[family as u8, 8 * octets.len() as u8]);
        message.0.extend(about);
        message.attribute(DESTINATION, &octets);
        let answer = self.ask(message)?;
        if answer.get(KIND).is_some_and(|kind| *kind >= BLACKHOLE) {
            return Err(io::ErrorKind::NetworkUnreachable.into());
        }
        let found = |kind| {
            let (_, value) = attributes(&answer, ROUTE_HEADER).find(|(k, _)| *k == kind)?;
            Some(value)
        };
        let device = found(DEVICE).and_then(|value| value.first_chunk().copied());
        let gateway = found(GATEWAY).and_then(|value| match *value {
            [a, b, c, d] => Some(Ipv4Addr::new(a, b, c, d).into()),
            _ => value.first_chunk().map(|octets: &[u8; 16]| Ipv6Addr::from(*octets).into()),
        });
        let device = device.map(u32::from_ne_bytes);
        Ok(KernelRoute { device: device.ok_or(io::ErrorKind::NotFound)?, gateway })
    }

    /// Sends a message and returns the kernel's answer.
    fn ask(&mut self, mut message: NetlinkMessage) -> io::Result<Vec<u8>> {
        const ERROR: u16 = 2;
        self.sequence += 1;
        message.seal(self.sequence);
        rustix::net::send(&self.socket, &message.0, SendFlags::empty())?;
        let mut answer = vec![0; 8 << 10];
        let (_, length) = rustix::net::recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        answer.truncate(length);
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        if length < HEADER {
            return Err(bad());
        }
        let body = answer.split_off(HEADER);
        if u16::from_ne_bytes([answer[4], answer[5]]) != ERROR {
            return Ok(body);
        }
        match i32::from_ne_bytes(*body.first_chunk().ok_or_else(bad)?) {
            0 => Ok(Vec::new()),
            number => Err(io::Error::from_raw_os_error(-number)),
        }
    }
}

impl FilterPlace {
    /// The priority and the protocol in one word.
    fn info(self) -> u32 {
        u32::from(self.priority) << 16 | u32::from(self.protocol.to_be())
    }
}

/// The index of the device of this name in this namespace.
fn index_of(device: &str) -> io::Result<u32> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(rustix::net::netdevice::name_to_index(&socket, device)?)
}

const ALL: u16 = 0x0003;
const IPV6: u16 = 0x86dd;

const HEADER: usize = 16;
const ROUTE_HEADER: usize = 12;

const NEW_QDISC: u16 = 36;
const NEW_FILTER: u16 = 44;
const DELETE_FILTER: u16 = 45;
const GET_ROUTE: u16 = 26;
const SOCKETS_OF_FAMILY: u16 = 20;
const REQUEST: u16 = 0x001;
const ACK: u16 = 0x004;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
/// The attribute that names the kind of a qdisc or filter.
const KIND: u16 = 1;
/// The parent of ingress filters.
const INGRESS: u32 = 0xffff_fff2;

/// A message, or attributes within one.
#[derive(Default)]
struct NetlinkMessage(Vec<u8>);

impl NetlinkMessage {
    fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(REQUEST | flags).to_ne_bytes());
        Self(bytes)
    }

    /// struct tcmsg
    fn traffic(&mut self, device: u32, handle: u32, parent: u32, info: u32) {
        for word in [0, device, handle, parent, info] {
            self.0.extend(word.to_ne_bytes());
        }
    }

    fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    fn text(&mut self, kind: u16, value: &str) {
        self.attribute(kind, format!("{value}\0").as_bytes());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = 4 + value.len();
        self.0.extend((length as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn seal(&mut self, sequence: u32) {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
    }
}

/// The attributes after the first `skip` bytes.
fn attributes(bytes: &[u8], skip: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes.get(skip..).unwrap_or_default();
    std::iter::from_fn(move || {
        let head: &[u8; 4] = rest.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}
