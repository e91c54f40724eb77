//! Changes at the origin, each with a purge that a node of the cluster gets.

use std::{rc::Rc, time::Duration};

use levada_client::command::admin_client;
use levada_testbed::cluster::objects::{Objects, VersionedObject};
use levada_types::Rng;
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, interval, sleep},
};

use super::{door::Door, load::HOST_NAME};

/// The purger. It must be used on one thread.
pub(super) struct Purger {
    pub(super) objects: Rc<Objects>,
    pub(super) doors: Rc<[Door]>,
    pub(super) token: Rc<str>,
}

impl Purger {
    /// Changes and purges objects until `end`; returns the number of purges, and of confirmed ones.
    pub(super) async fn run(self: Rc<Self>, end: Instant, mut rng: Rng) -> (usize, usize) {
        let mut tasks = JoinSet::new();
        let (mut turn, mut purges) = (interval(PURGE_INTERVAL), 0);
        while turn.tick().await < end {
            let (number, first) = (self.objects.choose(&mut rng), rng.below(self.doors.len()));
            let purger = self.clone();
            purges += 1;
            tasks.spawn_local(async move {
                match purger.objects.get(number) {
                    Some(object) => purger.purge(object, first, end).await,
                    None => false,
                }
            });
        }
        let confirmed = tasks.join_all().await;
        (purges, confirmed.into_iter().filter(|confirmed| *confirmed).count())
    }

    /// Purges one object, at another node if the first one does not answer; whether it was confirmed.
    async fn purge(&self, object: &VersionedObject, first: usize, end: Instant) -> bool {
        let version = object.publish();
        let lives: Vec<_> = self.doors.iter().map(Door::life).collect();
        let order = json!({ "url": format!("http://{HOST_NAME}{}", object.target()) });
        for told in first.. {
            let door = &self.doors[told % self.doors.len()];
            if door.serves() && self.tell(door, &order, &lives, end).await {
                object.confirm(version);
                return true;
            }
            if Instant::now() > end {
                break;
            }
            sleep(CHECK_INTERVAL).await;
        }
        false
    }

    /// Tells one node, and asks it until all nodes have confirmed that were not struck meanwhile.
    /// False if it does not answer.
    async fn tell(&self, door: &Door, order: &Value, lives: &[u64], end: Instant) -> bool {
        let token = Some(&*self.token);
        let told = admin_client::post(door.admin, "/purge", order, token, ANSWER_TIMEOUT).await;
        let mut report =
            told.map(|body| serde_json::from_slice::<Value>(&body).unwrap_or_default());
        let Ok(first) = &report else { return false };
        let target = format!("/purge?order={}", first["order"].as_str().unwrap_or_default());
        while let Ok(now) = &report {
            if self.is_confirmed(now, lives) {
                return true;
            }
            if Instant::now() > end {
                return false;
            }
            sleep(CHECK_INTERVAL).await;
            let asked = admin_client::get(door.admin, &target, ANSWER_TIMEOUT).await;
            report = asked.map(|body| serde_json::from_slice(&body).unwrap_or_default());
        }
        false
    }

    fn is_confirmed(&self, report: &Value, lives: &[u64]) -> bool {
        let nodes = report["nodes"].as_array().map_or(&[][..], Vec::as_slice);
        let confirmed = |door: &Door| {
            nodes.iter().any(|node| node["node"] == *door.name && node["result"] == "confirmed")
        };
        self.doors.iter().zip(lives).all(|(door, life)| confirmed(door) || door.life() != *life)
    }
}

/// Purges come often enough that each fault meets some.
const PURGE_INTERVAL: Duration = Duration::from_millis(400);
/// The interval of checks whether a purge is confirmed everywhere.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The timeout for a purge: longer than a node waits for its peers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(6);
