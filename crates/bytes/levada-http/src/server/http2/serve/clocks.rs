//! The deadlines of a connection, its rest between streams, and its departure.

use std::{
    collections::VecDeque,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::BytesMut;
use http::HeaderMap;
use tokio::{io::AsyncRead, time::Instant};

use super::{
    super::frame::{self, ErrorCode, LAST_STREAM, kind},
    Http2Connection, Http2Service,
};
use crate::{
    patience::SendStall,
    server::{
        ConnectionEnd, Outlet, QUIET,
        wire::{Ended, Farewell},
    },
};

/// The instants that deadlines count from.
pub(super) struct Clocks {
    /// The present poll.
    pub(super) now: Instant,
    /// Something was read.
    pub(super) heard: Instant,
    /// The client was asked whether it is there, and nothing has come since.
    pub(super) asked: Option<Instant>,
    /// The last stream has ended.
    pub(super) quiet: Instant,
    /// A head has to be complete.
    pub(super) head_due: Option<Instant>,
    /// The wait until the client opens windows.
    pub(super) stalled: Option<SendStall>,
}

/// How far a connection is with its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Departure {
    None,
    /// The client knows. Requests that cross the news are answered, at least until this moment.
    Announced(Instant),
    /// No more streams are taken.
    Settled,
}

/// The wait for the answer to a PING.
const PONG: Duration = Duration::from_secs(10);
/// The wait for requests that cross the news of the end.
const LAST_CALL: Duration = Duration::from_secs(1);
/// The payloads of PING: of a connection that is about to end, and of one that is silent.
pub(super) const LEAVING_PING: &[u8; 8] = b"leaving.";
pub(super) const SILENCE_PING: &[u8; 8] = b"silence?";
/// A longer wait is none: a later instant may not exist.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

impl<S, V> Http2Connection<'_, S, V>
where
    S: AsyncRead + Outlet + Unpin,
    V: Http2Service,
{
    /// Tells the client that the connection is about to end (RFC 9113 Sec. 6.8). PING comes first: after GOAWAY, some
    /// clients take any other frame for a fault, as h2 for Python does. Its answer says that the client has read
    /// as far as here; a request that leaves with that answer is refused, and sent again elsewhere.
    pub(super) fn announce_departure(&mut self) {
        self.departure = Departure::Announced(self.clocks.now + LAST_CALL);
        self.wire.queue.write(|to| {
            frame::write(to, kind::PING, 0, 0, LEAVING_PING);
            frame::write_goaway(to, LAST_STREAM, ErrorCode::NoError);
        });
    }

    /// Takes no more streams.
    pub(super) fn settle_departure(&mut self) {
        if self.departure != Departure::Settled {
            self.departure = Departure::Settled;
            let last = self.last;
            self.wire.queue.write(|to| frame::write_goaway(to, last, ErrorCode::NoError));
        }
    }

    /// Ready when the connection has to end.
    pub(super) fn poll_deadlines<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Ended>> {
        loop {
            if let Some(resting) = &self.resting
                && resting.poll_gives_way(cx).is_ready()
            {
                (self.resting, self.gives_way) = (None, true);
                self.settle_departure();
                // The next poll writes.
                cx.waker().wake_by_ref();
            }
            let due = self.next_deadline();
            ready!(self.wire.timer.poll(cx, due));
            self.clocks.now = Instant::now();
            self.keep_deadlines()?;
            if !self.wire.queue.is_empty() {
                // The next poll writes.
                cx.waker().wake_by_ref();
            }
        }
    }

    fn next_deadline(&self) -> Instant {
        let Clocks { heard, asked, quiet, head_due, stalled, .. } = &self.clocks;
        let limits = &self.wire.limits;
        let silence = match asked {
            Some(asked) => *asked + PONG,
            None => *heard + limits.idle_timeout.min(LONGEST_WAIT) / 2,
        };
        let idle = (self.streams.open() == 0).then(|| match self.resting.is_some() {
            true => *quiet + limits.idle_timeout.min(LONGEST_WAIT),
            false => *quiet + QUIET.min(limits.idle_timeout),
        });
        let stalled = stalled.as_ref().map(|stall| stall.next_look(&limits.send));
        let leaving = match self.departure {
            Departure::Announced(until) => Some(until),
            _ => None,
        };
        let others = [idle, *head_due, stalled, leaving];
        others.into_iter().flatten().fold(silence, Instant::min)
    }

    /// Does what is due now.
    fn keep_deadlines(&mut self) -> Result<(), Ended> {
        let limits = self.wire.limits;
        let Clocks { now, heard, asked, quiet, head_due, stalled } = &mut self.clocks;
        let now = *now;
        if head_due.is_some_and(|due| due <= now) {
            return Err(Ended::by(ConnectionEnd::HeadTimeout, Farewell::Close));
        }
        if let Some(stall) = stalled
            && stall.next_look(&limits.send) <= now
            && !stall.goes_on(&limits.send, now, self.wire.stream.acknowledged())
        {
            return Err(Ended::by(ConnectionEnd::SendTimeout, Farewell::Reset));
        }
        let mut says = None;
        match asked {
            Some(asked) if *asked + PONG <= now => {
                return Err(Ended::by(ConnectionEnd::Broken, Farewell::Close));
            }
            None if *heard + limits.idle_timeout.min(LONGEST_WAIT) / 2 <= now => {
                *asked = Some(now);
                says = Some(SILENCE_PING);
            }
            _ => {}
        }
        let is_quiet = *quiet + QUIET.min(limits.idle_timeout) <= now;
        if self.streams.open() == 0 && self.resting.is_none() && is_quiet {
            self.rest();
        }
        if self.streams.open() == 0
            && self.clocks.quiet + limits.idle_timeout.min(LONGEST_WAIT) <= now
        {
            self.settle_departure();
            return Err(Ended::by(ConnectionEnd::IdleTimeout, Farewell::Linger));
        }
        if matches!(self.departure, Departure::Announced(until) if until <= now) {
            self.settle_departure();
        }
        if let Some(payload) = says {
            self.wire.queue.write(|to| frame::write(to, kind::PING, 0, 0, payload));
        }
        Ok(())
    }

    /// Gives memory back that a connection without streams does not need.
    fn rest(&mut self) {
        self.resting = Some(self.service.resting().enter());
        if self.wire.read.is_empty() && self.block.is_none() {
            self.wire.read = BytesMut::new();
        }
        if self.wire.queue.is_empty() {
            self.wire.queue = Default::default();
        }
        (self.spare, self.turns) = (HeaderMap::new(), VecDeque::new());
        self.streams.rest();
        self.decoder.rest();
    }
}
