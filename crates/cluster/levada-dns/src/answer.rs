//! The answer to one query: a pure function of the query, the zones, the nodes, and the time. Start here.
//!
//! ```text
//!   query ─> zone ─> name ─┬─ routed: the nodes of the client's region
//!                          ├─ records, a CNAME and its target
//!                          ├─ handed to others: their NS records
//!                          └─ nothing: the SOA record, and its proof
//! ```

use std::net::IpAddr;

use levada_types::Key;

use crate::{
    dnssec::{Allowance, ZoneKeys, nsec},
    hints::Hints,
    hot::{Heat, HotNames},
    redirect::Redirects,
    route::{Choice, Family, Nodes, Reason, Tables, Wanted, Way},
    wire::{Code, Full, Owner, Query, RecordSet, Records, Response, Section, kind, name},
    zone::{Found, Node, Route, Routing, Zone, Zones},
};

/// Zones and tables, as a configuration has them.
pub struct World {
    /// The zones.
    pub zones: Zones,
    /// The tables that decide about regions.
    pub tables: Tables,
    /// Names that are routed over HTTP.
    pub redirects: Redirects,
}

/// A query with all that its answer depends on.
pub struct Asked<'a, 'm> {
    /// The query.
    pub query: &'a Query<'m>,
    /// The address of its sender.
    pub sender: IpAddr,
    /// Seconds since 1970.
    pub now: u64,
    /// Zones and tables.
    pub world: &'a World,
    /// The nodes of this moment.
    pub nodes: &'a Nodes,
    /// How often names are asked for.
    pub hot: &'a HotNames,
    /// The signatures that may be made for a sender that nobody knows; `None`: it is known.
    pub allowance: Option<Allowance<'a>>,
}

/// A response that was written, apart from its EDNS record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Its code.
    pub code: Code,
    /// The scope of the answer (RFC 7871).
    pub scope: u8,
    /// The table that has chosen the nodes, if any were chosen.
    pub reason: Option<Reason>,
}

/// Memory for records that are made, to be used again.
#[derive(Default)]
pub struct AnswerRoom {
    records: Records,
    hints: Hints,
}

/// The most CNAME records that are followed.
const CHAIN: usize = 8;
/// The answer to a query for all types (RFC 8482 Sec. 4.2): a CPU of this name, and no system.
const ANY: &[u8] = b"\x07RFC8482\0";
const ANY_TTL: u32 = 3600;

impl Asked<'_, '_> {
    /// Writes the records of the answer.
    pub fn answer(&self, response: &mut Response<'_>, room: &mut AnswerRoom) -> Answered {
        let mut writing = Writing { asked: self, response, room, scope: 0, reason: None };
        let code = match writing.write() {
            Ok(code) => code,
            Err(Full) => {
                writing.response.truncate();
                Code::NoError
            }
        };
        writing.response.code(code);
        let Writing { scope, reason, .. } = writing;
        Answered { code, scope, reason }
    }
}

struct Writing<'w, 'a, 'm, 'b> {
    asked: &'w Asked<'a, 'm>,
    response: &'w mut Response<'b>,
    /// Memory for records that are made.
    room: &'w mut AnswerRoom,
    scope: u8,
    reason: Option<Reason>,
}

impl Writing<'_, '_, '_, '_> {
    fn write(&mut self) -> Result<Code, Full> {
        let Asked { query, world, .. } = self.asked;
        match query.kind {
            // Transfers are for those who have the zone files.
            kind::AXFR | kind::IXFR => return Ok(Code::Refused),
            // RFC 9824 Sec. 3.2.
            kind::NXNAME => return Ok(Code::FormErr),
            kind::ANY => {}
            meta if kind::is_meta(meta) => return Ok(Code::NotImp),
            _ => {}
        }
        let Some(zone) = self.zone(&world.zones).filter(|_| query.is_internet) else {
            return Ok(Code::Refused);
        };
        self.response.authoritative(true);
        let (mut name, mut owner) = (query.name(), Owner::Asked);
        for _ in 0..CHAIN {
            let node = match zone.find(name) {
                Found::Cut(at, node) if !(query.kind == kind::DS && at.wire() == name) => {
                    self.referral(zone, at.wire(), node)?;
                    return Ok(Code::NoError);
                }
                Found::Node(node) | Found::Cut(_, node) => node,
                Found::Nothing => return self.nothing(zone, (name, owner)),
            };
            if let Some(route) = node.route
                && self.routed(zone, route, (name, owner))?
            {
                return Ok(Code::NoError);
            }
            if let Some(set) = node.set(query.kind) {
                self.set(zone, (Section::Answer, name, owner), set)?;
                return Ok(Code::NoError);
            }
            if query.kind == kind::ANY {
                self.room.records.clear();
                self.room.records.push(ANY);
                self.made(zone, (name, owner), (kind::HINFO, ANY_TTL))?;
                return Ok(Code::NoError);
            }
            let Some(cname) = node.cname() else {
                self.negative(zone, (name, owner), types_of(node, zone, query.kind))?;
                return Ok(Code::NoError);
            };
            self.set(zone, (Section::Answer, name, owner), cname)?;
            let Some(target) = cname.records.iter().next() else { break };
            if !name::suffixes(target).any(|suffix| suffix == zone.apex.wire()) {
                break;
            }
            (name, owner) = (target, Owner::Name(target));
            if self.asked.query.name() == target {
                break;
            }
        }
        Ok(Code::NoError)
    }

