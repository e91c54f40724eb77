//! The load: requests at exponentially distributed intervals, of clients of several kinds, verified byte by byte.

use std::{cell::RefCell, rc::Rc, time::Duration};

use http::{
    HeaderName, StatusCode,
    header::{CONNECTION, ETAG},
};
use levada_client::command::content::Verifier;
use levada_testbed::cluster::{
    SILENCE_TIMEOUT,
    client::{BodyEnd, Reader},
    load::{open_loop, poisson},
    objects::{HIT_SIZE, Objects, VersionedObject},
    problems::{Problem, Verdict},
};
use levada_types::Rng;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{client::ClientKind, counts::Counts, nodes::ChangedDoor};

/// The load on a cluster.
pub(super) struct ChangeLoad {
    pub(super) objects: Rc<Objects>,
    pub(super) nodes: Rc<RefCell<Vec<Rc<ChangedDoor>>>>,
    /// The front-end that hands connections off.
    pub(super) front: Option<Rc<ChangedDoor>>,
    pub(super) counts: Rc<Counts>,
}

impl ChangeLoad {
    /// Sends requests until `end`, and waits until all of them have ended.
    pub(super) async fn offer(&self, rate: f64, end: Instant, mut rng: Rng) {
        let (begin, mut choices) = (Instant::now(), Rng::new(rng.bits()));
        let times = poisson(rate, (Duration::ZERO, end - begin), rng);
        let mut tasks = JoinSet::new();
        open_loop(begin, times.zip(0..), |due, number| {
            while tasks.try_join_next().is_some() {}
            let object = self.objects.choose(&mut choices);
            let kind = ClientKind::choose(self.front.is_some(), &mut choices);
            let door = match self.front.as_ref().filter(|_| kind.is_of_front()) {
                Some(front) => front.clone(),
                None => self.next(number),
            };
            let (objects, counts) = (self.objects.clone(), self.counts.clone());
            tasks.spawn_local(async move {
                let Some(object) = objects.get(object) else { return };
                let begun = counts.begun();
                if let Err((problem, reason)) = request(object, &door, kind, &counts).await {
                    counts.problem(problem, &format!("{reason}, {}", kind.as_str()));
                } else if object.size <= HIT_SIZE {
                    counts.took(begun, due.elapsed());
                }
            });
        })
        .await;
        tasks.join_all().await;
    }

    /// The next node in turn.
    fn next(&self, number: usize) -> Rc<ChangedDoor> {
        let nodes = self.nodes.borrow();
        let serving: Vec<_> = nodes.iter().filter(|node| node.serves.get()).collect();
        serving[number % serving.len()].clone()
    }
}

/// One request, and what went wrong with it.
async fn request(
    object: &VersionedObject,
    door: &ChangedDoor,
    kind: ClientKind,
    counts: &Counts,
) -> Verdict {
    let target = object.target();
    let exchange = door.client.exchange(kind, &target, counts);
    let late = |_| Err((Problem::Failed, "no response in time".to_owned()));
    let (connection, response) = timeout(SILENCE_TIMEOUT, exchange).await.unwrap_or_else(late)?;
    if response.status() != StatusCode::OK {
        return Err((Problem::Failed, format!("status {}", response.status().as_u16())));
    }
    let field = |name: HeaderName| response.headers().get(name)?.to_str().ok();
    let (etag, closes) = (field(ETAG).unwrap_or_default(), field(CONNECTION) == Some("close"));
    let version = object.version_of(etag);
    let version = version.ok_or_else(|| (Problem::Wrong, format!("the tag {etag}")))?;
    let mut verifier = Verifier::new(object.key(version));
    // Large bodies last while the cluster changes.
    let mut reader = Reader::new(READING, SILENCE_TIMEOUT);
    let cut = |why: &str| Err((Problem::Cut, format!("{why} in {} bytes", object.size)));
    match reader.receive(response, |piece| verifier.take(piece)).await {
        BodyEnd::Whole => {}
        BodyEnd::Stalled => return cut("no byte in time"),
        BodyEnd::Broken(error) => return cut(&format!("broken ({error})")),
    }
    if !verifier.is_right() {
        return Err((Problem::Wrong, "other bytes".to_owned()));
    }
    if verifier.bytes() != object.size {
        return Err((Problem::Cut, format!("{} of {} bytes", verifier.bytes(), object.size)));
    }
    door.client.keep(kind, connection, closes).await;
    Ok(())
}

/// Bytes per second that a client reads.
const READING: f64 = 20e6;
