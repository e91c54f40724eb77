//! The server of a process: zones, nodes and limits of this moment, which are replaced without a pause.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::DnsMetrics;
use crate::{
    answer::{AnswerRoom, Asked, World},
    cookies::Cookies,
    dnssec::{Allowance, SignatureBudget},
    hot::HotNames,
    rate::{RateLimit, Share, Shares},
    redirect::{HttpAnswer, HttpRequest},
    route::{Networks, NetworksBuilder, NodeState, Nodes, Prefix, Regions},
    wire::{Bad, ClientCookie, ClientSubnet, Code, Edns, LONGEST_NAME, Query, Response},
};

/// How a query came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// In a datagram.
    Udp = 0,
    /// On a connection: its sender is known.
    Tcp = 1,
}

impl Transport {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Udp, Self::Tcp];

    /// Its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

/// The longest response over UDP: it passes all networks in one piece (the value of DNS flag day 2020).
pub(super) const LONGEST_DATAGRAM: usize = 1232;
/// The longest response over UDP to a client without EDNS (RFC 1035 Sec. 4.2.1).
const SHORTEST_LIMIT: usize = 512;

/// The parts of a server that are no zone: they too may change while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name of the server for clients that ask for it (RFC 5001), at most 255 bytes; empty: it says none.
    pub nsid: Vec<u8>,
    /// Makes cookies.
    pub cookies: Cookies,
    /// The share of a client network.
    pub limit: RateLimit,
}

/// All that an answer depends on.
pub struct Published {
    world: Arc<World>,
    nodes: Nodes,
    identity: Identity,
}

/// See the module.
pub struct Server {
    published: ArcSwap<Published>,
    /// The nodes as they were last stated; held while all is published again.
    known: Mutex<Known>,
    shares: Shares,
    hot: HotNames,
    signatures: SignatureBudget,
    /// The metrics.
    pub metrics: DnsMetrics,
    started: Instant,
}

/// The nodes as they were stated.
#[derive(Default)]
struct Known {
    states: Vec<NodeState>,
    /// The regions near networks of clients.
    near: Vec<(Prefix, Arc<str>)>,
    /// The same by the numbers of regions.
    distances: Arc<Networks>,
}

impl Known {
    fn nodes(&self, regions: &Regions) -> Nodes {
        Nodes::new(self.states.clone(), regions).with_distances(self.distances.clone())
    }

    fn number(&mut self, regions: &Regions) {
        let mut networks = NetworksBuilder::default();
        for (network, region) in &self.near {
            if let Some(number) = regions.find(region) {
                networks.add(*network, number);
            }
        }
        self.distances = Arc::new(networks.build().0);
    }
}

/// Memory that an answer needs for a moment, to be used again.
pub(super) struct Room {
    answer: AnswerRoom,
    opt: Vec<u8>,
    name: [u8; LONGEST_NAME],
}

impl Default for Room {
    fn default() -> Self {
        Self { answer: AnswerRoom::default(), opt: Vec::new(), name: [0; LONGEST_NAME] }
    }
}

/// The time of a query, which is read once for several.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    /// Seconds since 1970.
    seconds: u64,
    /// Milliseconds since the start.
    milliseconds: u32,
}

impl Server {
    /// A server without nodes.
    pub fn new(world: Arc<World>, identity: Identity, metrics: DnsMetrics) -> Arc<Self> {
        let nodes = Nodes::new(Vec::new(), &world.tables.regions);
        metrics.zones.set(world.zones.len());
        let published = ArcSwap::from_pointee(Published { world, nodes, identity });
        let started = Instant::now();
        Arc::new(Self {
            published,
            known: Mutex::default(),
            shares: Shares::default(),
            hot: HotNames::default(),
            signatures: SignatureBudget::default(),
            metrics,
            started,
        })
    }

    /// Goes on with other zones.
    pub fn set_world(&self, world: Arc<World>, identity: Identity) {
        let mut known = self.known.lock();
        known.number(&world.tables.regions);
        let nodes = known.nodes(&world.tables.regions);
        self.metrics.zones.set(world.zones.len());
        self.published.store(Arc::new(Published { world, nodes, identity }));
    }