    /// The zone of the question. The DS record of a zone is with the zone above (RFC 4035 Sec. 3.1.4.1).
    fn zone<'z>(&self, zones: &'z Zones) -> Option<&'z Zone> {
        let query = self.asked.query;
        let zone = zones.find(query.name())?;
        if query.kind == kind::DS && zone.apex.wire() == query.name() {
            let above = name::parent(query.name()).and_then(|name| zones.find(name));
            return Some(above.unwrap_or(zone));
        }
        Some(zone)
    }

    /// Answers with nodes; `false`: the type is none that nodes have, or no node has an address of the family.
    fn routed(
        &mut self,
        zone: &Zone,
        route: Route,
        name: (&[u8], Owner<'_>),
    ) -> Result<bool, Full> {
        let query = self.asked.query;
        let families: &[Family] = match query.kind {
            kind::A => &[Family::V4],
            kind::AAAA => &[Family::V6],
            kind::HTTPS if !zone.routing.alpn.is_empty() => &[Family::V4, Family::V6],
            _ => return Ok(false),
        };
        let subnet = query.edns.and_then(|edns| edns.subnet).filter(|subnet| subnet.length > 0);
        let client = subnet.map_or(self.asked.sender, |subnet| subnet.address);
        self.room.records.clear();
        self.room.hints.clear();
        for family in families {
            if route.of_node {
                let node = self.asked.nodes.labelled(name::first_label(name.0));
                self.room.hints.add(node.into_iter(), *family);
                continue;
            }
            let Asked { world, nodes, now, hot, .. } = *self.asked;
            let Routing { max_answers: most, hot_rate: rate, .. } = zone.routing;
            let heat = Some(Heat { names: hot, now, rate, counts: *family == families[0] });
            let wanted = Wanted { route, key: Key::of(name.0), family: *family, most, heat };
            let Choice { way, scope, reason } = world.tables.choose(nodes, wanted, client);
            self.scope = self.scope.max(scope);
            self.reason = Some(reason);
            match way {
                Way::Federation(federation) => {
                    self.room.records.clear();
                    self.room.records.push(federation.target.wire());
                    self.made(zone, name, (kind::CNAME, federation.ttl))?;
                    return Ok(true);
                }
                Way::Nodes(mut nodes) => {
                    // Many clients take the first address: each of them is the first one for some queries.
                    let turn = usize::from(query.id) % nodes.len().max(1);
                    nodes.rotate_left(turn);
                    self.room
                        .hints
                        .add(nodes.iter().map(|node| self.asked.nodes.state(*node)), *family);
                }
            }
        }
        let AnswerRoom { records, hints } = &mut *self.room;
        hints.write(query.kind, &zone.routing.alpn, records);
        if records.is_empty() {
            return Ok(false);
        }
        self.made(zone, name, (query.kind, zone.routing.ttl))?;
        Ok(true)
    }

    /// Writes the records in the room as the answer.
    fn made(
        &mut self,
        zone: &Zone,
        (name, owner): (&[u8], Owner<'_>),
        of: (u16, u32),
    ) -> Result<(), Full> {
        let room = std::mem::take(&mut self.room.records);
        let written = self.records(zone, (Section::Answer, name, owner), (of.0, of.1, &room));
        self.room.records = room;
        written
    }

    fn set(
        &mut self,
        zone: &Zone,
        place: (Section, &[u8], Owner<'_>),
        set: &RecordSet,
    ) -> Result<(), Full> {
        self.records(zone, place, (set.kind, set.ttl, &set.records))
    }

    /// Writes records and their signatures.
    fn records(
        &mut self,
        zone: &Zone,
        (section, name, owner): (Section, &[u8], Owner<'_>),
        (of, ttl, records): (u16, u32, &Records),
    ) -> Result<(), Full> {
        for data in records.iter() {
            self.response.record(section, owner, (of, ttl), data)?;
        }
        let Some(keys) = self.keys(zone) else { return Ok(()) };
        let mut written = Ok(());
        let signing = (self.asked.now, self.asked.allowance);
        let signed =
            keys.sign((name, zone.apex.wire()), (of, ttl, records), signing, |signature| {
                written = written.and_then(|()| {
                    self.response.record(section, owner, (kind::RRSIG, ttl), signature)
                });
            });
        // A client that exists asks again over TCP.
        if signed { written } else { Err(Full) }
    }

    /// The keys of a zone, for a client that takes signatures.
    fn keys<'z>(&self, zone: &'z Zone) -> Option<&'z ZoneKeys> {
        zone.keys.as_deref().filter(|_| self.asked.query.takes_signatures())
    }

    /// The name does not exist. Compact denial says so by a type; its code is for clients that know it.
    fn nothing(&mut self, zone: &Zone, name: (&[u8], Owner<'_>)) -> Result<Code, Full> {
        self.negative(zone, name, vec![kind::NXNAME])?;
        let compact = self.asked.query.edns.is_some_and(|edns| edns.compact);
        Ok(match self.keys(zone) {
            Some(_) if !compact => Code::NoError,
            _ => Code::NxDomain,
        })
    }

    /// The SOA record, and the proof that the name has these types only.
    fn negative(
        &mut self,
        zone: &Zone,
        (name, owner): (&[u8], Owner<'_>),
        types: Vec<u16>,
    ) -> Result<(), Full> {
        // Answers without records are for all (RFC 7871 Sec. 7.4).
        self.scope = 0;
        let apex = zone.apex.wire();
        self.set(zone, (Section::Authority, apex, Owner::Name(apex)), &zone.negative)?;
        self.deny(zone, (name, owner), types)
    }

    fn deny(
        &mut self,
        zone: &Zone,
        (name, owner): (&[u8], Owner<'_>),
        types: Vec<u16>,
    ) -> Result<(), Full> {
        if self.keys(zone).is_none() {
            return Ok(());
        }
        let mut records = Records::default();
        records.push(&nsec(name, types));
        self.records(
            zone,
            (Section::Authority, name, owner),
            (kind::NSEC, zone.negative.ttl, &records),
        )
    }

    /// The servers of a zone below, with their addresses where this zone has them.
    fn referral(&mut self, zone: &Zone, cut: &[u8], node: &Node) -> Result<(), Full> {
        self.response.authoritative(false);
        let owner = Owner::Name(cut);
        let Some(servers) = node.set(kind::NS) else { return Ok(()) };
        for server in servers.records.iter() {
            self.response.record(Section::Authority, owner, (kind::NS, servers.ttl), server)?;
        }
        match node.set(kind::DS) {
            Some(keys) => self.set(zone, (Section::Authority, cut, owner), keys)?,
            None => self.deny(zone, (cut, owner), vec![kind::NS])?,
        }
        for server in servers.records.iter() {
            let glue = zone.node(server).into_iter().flat_map(|node| &node.sets);
            for set in glue.filter(|set| matches!(set.kind, kind::A | kind::AAAA)) {
                for data in set.records.iter() {
                    let owner = Owner::Name(server);
                    self.response.record(Section::Additional, owner, (set.kind, set.ttl), data)?;
                }
            }
        }
        Ok(())
    }
}

/// The types of a name, without the one that was asked for and is not there.
fn types_of(node: &Node, zone: &Zone, asked: u16) -> Vec<u16> {
    let mut types: Vec<u16> = node.sets.iter().map(|set| set.kind).collect();
    if node.route.is_some() {
        types.extend([kind::A, kind::AAAA]);
        types.extend((!zone.routing.alpn.is_empty()).then_some(kind::HTTPS));
    }
    types.retain(|kind| *kind != asked);
    types
}
