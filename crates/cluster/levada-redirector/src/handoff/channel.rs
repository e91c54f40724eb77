//! The channel between a front-end and a back-end. Both sides must know the secret, and a party between
//! them cannot change, repeat or omit a frame without being noticed. The channel does not encrypt: its
//! content is plain HTTP on other links. Frames that leave together are authenticated together.
//!
//! ```text
//! back-end    greeting, nonce b ─────────────────────────────>
//!             <──────────── greeting, nonce f, HMAC(kf, "front")       kf = HMAC(secret, "front" b f)
//!             HMAC(kb, "back") ──────────────────────────────>       kb = HMAC(secret, "back" b f)
//! batches:    length:32 mark:16 bytes, then so many bytes: frames, each length:32 and so many bytes
//!             mark = HMAC(kf or kb, number of earlier batches, frames)
//! ```

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use levada_net::tcp::{TcpInfo, set_receive_low_water_mark};
use parking_lot::{Mutex, MutexGuard};
use ring::{
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};
use rustix::{
    buffer::spare_capacity,
    io::Errno,
    net::{RecvFlags, recv},
};
use subtle::ConstantTimeEq as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Notify,
    time::Instant,
};

use crate::handoff::frame::Frame;

/// The side of the channel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Front,
    Back,
}

/// Sends frames, from any thread and without waiting: bytes that the socket does not accept at once are
/// sent later.
pub(crate) struct FrameSender {
    stream: OwnedWriteHalf,
    outgoing: Mutex<FrameQueue>,
    /// Whether the channel is closed.
    closed: AtomicBool,
    /// Notifies that bytes are left to write.
    more: Notify,
    /// Tasks that wait until their frame has left.
    waiting: Mutex<Vec<(Arc<AtomicBool>, Waker)>>,
    /// Notifies that some wait.
    urgent: Notify,
    /// Notifies a receiver that gathers that the thread is awake anyway.
    flushed: Arc<Notify>,
    ended: Notify,
}

struct FrameQueue {
    marks: BatchSigner,
    pending: Vec<u8>,
    /// The end of the batches that are marked; the frames behind it are of a batch that still grows.
    marked: usize,
}

/// Receives frames.
pub(crate) struct FrameReceiver {
    stream: OwnedReadHalf,
    marks: BatchSigner,
    buffer: Vec<u8>,
    /// The bytes at the beginning of the buffer that are frames of a batch whose mark is right.
    checked: usize,
    /// Whether frames may be received in batches.
    gathers: bool,
    pace: GatherPace,
    /// Notifies that frames were sent on the same channel.
    flushed: Arc<Notify>,
}

/// The pace of a receiver that gathers.
#[derive(Clone, Copy)]
enum GatherPace {
    /// Reads as soon as bytes arrive; the last read was then.
    AtOnce(Option<Instant>),
    /// Reads when frames were sent, and at intervals, with the number of empty intervals in a row. Arriving bytes do
    /// not wake the task.
    Often(u32),
}

/// Computes and checks the MACs of batches, in their order.
struct BatchSigner {
    key: hmac::Key,
    count: u64,
}

/// Authenticates both sides to each other.
///
/// # Errors
/// When the other side does not know the secret, speaks another protocol, or takes too long.
pub(crate) async fn open(
    stream: TcpStream,
    side: Side,
    secret: &str,
) -> io::Result<(Arc<FrameSender>, FrameReceiver)> {
    stream.set_nodelay(true)?;
    // Keep-alive detects a machine that has vanished, even when nothing is being sent to it.
    let alive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE_INTERVAL)
        .with_interval(KEEPALIVE_INTERVAL);
    let socket = socket2::SockRef::from(&stream);
    socket.set_tcp_keepalive(&alive.with_retries(2))?;
    socket.set_tcp_user_timeout(Some(3 * KEEPALIVE_INTERVAL))?;
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, shake(stream, side, secret.as_bytes())).await {
        Ok(done) => done,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn shake(
    mut stream: TcpStream,
    side: Side,
    secret: &[u8],
) -> io::Result<(Arc<FrameSender>, FrameReceiver)> {
    let mut own = [0; NONCE];
    SystemRandom::new().fill(&mut own).map_err(|_| io::Error::other("no randomness"))?;
    let (back, front) = match side {
        Side::Back => {
            stream.write_all(&greeting(&own)).await?;
            (own, greeted(&mut stream).await?)
        }
        Side::Front => {
            let back = greeted(&mut stream).await?;
            stream.write_all(&greeting(&own)).await?;
            (back, own)
        }
    };
    let [of_front, of_back] = [FRONT, BACK].map(|side| key(secret, side, &back, &front));
    match side {
        Side::Back => {
            check(&mut stream, &of_front, FRONT).await?;
            stream.write_all(hmac::sign(&of_back, BACK).as_ref()).await?;
        }
        Side::Front => {
            stream.write_all(hmac::sign(&of_front, FRONT).as_ref()).await?;
            check(&mut stream, &of_back, BACK).await?;
        }
    }
    let (sending, receiving) = match side {
        Side::Front => (of_front, of_back),
        Side::Back => (of_back, of_front),
    };
    let (read, write) = stream.into_split();
    let sender = Arc::new(FrameSender::new(write, BatchSigner::new(sending)));
    let marks = BatchSigner::new(receiving);
    let pace = GatherPace::AtOnce(None);
    let receiver = FrameReceiver {
        stream: read,
        marks,
        buffer: Vec::new(),
        checked: 0,
        gathers: false,
        pace,
        flushed: sender.flushed.clone(),
    };
    Ok((sender, receiver))
}

fn greeting(nonce: &[u8; NONCE]) -> Vec<u8> {
    [&GREETING[..], nonce].concat()
}

/// Reads the other side's nonce.
async fn greeted(stream: &mut TcpStream) -> io::Result<[u8; NONCE]> {
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting).await?;
    if greeting != *GREETING {
        return Err(bad("it does not speak this version of Levada's handoff"));
    }
    let mut nonce = [0; NONCE];
    stream.read_exact(&mut nonce).await?;
    Ok(nonce)
}

