//! The channel between a front-end and a back-end: who knows the secret may speak on it, and nobody
//! between them can change, repeat or leave out a frame unnoticed. It hides nothing: what it carries is
//! plain HTTP elsewhere.
//!
//! ```text
//! back-end    greeting, nonce b ─────────────────────────────>
//!             <──────────── greeting, nonce f, HMAC(kf, "front")       kf = HMAC(secret, "front" b f)
//!             HMAC(kb, "back") ──────────────────────────────>       kb = HMAC(secret, "back" b f)
//! frames:     marked with HMAC(kf or kb, how many came before, the frame)
//! ```

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
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

use crate::frame::Frame;

/// Which side this is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Front,
    Back,
}

/// Says frames. From any thread, without waiting: what the network does not take at once goes later.
pub(crate) struct FrameSender {
    stream: OwnedWriteHalf,
    outgoing: Mutex<FrameQueue>,
    /// Whether nothing can be said any more.
    closed: AtomicBool,
    /// Something is left to write.
    more: Notify,
    ended: Notify,
}

struct FrameQueue {
    marks: FrameSigner,
    pending: Vec<u8>,
    /// A frame without its length and mark, for as long as it takes to mark it.
    scratch: Vec<u8>,
}

/// Hears frames.
pub(crate) struct FrameReceiver {
    stream: OwnedReadHalf,
    marks: FrameSigner,
    buffer: Vec<u8>,
    /// Whether frames may wait for others.
    gathers: bool,
    pace: GatherPace,
}

/// When a receiver reads that gathers.
#[derive(Clone, Copy)]
enum GatherPace {
    /// As soon as something comes; it was last read then.
    AtOnce(Option<Instant>),
    /// Every so often, and so many times in a row there was nothing. Nobody is woken by what comes.
    Often(u32),
}

/// Marks frames, or checks marks, in the order in which they go.
struct FrameSigner {
    key: hmac::Key,
    count: u64,
}

