//! The clients: they replay a trace, each with one request at a time (ASPLOS'98 Sec. 3.1, 6.1).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use anyhow::{Context as _, ensure};
use levada_testbed::{
    cluster::load::{ClosedLoop, read_trace},
    emulation::{
        client::Client,
        cluster::Cluster,
        trace::{ROOT, renamed},
    },
};
use levada_trace::{RICE, Trace, TraceLimits, TraceObject};
use levada_types::ByteSize;

use crate::args::lard::LardArgs;

/// A trace that clients share: each takes the next request, and the trace starts again at its end.
pub(super) struct Replay {
    pub(super) trace: Trace,
    /// The name of its source.
    pub(super) source: String,
    place: AtomicUsize,
}

impl Replay {
    /// The trace that is asked for.
    ///
    /// # Errors
    /// When a file cannot be read or has nothing to replay.
    pub(super) fn new(args: &LardArgs) -> anyhow::Result<Self> {
        let (trace, source) = match &args.trace {
            None => {
                let files = if args.quick { 1_000 } else { args.files as usize };
                let (seed, requests) = (args.prototype.seed, files as u64 * REQUESTS_PER_FILE);
                let source = format!("a generated trace like Rice University's, seed {seed}");
                (RICE.scaled(files, requests).generate(seed.into()), source)
            }
            Some(path) => {
                let limits = TraceLimits { memory: ByteSize(1 << 30), ..TraceLimits::default() };
                (read_trace(path, &limits)?.0, path.display().to_string())
            }
        };
        let largest = trace.objects().iter().map(|object| object.size).max().unwrap_or(0);
        ensure!(
            largest <= LARGEST,
            "--trace: it has a file of {}; back-ends make their answers in memory and take {} at most",
            ByteSize(largest),
            ByteSize(LARGEST)
        );
        Ok(Self { trace: renamed(&trace), source, place: AtomicUsize::new(0) })
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.trace.objects().iter().map(|object| object.size).sum()
    }

    /// The paper's memory as a part of Rice's files, applied to this trace.
    pub(super) fn paper_memory(&self) -> u64 {
        (self.bytes() as f64 * f64::from(32 << 20) / RICE.bytes as f64) as u64
    }

    /// Starts clients that run until they are stopped, with a connection `once` for each request or one for all.
    pub(super) fn start(
        self: &Arc<Self>,
        clients: usize,
        once: bool,
        cluster: &Cluster,
    ) -> ClosedLoop {
        self.place.store(0, Relaxed);
        ClosedLoop::start((0..clients).map(|_| {
            let (replay, client) = (self.clone(), Client::of(cluster.address(), once));
            async move || {
                let TraceObject { name, size } = replay.next();
                let target = &name[ROOT..];
                client.get(target, *size).await.with_context(|| target.to_owned()).map(drop)
            }
        }))
    }

    fn next(&self) -> &TraceObject {
        let requests = self.trace.requests();
        let object = requests[self.place.fetch_add(1, Relaxed) % requests.len()];
        &self.trace.objects()[object as usize]
    }
}

/// The number of files of Rice University's trace.
const REQUESTS_PER_FILE: u64 = RICE.requests / RICE.files as u64;
const LARGEST: u64 = 64 << 20;
