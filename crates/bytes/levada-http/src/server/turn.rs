//! The bytes that a connection writes before it is the turn of others.
//!
//! A task runs until it has to wait, and a new reader's socket takes megabytes at once. While a thousand of
//! them are filled, the next client waits for all. So a connection ends its turn after a while and goes on
//! behind the others. Turns begin short and grow while the client takes everything: a fast download costs a
//! few turns more, and one that stands still has had a short turn only.

use std::task::{Context, Poll};

/// The first turn of a connection.
const SHORTEST: usize = 64 << 10;
/// No turn is longer.
const LONGEST: usize = 1 << 20;

/// The turns of one connection.
#[derive(Debug)]
pub(super) struct WriteTurn {
    length: usize,
    written: usize,
}

impl Default for WriteTurn {
    fn default() -> Self {
        Self { length: SHORTEST, written: 0 }
    }
}

impl WriteTurn {
    /// Pending at the end of a turn. The task is woken, behind those that are ready now.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.written < self.length {
            return Poll::Ready(());
        }
        self.length = (self.length * 2).min(LONGEST);
        self.written = 0;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The bytes that are left of this turn.
    pub(super) fn left(&self) -> usize {
        self.length - self.written
    }

    /// The same for bytes in a pipe. They are not copied, so a turn of the same time has more of them.
    pub(super) fn left_piped(&self) -> usize {
        4 * self.left()
    }

    /// Notes an attempt to write.
    pub(super) fn wrote<E>(&mut self, progress: &Poll<Result<usize, E>>) {
        match progress {
            Poll::Ready(Ok(count)) => self.written = (self.written + count).min(self.length),
            // The task waits, and others are served meanwhile.
            _ => self.written = 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io, task::Waker, time::Duration};

    use tokio::io::duplex;

    use super::*;
    use crate::{ConnectionLimits, HeadBounds, Patience, server::wire::Wire};

    /// The bytes of each turn until all that a client takes at once are written.
    fn turns(mut to: Wire<tokio::io::DuplexStream>) -> Vec<usize> {
        let (mut turns, mut queued, mut left) = (vec![0], 0, TOTAL);
        let mut cx = Context::from_waker(Waker::noop());
        while left > 0 {
            while to.queue.has_room() && queued < TOTAL {
                let piece = vec![0; 10_000.min(TOTAL - queued)];
                queued += piece.len();
                to.queue.push(piece.into());
            }
            let waiting = |to: &Wire<_>| to.queue.parts().map(<[u8]>::len).sum::<usize>();
            let before = waiting(&to);
            let is_turn = to.poll_write(&mut cx).is_ready();
            let written = before - waiting(&to);
            left -= written;
            *turns.last_mut().unwrap() += written;
            if !is_turn {
                turns.push(0);
            }
        }
        turns
    }

    #[test]
    fn a_connection_ends_its_turn_however_much_its_client_takes() {
        let timeout = Duration::from_secs(10);
        let limits = ConnectionLimits {
            head: HeadBounds { head: 8 << 10, fields: 10 },
            idle_timeout: timeout,
            head_timeout: timeout,
            body: Patience { time: timeout, min_rate: 0 },
            send: Patience { time: timeout, min_rate: 0 },
        };
        let (stream, _client) = duplex(TOTAL);
        let wire = Wire::new(stream, limits, None);
        let expected = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, LONGEST];
        assert_eq!(turns(wire)[..6], expected);
    }

    #[test]
    fn a_turn_has_four_times_as_many_bytes_from_a_pipe() {
        let mut turn = WriteTurn::default();
        assert_eq!((turn.left(), turn.left_piped()), (64 << 10, 256 << 10));
        turn.wrote(&Poll::Ready(Ok::<_, io::Error>(256 << 10)));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(turn.poll(&mut cx).is_pending() && turn.poll(&mut cx).is_ready());
        assert_eq!(turn.left_piped(), 512 << 10);
    }

    const TOTAL: usize = 4 << 20;
}
