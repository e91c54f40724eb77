//! Front-ends that hold documents themselves: a tier before the policy.
//!
//! A front-end has its number after those of the servers, as requests and the network know it. Of several requests
//! for a document that it lacks, the first goes to a server and brings the document; the others wait for it.

use std::collections::BTreeMap;

use levada_cache::eviction::find_eviction;
use levada_types::Timestamp;

use super::World;
use crate::{
    scenario::Scenario,
    server::{Memory, Place},
    slab::NONE,
    workload::Document,
};

/// The documents of one front-end.
pub(super) struct FrontCache {
    memory: Memory,
    /// The largest document that it is asked for, with its head.
    largest: u64,
    /// For a document on its way, the requests that wait for it: when they were sent, and by which client.
    waiting: BTreeMap<u32, Vec<(Timestamp, u32)>>,
}

impl FrontCache {
    /// Empty ones for all front-ends; none if they hold nothing.
    pub(super) fn of(scenario: &Scenario, front_ends: usize) -> Vec<Self> {
        let Some(settings) = &scenario.front_ends else { return Vec::new() };
        let eviction = find_eviction(&settings.eviction).expect("it was checked");
        let (memory, head) = (settings.memory.0, scenario.cache.head.0);
        let largest =
            settings.max_object.map_or(memory, |size| memory.min(size.0.saturating_add(head)));
        let empty = |_| Self {
            memory: Memory::new((eviction.build)(memory), largest),
            largest,
            waiting: BTreeMap::new(),
        };
        (0..front_ends).map(empty).collect()
    }
}

impl World<'_> {
    /// Whether the client's front-end answers a request itself, now or once the document comes that another request
    /// is on its way for. If not, this request goes to a server.
    pub(super) fn is_answered_in_front(&mut self, client: u32, document: u32) -> bool {
        let (size, at) = (self.documents[document as usize].size, self.redirectors.of(client));
        let place = self.find_in_front(at, document);
        self.collector.met_front_end(self.now, size, place.is_some());
        match place {
            None => {}
            Some(Place::Fill(_)) => {
                let waiting = self.front_caches[at].waiting.entry(document).or_default();
                waiting.push((self.now, client));
            }
            Some(_) => self.answer_in_front(at, self.now, client, document),
        }
        place.is_some()
    }

    /// Where a front-end has a document. If nowhere, it is on its way from now on.
    fn find_in_front(&mut self, at: usize, document: u32) -> Option<Place> {
        let cache = &mut self.front_caches[at];
        let weight = self.documents[document as usize].size + self.prepared.scenario.cache.head.0;
        if weight > cache.largest {
            return None;
        }
        let place = cache.memory.find(document);
        if place.is_none() {
            cache.memory.begin_fill(document, NONE);
        }
        place
    }

    /// Whether the client's front-end has a document before the run. It does afterwards.
    pub(super) fn warms_front_end(&mut self, client: u32, document: u32) -> bool {
        let is_there = self.find_in_front(self.redirectors.of(client), document).is_some();
        if !is_there {
            self.came_to_front(client, document);
        }
        is_there
    }

    fn answer_in_front(&mut self, at: usize, sent: Timestamp, client: u32, document: u32) {
        let number = (self.servers.len() + at) as u32;
        self.open(sent, client, document, number, None, 0);
    }

    /// The client of a request that went to a server has the document, and so has its front-end.
    pub(super) fn came_to_front(&mut self, client: u32, document: u32) {
        let Document { key, size } = self.documents[document as usize];
        let at = self.redirectors.of(client);
        let weight = size + self.prepared.scenario.cache.head.0;
        let Some(waiting) = self.end_in_front(at, document, |memory| {
            memory.end_fill(document, key, weight);
        }) else {
            return;
        };
        for (sent, client) in waiting {
            self.answer_in_front(at, sent, client, document);
        }
    }

    /// A request that went to a server is lost, and with it all that wait for its document.
    pub(super) fn lost_in_front(&mut self, client: u32, document: u32) {
        let at = self.redirectors.of(client);
        let waiting = self.end_in_front(at, document, |memory| memory.forget(document));
        waiting.into_iter().flatten().for_each(|_| self.collector.lost(self.now));
    }

    /// A document is not on its way any more: returns the requests that wait for it. `None` if it was not.
    fn end_in_front(
        &mut self,
        at: usize,
        document: u32,
        end: impl FnOnce(&mut Memory),
    ) -> Option<Vec<(Timestamp, u32)>> {
        let cache = self.front_caches.get_mut(at)?;
        if !matches!(cache.memory.place(document), Some(Place::Fill(_))) {
            return None;
        }
        end(&mut cache.memory);
        Some(cache.waiting.remove(&document).unwrap_or_default())
    }
}
