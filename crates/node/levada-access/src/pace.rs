//! A rate of bytes: a bucket that many bodies share, in turns.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::Frame;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

/// Bodies take turns in pieces of at most this size, so that a large body does not delay a small one.
const PIECE: usize = 16 << 10;
/// At a low rate a piece is as long as this part of a second, so that the client sees bytes all the time.
const PIECES_PER_SECOND: u64 = 20;
const SMALLEST_PIECE: u64 = 256;
/// How far ahead of the rate a piece may go out. Timers are not more precise than this.
const AHEAD: Duration = Duration::from_millis(5);

/// A rate that many bodies share.
#[derive(Debug)]
pub struct Pacer {
    nanos_per_byte: f64,
    /// The bytes that go out together.
    piece: usize,
    /// The time at which all granted bytes have gone out at the rate.
    paid_until: Mutex<Instant>,
}

impl Pacer {
    /// A rate of so many bytes per second.
    pub fn new(bytes_per_second: u64) -> Arc<Self> {
        Arc::new(Self {
            nanos_per_byte: 1e9 / bytes_per_second.max(1) as f64,
            piece: PIECE.min((bytes_per_second / PIECES_PER_SECOND).max(SMALLEST_PIECE) as usize),
            paid_until: Mutex::new(Instant::now()),
        })
    }

    /// Grants `bytes`. They may go out at the returned instant.
    fn grant(&self, bytes: usize, now: Instant) -> Instant {
        let mut paid_until = self.paid_until.lock();
        let start = (*paid_until).max(now);
        *paid_until = start + Duration::from_nanos((bytes as f64 * self.nanos_per_byte) as u64);
        start
    }
}

/// One body that is sent at shared rates.
pub struct Paced {
    pacers: Vec<Held>,
    rest: Bytes,
    /// The piece that waits for its turn.
    granted: Option<Bytes>,
    turn: Pin<Box<Sleep>>,
}

/// A rate that holds for a body after its first bytes.
struct Held {
    pacer: Arc<Pacer>,
    free: u64,
}

impl Default for Paced {
    /// A body without a rate.
    fn default() -> Self {
        Self {
            pacers: Vec::new(),
            rest: Bytes::new(),
            granted: None,
            turn: Box::pin(tokio::time::sleep_until(Instant::now())),
        }
    }
}

impl Paced {
    /// A body that takes its turns at `pacer`.
    pub fn new(pacer: &Arc<Pacer>) -> Self {
        Self::default().also(pacer, 0)
    }

    /// Lets the body take its turns at another rate, too, after `free` bytes.
    pub fn also(mut self, pacer: &Arc<Pacer>, free: u64) -> Self {
        self.pacers.push(Held { pacer: pacer.clone(), free });
        self
    }

    /// Grants a piece at all rates: the latest counts.
    fn grant(&mut self, bytes: usize, now: Instant) -> Instant {
        let mut start = now;
        for Held { pacer, free } in &mut self.pacers {
            match free.checked_sub(bytes as u64) {
                Some(rest) => *free = rest,
                None => {
                    let held = bytes - std::mem::take(free) as usize;
                    start = start.max(pacer.grant(held, now));
                }
            }
        }
        start
    }

    /// Whether nothing is held back.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.granted.is_none()
    }

    /// Ready when the piece that was granted may go out.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.granted.is_none() {
            return Poll::Ready(());
        }
        self.turn.as_mut().poll(cx)
    }

    /// Returns the next piece of the body that `more` supplies, when its turn has come.
    pub fn cut<E>(
        &mut self,
        cx: &mut Context<'_>,
        mut more: impl FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, E>>>,
    ) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        if let Some(piece) = self.granted.take() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if self.rest.is_empty() {
            match std::task::ready!(more(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let piece = self.pacers.iter().map(|held| held.pacer.piece).min().unwrap_or(PIECE);
        let piece = self.rest.split_to(self.rest.len().min(piece));
        let now = Instant::now();
        let start = self.grant(piece.len(), now);
        if start <= now + AHEAD {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        self.granted = Some(piece);
        self.turn.as_mut().reset(start);
        std::task::ready!(self.turn.as_mut().poll(cx));
        Poll::Ready(self.granted.take().map(|piece| Ok(Frame::data(piece))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_queue_at_the_rate() {
        let pacer = Pacer::new(1_000_000);
        let now = Instant::now() + Duration::from_secs(1);
        assert_eq!(pacer.grant(10_000, now), now);
        assert_eq!(pacer.grant(10_000, now), now + Duration::from_millis(10));
        assert_eq!(pacer.grant(10_000, now), now + Duration::from_millis(20));
        let later = now + Duration::from_secs(5);
        assert_eq!(pacer.grant(1, later), later, "unused rate is not saved up");
    }

    #[tokio::test]
    async fn slowest_rate_counts_and_the_first_bytes_are_free() {
        let (fast, slow) = (Pacer::new(1_000_000), Pacer::new(100_000));
        let mut body = Paced::new(&fast).also(&slow, 15_000);
        let now = Instant::now() + Duration::from_secs(1);
        assert_eq!(body.grant(10_000, now), now);
        assert_eq!(body.grant(10_000, now), now + Duration::from_millis(10));
        assert_eq!(body.grant(10_000, now), now + Duration::from_millis(50));
        assert_eq!(body.grant(10_000, now), now + Duration::from_millis(150));
        assert_eq!((fast.piece, slow.piece), (PIECE, 5_000));
    }
}
