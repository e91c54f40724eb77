//! The deadline for the heads of requests over HTTP/2.
//!
//! A head may come in several frames (RFC 9113 Sec. 6.10): nothing else may come on the connection until the
//! last of them. hyper waits for it as long as the connection lives. This reader follows the frames and ends
//! the connection when a head takes longer than it may over HTTP/1.
//!
//! ```text
//!   preface (24 bytes), then frames: length (3) type (1) flags (1) stream (4) payload (length)
//! ```

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::{
    ledger::{ConnectionEnd, Ledger},
    turn::{self, WriteTurn},
};
use crate::deadline::{DeadlineTimer, after};

const PREFACE: u32 = 24;
const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// A connection whose heads come in time.
#[derive(Debug)]
pub struct TimedHeads<S> {
    inner: S,
    frames: Frames,
    timeout: Duration,
    /// When the head that has started must be complete.
    deadline: Option<Instant>,
    timer: DeadlineTimer,
    turn: WriteTurn,
    ledger: Arc<Ledger>,
}

/// The position in the frames of a connection.
#[derive(Debug)]
struct Frames {
    /// The bytes of the next frame's head that have come.
    head: [u8; FRAME_HEAD],
    came: usize,
    /// The bytes that are left of the preface, or of a payload.
    left: u32,
    /// Whether the preface, or a head of a request, has started.
    open: bool,
    /// Whether it ends with the present payload.
    ends: bool,
}

impl Frames {
    /// Before the preface, which must come in time as well.
    fn new() -> Self {
        Self { head: [0; FRAME_HEAD], came: 0, left: PREFACE, open: true, ends: true }
    }

    /// Takes in bytes. Returns whether a head has ended in them.
    fn feed(&mut self, mut bytes: &[u8]) -> bool {
        let mut ended = false;
        while !bytes.is_empty() {
            if self.left > 0 {
                let taken = bytes.len().min(self.left as usize);
                self.left -= taken as u32;
                bytes = &bytes[taken..];
            } else {
                self.head[self.came] = bytes[0];
                self.came += 1;
                bytes = &bytes[1..];
                if self.came == FRAME_HEAD {
                    self.begin();
                }
            }
            if self.left == 0 && self.came == 0 && self.ends {
                (self.open, self.ends, ended) = (false, false, true);
            }
        }
        ended
    }

    fn begin(&mut self) {
        let [high, middle, low, kind, flags, ..] = self.head;
        self.left = u32::from_be_bytes([0, high, middle, low]);
        self.came = 0;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.open = true;
            self.ends = flags & END_HEADERS != 0;
        }
    }
}

impl<S> TimedHeads<S> {
    /// A connection on which no head may take longer than `timeout`. The ledger learns of one that does.
    pub fn new(inner: S, timeout: Duration, ledger: Arc<Ledger>) -> Self {
        let (frames, timer, turn) = (Frames::new(), DeadlineTimer::default(), WriteTurn::default());
        Self { inner, frames, timeout, deadline: None, timer, turn, ledger }
    }

    fn late(&self) -> io::Error {
        self.ledger.end(ConnectionEnd::HeadTimeout);
        io::ErrorKind::TimedOut.into()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedHeads<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let start = buf.filled().len();
        match Pin::new(&mut this.inner).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {
                let Some(deadline) = this.deadline else { return Poll::Pending };
                ready!(this.timer.poll(cx, deadline));
                return Poll::Ready(Err(this.late()));
            }
        }
        if this.frames.feed(&buf.filled()[start..]) {
            this.deadline = None;
        }
        let timeout = this.timeout;
        match this.frames.open {
            true if *this.deadline.get_or_insert_with(|| after(timeout)) <= Instant::now() => {
                Poll::Ready(Err(this.late()))
            }
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedHeads<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.turn.poll(cx));
        let most = bytes.len().min(this.turn.left());
        let progress = Pin::new(&mut this.inner).poll_write(cx, &bytes[..most]);
        this.turn.wrote(&progress);
        progress
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.turn.poll(cx));
        let most = this.turn.left();
        let progress = turn::poll_write_some(Pin::new(&mut this.inner), cx, slices, most);
        this.turn.wrote(&progress);
        progress
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let head = [length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        [&head, payload].concat()
    }

    #[test]
    fn head_is_open_from_its_first_frame_to_the_end_of_its_last() {
        let preface = [0; PREFACE as usize];
        let bytes = [
            &preface[..],
            &frame(4, 0, b""),
            &frame(HEADERS, 0, b"abc"),
            &frame(CONTINUATION, 0, b"de"),
            &frame(CONTINUATION, END_HEADERS, b"f"),
            &frame(0, 1, b"data"),
            &frame(HEADERS, END_HEADERS, b"whole"),
        ]
        .concat();
        let begins = PREFACE as usize + FRAME_HEAD;
        let before = PREFACE as usize;
        let open = begins + FRAME_HEAD..begins + 3 * FRAME_HEAD + 6;
        let second = open.end + FRAME_HEAD + 4 + FRAME_HEAD;
        let mut frames = Frames::new();
        for (at, byte) in bytes.iter().enumerate() {
            frames.feed(&[*byte]);
            let came = at + 1;
            let is_open =
                came < before || open.contains(&came) || (second..bytes.len()).contains(&came);
            assert_eq!(frames.open, is_open, "{came}");
        }
        let mut at_once = Frames::new();
        assert!(at_once.feed(&bytes) && !at_once.open);
    }

    async fn reads(writes: &[Vec<u8>]) -> (io::Result<()>, DuplexStream, Arc<Ledger>) {
        let ((near, mut far), ledger) = (duplex(1 << 10), Arc::new(Ledger::default()));
        let mut timed = TimedHeads::new(near, Duration::from_millis(200), ledger.clone());
        far.write_all(&[0; PREFACE as usize]).await.unwrap();
        for write in writes {
            far.write_all(write).await.unwrap();
        }
        let mut bytes = [0; 1 << 10];
        loop {
            match tokio::time::timeout(Duration::from_secs(1), timed.read(&mut bytes)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return (Err(error), far, ledger),
                Err(_) => return (Ok(()), far, ledger),
            }
        }
    }

    #[tokio::test]
    async fn connection_with_half_a_head_ends_in_time() {
        let whole = frame(HEADERS, END_HEADERS, b"abc");
        for half in [frame(HEADERS, 0, b"abc"), whole[..10].to_vec()] {
            let (read, _far, ledger) = reads(&[half]).await;
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert_eq!(ledger.ending(), ConnectionEnd::HeadTimeout);
        }
        assert!(reads(&[whole]).await.0.is_ok());
    }
}
