//! `levada lab backend`: a machine of levada-sim that runs in real time and answers requests.
//!
//! The machine computes when each block of an answer is sent, and a timer waits until then. The timer may be
//! late, the machine is not: it computes further times from the exact time, not from the late one.

use std::{
    collections::HashMap,
    convert::Infallible,
    io::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use http::{Method, Request, Response, StatusCode, header::CONTENT_LENGTH};
use http_body_util::{Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use levada_sim::machine::{Answered, Hardware, Machine, Usage, Work};
use levada_types::{Key, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::{
    net::TcpListener,
    sync::{
        Notify,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
    time::Instant,
};

use crate::{
    cluster::server::{accept, converse, text},
    options::{BackendArgs, ServiceCost},
};
use levada_client::command::{CommandStatus, StopSignals, block_on, content, end_with_stdin};

/// Serves until it is stopped.
///
/// # Errors
/// If it cannot listen.
pub fn run(args: &BackendArgs) -> anyhow::Result<CommandStatus> {
    if args.stop_with_stdin {
        end_with_stdin()?;
    }
    block_on(async {
        let listener = TcpListener::bind(args.listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", args.listen))?;
        let backend = Arc::new(Backend::new(args));
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", listener.local_addr()?)?;
        out.flush()?;
        drop(out);
        let answering = backend.clone();
        let serving = accept(listener, move |stream, _| {
            let backend = answering.clone();
            tokio::spawn(converse(stream, move |request| {
                let backend = backend.clone();
                async move { Ok::<_, Infallible>(backend.answer(&request).await) }
            }));
        });
        let mut stop = StopSignals::new(false)?;
        tokio::select! {
            () = serving => {}
            () = backend.keep_time() => {}
            () = stop.asked() => {}
        }
        Ok(CommandStatus::Success)
    })?
}

/// The report at `/-/usage`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct UsageReport {
    /// The totals of the machine.
    pub usage: Usage,
    /// The delay of its answers.
    pub late: Late,
}

/// Delay of answers behind the machine's times, in microseconds of real time.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Late {
    /// The number of answers.
    pub answers: u64,
    /// The delays of all of them together.
    pub sum: u64,
    /// The longest delay.
    pub most: u64,
}

struct Backend {
    services: HashMap<String, ServiceCost>,
    began: Instant,
    time_scale: f64,
    state: Mutex<State>,
    /// A request arrived: the next event may be sooner.
    asked: Notify,
}

struct State {
    machine: Machine<u64>,
    /// Bytes of each answer that may be sent.
    waiting: HashMap<u64, UnboundedSender<u64>>,
    next: u64,
    answered: Vec<Answered<u64>>,
    late: Late,
    files: Files,
}

impl Backend {
    fn new(args: &BackendArgs) -> Self {
        let hardware =
            Hardware { cpu: args.machine.cpu, disk: args.machine.disk, ..Hardware::default() };
        Self {
            services: args.services.iter().cloned().collect(),
            began: Instant::now(),
            time_scale: args.time_scale,
            state: Mutex::new(State {
                machine: Machine::new(&hardware, args.machine.eviction, args.memory.0),
                waiting: HashMap::new(),
                next: 0,
                answered: Vec::new(),
                late: Late::default(),
                files: Files { bytes: 0, room: args.memory.0, contents: HashMap::new() },
            }),
            asked: Notify::new(),
        }
    }

    /// The emulated time.
    fn now(&self) -> Timestamp {
        Timestamp((self.began.elapsed().as_nanos() as f64 / self.time_scale) as u64)
    }

    fn at(&self, time: Timestamp) -> Instant {
        self.began + Duration::from_nanos((time.0 as f64 * self.time_scale) as u64)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends answers when they are due.
    async fn keep_time(&self) {
        loop {
            let next = {
                let mut state = self.state();
                self.advance(&mut state);
                state.machine.next_time()
            };
            match next {
                None => self.asked.notified().await,
                Some(time) => tokio::select! {
                    () = tokio::time::sleep_until(self.at(time)) => {}
                    () = self.asked.notified() => {}
                },
            }
        }
    }

    /// Advances the machine to the emulated time, and returns it.
    fn advance(&self, state: &mut State) -> Timestamp {
        let now = self.now();
        state.machine.advance(now, &mut state.answered);
        for Answered { job, at, bytes, whole } in state.answered.drain(..) {
            // A client that has gone away does not wait.
            let _ = state.waiting.get(&job).map(|client| client.send(bytes));
            if !whole {
                continue;
            }
            state.waiting.remove(&job);
            let late = (now.since(at).as_micros() as f64 * self.time_scale) as u64;
            state.late.answers += 1;
            state.late.sum += late;
            state.late.most = state.late.most.max(late);
        }
        now
    }

    /// Gives the machine the work. The result says how many bytes of the answer may be sent, until all may.
    fn begin(&self, work: Work) -> UnboundedReceiver<u64> {
        let (sender, sent) = unbounded_channel();
        {
            let mut state = self.state();
            let now = self.advance(&mut state);
            let job = state.next;
            state.next += 1;
            state.waiting.insert(job, sender);
            state.machine.take(job, work, now);
        }
        self.asked.notify_one();
        sent
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<BackendBody> {
        let target = request.uri().path();
        if request.method() != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n").map(Either::Left);
        }
        if target == USAGE {
            return self.usage().map(Either::Left);
        }
        let Some(work) = self.work_for(target) else {
            return text(
                StatusCode::NOT_FOUND,
                "/file/NAME/BYTES, /service/NAME/BYTES or /-/usage\n",
            )
            .map(Either::Left);
        };
        let mut sent = self.begin(work);
        // The head goes with the first block.
        let first = sent.recv().await.unwrap_or_default();
        let key = Key::of(target.as_bytes());
        let content = match work {
            Work::File { bytes, .. } => self.state().file(key, bytes),
            Work::Service { bytes, .. } => made(key, bytes),
        };
        let length = content.len();
        let mut response = Response::new(Either::Right(blocks(content, first, sent)));
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
        response
    }

    fn usage(&self) -> Response<Full<Bytes>> {
        let mut state = self.state();
        let now = self.advance(&mut state);
        let report = UsageReport { usage: state.machine.usage(now), late: state.late };
        text(StatusCode::OK, serde_json::to_string(&report).expect("numbers are JSON"))
    }

    fn work_for(&self, target: &str) -> Option<Work> {
        let mut parts = target.strip_prefix('/')?.splitn(3, '/');
        let (kind, name, bytes) = (parts.next()?, parts.next()?, parts.next()?);
        let bytes = bytes.parse().ok().filter(|bytes| *bytes <= LARGEST)?;
        match kind {
            "file" => Some(Work::File { key: Key::of(target.as_bytes()), bytes }),
            "service" => {
                let ServiceCost { cpu, disk } = *self.services.get(name)?;
                Some(Work::Service { cpu, disk, bytes })
            }
            _ => None,
        }
    }
}

/// The body of an answer whose first bytes may be sent: all others follow when `sent` says so.
fn blocks(content: Bytes, first: u64, sent: UnboundedReceiver<u64>) -> BlockStream {
    let state = (content, 0, Some(first), sent);
    StreamBody::new(Box::pin(stream::unfold(state, |(content, from, next, mut sent)| async move {
        let until = match next {
            Some(until) => until,
            None => sent.recv().await?,
        } as usize;
        let block = content.slice(from..until);
        Some((Ok(Frame::data(block)), (content, until, None, sent)))
    })))
}

type BackendBody = Either<Full<Bytes>, BlockStream>;
type BlockStream = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// Contents of files that the machine has in memory.
struct Files {
    bytes: u64,
    room: u64,
    contents: HashMap<Key, Bytes>,
}

impl State {
    /// The content of a file that the machine has read or found. Contents of evicted files are dropped
    /// when all contents reach twice the memory.
    fn file(&mut self, key: Key, bytes: u64) -> Bytes {
        let files = &mut self.files;
        if let Some(content) = files.contents.get(&key) {
            return content.clone();
        }
        let content = made(key, bytes);
        if self.machine.has(key) && files.contents.insert(key, content.clone()).is_none() {
            files.bytes += bytes;
        }
        if files.bytes > 2 * files.room {
            files.contents.retain(|key, _| self.machine.has(*key));
            files.bytes = files.contents.values().map(|content| content.len() as u64).sum();
        }
        content
    }
}

fn made(key: Key, bytes: u64) -> Bytes {
    let mut content = vec![0; bytes as usize];
    content::write(key, 0, &mut content);
    content.into()
}

/// The target of the report.
pub const USAGE: &str = "/-/usage";

/// The largest answer, which is made in memory.
const LARGEST: u64 = 64 << 20;
