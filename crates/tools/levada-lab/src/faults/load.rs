//! The load: requests at exponentially distributed intervals, sent whether or not earlier ones have
//! been answered, and judged byte by byte.

use std::{cell::RefCell, rc::Rc, time::Duration};

use http::{StatusCode, header::ETAG};
use levada_client::command::content::Verifier;
use levada_types::Rng;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    client::{self, BodyEnd, Waiting},
    door::Door,
    tally::{Tally, Verdict},
};
use crate::cluster::objects::{HIT_SIZE, Objects, VersionedObject};

/// The load on a cluster.
pub(super) struct Load {
    pub(super) objects: Rc<Objects>,
    pub(super) doors: Rc<[Door]>,
    pub(super) tally: Rc<RefCell<Tally>>,
}

impl Load {
    /// Sends requests until `end`, and waits until all of them have ended.
    pub(super) async fn offer(&self, rate: f64, end: Instant, mut rng: Rng) {
        let (mut due, mut tasks) = (Instant::now(), JoinSet::new());
        for number in 0.. {
            due += Duration::from_secs_f64(rng.exponential() / rate);
            if due >= end {
                break;
            }
            sleep_until(due).await;
            while tasks.try_join_next().is_some() {}
            let object = self.objects.choose(&mut rng);
            let Some(at) = self.next(number) else { continue };
            // The node may be struck before the task begins.
            let life = self.doors[at].life();
            let (objects, doors, tally) =
                (self.objects.clone(), self.doors.clone(), self.tally.clone());
            let client = format!("192.0.2.{}", number % CLIENTS);
            tasks.spawn_local(async move {
                if let (Some(object), Some(door)) = (objects.get(object), doors.get(at)) {
                    request(object, door, life, &client, due, &tally).await;
                }
            });
        }
        tasks.join_all().await;
    }

    /// The next node in turn that serves clients.
    fn next(&self, turn: usize) -> Option<usize> {
        let count = self.doors.len();
        (0..count).map(|step| (turn + step) % count).find(|at| self.doors[*at].serves())
    }
}

async fn request(
    object: &VersionedObject,
    door: &Door,
    life: u64,
    client: &str,
    due: Instant,
    tally: &RefCell<Tally>,
) {
    let oldest = object.oldest();
    let waiting = Waiting::since(due);
    let (verdict, hit) = judge(object, oldest, door, client, &waiting).await;
    let waited = waiting.so_far();
    tracing::debug!(node = %door.name, target = %object.target(), ?waited, hit, ?verdict, "a request");
    let mut tally = tally.borrow_mut();
    match door.life() == life {
        true => tally.count(verdict, waited, hit && object.size <= HIT_SIZE),
        false => tally.count_struck(verdict),
    }
}

/// The judgement of one request, and whether the node had the object.
async fn judge(
    object: &VersionedObject,
    oldest: u64,
    door: &Door,
    client: &str,
    waiting: &Waiting,
) -> (Verdict, bool) {
    let fields = client::fields(HOST_NAME, client);
    let (connection, response) = match client::send(door, &object.target(), &fields).await {
        Ok(answered) => answered,
        Err(reason) => return (Verdict::Failed(reason), false),
    };
    let hit = client::is_hit(&response);
    let (head, body) = response.into_parts();
    if head.status != StatusCode::OK {
        let why = head.headers.get("proxy-status").and_then(|value| value.to_str().ok());
        let reason = format!("status {} {}", head.status.as_u16(), why.unwrap_or_default());
        return (Verdict::Failed(reason), false);
    }
    let etag = head.headers.get(ETAG).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some(version) = object.version_of(etag) else {
        return (Verdict::Wrong(format!("no version has the tag {etag}")), false);
    };
    let mut verifier = Verifier::new(object.key(version));
    let end = client::receive(body, waiting, |piece| verifier.take(piece)).await;
    let place = || format!("{} of {} bytes of {}", verifier.bytes(), object.size, object.target());
    let verdict = match end {
        _ if !verifier.is_right() => Verdict::Wrong(format!("other bytes within {}", place())),
        BodyEnd::Broken => Verdict::Cut(format!("broken in {}", kind(object))),
        BodyEnd::Stalled => Verdict::Cut(format!("no byte in time in {}", kind(object))),
        BodyEnd::Whole if verifier.bytes() != object.size => Verdict::Wrong(place()),
        BodyEnd::Whole if version < oldest => {
            Verdict::Stale(format!("{} behind, from {}", oldest - version, door.name))
        }
        BodyEnd::Whole => Verdict::Right,
    };
    if end == BodyEnd::Whole {
        door.keep(connection).await;
    }
    (verdict, hit)
}

fn kind(object: &VersionedObject) -> &'static str {
    if object.size > HIT_SIZE { "a large object" } else { "a small object" }
}

/// The host of the site.
pub(super) const HOST_NAME: &str = "levada.test";
const CLIENTS: usize = 50;
