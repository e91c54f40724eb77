//! The load: requests at exponentially distributed intervals, sent whether or not earlier ones have
//! been answered, and judged byte by byte.

use std::{cell::RefCell, rc::Rc, time::Duration};

use http::{HeaderName, StatusCode, header::ETAG};
use levada_client::command::content::Verifier;
use levada_testbed::cluster::{
    client::{BodyEnd, Reader},
    load::{open_loop, poisson},
    objects::{HIT_SIZE, Objects, VersionedObject},
    problems::{Problem, Verdict},
};
use levada_types::Rng;
use tokio::{task::JoinSet, time::Instant};

use super::{client, door::Door, tally::Tally};

/// The load on a cluster.
pub(super) struct Load {
    pub(super) objects: Rc<Objects>,
    pub(super) doors: Rc<[Door]>,
    pub(super) tally: Rc<RefCell<Tally>>,
}

impl Load {
    /// Sends requests until `end`, and waits until all of them have ended.
    pub(super) async fn offer(&self, rate: f64, end: Instant, mut rng: Rng) {
        let (begin, mut choices) = (Instant::now(), Rng::new(rng.bits()));
        let times = poisson(rate, (Duration::ZERO, end - begin), rng);
        let mut tasks = JoinSet::new();
        open_loop(begin, times.zip(0..), |due, number| {
            while tasks.try_join_next().is_some() {}
            let object = self.objects.choose(&mut choices);
            let Some(at) = self.next(number) else { return };
            // The node may be struck before the task begins.
            let life = self.doors[at].life();
            let (objects, doors, tally) =
                (self.objects.clone(), self.doors.clone(), self.tally.clone());
            let client = address_of(number);
            tasks.spawn_local(async move {
                if let (Some(object), Some(door)) = (objects.get(object), doors.get(at)) {
                    request(object, door, life, &client, due, &tally).await;
                }
            });
        })
        .await;
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
    let mut reader = client::reader();
    let (verdict, hit) = judge(object, oldest, door, client, &mut reader).await;
    // Without the pauses of the client's own reading.
    let waited = due.elapsed().saturating_sub(reader.paused());
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
    reader: &mut Reader,
) -> (Verdict, bool) {
    let fields = client::fields(HOST_NAME, client);
    let (connection, response) = match client::send(door, &object.target(), &fields).await {
        Ok(answered) => answered,
        Err(reason) => return (Err((Problem::Failed, reason)), false),
    };
    let hit = client::is_hit(&response);
    let field = |name: HeaderName| response.headers().get(name)?.to_str().ok();
    if response.status() != StatusCode::OK {
        let why = field(HeaderName::from_static("proxy-status")).unwrap_or_default();
        let reason = format!("status {} {why}", response.status().as_u16());
        return (Err((Problem::Failed, reason)), false);
    }
    let etag = field(ETAG).unwrap_or_default();
    let Some(version) = object.version_of(etag) else {
        return (Err((Problem::Wrong, format!("no version has the tag {etag}"))), false);
    };
    let mut verifier = Verifier::new(object.key(version));
    let end = reader.receive(response, |piece| verifier.take(piece)).await;
    let place = || format!("{} of {} bytes of {}", verifier.bytes(), object.size, object.target());
    let verdict = match end {
        _ if !verifier.is_right() => {
            Err((Problem::Wrong, format!("other bytes within {}", place())))
        }
        BodyEnd::Broken(_) => Err((Problem::Cut, format!("broken in {}", kind(object)))),
        BodyEnd::Stalled => Err((Problem::Cut, format!("no byte in time in {}", kind(object)))),
        BodyEnd::Whole if verifier.bytes() != object.size => Err((Problem::Wrong, place())),
        BodyEnd::Whole if version < oldest => {
            Err((Problem::Stale, format!("{} behind, from {}", oldest - version, door.name)))
        }
        BodyEnd::Whole => Ok(()),
    };
    if matches!(end, BodyEnd::Whole) {
        door.idle.keep(connection).await;
    }
    (verdict, hit)
}

fn kind(object: &VersionedObject) -> &'static str {
    if object.size > HIT_SIZE { "a large object" } else { "a small object" }
}

/// The address of the client that sends the request with this number.
pub(super) fn address_of(number: usize) -> String {
    format!("192.0.2.{}", number % CLIENTS)
}

/// The host of the site.
pub(super) const HOST_NAME: &str = "levada.test";
pub(super) const CLIENTS: usize = 50;
