//! The purge log of a cluster, as one node has it.
//!
//! Every node numbers the orders that it is given, in a log of its own ([`LogId`]), from 1. Every node keeps
//! the orders of all logs and passes them on to any peer that lacks some. A node applies the orders of
//! one log without gaps, so one number per log tells all that it has: together they are a version
//! vector (Parker et al., 1983), and two nodes that compare theirs know what to send (anti-entropy,
//! Demers et al., PODC'87). An order that arrives twice changes nothing. No clock takes part.
//!
//! The log has a bound. Beyond it the oldest orders are dropped, and `dropped` notes up to which number. A
//! node that lacks a dropped order cannot learn it any more: everything that it stored before counts as
//! purged ([`OrderLog::missed`]).

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    str::FromStr,
    sync::Arc,
};

use serde::{Deserialize, Serialize, de};

use crate::purge::order::PurgeOrder;

/// The bounds of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogBounds {
    /// The most orders.
    pub(crate) orders: usize,
    /// The most bytes that they take.
    pub(crate) bytes: usize,
}

/// The bounds of a node in a cluster: docs/operate/purging.md states them.
pub(crate) const IN_CLUSTER: LogBounds = LogBounds { orders: 50_000, bytes: 8 << 20 };
/// The bounds of a node that has nobody to tell.
pub(crate) const ALONE: LogBounds = LogBounds { orders: 0, bytes: 0 };

/// The most logs in one message.
const MAX_LOGS: usize = 10_000;

/// The name of a log: a random number, drawn when a node begins to number orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogId(pub(crate) u64);

/// The name of an order in the cluster: its log, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderId {
    /// The log of the node that was given the order.
    pub log: LogId,
    /// Its place there.
    pub number: u64,
}

/// An order and its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoggedOrder {
    /// Its name.
    pub id: OrderId,
    /// The responses that it purges.
    pub order: PurgeOrder,
}

/// How far one log is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogState {
    pub(crate) log: LogId,
    /// The newest order that is known. All before it were known.
    pub(crate) newest: u64,
    /// The newest order that is not kept any more.
    pub(crate) dropped: u64,
}

/// All logs that a node knows, and how far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStates(BTreeMap<LogId, (u64, u64)>);

impl LogStates {
    /// The newest order of a log that is known; 0 if none is.
    pub fn newest(&self, log: LogId) -> u64 {
        self.0.get(&log).map_or(0, |(newest, _)| *newest)
    }

    /// Whether this order is known.
    pub fn has(&self, id: OrderId) -> bool {
        self.newest(id.log) >= id.number
    }

    /// Whether every order that `other` knows is known.
    pub fn covers(&self, other: &Self) -> bool {
        other.iter().all(|state| self.newest(state.log) >= state.newest)
    }

    /// Whether no order is known.
    pub fn is_empty(&self) -> bool {
        self.iter().all(|state| state.newest == 0)
    }

    /// The number of orders that `other` knows and this does not.
    pub fn behind(&self, other: &Self) -> u64 {
        let lacking = other.iter().map(|state| state.newest.saturating_sub(self.newest(state.log)));
        lacking.fold(0, u64::saturating_add)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = LogState> {
        self.0.iter().map(|(log, (newest, dropped))| LogState {
            log: *log,
            newest: *newest,
            dropped: *dropped,
        })
    }

    pub(crate) fn set(&mut self, state: &LogState) {
        self.0.insert(state.log, (state.newest, state.dropped));
    }
}

impl Serialize for LogStates {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for LogStates {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Vec::<LogState>::deserialize(deserializer)?;
        if list.len() > MAX_LOGS {
            return Err(de::Error::custom("too many logs"));
        }
        let mut states = Self::default();
        for state in &list {
            if state.dropped > state.newest || state.newest == u64::MAX {
                return Err(de::Error::custom("numbers that cannot be"));
            }
            states.set(state);
        }
        Ok(states)
    }
}

/// The orders that a node keeps for its peers, in the order in which it applied them.
#[derive(Clone, Debug)]
pub(crate) struct OrderLog {
    bounds: LogBounds,
    states: LogStates,
    orders: VecDeque<Arc<LoggedOrder>>,
    bytes: usize,
}

impl OrderLog {
    pub(crate) fn new(bounds: LogBounds) -> Self {
        Self { bounds, states: LogStates::default(), orders: VecDeque::new(), bytes: 0 }
    }

    pub(crate) fn states(&self) -> &LogStates {
        &self.states
    }

    pub(crate) fn orders(&self) -> impl Iterator<Item = &Arc<LoggedOrder>> {
        self.orders.iter()
    }

