//! The load: requests that are sent whether or not earlier ones have been answered, and a record of each.

use std::{cell::RefCell, collections::HashMap, net::SocketAddr, rc::Rc, time::Duration};

use levada_testbed::{
    cluster::{load::open_loop, percentile},
    emulation::{client::Client, trace::ROOT},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use super::requests::{Documents, Phase, RequestPlan};

/// Load on a cluster, and what came of it so far.
pub(super) struct Load<'a> {
    documents: &'a Documents,
    fronts: Vec<Rc<Client>>,
    records: Rc<RefCell<Vec<Record>>>,
    tasks: JoinSet<()>,
    plan: RequestPlan,
    /// When the next period begins.
    due: Instant,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) begun: Instant,
    pub(super) end: Option<Ended>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    Answered {
        after: Duration,
        /// Whether the node had it.
        hit: bool,
        /// A number for the node that answered.
        node: usize,
    },
    Failed,
}

impl<'a> Load<'a> {
    /// Before the first request. It must be used on one thread.
    pub(super) fn new(documents: &'a Documents, fronts: &[SocketAddr], seed: u64) -> Self {
        Self {
            documents,
            fronts: fronts.iter().map(|front| Rc::new(Client::of(*front, false))).collect(),
            records: Rc::default(),
            tasks: JoinSet::new(),
            plan: RequestPlan::new(seed),
            due: Instant::now(),
        }
    }

    /// When the next phase begins.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Sends the requests of a phase, and returns its beginning and its end. No time is between this phase
    /// and the one before.
    pub(super) async fn offer(&mut self, phase: Phase) -> (Instant, Instant) {
        let begin = self.due;
        let requests = self.plan.next(self.documents, phase);
        open_loop(begin, requests.into_iter(), |due, number| self.send(due, number)).await;
        self.due = begin + phase.length;
        sleep_until(self.due).await;
        while self.tasks.try_join_next().is_some() {}
        (begin, self.due)
    }

    fn send(&mut self, begun: Instant, number: u32) {
        let object = self.documents.get(number).clone();
        let records = self.records.clone();
        let number = records.borrow().len();
        let client = self.fronts[number % self.fronts.len()].clone();
        records.borrow_mut().push(Record { begun, end: None });
        self.tasks.spawn_local(async move {
            let target = &object.name[ROOT..];
            let asked = timeout(ANSWER_TIMEOUT, client.get(target, object.size)).await;
            let end = match asked.map_err(anyhow::Error::from).flatten() {
                Ok(headers) => {
                    let (node, hit) = served_by(&headers);
                    Ended::Answered { after: begun.elapsed(), hit, node }
                }
                Err(error) => {
                    tracing::debug!(%error, target, "a request failed");
                    Ended::Failed
                }
            };
            records.borrow_mut()[number].end = Some(end);
        });
    }

    /// The results of the requests that were due in this period.
    pub(super) fn judge(&self, (begin, end): (Instant, Instant)) -> Period {
        let records = self.records.borrow();
        Period::of(records.iter().filter(|record| record.begun >= begin && record.begun < end))
    }
}

/// The results of the requests of a period.
#[derive(Clone, Debug, Default)]
pub(super) struct Period {
    pub(super) requests: usize,
    pub(super) failed: usize,
    /// The 95th percentile of the time to the last byte. A request without an answer so far counts
    /// as one that took for ever.
    pub(super) p95: Duration,
    /// The part of the answers that came from a node's memory.
    pub(super) hit_ratio: f64,
    /// The part of the busiest node in all answers.
    pub(super) busiest: f64,
}

impl Period {
    fn of<'a>(records: impl Iterator<Item = &'a Record>) -> Self {
        let mut period = Self::default();
        let mut times = Vec::new();
        let (mut answered, mut hits) = (0_usize, 0);
        let mut nodes: HashMap<usize, usize> = HashMap::new();
        for record in records {
            period.requests += 1;
            times.push(match record.end {
                Some(Ended::Answered { after, hit, node }) => {
                    answered += 1;
                    hits += usize::from(hit);
                    *nodes.entry(node).or_default() += 1;
                    after
                }
                Some(Ended::Failed) => {
                    period.failed += 1;
                    Duration::MAX
                }
                None => Duration::MAX,
            });
        }
        period.p95 = percentile(&times, 95);
        let part = |count: usize| count as f64 / (answered as f64).max(1.0);
        period.hit_ratio = part(hits);
        period.busiest = part(nodes.into_values().max().unwrap_or(0));
        period
    }

    /// Whether the cluster carried the load.
    pub(super) fn is_fine(&self) -> bool {
        self.failed == 0 && self.p95 < LIMIT
    }
}

/// The node that served an answer and whether it had it, as its `Cache-Status` says (RFC 9211).
fn served_by(headers: &http::HeaderMap) -> (usize, bool) {
    let status = headers.get_all("cache-status").iter().filter_map(|value| value.to_str().ok());
    let mut members = status.flat_map(|value| value.split(','));
    let nodes = members.find_map(|member| {
        let (name, rest) = member.trim().split_once(';').unwrap_or((member.trim(), ""));
        let number = name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()?;
        (!name.starts_with("front")).then(|| (number, rest.trim_start().starts_with("hit")))
    });
    nodes.unwrap_or((usize::MAX, false))
}

/// The limit of the 95th percentile, beyond which a cluster does not carry its load.
pub(super) const LIMIT: Duration = Duration::from_millis(500);
/// How long a client waits for an answer: many times [`LIMIT`], so that slow answers are measured, not cut off.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    #[test]
    fn the_node_and_its_hit_are_read_from_the_cache_status() {
        let of = |values: &[&'static str]| {
            let values = values.iter().map(|value| HeaderValue::from_static(value));
            served_by(
                &values
                    .map(|value| (http::header::HeaderName::from_static("cache-status"), value))
                    .collect::<HeaderMap>(),
            )
        };
        assert_eq!(of(&["server-3; hit; ttl=5"]), (3, true));
        assert_eq!(of(&["server-3; fwd=uri-miss; stored", "front0; fwd=bypass"]), (3, false));
        assert_eq!(of(&["front1; fwd=bypass, server-7; hit"]), (7, true));
        assert_eq!(of(&[]), (usize::MAX, false));
    }

    #[test]
    fn a_period_is_fine_when_all_is_answered_in_time() {
        let begun = Instant::now();
        let answered = |ms, node| Record {
            begun,
            end: Some(Ended::Answered { after: Duration::from_millis(ms), hit: node == 0, node }),
        };
        let mut records = vec![answered(10, 0); 96];
        records.extend([answered(900, 1); 4]);
        let fine = Period::of(records.iter());
        assert!(fine.is_fine(), "{fine:?}");
        assert_eq!((fine.hit_ratio, fine.busiest, fine.requests), (0.96, 0.96, 100));

        let waiting = Record { begun, end: None };
        records.extend([waiting; 6]);
        assert!(!Period::of(records.iter()).is_fine(), "a tenth has no answer in time");

        let failed = Record { begun, end: Some(Ended::Failed) };
        assert!(!Period::of([answered(1, 0), failed].iter()).is_fine());
        assert_eq!(Period::of([].iter()).p95, Duration::ZERO);
    }
}
