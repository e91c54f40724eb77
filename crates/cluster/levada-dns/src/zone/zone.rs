//! The names of one zone.

use std::sync::Arc;

use hashbrown::HashMap;

use super::file::FileRecord;
use crate::{
    dnssec::ZoneKeys,
    wire::{
        Name, RecordSet, kind,
        name::{self, parent, suffixes},
    },
};

/// A zone.
pub struct Zone {
    /// Its name.
    pub apex: Name,
    names: HashMap<Name, Node>,
    /// Whether names of the zone are handed to other servers.
    has_cuts: bool,
    /// The SOA record with the TTL of negative answers (RFC 2308 Sec. 3).
    pub negative: RecordSet,
    /// How its routed names are answered.
    pub routing: Routing,
    /// Its keys, if it is signed.
    pub keys: Option<Arc<ZoneKeys>>,
}

/// A name of a zone.
#[derive(Debug, Default)]
pub struct Node {
    /// Its records.
    pub sets: Vec<RecordSet>,
    /// Addresses of nodes are its answer.
    pub route: Option<Route>,
}

/// A name that is answered with nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Its federations, by number.
    pub federation: Option<u16>,
    /// Its first label is the name of a node, whose addresses are the answer.
    pub of_node: bool,
}

/// How the routed names of a zone are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routing {
    /// The TTL of addresses.
    pub ttl: u32,
    /// The most nodes in an answer.
    pub max_answers: usize,
    /// The queries in a second, within a region, for which a name is spread over one more node; 0: it never is.
    pub hot_rate: u32,
    /// The value of the parameter `alpn` of HTTPS records (RFC 9460 Sec. 7.1), on the wire; empty: there are none.
    pub alpn: Vec<u8>,
}

/// A name that is to be routed.
#[derive(Clone, Debug)]
pub struct Routed {
    /// The name.
    pub name: Name,
    /// Its federations.
    pub federation: Option<u16>,
    /// The operator has said so for this zone; otherwise records of the zone file stand before it.
    pub stated: bool,
    /// Its first label is the name of a node.
    pub of_node: bool,
}

/// The part of a zone that answers for a name.
pub enum Found<'z> {
    /// The name, or the `*` that stands for it.
    Node(&'z Node),
    /// The name is handed to other servers (RFC 1034 Sec. 4.2.1) at this name.
    Cut(&'z Name, &'z Node),
    /// Nothing.
    Nothing,
}

/// Why records are no zone.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// There is not exactly one SOA record.
    #[error("has {0} SOA records at {1}: a zone needs one")]
    Soa(usize, Name),
    /// There is no NS record.
    #[error("has no NS record at {0}: name the servers of the zone")]
    NoServer(Name),
    /// A name is not in the zone.
    #[error("{0} is not within {1}")]
    Outside(Name, Name),
    /// A name has a CNAME and other records.
    #[error("{0} has a CNAME record and others: a CNAME stands alone")]
    Cname(Name),
    /// A name is routed and has records that its answers would contradict.
    #[error(
        "{0} is routed, and the zone file has addresses, CNAME, NS or HTTPS records for it: remove one of the two"
    )]
    Routed(Name),
    /// The type is made by the server, or not supported.
    #[error("{owner} has a record of type {kind}, {why}")]
    Kind {
        /// The owner.
        owner: Name,
        /// The type.
        kind: u16,
        /// Why it cannot be there.
        why: &'static str,
    },
}

impl Zone {
    /// A zone of these records.
    ///
    /// # Errors
    /// With the first thing that is wrong.
    pub fn new(
        apex: Name,
        records: Vec<FileRecord>,
        routes: Vec<Routed>,
        routing: Routing,
        keys: Option<Arc<ZoneKeys>>,
    ) -> Result<Self, ZoneError> {
        let mut names: HashMap<Name, Node> = HashMap::new();
        for record in records {
            if !record.owner.is_within(apex.wire()) {
                return Err(ZoneError::Outside(record.owner, apex));
            }
            check_kind(&record)?;
            names.entry(record.owner.clone()).or_default().add(record);
        }
        for Routed { name, federation, stated, of_node } in routes {
            if !name.is_within(apex.wire()) {
                return Err(ZoneError::Outside(name, apex));
            }
            let node = names.entry(name.clone()).or_default();
            let is_apex = name == apex;
            let contradicts =
                |set: &RecordSet| ROUTED.contains(&set.kind) && !(is_apex && set.kind == kind::NS);
            match (node.sets.iter().any(contradicts), stated) {
                (true, true) => return Err(ZoneError::Routed(name)),
                (true, false) => continue,
                (false, _) => {}
            }
            node.route = Some(Route { federation, of_node });
        }
        if let Some((name, _)) =
            names.iter().find(|(_, node)| node.cname().is_some() && node.sets.len() > 1)
        {
            return Err(ZoneError::Cname(name.clone()));
        }
        add_empty_names(&mut names, &apex);
        let has_cuts =
            names.iter().any(|(name, node)| *name != apex && node.set(kind::NS).is_some());
        let top = names.get(&apex);
        let soa = top.and_then(|top| top.set(kind::SOA));
        let count = soa.map_or(0, |soa| soa.records.iter().count());
        let Some(negative) = soa.filter(|_| count == 1).map(negative) else {
            return Err(ZoneError::Soa(count, apex));
        };
        if top.is_none_or(|top| top.set(kind::NS).is_none()) {
            return Err(ZoneError::NoServer(apex));
        }
        let mut zone = Self { apex, names, has_cuts, negative, routing, keys };
        zone.add_keys();
        zone.names.values_mut().for_each(Node::shrink);
        zone.names.shrink_to_fit();
        Ok(zone)
    }