    /// Whether this order is the next of its log.
    pub(crate) fn is_next(&self, id: OrderId) -> bool {
        self.states.newest(id.log).checked_add(1) == Some(id.number)
    }

    /// Adds the next order of its log, and drops the oldest ones beyond the bounds.
    pub(crate) fn add(&mut self, order: Arc<LoggedOrder>) {
        let id = order.id;
        self.bytes += order.order.weight();
        self.orders.push_back(order);
        self.states.0.entry(id.log).or_default().0 = id.number;
        while self.orders.len() > self.bounds.orders || self.bytes > self.bounds.bytes {
            let Some(oldest) = self.orders.pop_front() else { return };
            self.bytes -= oldest.order.weight();
            self.states.0.entry(oldest.id.log).or_default().1 = oldest.id.number;
        }
    }

    /// The logs of which `theirs` has dropped orders that are unknown here.
    pub(crate) fn missed(&self, theirs: &LogStates) -> Vec<LogState> {
        let lost = |state: &LogState| state.dropped > self.states.newest(state.log);
        theirs.iter().filter(lost).map(|s| LogState { newest: s.dropped, ..s }).collect()
    }

    /// Goes on behind what was dropped elsewhere.
    pub(crate) fn skip_to(&mut self, state: &LogState) {
        self.orders.retain(|order| order.id.log != state.log);
        self.bytes = self.orders.iter().map(|order| order.order.weight()).sum();
        self.states.set(state);
    }

    /// The orders that a node which knows `theirs` lacks, the oldest first, of about `bytes` at most.
    pub(crate) fn lacking(&self, theirs: &LogStates, bytes: usize) -> Vec<Arc<LoggedOrder>> {
        let mut left = theirs.behind(&self.states).min(self.orders.len() as u64);
        let mut found = Vec::new();
        // The newest are at the end: without a long absence few have to be looked at.
        for order in self.orders.iter().rev() {
            if left == 0 {
                break;
            }
            if !theirs.has(order.id) {
                found.push(order.clone());
                left -= 1;
            }
        }
        found.reverse();
        let mut weight = 0;
        found.retain(|order| {
            let fits = weight < bytes;
            weight += order.order.weight();
            fits
        });
        found
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for LogId {
    type Err = MalformedId;

    fn from_str(text: &str) -> Result<Self, MalformedId> {
        let hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok().filter(|_| hex);
        number.map(Self).ok_or(MalformedId)
    }
}

impl fmt::Display for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.log, self.number)
    }
}

impl FromStr for OrderId {
    type Err = MalformedId;

    fn from_str(text: &str) -> Result<Self, MalformedId> {
        let (log, number) = text.split_once('-').ok_or(MalformedId)?;
        let number = number.parse().map_err(|_| MalformedId)?;
        Ok(Self { log: log.parse()?, number })
    }
}

/// A text that names no log and no order.
#[derive(Debug, thiserror::Error)]
#[error("this is no name of an order: it looks like 0123456789abcdef-17")]
pub struct MalformedId;

