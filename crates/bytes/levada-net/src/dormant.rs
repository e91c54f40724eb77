//! Detection of connections whose client has stopped acknowledging.
//!
//! When a route moves, acknowledgements go to another node. The kernel then retransmits for a
//! quarter of an hour, and the client does not learn that the connection is lost. WWW'09 (Sec.
//! 3.1.2) gives such a connection up after one timeout retransmission, and sends a reset. The
//! kernel has no setting for this, so a [`DormancyWatch`] checks ten times a second:
//!
//! ```text
//! a write ──> sets `wrote`, lists it once  (the cost on the hot path: two flags)
//! sweep: wrote since the last sweep?       it seems to make progress: check again next time, and once
//!                                          a second whether timeouts have begun
//!        nothing outstanding?              removed from the list until it writes again
//!        too many timeouts in a row, for   reset
//!        the losses of others, or the
//!        path is cut?
//! ```
//!
//! So connections that are idle cost no system call, and those that send fast one a second, unless another one is
//! suspected. Writes of a few bytes go on for long after their client has vanished: the kernel has room for them. A
//! client that has closed its window answers window probes: it is slow, not dormant. `path` tells a full link
//! from a client that is gone. Where it drops much, `probes` ask the silent clients; without the right to do so,
//! the watch waits for more timeouts, and keeps them short.

mod path;
mod probes;