fn key(secret: &[u8], side: &[u8], back: &[u8], front: &[u8]) -> hmac::Key {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let key = hmac::sign(&secret, &[side, back, front].concat());
    hmac::Key::new(hmac::HMAC_SHA256, key.as_ref())
}

async fn check(stream: &mut TcpStream, key: &hmac::Key, message: &[u8]) -> io::Result<()> {
    let mut mark = [0; 32];
    let read = stream.read_exact(&mut mark).await;
    let proven = read.is_ok() && hmac::verify(key, message, &mark).is_ok();
    if proven { Ok(()) } else { Err(bad("it does not know the secret")) }
}

impl FrameSender {
    fn new(stream: OwnedWriteHalf, marks: BatchSigner) -> Self {
        let outgoing = FrameQueue { marks, pending: Vec::new(), marked: 0 };
        Self {
            stream,
            outgoing: Mutex::new(outgoing),
            closed: AtomicBool::new(false),
            more: Notify::new(),
            waiting: Mutex::default(),
            urgent: Notify::new(),
            flushed: Arc::default(),
            ended: Notify::new(),
        }
    }

    /// Sends a frame, after all that wait; false when the channel is closed.
    pub(crate) fn send(&self, frame: &Frame) -> bool {
        let Some(mut outgoing) = self.add(|out| frame.write(out)) else { return false };
        self.write(&mut outgoing);
        !self.is_closed()
    }

    /// Queues what `write` writes until the next [flush](Self::flush); false when the channel is
    /// closed.
    pub(crate) fn put(&self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.add(write).is_some()
    }

    /// Sends everything that waits.
    pub(crate) fn flush(&self) {
        self.write(&mut self.outgoing.lock());
        self.flushed.notify_one();
    }

    /// Sends a frame that is not urgent: with the next one, or soon.
    pub(crate) fn send_soon(&self, frame: &Frame) {
        if self.add(|out| frame.write(out)).is_some() {
            self.more.notify_one();
        }
    }

