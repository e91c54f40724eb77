//! Polls the nodes from outside, as an operator would: their status pages, and their explanations of
//! the hottest objects.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use futures_util::future::join_all;
use levada_client::command::admin_client;
use levada_cluster::events::unix_time;
use levada_control::status::{NodeStatus, SetWatch};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::Instant;

use super::{
    board::{Board, NodeLive},
    config::HOST_NAME,
    setup::Setup,
};

/// The fields read of `/explain`.
#[derive(Clone, Debug, Deserialize)]
struct Explanation {
    set: Vec<String>,
    candidates: Vec<Candidate>,
}

#[derive(Clone, Debug, Deserialize)]
struct Candidate {
    node: String,
    up: bool,
    ramp: f64,
}

/// A node to poll.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) name: String,
    pub(super) admin: SocketAddr,
}

/// Polls all nodes twice a second, for ever.
pub(super) async fn watch(nodes: Vec<Watched>, setup: Arc<Setup>, board: Arc<Board>) {
    let mut last: Vec<Option<Arc<NodeStatus>>> = vec![None; nodes.len()];
    let mut looked = Instant::now();
    let mut sets_seen = (0, SetWatch::default());
    let (mut retries, mut ticks_done) = (vec![0; nodes.len()], 0);
    let mut ticks = tokio::time::interval(VIEW_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let statuses: Vec<Option<Arc<NodeStatus>>> = ask_all(&nodes, "/status").await;
        for (node, status) in statuses.iter().enumerate() {
            status.iter().for_each(|status| board.told(node, status.clone()));
        }
        tell_sets(&statuses, &mut sets_seen, &board);
        let passed = looked.elapsed().as_secs_f64().max(1e-3);
        looked = Instant::now();
        let mut live = live(&nodes, &statuses, &last, passed);
        last = statuses;
        let hottest = url(&setup, setup.hottest());
        let told: Vec<Option<Explanation>> =
            ask_all(&nodes, &admin_client::explain_target(&hottest)).await;
        for explanation in told.iter().flatten() {
            board.hot_set(explanation.set.len());
            judge(&nodes, explanation, &mut live);
        }
        board.look().nodes = live;
        if ticks_done % RETRY_TICKS == 0 {
            board.node_retries(new_retries(&nodes, &mut retries).await);
        }
        ticks_done += 1;
        sets(&nodes, &setup, &board).await;
    }
}

/// Tells of sets that have changed, as one node sees them. Each node has its own view.
fn tell_sets(
    statuses: &[Option<Arc<NodeStatus>>],
    (node, sets): &mut (usize, SetWatch),
    board: &Board,
) {
    let answered = statuses.iter().enumerate();
    let Some((first, status)) = answered.filter_map(|(n, s)| Some((n, s.as_ref()?))).next() else {
        return;
    };
    if first != std::mem::replace(node, first) {
        *sets = SetWatch::default();
    }
    sets.look(&status.hottest, &board.events);
    board.set_sizes.note(&status.hottest, (unix_time() * 1e3) as u64);
}

/// The change since the last poll. A restarted node counts from zero again.
fn live(
    nodes: &[Watched],
    statuses: &[Option<Arc<NodeStatus>>],
    last: &[Option<Arc<NodeStatus>>],
    passed: f64,
) -> Vec<NodeLive> {
    let outstanding = |name: &str| {
        let of = |status: &Arc<NodeStatus>| {
            let peer = status.peers.iter().find(|peer| peer.name == name);
            peer.and_then(|peer| peer.outstanding).unwrap_or(0)
        };
        statuses.iter().flatten().map(of).sum()
    };
    let each = nodes.iter().zip(statuses).zip(last);
    each.map(|((node, status), last)| {
        let Some(now) = status else { return NodeLive::default() };
        let before = last.clone().filter(|last| last.hits <= now.hits).unwrap_or_default();
        let since = |read: fn(&NodeStatus) -> u64| read(now).saturating_sub(read(&before));
        let hits = since(|s| s.hits + s.collapsed);
        NodeLive {
            up: true,
            ramp: 1.0,
            outstanding: outstanding(&node.name),
            hits,
            lookups: hits + since(|s| s.misses),
            origin_rate: since(|s| s.origin_bytes) as f64 / passed,
        }
    })
    .collect()
}

/// A node ramps while some redirector reports it.
fn judge(nodes: &[Watched], explanation: &Explanation, live: &mut [NodeLive]) {
    for candidate in &explanation.candidates {
        let Some(index) = nodes.iter().position(|node| node.name == candidate.node) else {
            continue;
        };
        let ramp = if candidate.up { candidate.ramp } else { 0.0 };
        live[index].ramp = live[index].ramp.min(ramp);
    }
}

/// Decisions for another node after a failure, since the last time. A restarted node counts from zero again.
async fn new_retries(nodes: &[Watched], last: &mut [u64]) -> u64 {
    let mut new = 0;
    for (node, last) in nodes.iter().zip(last) {
        let Ok(page) = admin_client::get(node.admin, "/metrics", PAGE_TIMEOUT).await else {
            continue;
        };
        let now = retries(&String::from_utf8_lossy(&page));
        new += if now < *last { now } else { now - *last };
        *last = now;
    }
    new
}

/// The sum of a counter's series with the reason "retry".
fn retries(page: &str) -> u64 {
    let lines = page.lines().filter(|line| line.starts_with("levada_policy_decisions_total{"));
    let lines = lines.filter(|line| line.contains("reason=\"retry\""));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// The sets of the hottest objects, by the first redirector that answers.
async fn sets(nodes: &[Watched], setup: &Setup, board: &Board) {
    let hottest = board.look().hottest(OBJECTS);
    let mut sets = std::collections::HashMap::new();
    for hot in hottest {
        let target = admin_client::explain_target(&url(setup, hot.object));
        let up = board.look().nodes.iter().position(|node| node.up);
        let Some(node) = up.map(|index| &nodes[index]) else { break };
        if let Some(explanation) = ask_one::<Explanation>(node.admin, &target).await {
            sets.insert(hot.object, explanation.set);
        }
    }
    board.look().sets = sets;
}

fn url(setup: &Setup, object: u32) -> String {
    format!("http://{HOST_NAME}{}", setup.catalog.object(object).target)
}

async fn ask_all<T: DeserializeOwned>(nodes: &[Watched], target: &str) -> Vec<Option<T>> {
    join_all(nodes.iter().map(|node| ask_one(node.admin, target))).await
}

async fn ask_one<T: DeserializeOwned>(admin: SocketAddr, target: &str) -> Option<T> {
    let body = admin_client::get(admin, target, PAGE_TIMEOUT).await.ok()?;
    serde_json::from_slice(&body).ok()
}

/// Objects shown in the view.
pub(super) const OBJECTS: usize = 4;

/// Counters are read less often than the rest.
const RETRY_TICKS: u32 = 4;
/// The view changes twice a second, as fast as one can read it.
const VIEW_INTERVAL: Duration = Duration::from_millis(500);
/// The timeout for a page of a node. It is long, so that a busy node does not count as dead.
const PAGE_TIMEOUT: Duration = Duration::from_secs(2);