use std::{
    io::{self, IoSlice},
    os::fd::{AsRawFd as _, BorrowedFd, RawFd},
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use socket2::SockRef;

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use self::{
    path::{ClientNetwork, Paths},
    probes::Probes,
};
use crate::tcp::{TcpInfo, limit_timeout, probe, reset_on_close};

/// Watches the connections of one worker. `T` is data of the connection's owner.
pub struct DormancyWatch<T> {
    /// Connections that have written and have not been found without outstanding data since.
    owing: Mutex<Vec<Arc<WatchedConnection<T>>>>,
    paths: Mutex<Paths>,
    retries: u8,
    /// Connections that the last sweep has found silent on a path with losses.
    silent: Mutex<Vec<Arc<WatchedConnection<T>>>>,
    /// False when this process has turned out to have no right to send probes.
    may_probe: AtomicBool,
    turns: AtomicUsize,
    /// Gets the round trips of connections that have paused.
    measured: OnceLock<OnRoundTrip<T>>,
}

/// The use that is made of the round trip of a connection.
type OnRoundTrip<T> = Box<dyn Fn(&T, Duration) + Send + Sync>;

/// The watch's entry for a connection.
pub struct WatchedConnection<T> {
    /// Data of the owner.
    pub about: T,
    /// The socket, while it is open. The watch holds the lock while it uses the socket, so that the
    /// socket is not closed and its number not reused meanwhile.
    socket: Mutex<Option<RawFd>>,
    /// Known once it was looked for.
    network: OnceLock<ClientNetwork>,
    wrote: AtomicBool,
    listed: AtomicBool,
    /// Sweeps since the kernel's state of it was looked at.
    unseen: AtomicU8,
    silence: Mutex<Silence>,
    /// Whether it was ever probed.
    was_probed: AtomicBool,
}

/// The findings of the watch since a client fell silent.
#[derive(Default)]
struct Silence {
    /// The bytes that were acknowledged when the watch first found no progress, and when that was.
    since: Option<(u64, Instant)>,
    probes: Probes,
    /// Whether its timeouts are kept short.
    is_hastened: bool,
}

/// A connection that has not written since the last sweep, and the kernel's state of it.
struct Suspect<T> {
    connection: Arc<WatchedConnection<T>>,
    info: TcpInfo,
    network: ClientNetwork,
    silent: Duration,
}

/// A stream that reports its writes to a watch.
pub struct MonitoredStream<T> {
    watch: Option<Arc<DormancyWatch<T>>>,
    connection: Arc<WatchedConnection<T>>,
    stream: TcpStream,
}

impl<T> DormancyWatch<T> {
    /// Creates a watch. It considers a connection dormant if `retries` retransmissions after
    /// timeouts were not acknowledged when the next timeout expires; on a path with losses, more of them.
    pub fn new(retries: u8) -> Arc<Self> {
        let (owing, paths, silent) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self {
            owing,
            paths,
            retries,
            silent,
            may_probe: AtomicBool::new(true),
            turns: AtomicUsize::default(),
            measured: OnceLock::new(),
        })
    }

    /// Gives `measured` the smoothed round trip of each connection that pauses after a write. It is called once.
    pub fn on_round_trip(&self, measured: impl Fn(&T, Duration) + Send + Sync + 'static) {
        // The first one stays.
        let _ = self.measured.set(Box::new(measured));
    }

    /// Checks every connection that has written and had no progress since the last sweep. It calls
    /// `dormant` for the dormant ones, which must close them; closing then sends a reset.
    pub fn sweep(self: &Arc<Self>, mut dormant: impl FnMut(&WatchedConnection<T>, &TcpInfo)) {
        let mut connections = std::mem::take(&mut *lock(&self.owing));
        if connections.is_empty() {
            return;
        }
        let (mut paths, mut suspects) = (lock(&self.paths), Vec::new());
        let now = Instant::now();
        connections.retain(|connection| self.keep(connection, now, &mut paths, &mut suspects));
        if suspects.iter().any(|suspect| suspect.is_late() || self.may_be_dormant(suspect)) {
            self.judge(&mut paths, now, &connections, &suspects);
            suspects.retain(|suspect| !self.give_up(suspect, &paths, now, &mut dormant));
            self.question(&suspects, &paths, now);
        }
        connections.extend(suspects.into_iter().filter_map(|suspect| {
            let listed = suspect.connection.listed.swap(true, Relaxed);
            (!listed).then_some(suspect.connection)
        }));
        lock(&self.owing).append(&mut connections);
    }

    /// Keeps a connection that makes progress. One that makes none, and waits, becomes a suspect.
    fn keep(
        &self,
        connection: &Arc<WatchedConnection<T>>,
        now: Instant,
        paths: &mut Paths,
        suspects: &mut Vec<Suspect<T>>,
    ) -> bool {
        let has_written = connection.wrote.swap(false, Relaxed);
        if has_written && !connection.awaits_answer() && !connection.is_due() {
            return true;
        }
        if !has_written {
            // A write from now on lists it again.
            connection.listed.store(false, Relaxed);
        }
        let Some((info, network)) = connection.state() else {
            // It was closed, or the system gives no information.
            connection.listed.store(false, Relaxed);
            return false;
        };
        if connection.awaits_answer() {
            connection.note_answer(&info, network, now, paths);
        }
        if has_written && info.retransmits == 0 && info.probes == 0 {
            connection.unseen.store(0, Relaxed);
            return true;
        }
        connection.listed.store(false, Relaxed);
        if let Some(measured) = self.measured.get().filter(|_| !info.rtt.is_zero()) {
            measured(&connection.about, info.rtt);
        }
        if info.unacked > 0 || info.unsent > 0 {
            let silent = connection.silent(&info, now);
            let connection = connection.clone();
            suspects.push(Suspect { connection, info, network, silent });
        } else if let Some(at) = now.checked_sub(info.last_ack) {
            paths.heard(network, at);
        }
        false
    }

    /// Whether a suspect is dormant unless its path explains why it is silent.
    fn may_be_dormant(&self, suspect: &Suspect<T>) -> bool {
        is_dormant(&suspect.info, self.retries) || self.is_quiet(suspect)
    }

    /// Whether a client is silent for so long that its path may be cut.
    fn is_quiet(&self, Suspect { info, silent, .. }: &Suspect<T>) -> bool {
        let answer_time = path::answer_time(info);
        let waits = info.unacked > 0 || info.probes > 0;
        let silent = info.last_ack.min(*silent);
        waits && silent >= path::quiet(self.retries).max(answer_time)
    }

    /// Learns the state of the paths from the connections that move and those that do not.
    fn judge(
        &self,
        paths: &mut Paths,
        now: Instant,
        moving: &[Arc<WatchedConnection<T>>],
        suspects: &[Suspect<T>],
    ) {
        paths.begin(now);
        for Suspect { info, network, .. } in suspects {
            paths.waits(*network, info, now);
        }
        for (nth, connection) in moving.iter().enumerate() {
            let Some(network) = connection.network() else { continue };
            // That the kernel has taken data says nothing about the client.
            if nth < SAMPLES || paths.may_be_cut(network, now) {
                let Some((info, network)) = connection.state() else { continue };
                paths.heard(network, now.checked_sub(info.last_ack).unwrap_or(now));
                paths.sample(network, &info);
            }
            paths.moves(network);
        }
        paths.settle(self.retries, now);
    }

    /// Notes which clients are to be probed: the silent ones on paths that lose so much that silence says little.
    /// Where probes tell nothing, or are not allowed, their connections repeat data more often instead.
    fn question(&self, suspects: &[Suspect<T>], paths: &Paths, now: Instant) {
        let mut silent = lock(&self.silent);
        silent.clear();
        for suspect @ Suspect { connection, info, network, .. } in suspects {
            let is_lossy = || paths.tolerance(*network, info, self.retries) > self.retries;
            if !suspect.is_late() || !is_lossy() {
                continue;
            }
            if paths.is_choked(*network) {
                lock(&connection.silence).probes.forget();
                continue;
            }
            let may_probe = info.established && self.may_probe.load(Relaxed);
            if may_probe && silent.len() < PROBES {
                silent.push(connection.clone());
            }
            if self.may_be_dormant(suspect) && self.tell(suspect, paths, now).is_none() {
                connection.hasten(info);
            }
        }
    }

    /// Probes the clients that the last sweep has found silent, which takes less than the time to the next one:
    /// probes that leave together take each other's place in a full queue.
    pub async fn probe(&self) {
        let mut silent = std::mem::take(&mut *lock(&self.silent));
        if silent.is_empty() {
            return;
        }
        // Each has another place every time: losses may come at regular intervals.
        let turn = self.turns.fetch_add(1, Relaxed) % silent.len();
        silent.rotate_left(turn);
        for some in silent.chunks(silent.len().div_ceil(PORTIONS)) {
            let may_not = some.iter().filter(|one| one.probe()).count() > 0;
            if may_not {
                self.may_probe.store(false, Relaxed);
                return;
            }
            tokio::time::sleep(PORTION_INTERVAL).await;
        }
    }

    /// Whether probes tell that a client is gone, if they tell anything.
    fn tell(&self, suspect: &Suspect<T>, paths: &Paths, now: Instant) -> Option<bool> {
        let Suspect { connection, info, network, .. } = suspect;
        let probes = &lock(&connection.silence).probes;
        // No others can be probed.
        info.established.then(|| paths.tell(*network, info, probes, now)).flatten()
    }

    fn give_up(
        &self,
        suspect: &Suspect<T>,
        paths: &Paths,
        now: Instant,
        dormant: &mut impl FnMut(&WatchedConnection<T>, &TcpInfo),
    ) -> bool {
        let Suspect { connection, info, network, .. } = suspect;
        let tolerance = paths.tolerance(*network, info, self.retries);
        let is_lossy = tolerance > self.retries;
        let is_over = match is_lossy.then(|| self.tell(suspect, paths, now)).flatten() {
            Some(is_gone) => is_gone && self.may_be_dormant(suspect),
            None => is_dormant(info, tolerance),
        } || (self.is_quiet(suspect) && paths.is_cut(*network));
        if is_over
            && connection.look(|socket| reset_on_close(&socket)).is_some_and(|set| set.is_ok())
        {
            dormant(connection, info);
            return true;
        }
        false
    }
}