    /// Queues a frame that leaves with those of all other tasks that are ready now, since each write costs a system
    /// call and wakes the other side. `has_left` is set then, and the task woken. False when the channel is closed.
    pub(crate) fn send_together(
        &self,
        frame: &Frame,
        has_left: &Arc<AtomicBool>,
        cx: &Context<'_>,
    ) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.push((has_left.clone(), cx.waker().clone()));
        let is_open = self.put(|out| frame.write(out));
        self.urgent.notify_one();
        is_open
    }

    /// Ready when `has_left` is set.
    pub(crate) fn poll_left(&self, has_left: &Arc<AtomicBool>, cx: &Context<'_>) -> Poll<()> {
        let mut waiting = self.waiting.lock();
        if has_left.load(Relaxed) {
            return Poll::Ready(());
        }
        // The task may have moved to another waker.
        waiting.push((has_left.clone(), cx.waker().clone()));
        self.urgent.notify_one();
        Poll::Pending
    }

    /// Sends frames together, until the channel is closed.
    pub(crate) async fn send_urgent(&self) {
        while !self.is_closed() {
            self.urgent.notified().await;
            // Tasks that are ready add theirs.
            tokio::task::yield_now().await;
            let waiting = std::mem::take(&mut *self.waiting.lock());
            self.flush();
            if self.is_closed() {
                return;
            }
            for (has_left, waker) in waiting {
                has_left.store(true, Relaxed);
                waker.wake();
            }
        }
    }

    fn add(&self, write: impl FnOnce(&mut Vec<u8>)) -> Option<MutexGuard<'_, FrameQueue>> {
        if self.is_closed() {
            return None;
        }
        let mut outgoing = self.outgoing.lock();
        outgoing.add(write);
        if outgoing.pending.len() > MAX_PENDING {
            drop(outgoing);
            self.close();
            return None;
        }
        Some(outgoing)
    }

    fn write(&self, outgoing: &mut FrameQueue) {
        outgoing.mark();
        while !outgoing.pending.is_empty() {
            match self.stream.try_write(&outgoing.pending) {
                Ok(written) => {
                    outgoing.pending.drain(..written);
                    outgoing.marked -= written;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.more.notify_one();
                }
                Err(_) => return self.close(),
            }
        }
    }

    /// Writes bytes that had to wait, until the channel is closed.
    pub(crate) async fn pump(&self) {
        while !self.is_closed() {
            tokio::select! {
                () = self.more.notified() => {}
                () = self.over() => return,
            }
            // Frames that come meanwhile are sent together with it.
            tokio::time::sleep(GATHER_DELAY).await;
            if self.stream.writable().await.is_err() {
                return self.close();
            }
            self.flush();
        }
    }

    /// Whether the other side's kernel has acknowledged something `within` this time. Keep-alive asks
    /// once a second when nothing else is sent.
    pub(crate) fn was_heard(&self, within: Duration) -> bool {
        let stream: &TcpStream = self.stream.as_ref();
        TcpInfo::of(stream).is_ok_and(|info| info.last_ack < within)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Closes the channel for both sides.
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
        self.ended.notify_waiters();
    }

    /// Returns when the channel is closed.
    pub(crate) async fn over(&self) {
        let ended = self.ended.notified();
        if !self.is_closed() {
            ended.await;
        }
    }
}

#[cfg(test)]
impl FrameSender {
    /// The sender of a channel whose other side is gone.
    pub(crate) async fn of_nobody() -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let marks = BatchSigner::new(key(b"", FRONT, b"", b""));
        Arc::new(Self::new(stream.into_split().1, marks))
    }
}

impl Drop for FrameSender {
    /// Sends what waits, as far as the socket accepts it at once.
    fn drop(&mut self) {
        if !self.is_closed() {
            let outgoing = self.outgoing.get_mut();
            outgoing.mark();
            let _ = self.stream.try_write(&outgoing.pending);
        }
    }
}

impl FrameQueue {
    /// Adds a frame to the last batch.
    fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.pending.len() - self.marked > LONG_BATCH {
            self.mark();
        }
        if self.pending.len() == self.marked {
            self.pending.extend([0; 4 + MARK]);
        }
        let at = self.pending.len();
        self.pending.extend([0; 4]);
        write(&mut self.pending);
        let length = (self.pending.len() - at - 4) as u32;
        self.pending[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Ends the last batch, so that it can be sent.
    fn mark(&mut self) {
        if let Some((head, frames)) = self.pending[self.marked..].split_at_mut_checked(4 + MARK) {
            head[..4].copy_from_slice(&(frames.len() as u32).to_be_bytes());
            head[4..].copy_from_slice(&self.marks.next(frames));
            self.marked = self.pending.len();
        }
    }
}

impl FrameReceiver {
    /// For a receiver of frames that are not urgent: under load it reads when frames are sent, and at intervals, since
    /// waking the task for each frame costs more than handling it.
    pub(crate) fn gather(&mut self) {
        self.gathers = true;
    }

