//! Clients that ask for one cached object all the time, each over a connection of its own, and note long waits.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{LONG, Result, node::SIZE, threads::Used};

/// Connections of each serving thread.
const EACH: usize = 2;
/// Connections that are tried until each serving thread has enough of them.
const TRIES: usize = 100;
/// Requests that show which thread serves a connection.
const SHOWING: usize = 2_000;
/// The time that shows what threads do without it.
const IDLE: Duration = Duration::from_millis(200);

/// A long wait of one request.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    /// How long the client waited for a processor.
    pub(crate) queued: Duration,
    /// The thread that served it, or all that may have.
    pub(crate) served_by: &'static [u32],
}

/// All clients. They end with the program.
pub(crate) struct Clients {
    count: usize,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    requests: AtomicU64,
    waits: Mutex<Vec<Wait>>,
    failed: AtomicBool,
}

impl Clients {
    /// Connects so many that each of `serving` has its part, and begins to ask. With `shared` threads, any of them
    /// may serve a connection.
    pub(crate) fn connect(
        port: u16,
        serving: Vec<u32>,
        is_shared: bool,
        pause: Duration,
    ) -> Result<Self> {
        let serving = &*serving.leak();
        let shared = Arc::new(Shared::default());
        let mut counts = vec![0; serving.len()];
        for turn in 0..TRIES {
            if counts.iter().all(|count| *count >= EACH) {
                return Ok(Self { count: counts.into_iter().sum(), shared });
            }
            let mut client = Client::connect(port)?;
            let place = match is_shared {
                true => turn % serving.len(),
                false => client.served_by(serving)?,
            };
            if counts[place] >= EACH {
                continue;
            }
            counts[place] += 1;
            let served_by = if is_shared { serving } else { &serving[place..=place] };
            let shared = shared.clone();
            thread::spawn(move || {
                if client.ask_for_ever(served_by, pause, &shared).is_err() {
                    shared.failed.store(true, Relaxed);
                }
            });
        }
        Err("the node's threads do not share connections evenly".into())
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The requests that were answered until now.
    pub(crate) fn requests(&self) -> u64 {
        assert!(!self.shared.failed.load(Relaxed), "a request failed");
        self.shared.requests.load(Relaxed)
    }

    /// The long waits since the last call.
    pub(crate) fn take_waits(&self) -> Vec<Wait> {
        std::mem::take(&mut *self.shared.waits.lock().expect("no client panics"))
    }
}

struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 16 << 10] })
    }

    fn get(&mut self) -> Result<()> {
        self.stream.write_all(b"GET /a HTTP/1.1\r\nHost: hit.test\r\n\r\n")?;
        let mut filled = 0;
        loop {
            match self.stream.read(&mut self.buffer[filled..])? {
                0 => return Err("closed".into()),
                read => filled += read,
            }
            let there = &self.buffer[..filled];
            let head = there.windows(4).position(|end| end == b"\r\n\r\n");
            if head.is_some_and(|head| filled >= head + 4 + SIZE) {
                return if there.starts_with(b"HTTP/1.1 200 ") {
                    Ok(())
                } else {
                    Err("status".into())
                };
            }
        }
    }

    /// The place of the thread that runs most while this connection alone is used, beyond what it runs without.
    fn served_by(&mut self, serving: &[u32]) -> Result<usize> {
        let ran = || -> Vec<f64> {
            let open = |thread: &u32| File::open(format!("/proc/{thread}/schedstat")).ok();
            let used = |thread: &u32| Used::read(&open(thread)?);
            let ran = |thread| used(thread).unwrap_or_default().ran.as_secs_f64();
            serving.iter().map(ran).collect()
        };
        let idle = ran();
        thread::sleep(IDLE);
        let (before, begun) = (ran(), Instant::now());
        (0..SHOWING).try_for_each(|_| self.get())?;
        let times = begun.elapsed().as_secs_f64() / IDLE.as_secs_f64();
        let grown = ran().into_iter().zip(before.into_iter().zip(idle));
        let grown = grown.map(|(after, (before, idle))| after - before - (before - idle) * times);
        let most = grown.enumerate().max_by(|(_, one), (_, other)| one.total_cmp(other));
        Ok(most.ok_or("no serving threads")?.0)
    }

    fn ask_for_ever(
        &mut self,
        served_by: &'static [u32],
        pause: Duration,
        shared: &Shared,
    ) -> Result<()> {
        let own = File::open("/proc/thread-self/schedstat")?;
        let queued = || Used::read(&own).unwrap_or_default().waited;
        loop {
            let (from, before) = (Instant::now(), queued());
            self.get()?;
            let to = Instant::now();
            shared.requests.fetch_add(1, Relaxed);
            if to - from > LONG {
                let queued = queued().saturating_sub(before);
                let wait = Wait { from, to, queued, served_by };
                shared.waits.lock().expect("no client panics").push(wait);
            }
            if !pause.is_zero() {
                thread::sleep(pause);
            }
        }
    }
}