    /// Goes on with other nodes, or other states of them.
    pub fn set_nodes(&self, states: Vec<NodeState>) {
        let mut known = self.known.lock();
        if known.states == states {
            return;
        }
        self.metrics.nodes.clear();
        for state in &states {
            let answered = if state.ready && !state.draining { "yes" } else { "no" };
            self.metrics
                .nodes
                .get_or_create(&[state.region.to_string(), answered.to_owned()])
                .inc();
        }
        known.states = states;
        self.publish(&known);
    }

    /// Goes on with other distances: the region near each of these networks.
    pub fn set_distances(&self, near: Vec<(Prefix, Arc<str>)>) {
        let mut known = self.known.lock();
        if known.near != near {
            known.near = near;
            known.number(&self.published.load().world.tables.regions);
            self.publish(&known);
        }
    }

    fn publish(&self, known: &Known) {
        let before = self.published.load();
        let nodes = known.nodes(&before.world.tables.regions);
        let (world, identity) = (before.world.clone(), before.identity.clone());
        self.published.store(Arc::new(Published { world, nodes, identity }));
    }

    /// This moment.
    pub(super) fn moment(&self) -> Moment {
        let seconds =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        Moment { seconds, milliseconds: self.started.elapsed().as_millis() as u32 }
    }

    /// Zones and nodes of this moment.
    pub(super) fn published(&self) -> arc_swap::Guard<Arc<Published>> {
        self.published.load()
    }

    /// The answer to an HTTP request.
    pub fn redirect(&self, request: &HttpRequest<'_>) -> HttpAnswer {
        let published = self.published.load();
        let Published { world, nodes, .. } = &**published;
        let answer = world.redirects.answer(request, (&world.tables, nodes));
        self.metrics.redirected(&answer);
        answer
    }

    /// The response to a message. Returns its length in `buffer`, or `None` when there is none.
    pub fn respond(
        &self,
        message: &[u8],
        (sender, transport): (IpAddr, Transport),
        buffer: &mut [u8],
    ) -> Option<usize> {
        let (published, moment) = (self.published(), self.moment());
        self.respond_by(
            &published,
            moment,
            message,
            (sender, transport),
            buffer,
            &mut Room::default(),
        )
    }

    /// The same by these zones and nodes, at this moment.
    pub(super) fn respond_by(
        &self,
        published: &Published,
        moment: Moment,
        message: &[u8],
        (sender, transport): (IpAddr, Transport),
        buffer: &mut [u8],
        room: &mut Room,
    ) -> Option<usize> {
        self.metrics.queried(transport);
        let Published { world, nodes, identity } = published;
        let Room { answer: answer_room, opt: opt_room, name } = room;
        let query = match Query::parse(message, name) {
            Ok(query) => query,
            Err(Bad::Silent) => return None,
            Err(bad) => {
                let code = if bad == Bad::Unsupported { Code::NotImp } else { Code::FormErr };
                self.share(identity.limit, (sender, transport), moment)?;
                self.metrics.responded(code);
                return Response::to_malformed(message, code, buffer);
            }
        };
        let edns = query.edns.unwrap_or_default();
        let known = edns
            .cookie
            .is_some_and(|cookie| identity.cookies.is_valid(&cookie, sender, moment.seconds));
        let share = match known {
            true => Share::Answer,
            false => self.share(identity.limit, (sender, transport), moment)?,
        };
        let limit = match (transport, query.edns) {
            (Transport::Tcp, _) => usize::from(u16::MAX),
            (Transport::Udp, None) => SHORTEST_LIMIT,
            (Transport::Udp, Some(edns)) => {
                usize::from(edns.size).clamp(SHORTEST_LIMIT, LONGEST_DATAGRAM)
            }
        };
        let limit = limit.min(buffer.len());
        let scope_at = query.edns.and_then(|edns| {
            let cookie = edns.cookie.map(|cookie| {
                (cookie, identity.cookies.make(cookie.client, sender, moment.seconds))
            });
            opt(&edns, cookie, &identity.nsid, opt_room)
        });
        let reserved = if query.edns.is_some() { opt_room.len() } else { 0 };
        let mut response = Response::to(&query, &mut buffer[..limit], reserved).ok()?;
        if edns.version > 0 {
            self.metrics.responded(Code::BadVers);
            // The upper bits of the code are in the EDNS record.
            opt_room[EXTENDED_CODE] = (Code::BadVers as u16 >> 4) as u8;
            return Some(response.end(Some(opt_room)));
        }
        if share == Share::Truncated {
            response.truncate();
        } else {
            let unknown = !known && transport == Transport::Udp;
            let allowance = unknown.then_some(Allowance {
                budget: &self.signatures,
                most: identity.limit.signatures,
                now: moment.seconds,
            });
            let asked = Asked {
                allowance,
                query: &query,
                sender,
                now: moment.seconds,
                world,
                nodes,
                hot: &self.hot,
            };
            let answered = asked.answer(&mut response, answer_room);
            self.metrics.answered(&answered);
            // A client that states no bits wants an answer for all (RFC 7871 Sec. 7.2.1).
            let states = |subnet: ClientSubnet| subnet.length > 0;
            if let Some(at) = scope_at.filter(|_| edns.subnet.is_some_and(states)) {
                opt_room[at] = answered.scope;
            }
            if response.is_truncated() {
                self.metrics.truncated.inc();
            }
        }
        Some(response.end(query.edns.map(|_| &**opt_room)))
    }

