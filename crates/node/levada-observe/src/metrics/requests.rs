//! Requests: those in flight, and those answered, by site for so many sites.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::StatusCode;
use parking_lot::Mutex;

use crate::metrics::{CacheResult, Counter, Family, Gauge, Registry, TimeHistogram, Work, did};

/// Sites with series of their own. All others share the series of the site `other`, so that a node of very many
/// sites does not make a page that cannot be scraped.
const SITES: usize = 200;
/// The site of requests that belong to none.
const NONE: &str = "-";
/// The site of requests of all sites beyond the first.
const OTHER: &str = "other";

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

/// The counters of requests.
pub struct RequestMetrics {
    families: Families,
    by_name: Mutex<HashMap<String, Arc<SiteMetrics>>>,
    /// Of requests that belong to no site.
    no_site: Arc<SiteMetrics>,
    /// Requests in flight.
    pub in_flight: Gauge,
}

#[derive(Clone)]
struct Families {
    /// By site, listener, status and cache result.
    requests: Family<(String, &'static str, u16, &'static str), Counter>,
    bytes: Family<[String; 1], Counter>,
    durations: Family<[String; 1], TimeHistogram>,
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

impl RequestMetrics {
    /// The counters, which `registry` shows.
    pub fn registered(registry: &mut Registry) -> Self {
        let families = Families {
            requests: registry.family(
                "http_requests",
                "Requests answered",
                ["site", "listener", "code", "cache"],
            ),
            bytes: registry.family("http_response_bytes", "Bytes of bodies sent", ["site"]),
            durations: registry.family(
                "http_request_duration_seconds",
                "Time from the request's head to the end of its response",
                ["site"],
            ),
        };
        let no_site = Arc::new(SiteMetrics::new(NONE.to_owned(), &families));
        let by_name = Mutex::new(HashMap::from([(NONE.to_owned(), no_site.clone())]));
        let in_flight = registry.metric("http_requests_in_flight", "Requests in flight");
        Self { families, by_name, no_site, in_flight }
    }

    /// Counts a request that begins.
    pub fn began(&self) {
        self.in_flight.inc();
        did(Work::Miss);
    }

    /// Counts a request that was answered; `site` is `None` if it belongs to none.
    pub fn answered(&self, site: Option<&SiteMetrics>, request: AnsweredRequest) {
        did(request.cache.into());
        site.unwrap_or(&self.no_site).answered(request);
    }

    /// The series of the site with this name.
    pub fn site(&self, name: &str) -> Arc<SiteMetrics> {
        let mut by_name = self.by_name.lock();
        let is_shown = by_name.contains_key(name) || by_name.len() < SITES;
        let name = if is_shown { name } else { OTHER };
        if let Some(known) = by_name.get(name) {
            return known.clone();
        }
        let metrics = Arc::new(SiteMetrics::new(name.to_owned(), &self.families));
        by_name.insert(name.to_owned(), metrics.clone());
        metrics
    }

    /// Requests answered, by listener and cache result.
    pub fn count(&self, from_peer: bool, cache: CacheResult) -> u64 {
        self.by_name.lock().values().map(|site| site.count(from_peer, cache)).sum()
    }

    /// Requests answered with a status from 500 to 599, except by another node to which they went on.
    pub fn server_errors(&self) -> u64 {
        self.by_name.lock().values().map(|site| site.server_errors()).sum()
    }

    /// Bytes of bodies sent.
    pub fn bytes(&self) -> u64 {
        self.by_name.lock().values().map(|site| site.bytes.get()).sum()
    }
}

impl SiteMetrics {
    fn new(name: String, families: &Families) -> Self {
        let label = [name.clone()];
        Self {
            name,
            ok: Default::default(),
            others: Mutex::default(),
            bytes: families.bytes.get_or_create(&label).clone(),
            durations: families.durations.get_or_create(&label).clone(),
            families: families.clone(),
        }
    }

    fn answered(&self, request: AnsweredRequest) {
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
        let listener = if from_peer { "peer" } else { "client" };
        let labels = (self.name.clone(), listener, status.as_u16(), cache.as_str());
        self.families.requests.get_or_create(&labels).clone()
    }

    fn server_errors(&self) -> u64 {
        let others = self.others.lock();
        let own = others.iter().filter(|((_, _, cache), _)| *cache != CacheResult::Relayed);
        let failed = own.filter(|((_, status, _), _)| status.is_server_error());
        failed.map(|(_, counter)| counter.get()).sum()
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
        let sites = RequestMetrics::registered(&mut Registry::default());
        let request = AnsweredRequest {
            from_peer: false,
            status: StatusCode::NOT_FOUND,
            cache: CacheResult::Miss,
            bytes: 3,
            elapsed: Duration::ZERO,
        };
        for number in 0..SITES + 50 {
            sites.answered(Some(&sites.site(&format!("{number}.test"))), request);
        }
        sites.answered(None, request);
        // The first ones, the rest, and none.
        assert_eq!(sites.by_name.lock().len(), SITES + 1);
        let all = (SITES + 51) as u64;
        assert_eq!(sites.count(false, CacheResult::Miss), all);
        assert_eq!((sites.count(true, CacheResult::Miss), sites.bytes()), (0, 3 * all));
        assert_eq!(sites.site(OTHER).count(false, CacheResult::Miss), 51);
        assert_eq!(sites.server_errors(), 0);
        let failed = AnsweredRequest { status: StatusCode::BAD_GATEWAY, ..request };
        sites.answered(None, failed);
        sites.answered(None, AnsweredRequest { cache: CacheResult::Relayed, ..failed });
        assert_eq!(sites.server_errors(), 1);
    }
}
