//! What a node counts of the requests of each site, for so many sites.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::StatusCode;
use levada_observe::otel::{NativeBuckets, TimeHistogram};
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::{CacheResult, label_value::LabelValue};

/// Sites with series of their own. All others share the series of the site `other`, so that a node of very many
/// sites does not make a page that cannot be scraped.
const SITES: usize = 200;
/// The site of requests that belong to none.
const NONE: &str = "-";
/// The site of requests of all sites beyond the first.
const OTHER: &str = "other";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    site: String,
    listener: LabelValue,
    code: u16,
    cache: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SiteLabel {
    site: String,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredRequest {
    /// Whether it came from a peer.
    pub from_peer: bool,
    /// The status of the response.
    pub status: StatusCode,
    /// Where the response came from.
    pub cache: CacheResult,
    /// Bytes of the body that were sent.
    pub bytes: u64,
    /// The time from the head of the request to the end of the response.
    pub elapsed: Duration,
}

/// The series of all sites.
#[derive(Default)]
pub(crate) struct Sites {
    families: Families,
    by_name: Mutex<HashMap<String, Arc<SiteMetrics>>>,
}

#[derive(Clone, Default)]
struct Families {
    requests: Family<RequestLabels, Counter>,
    bytes: Family<SiteLabel, Counter>,
    durations: Family<SiteLabel, TimeHistogram>,
}

/// The series of one site.
pub struct SiteMetrics {
    name: String,
    /// The counters for status 200, by listener and cache result: most requests use them without a look-up.
    ok: [[OnceLock<Counter>; CacheResult::COUNT]; 2],
    /// The counters for any other status.
    others: Mutex<HashMap<(bool, StatusCode, CacheResult), Counter>>,
    bytes: Counter,
    durations: TimeHistogram,
    families: Families,
}

impl Sites {
    /// The name of the family of durations.
    pub(crate) const DURATIONS: &str = "http_request_duration_seconds";

    pub(crate) fn registered(registry: &mut Registry) -> Self {
        let sites = Self::default();
        let Families { requests, bytes, durations } = sites.families.clone();
        registry.register("http_requests", "Requests answered", requests);
        registry.register("http_response_bytes", "Bytes of bodies sent", bytes);
        registry.register(
            Self::DURATIONS,
            "Time from the request's head to the end of its response",
            durations,
        );
        sites
    }

    /// The series of a site; `None`: of requests that belong to none.
    pub(crate) fn of(&self, name: Option<&str>) -> Arc<SiteMetrics> {
        let mut by_name = self.by_name.lock();
        let name = match name {
            None => NONE,
            Some(known) if by_name.contains_key(known) || by_name.len() < SITES => known,
            Some(_) => OTHER,
        };
        if let Some(known) = by_name.get(name) {
            return known.clone();
        }
        let metrics = Arc::new(SiteMetrics::new(name.to_owned(), &self.families));
        by_name.insert(name.to_owned(), metrics.clone());
        metrics
    }

    /// Requests answered, by listener and cache result.
    pub(crate) fn count(&self, from_peer: bool, cache: CacheResult) -> u64 {
        self.by_name.lock().values().map(|site| site.count(from_peer, cache)).sum()
    }

    /// The native buckets of the durations of a site with this name.
    pub(crate) fn native(&self, site: &str) -> Option<NativeBuckets> {
        let label = SiteLabel { site: site.to_owned() };
        Some(self.families.durations.get(&label)?.native())
    }

    /// Bytes of bodies sent.
    pub(crate) fn bytes(&self) -> u64 {
        self.by_name.lock().values().map(|site| site.bytes.get()).sum()
    }
}

impl SiteMetrics {
    fn new(name: String, families: &Families) -> Self {
        let label = SiteLabel { site: name.clone() };
        Self {
            name,
            ok: Default::default(),
            others: Mutex::default(),
            bytes: families.bytes.get_or_create_owned(&label),
            durations: families.durations.get_or_create_owned(&label),
            families: families.clone(),
        }
    }

    /// Counts a request.
    pub(crate) fn request(&self, request: AnsweredRequest) {
        let AnsweredRequest { from_peer, status, cache, bytes, elapsed } = request;
        if status == StatusCode::OK {
            let ok = &self.ok[usize::from(from_peer)][cache as usize];
            ok.get_or_init(|| self.counter(from_peer, status, cache)).inc();
        } else {
            let mut others = self.others.lock();
            let counter = others.entry((from_peer, status, cache));
            counter.or_insert_with(|| self.counter(from_peer, status, cache)).inc();
        }
        self.bytes.inc_by(bytes);
        self.durations.observe(elapsed);
    }

    fn counter(&self, from_peer: bool, status: StatusCode, cache: CacheResult) -> Counter {
        self.families.requests.get_or_create_owned(&RequestLabels {
            site: self.name.clone(),
            listener: LabelValue(if from_peer { "peer" } else { "client" }),
            code: status.as_u16(),
            cache: LabelValue(cache.as_str()),
        })
    }

    fn count(&self, from_peer: bool, cache: CacheResult) -> u64 {
        let ok = self.ok[usize::from(from_peer)][cache as usize].get().map_or(0, Counter::get);
        let others = self.others.lock();
        let alike = others.iter().filter(|((peer, _, of), _)| (*peer, *of) == (from_peer, cache));
        ok + alike.map(|(_, counter)| counter.get()).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_beyond_the_first_share_their_series() {
        let sites = Sites::default();
        let request = AnsweredRequest {
            from_peer: false,
            status: StatusCode::NOT_FOUND,
            cache: CacheResult::Miss,
            bytes: 3,
            elapsed: Duration::ZERO,
        };
        for number in 0..SITES + 50 {
            sites.of(Some(&format!("{number}.test"))).request(request);
        }
        sites.of(None).request(request);
        // The first ones, the rest, and none.
        assert_eq!(sites.by_name.lock().len(), SITES + 2);
        let all = (SITES + 51) as u64;
        assert_eq!(sites.count(false, CacheResult::Miss), all);
        assert_eq!((sites.count(true, CacheResult::Miss), sites.bytes()), (0, 3 * all));
        assert_eq!(sites.of(Some(OTHER)).count(false, CacheResult::Miss), 50);
    }
}
