//! How much of the load this machine carries now, with its other programs and this build.

use std::{sync::Arc, time::Duration};

use levada_testbed::cluster::load::open_loop;
use tokio::{task::JoinSet, time::Instant};

use super::{
    client::Clients,
    setup::{Part, Setup},
};

/// Clients that each send one request after another.
const AT_ONCE: usize = 16;
/// How long they do so: long enough that every program of a busy machine has had its turn.
const MEASURED: Duration = Duration::from_millis(600);
const MOST_MEASURED: Duration = Duration::from_secs(5);
/// How long the trace is rehearsed.
const REHEARSED: Duration = Duration::from_secs(2);
/// The objects that they ask for. They are small, so that links are not the limit.
const OBJECTS: usize = 64;

/// Answers per second through the nodes, as fast as they come. On a machine that stands still it takes longer,
/// until there are as many answers as clients.
pub(super) async fn measure(setup: &Setup, clients: &Arc<Clients>) -> f64 {
    let objects: Arc<[u32]> = smallest(setup).into();
    let begin = Instant::now();
    let mut asking = JoinSet::new();
    for client in 0..AT_ONCE {
        let (clients, objects) = (clients.clone(), objects.clone());
        asking.spawn(async move {
            let mut answers = 0;
            while begin.elapsed() < MEASURED {
                let object = objects[(client + answers * AT_ONCE) % objects.len()];
                let ending = clients.request(object).await;
                answers += usize::from(ending.result.is_ok());
            }
            answers
        });
    }
    let all = async {
        let mut answers = 0;
        while let Some(of_one) = asking.join_next().await {
            answers += of_one.unwrap_or(0);
        }
        answers
    };
    let answers = tokio::time::timeout(MOST_MEASURED, all).await.unwrap_or(0);
    answers as f64 / begin.elapsed().as_secs_f64()
}

/// The median latency of the first requests of the trace, sent at their times to nodes that need not have their
/// objects. Requests without an answer by the end count as those that took longest.
pub(super) async fn rehearse(setup: &Setup, clients: &Arc<Clients>) -> Duration {
    let begin = Instant::now();
    let mut asking = JoinSet::new();
    let first = setup.arrivals(Part::Minute(Duration::ZERO));
    let first = first.take_while(|arrival| arrival.at <= REHEARSED);
    open_loop(begin, first.map(|arrival| (arrival.at, arrival.object)), |due, object| {
        let clients = clients.clone();
        asking.spawn(async move {
            clients.request(object).await;
            due.elapsed()
        });
    })
    .await;
    let sent = asking.len();
    let mut latencies = Vec::with_capacity(sent);
    let all = async {
        while let Some(latency) = asking.join_next().await {
            latencies.extend(latency);
        }
    };
    let _ = tokio::time::timeout(REHEARSED, all).await;
    latencies.resize(sent, MOST_MEASURED);
    latencies.sort_unstable();
    latencies.get(sent / 2).copied().unwrap_or_default()
}

fn smallest(setup: &Setup) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..setup.catalog.objects.len() as u32).collect();
    ids.sort_by_key(|id| (setup.catalog.object(*id).size, *id));
    ids.truncate(OBJECTS);
    ids
}
