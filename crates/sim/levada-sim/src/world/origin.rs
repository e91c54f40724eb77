//! The origin: a place for each fetch, its time, and one link that all bodies share.
//!
//! ```text
//! ask ── no place: waits ── its turn by the rate ── latency ── Event::Answer ── send, block by block ── leave
//! ```

use std::collections::VecDeque;

use levada_types::Timestamp;

use super::{Event, Fill};
use crate::{
    collect::Egress,
    kernel::Agenda,
    scenario,
    server::Station,
    slab::{NONE, Slab},
};

/// The origin of all servers.
pub(crate) struct Origin {
    latency: u64,
    at_once: u32,
    /// Nanoseconds from the beginning of one request to that of the next.
    gap: u64,
    turns: Station,
    link: Station,
    bits_per_second: Option<u64>,
    body_bits_per_second: Option<u64>,
    busy: u32,
    /// Fills that wait for a place, with the times at which they asked.
    waiting: VecDeque<(Timestamp, u32)>,
    egress: Egress,
}

impl Origin {
    pub(super) fn new(origin: &scenario::Origin, warm_up: Timestamp) -> Self {
        let gap = origin.requests_per_second.map_or(0.0, |rate| 1e9 / rate);
        Self {
            latency: origin.latency.0.as_nanos() as u64,
            at_once: origin.at_once.unwrap_or(u32::MAX),
            gap: gap.round() as u64,
            turns: Station::default(),
            link: Station::default(),
            bits_per_second: origin.bits_per_second,
            body_bits_per_second: origin.body_bits_per_second,
            busy: 0,
            waiting: VecDeque::new(),
            egress: Egress::new(warm_up),
        }
    }

    /// A fill asks for its document. It waits if the origin has as many requests as it takes at once.
    pub(super) fn ask(&mut self, now: Timestamp, fill: u32, agenda: &mut Agenda<Event>) {
        if self.busy < self.at_once {
            self.begin(now, now, fill, agenda);
        } else {
            self.waiting.push_back((now, fill));
        }
    }

    /// It begins to answer a request.
    pub(super) fn answers(&mut self, now: Timestamp) {
        self.egress.answered(now);
    }

    /// The time at which the next `bytes` of a body will have come.
    pub(super) fn send(&mut self, now: Timestamp, bytes: u64) -> Timestamp {
        let time = |rate: u64| {
            let nanoseconds = u128::from(bytes) * 8_000_000_000 / u128::from(rate);
            u64::try_from(nanoseconds).unwrap_or(u64::MAX)
        };
        let link = self.bits_per_second.map_or(now, |rate| self.link.take(now, time(rate)));
        let alone = |rate| Timestamp(now.0.saturating_add(time(rate)));
        self.body_bits_per_second.map_or(link, |rate| link.max(alone(rate)))
    }

    /// A block of a body has come.
    pub(super) fn sent(&mut self, now: Timestamp, bytes: u64) {
        self.egress.sent(now, bytes);
    }

    /// A fetch is over, or its server has failed: the next in the queue begins.
    pub(super) fn leave(
        &mut self,
        now: Timestamp,
        fills: &mut Slab<Fill>,
        agenda: &mut Agenda<Event>,
    ) {
        self.busy -= 1;
        while let Some((since, fill)) = self.waiting.pop_front() {
            if fills[fill].server != NONE {
                return self.begin(since, now, fill, agenda);
            }
            fills.remove(fill);
        }
    }

    pub(crate) fn egress(&self) -> Egress {
        self.egress
    }

    fn begin(&mut self, since: Timestamp, now: Timestamp, fill: u32, agenda: &mut Agenda<Event>) {
        self.busy += 1;
        let turn = Timestamp(self.turns.take(now, self.gap).0 - self.gap);
        self.egress.waited(turn.since(since));
        agenda.schedule(Timestamp(turn.0 + self.latency), Event::Answer(fill));
    }
}
