//! The connections over HTTP/2 to one server, those of each worker apart.

use std::{future::Future, net::IpAddr, pin::Pin, time::Instant};

use parking_lot::Mutex;

use super::connection::{Http2Connection, StreamPlace};
use crate::{
    ServerFailure,
    pool::{IDLE_TIMEOUT, worker},
};

/// The connections to one server.
pub(crate) struct Http2Pool {
    slots: Box<[Slot]>,
    /// The most connections of a slot, as long as there are idle ones to close.
    bound: usize,
}

/// The connections of one worker. Those of threads that are no workers, such as of probes, are apart: the tasks that
/// drive a connection run where it was opened.
#[derive(Default)]
struct Slot {
    open: Mutex<Vec<Pooled>>,
    /// Held while a connection is opened, so that requests which come together share it. The failure of the last
    /// time, for those that have waited.
    opening: tokio::sync::Mutex<Option<ServerFailure>>,
}

struct Pooled {
    connection: Http2Connection,
    /// The only client whose requests it takes, if it has stated one.
    client: Option<IpAddr>,
    /// The first sweep that found it without requests.
    idle_since: Option<Instant>,
}

/// A connection with a place on it.
pub(super) struct Placed {
    pub(super) connection: Http2Connection,
    pub(super) place: StreamPlace,
    /// Whether it was opened for this request.
    pub(super) is_fresh: bool,
}

/// A connection that is being opened. Boxed, since it is rarely needed and large.
pub(super) type Opening<'a> =
    Pin<Box<dyn Future<Output = Result<Http2Connection, ServerFailure>> + Send + 'a>>;

impl Http2Pool {
    pub(crate) fn new(workers: usize, bound: usize) -> Self {
        Self { slots: (0..=workers).map(|_| Slot::default()).collect(), bound }
    }

    /// A place on a connection that is open, else on one that `open` makes.
    /// `fresh`: not on one that was open before.
    pub(super) async fn place<'a>(
        &self,
        client: Option<IpAddr>,
        fresh: bool,
        open: impl FnOnce() -> Opening<'a>,
    ) -> Result<Placed, ServerFailure> {
        let slot = self.mine();
        if !fresh && let Some(placed) = slot.place(client) {
            return Ok(placed);
        }
        let (mut last, waited) = match slot.opening.try_lock() {
            Ok(last) => (last, false),
            Err(_) => (slot.opening.lock().await, true),
        };
        if waited && let Some(placed) = slot.place(client) {
            return Ok(placed);
        }
        if waited && let Some(failure) = *last {
            return Err(failure);
        }
        *last = None;
        let opened = open().await;
        *last = opened.as_ref().err().copied();
        let connection = opened?;
        let place = connection.first_place();
        slot.keep(connection.clone(), client, self.bound);
        Ok(Placed { connection, place, is_fresh: true })
    }

    /// Closes what has been without requests for too long.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        for slot in &self.slots {
            slot.open.lock().retain_mut(|pooled| {
                if pooled.connection.is_closing() {
                    return false;
                }
                match (pooled.connection.is_idle(), pooled.idle_since) {
                    (false, _) => pooled.idle_since = None,
                    (true, None) => pooled.idle_since = Some(now),
                    (true, Some(since)) => return now.duration_since(since) <= IDLE_TIMEOUT,
                }
                true
            });
        }
    }

    fn mine(&self) -> &Slot {
        let others = self.slots.len() - 1;
        &self.slots[worker().map_or(others, |index| index % others.max(1))]
    }
}

impl Slot {
    /// A place on the first connection that has one, so that the last ones become idle and close.
    fn place(&self, client: Option<IpAddr>) -> Option<Placed> {
        let mut open = self.open.lock();
        open.retain(|pooled| !pooled.connection.is_closing());
        open.iter_mut().find_map(|pooled| {
            let place = (pooled.client == client).then(|| pooled.connection.place()).flatten()?;
            pooled.idle_since = None;
            Some(Placed { connection: pooled.connection.clone(), place, is_fresh: false })
        })
    }

    fn keep(&self, connection: Http2Connection, client: Option<IpAddr>, bound: usize) {
        let mut open = self.open.lock();
        if open.len() >= bound
            && let Some(idle) = open.iter().position(|pooled| pooled.connection.is_idle())
        {
            open.remove(idle);
        }
        open.push(Pooled { connection, client, idle_since: None });
    }
}
