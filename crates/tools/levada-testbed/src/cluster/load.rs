//! The generator of load of all labs and of the demo. A caller hands in the requests, and judges the answers.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context as _, ensure};
use levada_trace::{Trace, TraceLimits};
use levada_types::Rng;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

/// The times of requests whose distances are exponentially distributed with a mean of `1 / rate`, between two moments.
pub fn poisson(
    rate: f64,
    (from, until): (Duration, Duration),
    mut rng: Rng,
) -> impl Iterator<Item = Duration> {
    let next = move |at: &Duration| {
        let gap = Duration::try_from_secs_f64(rng.exponential() / rate).ok()?;
        at.checked_add(gap).filter(|at| *at < until)
    };
    std::iter::successors(Some(from), next).skip(1)
}

/// An open loop: begins each request when it is due, whether or not earlier ones have been answered. `send` gets the
/// due time, since a late generator must not make a cluster look quick, and does not wait for the answer.
pub async fn open_loop<T>(
    begin: Instant,
    arrivals: impl Iterator<Item = (Duration, T)>,
    mut send: impl FnMut(Instant, T),
) {
    for (at, what) in arrivals {
        sleep_until(begin + at).await;
        send(begin + at, what);
    }
}

/// The requests of a trace or an access log, and a note on those that it cannot replay.
///
/// # Errors
/// If the file cannot be read or has no requests to replay.
pub fn read_trace(path: &Path, limits: &TraceLimits) -> anyhow::Result<(Trace, String)> {
    let reader = levada_trace::open(path).context("--trace")?;
    let (trace, skipped) = Trace::from_reader(reader, limits);
    ensure!(
        !trace.requests().is_empty(),
        "--trace: {} has no request that can be replayed ({skipped}); it needs GETs with status 200 and a size",
        path.display()
    );
    let note = if skipped.total() > 0 { format!(" ({skipped})") } else { String::new() };
    Ok((trace, note))
}

/// A closed loop: clients that send one request after another, until they are stopped.
pub struct ClosedLoop {
    clients: JoinSet<()>,
    failed: Arc<AtomicU64>,
}

impl ClosedLoop {
    /// Starts clients on this thread; each call of one is a request and fails when its answer is wrong.
    pub fn start(
        clients: impl IntoIterator<Item = impl AsyncFnMut() -> anyhow::Result<()> + 'static>,
    ) -> Self {
        let (mut tasks, failed) = (JoinSet::new(), Arc::<AtomicU64>::default());
        for mut ask in clients {
            let failed = failed.clone();
            tasks.spawn_local(async move {
                loop {
                    if let Err(error) = ask().await {
                        failed.fetch_add(1, Relaxed);
                        tracing::warn!("a request failed: {error:#}");
                        sleep(RETRY_BACKOFF).await;
                    }
                }
            });
        }
        Self { clients: tasks, failed }
    }

    /// Stops the clients; returns the number of failed requests.
    pub fn end(mut self) -> u64 {
        self.clients.abort_all();
        self.failed.load(Relaxed)
    }
}

/// The wait of a client after a failed request, so that a cluster that fails is not flooded.
const RETRY_BACKOFF: Duration = Duration::from_millis(100);