/// Names are texts in JSON.
macro_rules! as_text {
    ($($name:ty),*) => {$(
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    )*};
}
as_text!(LogId, OrderId);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::purge::order::PurgeTarget;

    const SMALL: LogBounds = LogBounds { orders: 4, bytes: 1 << 20 };

    fn order(log: u64, number: u64) -> Arc<LoggedOrder> {
        let target = PurgeTarget::Tags(vec![format!("{log}-{number}")], None);
        let id = OrderId { log: LogId(log), number };
        Arc::new(LoggedOrder { id, order: PurgeOrder { target, soft: false } })
    }

    fn log_of(bounds: LogBounds, orders: &[(u64, u64)]) -> OrderLog {
        let mut log = OrderLog::new(bounds);
        orders.iter().for_each(|(of, number)| log.add(order(*of, *number)));
        log
    }

    fn ids(orders: &[Arc<LoggedOrder>]) -> Vec<(u64, u64)> {
        orders.iter().map(|order| (order.id.log.0, order.id.number)).collect()
    }

    /// Sends all that `to` lacks, as an exchange does. Returns whether `to` missed dropped orders.
    fn pass_on(from: &OrderLog, to: &mut OrderLog) -> bool {
        let missed = to.missed(from.states());
        missed.iter().for_each(|state| to.skip_to(state));
        for order in from.lacking(to.states(), usize::MAX) {
            if to.is_next(order.id) {
                to.add(order);
            }
        }
        !missed.is_empty()
    }

    #[test]
    fn peer_gets_what_it_lacks_oldest_first_and_not_more() {
        let log = log_of(IN_CLUSTER, &[(1, 1), (2, 1), (1, 2), (2, 2), (1, 3)]);
        let peer = log_of(IN_CLUSTER, &[(1, 1), (2, 1), (2, 2)]);
        assert_eq!(ids(&log.lacking(peer.states(), usize::MAX)), [(1, 2), (1, 3)]);
        assert_eq!(ids(&log.lacking(peer.states(), 1)), [(1, 2)], "one at least");
        assert_eq!(ids(&log.lacking(log.states(), usize::MAX)), []);
        assert_eq!(peer.states().behind(log.states()), 2);
    }

    #[test]
    fn who_lacks_a_dropped_order_is_told_that_it_missed_some() {
        let log = log_of(SMALL, &[(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6)]);
        let mut near = log_of(SMALL, &[(1, 1), (1, 2)]);
        assert!(!pass_on(&log, &mut near));
        let mut far = log_of(SMALL, &[(1, 1)]);
        assert!(pass_on(&log, &mut far));
        let mut empty = OrderLog::new(SMALL);
        assert!(pass_on(&log, &mut empty));
        for one in [&near, &far, &empty] {
            assert!(one.states().covers(log.states()));
        }
    }

    #[test]
    fn log_of_a_node_alone_keeps_numbers_only() {
        let log = log_of(ALONE, &[(1, 1), (1, 2)]);
        assert_eq!((log.orders.len(), log.states.newest(LogId(1))), (0, 2));
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        let id = OrderId { log: LogId(0xab), number: 17 };
        assert_eq!(id.to_string(), "00000000000000ab-17");
        assert_eq!(id.to_string().parse::<OrderId>().unwrap(), id);
        for text in
            ["", "-", "ab-1", "00000000000000ab", "+0000000000000ab-1", "00000000000000ab-x"]
        {
            assert!(text.parse::<OrderId>().is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let read = |text: &str| serde_json::from_str::<LogStates>(text).is_ok();
        let state = |newest: &str, dropped: u64| {
            format!(r#"[{{"log":"{}","newest":{newest},"dropped":{dropped}}}]"#, LogId(1))
        };
        assert!(read(&state("3", 3)));
        assert!(!read(&state("3", 4)));
        assert!(!read(&state(&u64::MAX.to_string(), 4)));
        assert!(!read(&state("-1", 0)));
    }

    #[test]
    fn message_with_too_many_logs_is_refused() {
        let read = |logs: usize| {
            let mut states = LogStates::default();
            (0..logs as u64).for_each(|log| {
                states.set(&LogState { log: LogId(log), newest: 1, dropped: 0 });
            });
            let text = serde_json::to_string(&states).unwrap();
            serde_json::from_str::<LogStates>(&text).is_ok_and(|read| read == states)
        };
        assert!(read(MAX_LOGS) && !read(MAX_LOGS + 1) && !read(MAX_LOGS + 2));
    }

    proptest! {
        /// For any orders at any nodes, and in any order of meetings: when all have met often enough, each
        /// has applied every order, or knows that it missed some.
        #[test]
        fn every_order_reaches_every_node(steps in proptest::collection::vec((0..3usize, 0..4usize), 0..60)) {
            let mut nodes: Vec<OrderLog> = (0..3).map(|_| OrderLog::new(SMALL)).collect();
            let mut applied = vec![Vec::new(); 3];
            let mut missed = [false; 3];
            let mut given = Vec::new();
            let ending = (0..3).flat_map(|_| [(0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)]);
            for (node, with) in steps.into_iter().chain(ending) {
                if with == node || with == 3 {
                    if with == 3 {
                        let next = nodes[node].states().newest(LogId(node as u64)) + 1;
                        nodes[node].add(order(node as u64, next));
                        applied[node].push((node as u64, next));
                        given.push((node as u64, next));
                    }
                    continue;
                }
                let from = std::mem::replace(&mut nodes[node], OrderLog::new(SMALL));
                let before = nodes[with].states().clone();
                missed[with] |= pass_on(&from, &mut nodes[with]);
                for id in ids(&from.lacking(&before, usize::MAX)) {
                    if !applied[with].contains(&id) {
                        applied[with].push(id);
                    }
                }
                nodes[node] = from;
            }
            for node in 0..3 {
                let all = given.iter().all(|id| applied[node].contains(id));
                prop_assert!(all || missed[node]);
                prop_assert!(nodes[node].states().covers(nodes[(node + 1) % 3].states()));
            }
        }
    }
}