    /// Publishes the keys (RFC 4034 Sec. 2) and what the zone above takes from them (RFC 7344).
    fn add_keys(&mut self) {
        let Some(keys) = &self.keys else { return };
        let sets = keys.published(&self.apex, self.negative.ttl);
        if let Some(top) = self.names.get_mut(&self.apex) {
            top.sets.extend(sets);
        }
    }

    /// Finds a name within the zone.
    pub fn find(&self, name: &[u8]) -> Found<'_> {
        if self.has_cuts
            && let Some((at, node)) = self.cut(name)
        {
            return Found::Cut(at, node);
        }
        if let Some(node) = self.names.get(name) {
            return Found::Node(node);
        }
        // The `*` of the closest name that exists (RFC 4592 Sec. 3.3.1).
        let below = suffixes(name).skip(1).find(|parent| self.names.contains_key(*parent));
        let wildcard = below.and_then(|parent| self.star(parent));
        wildcard.map_or(Found::Nothing, Found::Node)
    }

    /// The records of a name, for additional sections: also those below a cut.
    pub fn node(&self, name: &[u8]) -> Option<&Node> {
        self.names.get(name)
    }

    /// The number of names that are routed.
    pub fn routed(&self) -> usize {
        self.names.values().filter(|node| node.route.is_some()).count()
    }

    fn star(&self, parent: &[u8]) -> Option<&Node> {
        let mut star = [0; name::LONGEST_NAME];
        let length = parent.len() + 2;
        let place = star.get_mut(..length)?;
        place[..2].copy_from_slice(b"\x01*");
        place[2..].copy_from_slice(parent);
        self.names.get(&*place)
    }

    /// The cut nearest to the apex.
    fn cut(&self, name: &[u8]) -> Option<(&Name, &Node)> {
        let below_apex = suffixes(name).take_while(|name| *name != self.apex.wire());
        let cut = |name| {
            let (name, node) = self.names.get_key_value(name)?;
            node.set(kind::NS).map(|_| (name, node))
        };
        below_apex.filter_map(cut).last()
    }
}

impl Node {
    /// The records of a type.
    pub fn set(&self, kind: u16) -> Option<&RecordSet> {
        self.sets.iter().find(|set| set.kind == kind)
    }

    /// The record that leads to another name.
    pub fn cname(&self) -> Option<&RecordSet> {
        self.set(kind::CNAME)
    }

    /// Whether the zone file leads to addresses here.
    pub fn has_addresses(&self) -> bool {
        self.sets.iter().any(|set| matches!(set.kind, kind::A | kind::AAAA | kind::CNAME))
    }

    fn add(&mut self, record: FileRecord) {
        let set = match self.sets.iter_mut().find(|set| set.kind == record.kind) {
            Some(set) => set,
            None => {
                self.sets.push(RecordSet::new(record.kind, record.ttl));
                let last = self.sets.len() - 1;
                &mut self.sets[last]
            }
        };
        // All have one TTL: the least (RFC 2181 Sec. 5.2).
        set.ttl = set.ttl.min(record.ttl);
        // Equal records are one (RFC 2181 Sec. 5).
        if !set.records.iter().any(|data| data == record.data) {
            set.records.push(&record.data);
        }
    }

    fn shrink(&mut self) {
        self.sets.iter_mut().for_each(|set| set.records.shrink());
        self.sets.shrink_to_fit();
    }
}

/// Types that a routed name cannot have in the zone file.
const ROUTED: [u16; 5] = [kind::A, kind::AAAA, kind::HTTPS, kind::CNAME, kind::NS];

fn check_kind(record: &FileRecord) -> Result<(), ZoneError> {
    let why = match record.kind {
        kind::DNSKEY
        | kind::RRSIG
        | kind::NSEC
        | kind::NSEC3
        | kind::NSEC3PARAM
        | kind::CDS
        | kind::CDNSKEY => "which the server makes by itself: remove it",
        kind::DNAME => "which is not supported: write CNAME records",
        meta if kind::is_meta(meta) => "which no zone has: remove it",
        _ => return Ok(()),
    };
    Err(ZoneError::Kind { owner: record.owner.clone(), kind: record.kind, why })
}

/// A name between two others exists without records (RFC 4592 Sec. 2.2.2).
fn add_empty_names(names: &mut HashMap<Name, Node>, apex: &Name) {
    let mut empty = Vec::new();
    for name in names.keys() {
        let mut above = parent(name.wire());
        while let Some(name) =
            above.filter(|name| *name != apex.wire() && name.len() > apex.wire().len())
        {
            if !names.contains_key(name) {
                empty.push(Name::from_wire(name));
            }
            above = parent(name);
        }
    }
    names.extend(empty.into_iter().map(|name| (name, Node::default())));
}

/// The SOA record as it stands in negative answers: its TTL is the lesser of its own and of its field `minimum`.
fn negative(soa: &RecordSet) -> RecordSet {
    let minimum = soa.records.iter().next().and_then(|data| data.last_chunk::<4>());
    let minimum = minimum.map_or(soa.ttl, |bytes| u32::from_be_bytes(*bytes));
    RecordSet { ttl: soa.ttl.min(minimum), ..soa.clone() }
}