impl<T> Suspect<T> {
    /// Whether the client should have acknowledged something by now. One that never missed anything may just
    /// pause.
    fn is_late(&self) -> bool {
        const LATE: Duration = Duration::from_millis(100);
        let Self { info, silent, .. } = self;
        let has_missed = info.unacked > 0 && info.retransmitted > 0;
        has_missed && info.last_ack.min(*silent) >= info.rtt + LATE
    }
}

/// Sweeps after which a connection that goes on writing is looked at: those of a second.
const UNSEEN: u8 = 10;
/// The most clients that are probed after a sweep.
const PROBES: usize = 256;
/// They are probed in so many portions, with so much time between two.
const PORTIONS: usize = 16;
/// The time between two portions: all of them fit between two sweeps.
const PORTION_INTERVAL: Duration = Duration::from_millis(5);
/// Retransmission timeouts are limited to no less than this, Linux' least limit.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);
/// The connections that move of which the losses are looked at, where their path does not seem to be cut.
const SAMPLES: usize = 64;

fn network_of(socket: BorrowedFd<'_>) -> Option<ClientNetwork> {
    let client = SockRef::from(&socket).peer_addr().ok()?.as_socket()?;
    Some(ClientNetwork::of(client.ip()))
}

/// Whether data was retransmitted after timeouts more than `retries` times, and the client sent
/// nothing for the whole last timeout. A client that acknowledges other data, or the same data
/// again, is alive on a poor path. If the window is closed, probes take the place of data: the
/// first one counts as the data, the next ones as retransmissions.
///
/// At the last timeout the kernel retransmitted once more. If a queue is full, the retransmission
/// before it may have been lost like the data, so the watch waits for the answer to this one: for
/// the timeout of RFC 6298 without its minimum. With `retries` of zero it does not wait, and the
/// first timeout decides.
fn is_dormant(info: &TcpInfo, retries: u8) -> bool {
    // The expired timeout was half as long as the current one.
    let is_silent = info.last_ack >= info.timeout / 2;
    let is_answered_by_now = retries == 0 || info.last_sent >= path::answer_time(info);
    (info.unacked > 0 && info.retransmits > retries && is_silent && is_answered_by_now)
        || info.probes > retries + 1
}

