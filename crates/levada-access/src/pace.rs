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

/// Bodies take turns in pieces of this size, so that a large body does not delay a small one.
const PIECE: usize = 16 << 10;
/// How far ahead of the rate a piece may go out. Timers are not more precise than this.
const AHEAD: Duration = Duration::from_millis(5);

/// A rate that many bodies share.
pub struct Pacer {
    nanos_per_byte: f64,
    /// The time at which all granted bytes have gone out at the rate.
    paid_until: Mutex<Instant>,
}

impl Pacer {
    /// A rate of so many bytes per second.
    pub fn new(bytes_per_second: u64) -> Arc<Self> {
        Arc::new(Self {
            nanos_per_byte: 1e9 / bytes_per_second.max(1) as f64,
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

/// One body that is sent at the shared rate.
pub struct Paced {
    pacer: Arc<Pacer>,
    rest: Bytes,
    /// The piece that waits for its turn.
    granted: Option<Bytes>,
    turn: Pin<Box<Sleep>>,
}

impl Paced {
    /// A body that takes its turns at `pacer`.
    pub fn new(pacer: &Arc<Pacer>) -> Self {
        Self {
            pacer: pacer.clone(),
            rest: Bytes::new(),
            granted: None,
            turn: Box::pin(tokio::time::sleep_until(Instant::now())),
        }
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
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        let now = Instant::now();
        let start = self.pacer.grant(piece.len(), now);
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
}