/// Proves to be one side to the other, and has it prove the same.
///
/// # Errors
/// When it does not know the secret, speaks something else, or takes too long.
pub(crate) async fn open(
    stream: TcpStream,
    side: Side,
    secret: &str,
) -> io::Result<(Arc<FrameSender>, FrameReceiver)> {
    stream.set_nodelay(true)?;
    // A machine that vanished is to be noticed, whether or not something is on its way to it.
    let alive = socket2::TcpKeepalive::new().with_time(SILENCE).with_interval(SILENCE);
    let socket = socket2::SockRef::from(&stream);
    socket.set_tcp_keepalive(&alive.with_retries(2))?;
    socket.set_tcp_user_timeout(Some(3 * SILENCE))?;
    match tokio::time::timeout(HANDSHAKE, shake(stream, side, secret.as_bytes())).await {
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
    let (said, heard) = match side {
        Side::Front => (of_front, of_back),
        Side::Back => (of_back, of_front),
    };
    let (read, write) = stream.into_split();
    let outgoing =
        FrameQueue { marks: FrameSigner::new(said), pending: Vec::new(), scratch: Vec::new() };
    let sender = Arc::new(FrameSender {
        stream: write,
        outgoing: Mutex::new(outgoing),
        closed: AtomicBool::new(false),
        more: Notify::new(),
        ended: Notify::new(),
    });
    let marks = FrameSigner::new(heard);
    let pace = GatherPace::AtOnce(None);
    let receiver = FrameReceiver { stream: read, marks, buffer: Vec::new(), gathers: false, pace };
    Ok((sender, receiver))
}

fn greeting(nonce: &[u8; NONCE]) -> Vec<u8> {
    [&GREETING[..], nonce].concat()
}

/// The other side's nonce.
async fn greeted(stream: &mut TcpStream) -> io::Result<[u8; NONCE]> {
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting).await?;
    if greeting != *GREETING {
        return Err(bad("it does not speak Levada's handoff, or another version of it"));
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

async fn check(stream: &mut TcpStream, key: &hmac::Key, said: &[u8]) -> io::Result<()> {
    let mut mark = [0; 32];
    let read = stream.read_exact(&mut mark).await;
    let proven = read.is_ok() && hmac::verify(key, said, &mark).is_ok();
    if proven { Ok(()) } else { Err(bad("it does not know the secret")) }
}

impl FrameSender {
    /// Says a frame, and all that waits before it; false when the channel is over.
    pub(crate) fn say(&self, frame: &Frame) -> bool {
        let Some(mut outgoing) = self.add(|out| frame.write(out)) else { return false };
        self.write(&mut outgoing);
        !self.is_closed()
    }

    /// Says what `write` writes down when it is [flushed](Self::flush); false when the channel is over.
    pub(crate) fn put(&self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.add(write).is_some()
    }

    /// Has all leave that waits.
    pub(crate) fn flush(&self) {
        self.write(&mut self.outgoing.lock());
    }

    /// Says a frame that nobody waits for: with the next one, or soon.
    pub(crate) fn say_soon(&self, frame: &Frame) {
        if self.add(|out| frame.write(out)).is_some() {
            self.more.notify_one();
        }
    }

    fn add(&self, write: impl FnOnce(&mut Vec<u8>)) -> Option<MutexGuard<'_, FrameQueue>> {
        if self.is_closed() {
            return None;
        }
        let mut outgoing = self.outgoing.lock();
        let FrameQueue { marks, pending, scratch } = &mut *outgoing;
        scratch.clear();
        write(scratch);
        pending.extend((scratch.len() as u32).to_be_bytes());
        pending.extend(marks.next(scratch));
        pending.extend_from_slice(scratch);
        if pending.len() > MOST_PENDING {
            drop(outgoing);
            self.close();
            return None;
        }
        Some(outgoing)
    }

    fn write(&self, outgoing: &mut FrameQueue) {
        while !outgoing.pending.is_empty() {
            match self.stream.try_write(&outgoing.pending) {
                Ok(written) => drop(outgoing.pending.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.more.notify_one();
                }
                Err(_) => return self.close(),
            }
        }
    }

    /// Writes what had to wait, until the channel is over.
    pub(crate) async fn pump(&self) {
        while !self.is_closed() {
            tokio::select! {
                () = self.more.notified() => {}
                () = self.over() => return,
            }
            // What comes meanwhile leaves with it, or takes it along.
            tokio::time::sleep(PAUSE).await;
            if self.stream.writable().await.is_err() {
                return self.close();
            }
            self.flush();
        }
    }

    /// Whether the other side's kernel has acknowledged something within so long: when nothing else is to
    /// be said, it is asked once a second.
    pub(crate) fn was_heard(&self, within: Duration) -> bool {
        let stream: &TcpStream = self.stream.as_ref();
        TcpInfo::of(stream).is_ok_and(|info| info.last_ack < within)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Ends the channel for both.
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
        self.ended.notify_waiters();
    }

    /// Returns when the channel is over.
    pub(crate) async fn over(&self) {
        let ended = self.ended.notified();
        if !self.is_closed() {
            ended.await;
        }
    }
}

impl Drop for FrameSender {
    /// What waits leaves, as far as the network takes it at once.
    fn drop(&mut self) {
        if !self.is_closed() {
            let _ = self.stream.try_write(&self.outgoing.get_mut().pending);
        }
    }
}

impl FrameReceiver {
    /// For one to whom nothing is urgent: when much is said, it is heard every so often, all together.
    /// To be woken for each frame costs more than to act upon it.
    pub(crate) fn gather(&mut self) {
        self.gathers = true;
    }

    /// Reads what has come, and waits for it when that is nothing.
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
                    if last.is_some_and(|last| now - last < 2 * PAUSE) {
                        set_receive_low_water_mark(self.stream.as_ref(), GATHERED)?;
                        self.pace = GatherPace::Often(0);
                    }
                    return Ok(read);
                }
                GatherPace::Often(idle) => {
                    tokio::time::sleep(PAUSE).await;
                    let space = spare_capacity(&mut self.buffer);
                    match recv(self.stream.as_ref(), space, RecvFlags::DONTWAIT) {
                        Ok((_, read)) => {
                            self.pace = GatherPace::Often(0);
                            return Ok(read);
                        }
                        Err(Errno::AGAIN) if idle < MOST_IDLE => {
                            self.pace = GatherPace::Often(idle + 1)
                        }
                        Err(Errno::AGAIN) => {
                            // It wakes at once if something has come meanwhile.
                            set_receive_low_water_mark(self.stream.as_ref(), 1)?;
                            self.pace = GatherPace::AtOnce(None);
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
    }

    /// The next frame.
    ///
    /// # Errors
    /// When there is none any more, or one that is wrong: the channel is over then.
    pub(crate) async fn hear(&mut self) -> io::Result<Frame> {
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
        let Some((length, rest)) = self.buffer.split_first_chunk() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MOST_FRAME {
            return Err(bad("a frame that is too long"));
        }
        let Some((mark, rest)) = rest.split_at_checked(MARK) else { return Ok(None) };
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        if !bool::from(mark.ct_eq(&self.marks.next(frame))) {
            return Err(bad("a frame that the other side did not make"));
        }
        let frame = Frame::read(frame).map_err(|error| bad(&error.to_string()))?;
        self.buffer.drain(..4 + MARK + length);
        Ok(Some(frame))
    }
}

impl FrameSigner {
    fn new(key: hmac::Key) -> Self {
        Self { key, count: 0 }
    }

    fn next(&mut self, frame: &[u8]) -> [u8; MARK] {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&self.count.to_be_bytes());
        context.update(frame);
        self.count += 1;
        let mut mark = [0; MARK];
        mark.copy_from_slice(&context.sign().as_ref()[..MARK]);
        mark
    }
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

const GREETING: &[u8; 16] = b"levada-handoff/2";
const FRONT: &[u8] = b"front";
const BACK: &[u8] = b"back";
const NONCE: usize = 32;
/// Half an HMAC-SHA-256 (RFC 2104 Sec. 5).
const MARK: usize = 16;
/// A head with what came along with it, and room to spare.
pub(crate) const MOST_FRAME: usize = 1 << 20;
/// What may wait for a network that takes nothing.
const MOST_PENDING: usize = 4 << 20;
const READ: usize = 16 << 10;
/// The shortest that the runtime's timer measures.
const PAUSE: Duration = Duration::from_millis(1);
/// After how many pauses in a row without a frame each is waited for again.
const MOST_IDLE: u32 = 4;
/// Bytes that are not left to wait for the end of a pause.
const GATHERED: u16 = 16 << 10;
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long nothing may be heard until it is asked whether there is somebody. Three times this long
/// without an answer, and the channel is over.
const SILENCE: Duration = Duration::from_secs(1);
/// For how long a back-end that hears nothing of the front-end may begin answers: longer than [`SILENCE`].
/// A front-end that hears nothing of the back-end waits for longer than that.
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
        for frame in [&Frame::Speaks(1), &asks, &Frame::Ended(1)] {
            assert!(back.say(frame));
        }
        for frame in [Frame::Speaks(1), asks, Frame::Ended(1)] {
            assert_eq!(at_front.hear().await.unwrap(), frame);
        }
        assert!(front.say(&Frame::Keep(1)));
        // The first write of a socket may have to wait for the driver.
        tokio::spawn(async move { front.pump().await });
        assert_eq!(at_back.hear().await.unwrap(), Frame::Keep(1));
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
        let mut frame = Vec::new();
        Frame::Keep(1).write(&mut frame);
        let mark = front.outgoing.lock().marks.next(&frame);
        let last = frame.len() - 1;
        frame[last] ^= 1;
        let bytes = [&(frame.len() as u32).to_be_bytes()[..], &mark, &frame].concat();
        front.stream.writable().await.unwrap();
        assert_eq!(front.stream.try_write(&bytes).unwrap(), bytes.len());
        assert_eq!(at_back.hear().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