impl<T> WatchedConnection<T> {
    /// The kernel's state, and the network of the client.
    fn state(&self) -> Option<(TcpInfo, ClientNetwork)> {
        let info = self.look(|socket| TcpInfo::of(&socket).ok()).flatten()?;
        Some((info, self.network()?))
    }

    fn network(&self) -> Option<ClientNetwork> {
        if let Some(network) = self.network.get() {
            return Some(*network);
        }
        let network = self.look(network_of).flatten()?;
        Some(*self.network.get_or_init(|| network))
    }

    /// For how long the watch has seen it without an acknowledgement of anything new. Data that was sent just
    /// now, after a rest, may be acknowledged yet.
    fn silent(&self, info: &TcpInfo, now: Instant) -> Duration {
        let mut silence = lock(&self.silence);
        match silence.since {
            Some((acknowledged, since)) if acknowledged == info.acknowledged => now - since,
            _ => {
                silence.since = Some((info.acknowledged, now));
                Duration::ZERO
            }
        }
    }

    /// Sends a probe, if the client still owes an acknowledgement. Returns whether this process may not do so.
    fn probe(&self) -> bool {
        if lock(&self.silence).probes.is_too_early(Instant::now()) {
            return false;
        }
        self.was_probed.store(true, Relaxed);
        let sent = self.look(|socket| {
            // A connection without such data may be moving to another process, in repair mode.
            let owes = |info: &TcpInfo| info.established && info.unacked > 0;
            TcpInfo::of(&socket).ok().filter(owes).map(|_| probe(&socket))
        });
        match sent.flatten() {
            Some(Ok(())) => lock(&self.silence).probes.sent(Instant::now()),
            Some(Err(_)) => return true,
            None => {}
        }
        false
    }