    /// Reads the bytes that have arrived, or waits for some.
    async fn read(&mut self) -> io::Result<usize> {
        self.buffer.reserve(READ);
        loop {
            match self.pace {
                GatherPace::AtOnce(_) if !self.gathers => {
                    return self.stream.read_buf(&mut self.buffer).await;
                }
                GatherPace::AtOnce(last) => {
                    let read = self.stream.read_buf(&mut self.buffer).await?;
                    let now = Instant::now();
                    self.pace = GatherPace::AtOnce(Some(now));
                    if last.is_some_and(|last| now - last < 2 * GATHER_DELAY) {
                        set_receive_low_water_mark(self.stream.as_ref(), GATHERED)?;
                        self.pace = GatherPace::Often(0);
                    }
                    return Ok(read);
                }
                GatherPace::Often(idle) => {
                    let flushed = self.flushed.notified();
                    let is_flushed = tokio::time::timeout(GATHER_INTERVAL, flushed).await.is_ok();
                    let space = spare_capacity(&mut self.buffer);
                    match recv(self.stream.as_ref(), space, RecvFlags::DONTWAIT) {
                        Ok((_, read)) => {
                            self.pace = GatherPace::Often(0);
                            return Ok(read);
                        }
                        Err(Errno::AGAIN) if is_flushed => {}
                        Err(Errno::AGAIN) if idle < MAX_IDLE_PAUSES => {
                            self.pace = GatherPace::Often(idle + 1)
                        }
                        Err(Errno::AGAIN) => {
                            // It wakes at once if bytes have arrived meanwhile.
                            set_receive_low_water_mark(self.stream.as_ref(), 1)?;
                            self.pace = GatherPace::AtOnce(None);
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
    }

    /// Receives the next frame.
    ///
    /// # Errors
    /// When the channel has ended, or a frame is invalid: the channel is closed then.
    pub(crate) async fn receive(&mut self) -> io::Result<Frame> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(frame);
            }
            if self.read().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn take(&mut self) -> io::Result<Option<Frame>> {
        if self.checked == 0 && !self.check()? {
            return Ok(None);
        }
        let frame = self.buffer[..self.checked].split_first_chunk();
        let frame =
            frame.and_then(|(length, rest)| rest.get(..u32::from_be_bytes(*length) as usize));
        let frame = frame.ok_or_else(|| bad("a frame that is longer than its batch"))?;
        let length = 4 + frame.len();
        let frame = Frame::read(frame).map_err(|error| bad(&error.to_string()))?;
        self.buffer.drain(..length);
        self.checked -= length;
        Ok(Some(frame))
    }

    /// Whether a whole batch is there, which the other side made. Removes its head.
    fn check(&mut self) -> io::Result<bool> {
        let Some((length, rest)) = self.buffer.split_first_chunk() else { return Ok(false) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > LONG_BATCH + MAX_FRAME {
            return Err(bad("a batch that is too long"));
        }
        let Some((mark, rest)) = rest.split_at_checked(MARK) else { return Ok(false) };
        let Some(frames) = rest.get(..length) else { return Ok(false) };
        if !bool::from(mark.ct_eq(&self.marks.next(frames))) {
            return Err(bad("a batch that the other side did not make"));
        }
        self.buffer.drain(..4 + MARK);
        self.checked = length;
        Ok(true)
    }
}

impl BatchSigner {
    fn new(key: hmac::Key) -> Self {
        Self { key, count: 0 }
    }

    fn next(&mut self, frames: &[u8]) -> [u8; MARK] {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&self.count.to_be_bytes());
        context.update(frames);
        self.count += 1;
        let mut mark = [0; MARK];
        mark.copy_from_slice(&context.sign().as_ref()[..MARK]);
        mark
    }
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

const GREETING: &[u8; 16] = b"levada-handoff/4";
const FRONT: &[u8] = b"front";
const BACK: &[u8] = b"back";
const NONCE: usize = 32;
/// Half an HMAC-SHA-256 (RFC 2104 Sec. 5).
const MARK: usize = 16;
/// Enough for a head with the bytes after it.
pub(crate) const MAX_FRAME: usize = 1 << 20;
/// A batch that is longer takes no further frames.
const LONG_BATCH: usize = 64 << 10;
/// The most bytes that wait for a socket that accepts none.
const MAX_PENDING: usize = 4 << 20;
const READ: usize = 16 << 10;
/// Frames are gathered for so long, which is the resolution of the runtime's timer.
const GATHER_DELAY: Duration = Duration::from_millis(1);
/// The interval at which a receiver reads that gathers, where nothing is sent. A timer that ends earlier than all others
/// costs two system calls and a sleep, so it is longer than the usual time between two connections.
const GATHER_INTERVAL: Duration = Duration::from_millis(3);
/// The number of pauses in a row without a frame after which the receiver waits for each frame again.
const MAX_IDLE_PAUSES: u32 = 4;
/// With this many bytes the receiver reads before the end of a pause.
const GATHERED: u16 = 16 << 10;
/// The timeout for a connection to a back-end: a lost SYN is sent again after one second, and after two more.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The wait between two attempts to connect to a back-end, which may be restarting.
pub(crate) const CONNECT_BACKOFF: Duration = Duration::from_secs(1);
/// The timeout for the proof of both sides. They are near, and may be busy.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The keep-alive time: without a byte for this long the other side is probed. After three times this
/// long without an answer the channel is closed.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// How long a back-end may begin answers without hearing the front-end: longer than [`KEEPALIVE_INTERVAL`]. A
/// front-end that does not hear the back-end waits longer than this.
pub(crate) const LEASE: Duration = Duration::from_millis(1500);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    const SECRET: &str = "0123456789abcdef";

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    type Ends = [io::Result<(Arc<FrameSender>, FrameReceiver)>; 2];

    async fn opened(front: &str, back: &str) -> Ends {
        let (near, far) = pair().await;
        let ends = tokio::join!(open(near, Side::Front, front), open(far, Side::Back, back));
        ends.into()
    }

    #[tokio::test]
    async fn frames_arrive_in_order() {
        let [Ok((front, mut at_front)), Ok((back, mut at_back))] = opened(SECRET, SECRET).await
        else {
            panic!("no channel");
        };
        let asks = Frame::Asks { id: 3, bytes: vec![b'x'; 40_000] };
        tokio::spawn({
            let back = back.clone();
            async move { back.pump().await }
        });
        for frame in [&Frame::Answers(1), &asks, &Frame::Ended(1)] {
            assert!(back.send(frame));
        }
        for frame in [Frame::Answers(1), asks, Frame::Ended(1)] {
            assert_eq!(at_front.receive().await.unwrap(), frame);
        }
        let sender = back.clone();
        tokio::spawn(async move { sender.send_urgent().await });
        let tasks = [2, 3].map(|id| {
            let (back, has_left) = (back.clone(), Arc::new(AtomicBool::new(false)));
            tokio::spawn(async move {
                let mut is_sent = false;
                std::future::poll_fn(|cx| match std::mem::replace(&mut is_sent, true) {
                    true => back.poll_left(&has_left, cx),
                    false => {
                        assert!(back.send_together(&Frame::Answers(id), &has_left, cx));
                        Poll::Pending
                    }
                })
                .await;
            })
        });
        for (task, id) in tasks.into_iter().zip([2, 3]) {
            task.await.unwrap();
            assert_eq!(at_front.receive().await.unwrap(), Frame::Answers(id));
        }
        assert!(front.send(&Frame::Keep(1)));
        // The first write of a socket may have to wait for the driver.
        tokio::spawn(async move { front.pump().await });
        assert_eq!(at_back.receive().await.unwrap(), Frame::Keep(1));
    }

    #[tokio::test]
    async fn who_does_not_know_the_secret_is_sent_away() {
        let [front, back] = opened(SECRET, "0123456789abcdeg").await;
        assert!(back.err().unwrap().to_string().contains("secret"));
        assert!(front.err().unwrap().to_string().contains("secret"));
    }

    #[tokio::test]
    async fn a_frame_that_was_changed_ends_the_channel() {
        let [Ok((front, _)), Ok((_back, mut at_back))] = opened(SECRET, SECRET).await else {
            panic!("no channel");
        };
        assert!(front.put(|out| Frame::Keep(1).write(out)));
        front.stream.writable().await.unwrap();
        {
            let mut outgoing = front.outgoing.lock();
            outgoing.mark();
            *outgoing.pending.last_mut().unwrap() ^= 1;
            front.write(&mut outgoing);
        }
        assert_eq!(at_back.receive().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn frames_that_leave_together_have_one_mark() {
        let [Ok((front, _)), Ok((_back, mut at_back))] = opened(SECRET, SECRET).await else {
            panic!("no channel");
        };
        let long = Frame::Asks { id: 3, bytes: vec![b'x'; LONG_BATCH] };
        let frames = [Frame::Keep(1), Frame::GiveUp(2), long, Frame::Keep(4)];
        assert!(frames.iter().all(|frame| front.put(|out| frame.write(out))));
        front.stream.writable().await.unwrap();
        front.flush();
        assert_eq!(front.outgoing.lock().marks.count, 2, "the long one ends a batch");
        tokio::spawn(async move { front.pump().await });
        for frame in frames {
            assert_eq!(at_back.receive().await.unwrap(), frame);
        }
    }

    #[tokio::test]
    async fn a_frame_that_is_longer_than_its_batch_ends_the_channel() {
        for frames in [&[0, 0, 0, 9, 1][..], &[0, 0], &[]] {
            let [Ok((front, _)), Ok((_back, mut at_back))] = opened(SECRET, SECRET).await else {
                panic!("no channel");
            };
            front.stream.writable().await.unwrap();
            {
                let mut outgoing = front.outgoing.lock();
                outgoing.pending.extend([0; 4 + MARK]);
                outgoing.pending.extend(frames);
                front.write(&mut outgoing);
            }
            assert_eq!(at_back.receive().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
