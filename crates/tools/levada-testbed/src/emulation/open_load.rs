//! The load of labs of clusters: requests that are sent whether or not earlier ones have been answered, and a record of
//! each.

use std::{cell::RefCell, net::SocketAddr, rc::Rc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use super::{
    client::Client,
    requests::{Documents, Phase, RequestPlan},
    trace::ROOT,
};
use crate::cluster::load::open_loop;

/// Load on a cluster, and what came of it so far.
pub struct Load<'a> {
    documents: &'a Documents,
    servers: Vec<Rc<Client>>,
    records: Rc<RefCell<Vec<Record>>>,
    tasks: JoinSet<()>,
    plan: RequestPlan,
    /// When the next phase begins.
    due: Instant,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The moment at which it was due.
    pub begun: Instant,
    /// The size of the document.
    pub bytes: u64,
    /// Its end; `None` while it waits.
    pub end: Option<Ended>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub enum Ended {
    /// With all bytes.
    Answered {
        /// The time from the due moment to the last byte.
        after: Duration,
        /// Whether the node had it.
        hit: bool,
        /// A number for the node that answered.
        node: usize,
    },
    /// Without an answer in time, or with a wrong one.
    Failed,
}

impl<'a> Load<'a> {
    /// Before the first request; servers are asked in turn. It must be used on one thread.
    pub fn new(documents: &'a Documents, servers: &[SocketAddr], seed: u64) -> Self {
        Self {
            documents,
            servers: servers.iter().map(|server| Rc::new(Client::of(*server, false))).collect(),
            records: Rc::default(),
            tasks: JoinSet::new(),
            plan: RequestPlan::new(seed),
            due: Instant::now(),
        }
    }

    /// When the next phase begins.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Sends the requests of a phase, and returns its beginning and its end. No time is between this phase and the one
    /// before.
    pub async fn offer(&mut self, phase: Phase) -> (Instant, Instant) {
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
        let client = self.servers[number % self.servers.len()].clone();
        records.borrow_mut().push(Record { begun, bytes: object.size, end: None });
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

    /// Lets the next phase begin now.
    pub fn resume(&mut self) {
        self.due = Instant::now();
    }

    /// The requests that were due in this period.
    pub fn records(&self, (begin, end): (Instant, Instant)) -> Vec<Record> {
        let records = self.records.borrow();
        records.iter().filter(|one| one.begun >= begin && one.begun < end).copied().collect()
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

/// How long a client waits for an answer: so that slow answers are measured, not cut off.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

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
}