    /// Whether the kernel's state is to be looked at although it goes on writing.
    fn is_due(&self) -> bool {
        self.unseen.fetch_add(1, Relaxed) >= UNSEEN
    }

    fn awaits_answer(&self) -> bool {
        self.was_probed.load(Relaxed) && !lock(&self.silence).probes.is_empty()
    }

    /// Counts the probes if the client is heard again.
    fn note_answer(&self, info: &TcpInfo, network: ClientNetwork, now: Instant, paths: &mut Paths) {
        let heard = now.checked_sub(info.last_ack).unwrap_or(now);
        let within = info.rtt.max(paths.round_trip(network));
        if let Some(answer) = lock(&self.silence).probes.answered(heard, within) {
            paths.answered(network, answer);
        }
    }

    /// Keeps its timeouts short, where the system can (Linux 6.15), for as long as it is open: a client that
    /// acknowledges nothing is soon given up.
    fn hasten(&self, info: &TcpInfo) {
        let mut silence = lock(&self.silence);
        if !silence.is_hastened {
            silence.is_hastened = true;
            let most = (2 * path::answer_time(info)).max(SHORTEST_TIMEOUT);
            self.look(|socket| limit_timeout(&socket, most));
        }
    }

    fn look<R>(&self, look: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        let socket = lock(&self.socket);
        // SAFETY: the descriptor is open: `MonitoredStream` owns the stream, lends it by shared reference
        // only, and clears this field, under the lock, before it drops the stream.
        #[expect(unsafe_code)]
        let borrowed = (*socket).map(|socket| unsafe { BorrowedFd::borrow_raw(socket) });
        borrowed.map(look)
    }
}

impl<T> MonitoredStream<T> {
    /// Lets `watch` watch a stream; without a watch, the stream works as usual.
    pub fn new(
        stream: TcpStream,
        watch: Option<Arc<DormancyWatch<T>>>,
        connection: Arc<WatchedConnection<T>>,
    ) -> Self {
        *lock(&connection.socket) = Some(stream.as_raw_fd());
        Self { watch, connection, stream }
    }

    /// The stream. Call [`wrote`](Self::wrote) after writing to it directly.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The watch's entry.
    pub fn connection(&self) -> &Arc<WatchedConnection<T>> {
        &self.connection
    }

    /// Whether an operation may have failed because the watch has just probed the client, so that it has to be
    /// repeated, once.
    pub fn has_met_probe(&self, error: &io::Error) -> bool {
        const MET: [i32; 2] = [libc::EINVAL, libc::EPERM];
        let has_met = self.connection.was_probed.load(Relaxed)
            && error.raw_os_error().is_some_and(|error| MET.contains(&error));
        if has_met {
            // The watch holds the lock while it probes.
            drop(lock(&self.connection.socket));
        }
        has_met
    }

    /// Does `poll` again if the socket was being probed.
    fn poll_twice<R>(
        &mut self,
        mut poll: impl FnMut(Pin<&mut TcpStream>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        match poll(Pin::new(&mut self.stream)) {
            Poll::Ready(Err(error)) if self.has_met_probe(&error) => {
                let _no_probe = lock(&self.connection.socket);
                poll(Pin::new(&mut self.stream))
            }
            done => done,
        }
    }

    /// Records that data was passed to the kernel.
    #[inline]
    pub fn wrote(&self) {
        let Some(watch) = &self.watch else { return };
        self.connection.wrote.store(true, Relaxed);
        if !self.connection.listed.load(Relaxed) && !self.connection.listed.swap(true, Relaxed) {
            lock(&watch.owing).push(self.connection.clone());
        }
    }
}

impl<T> WatchedConnection<T> {
    /// The entry for a connection that will be watched.
    pub fn new(about: T) -> Arc<Self> {
        Arc::new(Self {
            about,
            socket: Mutex::new(None),
            network: OnceLock::new(),
            wrote: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            unseen: AtomicU8::default(),
            silence: Mutex::default(),
            was_probed: AtomicBool::new(false),
        })
    }

