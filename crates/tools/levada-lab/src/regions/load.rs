//! The requests of the clients of all regions, and what came of them.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use http::HeaderMap;
use levada_testbed::{
    cluster::{load::open_loop, percentile},
    emulation::client::Client,
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{
    network::{NODES, REGIONS, addresses, region_of},
    objects::Target,
};

/// The clients of all regions: one for each node, which only those of its region ask.
pub(super) struct RegionClients(Vec<Rc<Client>>);

/// The answers to requests of a kind.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) requests: usize,
    /// The times of those that were answered.
    times: Vec<Duration>,
    /// The reasons of the others.
    pub(super) failed: Vec<String>,
}

impl RegionClients {
    pub(super) fn new() -> Self {
        Self((0..NODES).map(|at| Rc::new(Client::of(addresses(at).clients, false))).collect())
    }

    /// The fields of a node's answer.
    ///
    /// # Errors
    /// With the reason why there is no right one in time.
    pub(super) async fn ask(&self, node: usize, target: &Target) -> Result<HeaderMap, String> {
        ask(&self.0[node], target).await
    }

    /// Sends requests when they are due, whether or not earlier ones have been answered, each to a node of its region in
    /// turn, and waits until all have ended. Returns the answers by region.
    pub(super) async fn offer(
        &self,
        arrivals: impl Iterator<Item = (Duration, (usize, Target))>,
    ) -> [Answers; REGIONS.len()] {
        let (begin, mut tasks, mut number) = (Instant::now(), JoinSet::new(), 0);
        let answers = Rc::new(RefCell::new(<[Answers; REGIONS.len()]>::default()));
        open_loop(begin, arrivals, |due, (region, target)| {
            let client = self.in_turn(region, number);
            let answers = answers.clone();
            number += 1;
            tasks.spawn_local(async move {
                let answer = ask(&client, &target).await;
                answers.borrow_mut()[region].note(answer.map(|_| due.elapsed()));
            });
        })
        .await;
        tasks.join_all().await;
        answers.take()
    }

    fn in_turn(&self, region: usize, number: usize) -> Rc<Client> {
        let own: Vec<_> = (0..NODES).filter(|at| region_of(*at) == region).collect();
        self.0[own[number % own.len()]].clone()
    }
}

impl Answers {
    fn note(&mut self, answer: Result<Duration, String>) {
        self.requests += 1;
        match answer {
            Ok(time) => self.times.push(time),
            Err(reason) => self.failed.push(reason),
        }
    }

    /// The reasons of those that were not answered, with their numbers.
    pub(super) fn reasons(&self) -> BTreeMap<String, usize> {
        let mut reasons = BTreeMap::new();
        self.failed.iter().for_each(|reason| *reasons.entry(reason.clone()).or_default() += 1);
        reasons
    }

    /// The part of the requests that was answered, from 0 to 1.
    pub(super) fn share(&self) -> f64 {
        self.times.len() as f64 / (self.requests as f64).max(1.0)
    }

    /// The time within which this part of the answers came.
    pub(super) fn within(&self, percent: usize) -> Duration {
        percentile(&self.times, percent)
    }
}

async fn ask(client: &Client, target: &Target) -> Result<HeaderMap, String> {
    let answer = timeout(PATIENCE, client.get(&target.path, target.size)).await;
    let answer = answer.map_err(|_| "no answer in time".to_owned())?;
    answer.map_err(|error| format!("{error:#}"))
}

/// The time for which a client waits.
const PATIENCE: Duration = Duration::from_secs(10);
