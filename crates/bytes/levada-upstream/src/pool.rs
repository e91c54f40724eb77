//! Idle connections over HTTP/1.1 to one server: last in, first out, so that the ones too many go stale and close.

use std::{
    cell::Cell,
    net::IpAddr,
    time::{Duration, Instant},
};

use levada_http::UpstreamConnection;
use parking_lot::Mutex;

use crate::RequestBody;

/// A connection is not used again after sweeps have found it idle for this long: servers close theirs
/// after 60 s or more, and a request on a connection that is being closed is a request lost.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(40);

thread_local! {
    /// Which worker this thread is, when each worker has a scheduler of its own.
    static WORKER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Tells this thread which worker it is: it will then use connections of its own.
pub fn set_worker(index: usize) {
    WORKER.set(Some(index));
}

/// Which worker this thread is, if it is one.
pub(crate) fn worker() -> Option<usize> {
    WORKER.get()
}

/// A connection that takes requests.
type Link = Box<UpstreamConnection<RequestBody>>;

/// The idle connections of one server, per worker.
pub(crate) struct Pool {
    workers: Box<[Mutex<Vec<Idle>>]>,
    bound: usize,
}

struct Idle {
    link: Link,
    /// The only client whose requests it takes, if it has stated one.
    client: Option<IpAddr>,
    /// The first sweep that found it here: connections that are in use all the time never see one, and
    /// cost no look at the clock.
    since: Option<Instant>,
}

impl Idle {
    fn is_stale(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > IDLE_TIMEOUT)
    }

    /// Whether it has just been used, for more than one request.
    fn is_proved(&self) -> bool {
        self.link.is_proved() && self.since.is_none()
    }
}

impl Pool {
    pub(crate) fn new(workers: usize, bound: usize) -> Self {
        Self { workers: (0..workers.max(1)).map(|_| Mutex::default()).collect(), bound }
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// The connection used last that is still open. `proved`: only one of which that can be expected when the
    /// request arrives. `client`: the client that it must have stated.
    pub(crate) fn take(&self, proved: bool, client: Option<IpAddr>) -> Option<Link> {
        loop {
            let mut idle = {
                let mut all = self.mine().lock();
                let at = all
                    .iter()
                    .rposition(|idle| idle.client == client && (!proved || idle.is_proved()))?;
                all.remove(at)
            };
            if !idle.is_stale() && idle.link.is_fresh() {
                return Some(idle.link);
            }
        }
    }

    /// Keeps a connection for the next request. `client`: the client that it has stated.
    pub(crate) fn put(&self, link: Link, client: Option<IpAddr>) {
        let mut idle = self.mine().lock();
        if idle.len() < self.bound {
            idle.push(Idle { link, client, since: None });
        }
    }

    /// Closes the connections that have been idle longest, until there are no more than the bound with `busy`
    /// others. Connections of other clients could keep the server from accepting one for this client.
    pub(crate) fn make_room(&self, busy: usize) {
        let mut idle = self.mine().lock();
        let excess = (idle.len() + busy).saturating_sub(self.bound).min(idle.len());
        idle.drain(..excess);
    }

    /// Closes what has been idle for too long: nobody else would notice.
    pub(crate) fn sweep(&self) {
        for worker in &self.workers {
            let mut idle = worker.lock();
            idle.retain(|idle| !idle.is_stale());
            let now = Instant::now();
            idle.iter_mut().for_each(|idle| idle.since = idle.since.or(Some(now)));
        }
    }

    fn mine(&self) -> &Mutex<Vec<Idle>> {
        &self.workers[WORKER.get().unwrap_or(0) % self.workers.len()]
    }
}