    /// The bytes that the client has acknowledged so far; `None` if the connection is closed, or the system
    /// gives no information.
    pub fn acknowledged(&self) -> Option<u64> {
        self.look(|socket| TcpInfo::of(&socket).ok())?.map(|info| info.acknowledged)
    }
}

impl<T> Drop for MonitoredStream<T> {
    fn drop(&mut self) {
        *lock(&self.connection.socket) = None;
    }
}

impl<T> AsyncRead for MonitoredStream<T> {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().poll_twice(|stream| stream.poll_read(cx, buf))
    }
}

impl<T> AsyncWrite for MonitoredStream<T> {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = this.poll_twice(|stream| stream.poll_write(cx, bytes));
        if written.is_ready() {
            this.wrote();
        }
        written
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = this.poll_twice(|stream| stream.poll_write_vectored(cx, slices));
        if written.is_ready() {
            this.wrote();
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// No code under these locks can panic and leave the data inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn silent(retransmits: u8, last_ack: Duration, timeout: Duration) -> TcpInfo {
        TcpInfo { unacked: 3, retransmits, last_ack, timeout, ..TcpInfo::default() }
    }

    #[test]
    fn dormant_is_what_lets_a_retransmission_and_its_timeout_pass() {
        assert!(!is_dormant(&silent(1, 250 * MS, 400 * MS), 1), "the first retransmission is out");
        assert!(is_dormant(&silent(2, 610 * MS, 800 * MS), 1));
        assert!(is_dormant(&silent(1, 210 * MS, 400 * MS), 0));
    }

    #[test]
    fn what_was_sent_last_may_still_be_answered() {
        let sent = |last_sent| TcpInfo {
            rtt: 60 * MS,
            rtt_deviation: 10 * MS,
            last_sent,
            ..silent(2, 610 * MS, 800 * MS)
        };
        assert!(!is_dormant(&sent(99 * MS), 1));
        assert!(is_dormant(&sent(100 * MS), 1));
        assert!(is_dormant(&sent(99 * MS), 0), "the first timeout decides");
    }

    #[test]
    fn who_acknowledges_anything_is_not_dormant() {
        assert!(!is_dormant(&silent(3, 40 * MS, 1600 * MS), 1));
    }

    #[test]
    fn who_has_closed_the_window_is_not_dormant_while_probes_are_answered() {
        let slow = |probes| TcpInfo { probes, backoff: 4, unsent: 1, ..TcpInfo::default() };
        assert!(!is_dormant(&slow(1), 0));
        assert!(is_dormant(&slow(2), 0));
        assert!(!is_dormant(&slow(2), 1));
    }

    #[tokio::test]
    async fn what_meets_a_probe_is_repeated() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(at), listener.accept());
        let (mut client, watch) = (client.unwrap(), DormancyWatch::new(1));
        let connection = WatchedConnection::new(());
        let stream = accepted.unwrap().0;
        let mut stream = MonitoredStream::new(stream, Some(watch), connection.clone());
        connection.was_probed.store(true, Relaxed);
        let over = Arc::new(AtomicBool::new(false));
        let (probing, probed) = (over.clone(), connection.clone());
        let prober = std::thread::spawn(move || {
            while !probing.load(Relaxed) {
                if probed.look(|socket| probe(&socket)).is_some_and(|sent| sent.is_err()) {
                    levada_skip::skipped("probes need a capability");
                    return;
                }
            }
        });
        for _ in 0..20_000 {
            stream.write_all(b"word").await.unwrap();
            client.read_exact(&mut [0; 4]).await.unwrap();
            client.write_all(b"answer").await.unwrap();
            stream.read_exact(&mut [0; 6]).await.unwrap();
        }
        over.store(true, Relaxed);
        prober.join().unwrap();
    }
}
