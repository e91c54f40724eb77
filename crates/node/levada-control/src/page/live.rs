//! The stream of server-sent events: one snapshot per second for all viewers together, events as they happen.
//!
//! A snapshot is written once, and all viewers share its bytes. A viewer has a short queue; one that does not read
//! it is let go, and its browser comes back by itself. While nobody watches, nothing runs here.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use levada_cluster::events::{Event, unix_time};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::{
    sync::{broadcast, mpsc},
    time::{Instant, sleep_until},
};

use crate::page::shown::{Orders, Shown};

/// The most streams at a time.
pub const MOST_VIEWERS: usize = 64;
/// Messages that may wait for a viewer.
const QUEUED: usize = 64;
/// The events that a new viewer gets.
const RECENT: usize = 100;
/// The interval of snapshots: rates are those of seconds.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);
/// A snapshot that is older is not shown to a new viewer.
const FRESH: Duration = Duration::from_millis(1500);

pub(crate) struct Live {
    shown: Arc<dyn Shown>,
    /// Tells the events of this process from those of a former one at the same address.
    epoch: u64,
    viewers: Mutex<Viewers>,
}

#[derive(Default)]
struct Viewers {
    queues: Vec<mpsc::Sender<Bytes>>,
    latest: Option<(Instant, Bytes)>,
    is_running: bool,
}

/// One viewer's end of the stream.
pub struct Viewer {
    queue: mpsc::Receiver<Bytes>,
}

impl Viewer {
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.queue.poll_recv(cx)
    }
}

impl Live {
    pub(crate) fn new(shown: Arc<dyn Shown>) -> Arc<Self> {
        let epoch = (unix_time() * 1e3) as u64;
        Arc::new(Self { shown, epoch, viewers: Mutex::default() })
    }

    /// A stream that begins after the event with the id `after`; `None` if there are too many.
    pub(crate) fn join(self: &Arc<Self>, after: Option<&str>, orders: Orders) -> Option<Viewer> {
        let mut viewers = self.viewers.lock();
        // A viewer that has gone is noticed with the next message, which may be a second away.
        viewers.queues.retain(|queue| !queue.is_closed());
        if viewers.queues.len() >= MOST_VIEWERS {
            return None;
        }
        // Listens before it reads what has happened, so that no event falls between.
        let events = (!viewers.is_running).then(|| self.shown.events().listen());
        let (queue, receiver) = mpsc::channel(QUEUED);
        let mut first = b"retry: 1000\n\n".to_vec();
        message(&mut first, "hello", None, &self.shown.hello(orders));
        let history = serde_json::json!({
            "samples": self.shown.history(),
            "sets": self.shown.set_sizes(),
        });
        message(&mut first, "history", None, &history);
        for event in self.missed(after) {
            message(&mut first, "event", Some((self.epoch, event.number)), &*event);
        }
        let latest = viewers.latest.as_ref().filter(|(at, _)| at.elapsed() < FRESH);
        let latest = latest.map(|(_, snapshot)| snapshot.clone());
        // A new queue has room.
        for bytes in [Some(first.into()), latest].into_iter().flatten() {
            let _ = queue.try_send(bytes);
        }
        viewers.queues.push(queue);
        if let Some(events) = events {
            viewers.is_running = true;
            tokio::spawn(self.clone().run(events));
        }
        Some(Viewer { queue: receiver })
    }

    /// Ends all streams with a word that there will be no other.
    pub(crate) fn end(&self) {
        let mut viewers = self.viewers.lock();
        viewers.send(&Bytes::from_static(b"event: end\ndata: {}\n\n"));
        viewers.queues.clear();
    }

    /// The events after the one that a viewer had last, or the most recent ones.
    fn missed(&self, after: Option<&str>) -> Vec<Arc<Event>> {
        let id = after.and_then(|id| id.split_once('-'));
        let known = id.filter(|(epoch, _)| epoch.parse() == Ok(self.epoch));
        match known.and_then(|(_, number)| number.parse().ok()) {
            Some(number) => self.shown.events().since(number),
            None => {
                let mut kept = self.shown.events().since(0);
                kept.drain(..kept.len().saturating_sub(RECENT));
                kept
            }
        }
    }

    /// Serves all viewers until there is none.
    async fn run(self: Arc<Self>, mut events: broadcast::Receiver<Arc<Event>>) {
        let mut next = Instant::now();
        loop {
            let mut snapshot = self.shown.snapshot();
            let told = loop {
                tokio::select! {
                    told = &mut snapshot => break told,
                    event = events.recv() => self.pass_on(event),
                }
            };
            let mut bytes = Vec::new();
            message(&mut bytes, "snapshot", None, &told);
            if !self.send_snapshot(bytes.into()) {
                return;
            }
            // A snapshot that took long is not followed by another one at once.
            next = (next + SNAPSHOT_INTERVAL).max(Instant::now() + SNAPSHOT_INTERVAL / 4);
            loop {
                tokio::select! {
                    () = sleep_until(next) => break,
                    event = events.recv() => self.pass_on(event),
                }
            }
        }
    }

    fn pass_on(&self, event: Result<Arc<Event>, broadcast::error::RecvError>) {
        // Of events that came too fast, viewers see the gap in the numbers.
        let Ok(event) = event else { return };
        let mut bytes = Vec::new();
        message(&mut bytes, "event", Some((self.epoch, event.number)), &*event);
        self.viewers.lock().send(&bytes.into());
    }

    /// Whether somebody still watches.
    fn send_snapshot(&self, bytes: Bytes) -> bool {
        let mut viewers = self.viewers.lock();
        viewers.send(&bytes);
        viewers.is_running = !viewers.queues.is_empty();
        viewers.latest = viewers.is_running.then(|| (Instant::now(), bytes));
        viewers.is_running
    }
}

impl Viewers {
    /// Viewers whose queues are full have not read for long, and are let go.
    fn send(&mut self, bytes: &Bytes) {
        self.queues.retain(|queue| queue.try_send(bytes.clone()).is_ok());
    }
}

/// Writes one message of the stream. JSON in one line has no line break (RFC 8259, Sec. 7).
fn message(bytes: &mut Vec<u8>, name: &str, id: Option<(u64, u64)>, data: &impl Serialize) {
    bytes.extend_from_slice(format!("event: {name}\n").as_bytes());
    if let Some((epoch, number)) = id {
        bytes.extend_from_slice(format!("id: {epoch}-{number}\n").as_bytes());
    }
    bytes.extend_from_slice(b"data: ");
    // The types have no keys that JSON refuses.
    let _ = serde_json::to_writer(&mut *bytes, data);
    bytes.extend_from_slice(b"\n\n");
}