    /// The share of a sender; `None`: it gets nothing.
    fn share(
        &self,
        limit: RateLimit,
        (sender, transport): (IpAddr, Transport),
        at: Moment,
    ) -> Option<Share> {
        if transport == Transport::Tcp {
            return Some(Share::Answer);
        }
        let share = self.shares.take(limit, sender, at.milliseconds);
        self.metrics.limited(share);
        (share != Share::Nothing).then_some(share)
    }
}

/// The place of the upper bits of the response code.
const EXTENDED_CODE: usize = 5;

/// Writes the EDNS record of a response (RFC 6891 Sec. 6.1). Returns the place of the scope, if the client has stated a
/// network.
fn opt(
    edns: &Edns<'_>,
    cookie: Option<(ClientCookie<'_>, [u8; 16])>,
    nsid: &[u8],
    opt: &mut Vec<u8>,
) -> Option<usize> {
    use crate::wire::option::{CLIENT_SUBNET, COOKIE, NSID};

    let flags = if edns.dnssec { 0x80 } else { 0 };
    let [size, rest] = (LONGEST_DATAGRAM as u16).to_be_bytes();
    opt.clear();
    opt.extend_from_slice(&[0, 0, crate::wire::kind::OPT as u8, size, rest, 0, 0, flags, 0, 0, 0]);
    let mut add = |code: u16, parts: &[&[u8]]| {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        opt.extend_from_slice(&code.to_be_bytes());
        opt.extend_from_slice(&(length as u16).to_be_bytes());
        parts.iter().for_each(|part| opt.extend_from_slice(part));
        opt.len()
    };
    if let Some((client, server)) = cookie {
        add(COOKIE, &[&client.client, &server]);
    }
    if edns.nsid && !nsid.is_empty() {
        add(NSID, &[nsid]);
    }
    let scope_at = edns.subnet.map(|subnet| {
        let bytes = usize::from(subnet.length).div_ceil(8);
        let end = match subnet.address {
            IpAddr::V4(v4) => {
                add(CLIENT_SUBNET, &[&[0, 1, subnet.length, 0], &v4.octets()[..bytes]])
            }
            IpAddr::V6(v6) => {
                add(CLIENT_SUBNET, &[&[0, 2, subnet.length, 0], &v6.octets()[..bytes]])
            }
        };
        end - bytes - 1
    });
    let length = (opt.len() - 11) as u16;
    opt[9..11].copy_from_slice(&length.to_be_bytes());
    scope_at
}
