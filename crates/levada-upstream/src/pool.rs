//! Idle connections to one server: last in, first out, so that the ones too many go stale and close.

use std::{
    cell::Cell,
    net::IpAddr,
    time::{Duration, Instant},
};

use hyper::client::conn::http2;
use levada_http1::UpstreamConnection;
use parking_lot::Mutex;

use crate::RequestBody;

/// A connection is not used again after sweeps have found it idle for this long: servers close theirs
/// after 60 s or more, and a request on a connection that is being closed is a request lost.
const IDLE: Duration = Duration::from_secs(40);

thread_local! {
    /// Which worker this thread is, when each worker has a scheduler of its own.
    static WORKER: Cell<usize> = const { Cell::new(0) };
}

/// Tells this thread which worker it is: it will then use connections of its own.
pub fn set_worker(index: usize) {
    WORKER.set(index);
}

/// A connection that takes requests.
pub(crate) enum PooledSender {
    Http1(Box<UpstreamConnection<RequestBody>>),
    /// Many requests share it; it stays in the pool while it is in use.
    Http2(http2::SendRequest<RequestBody>),
}

impl PooledSender {
    /// Waits until the connection can take a request; false when it is closed.
    async fn ready(&mut self) -> bool {
        match self {
            Self::Http1(link) => link.is_fresh(),
            Self::Http2(sender) => sender.is_ready() || sender.ready().await.is_ok(),
        }
    }
}

/// The idle connections of one server, per worker.
pub(crate) struct Pool {
    workers: Box<[Mutex<Vec<Idle>>]>,
    bound: usize,
}

struct Idle {
    sender: PooledSender,
    /// The only client whose requests it takes, if it has stated one.
    client: Option<IpAddr>,
    /// The first sweep that found it here: connections that are in use all the time never see one, and
    /// cost no look at the clock.
    since: Option<Instant>,
}

impl Idle {
    fn is_stale(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > IDLE)
    }

    /// Whether it has just been used, for more than one request.
    fn is_proved(&self) -> bool {
        let proved = match &self.sender {
            PooledSender::Http1(link) => link.is_proved(),
            // It says which requests it has not taken (GOAWAY).
            PooledSender::Http2(_) => true,
        };
        proved && self.since.is_none()
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
    pub(crate) async fn take(&self, proved: bool, client: Option<IpAddr>) -> Option<PooledSender> {
        loop {
            let mut idle = {
                let mut all = self.mine().lock();
                let at = all
                    .iter()
                    .rposition(|idle| idle.client == client && (!proved || idle.is_proved()))?;
                all.remove(at)
            };
            if idle.is_stale() || !idle.sender.ready().await {
                continue;
            }
            let sender = idle.sender;
            if let PooledSender::Http2(shared) = &sender {
                self.put(PooledSender::Http2(shared.clone()), client);
            }
            return Some(sender);
        }
    }

    /// Keeps a connection for the next request. `client`: the client that it has stated.
    pub(crate) fn put(&self, sender: PooledSender, client: Option<IpAddr>) {
        if matches!(&sender, PooledSender::Http2(sender) if sender.is_closed()) {
            return;
        }
        let mut idle = self.mine().lock();
        let shared = matches!(sender, PooledSender::Http2(_)) && !idle.is_empty();
        if idle.len() < self.bound && !shared {
            idle.push(Idle { sender, client, since: None });
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
        &self.workers[WORKER.get() % self.workers.len()]
    }
}
