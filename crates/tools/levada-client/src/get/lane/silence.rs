//! A lane whose connection is silent: its wait, and the connection that it uses next.

use std::{pin::pin, time::Duration};

use http::Uri;
use tokio::time::{Instant, sleep_until};

use super::Lane;
use crate::{
    connect::{ConnectError, HttpConnection},
    redirect,
};

impl Lane<'_> {
    /// Bytes have come: the spare connection is not needed. Neither was it if it replaced one that was
    /// silent because its server is slow.
    pub(super) fn judge_doubt(&mut self, now: Instant, since_request: Duration) {
        let flight = &mut self.work.state.lock().flight;
        let was_needless = std::mem::take(&mut self.has_doubted) && flight.is_slow(since_request);
        if self.spare.discard() || was_needless {
            flight.doubted(now, true);
        }
    }

    /// Waits for what a connection brings next. `None` after it has been silent for too long, or once
    /// a spare connection was opened meanwhile.
    pub(super) async fn wait<T>(
        &mut self,
        opened: Instant,
        asked: Option<Instant>,
        usual: Duration,
        next: impl Future<Output = T>,
    ) -> Option<T> {
        let work = self.work;
        let after = |time: Duration| Instant::now() + time.min(LONGEST_SILENCE);
        let mut deadline = after(work.patience(opened, usual));
        let mut next = pin!(next);
        loop {
            let doubtful_from = || asked.and_then(|asked| work.doubtful_from(asked));
            let doubtful = doubtful_from().filter(|_| !self.spare.is_some());
            tokio::select! {
                biased;
                next = &mut next => return Some(next),
                () = work.moved.notified() => {
                    deadline = deadline.min(after(work.patience(opened, usual)));
                }
                () = self.spare.opened() => return None,
                () = sleep_until(doubtful.unwrap_or(deadline)), if doubtful.is_some() => {
                    // Another lane may have received bytes meanwhile.
                    if doubtful_from().is_some_and(|from| from <= Instant::now()) {
                        self.spare.open(work);
                    }
                }
                () = sleep_until(deadline) => return None,
            }
        }
    }

    /// A connection to the server of `uri`: the spare one, an idle one unless it must be `fresh`, or a
    /// new one.
    pub(super) async fn connection(
        &mut self,
        uri: &Uri,
        fresh: bool,
    ) -> Result<HttpConnection, ConnectError> {
        if let Some(link) = self.spare.take(uri).await {
            return Ok(link);
        }
        let idle = if fresh { None } else { self.work.client.idle(&redirect::origin(uri)) };
        match idle {
            Some(link) => Ok(link),
            None => self.work.fresh_link(uri).await,
        }
    }

    /// Whether a handshake that is cut shows that the route has moved: always if the server has
    /// answered before. Without an answer it may as well not speak TLS.
    pub(super) fn expects_answer(&mut self) -> bool {
        self.cuts += 1;
        self.work.has_connected() || self.cuts <= FIRST_CUTS
    }
}

/// A deadline of a day is none.
const LONGEST_SILENCE: Duration = Duration::from_secs(86_400);
/// How many handshakes with a server that has never answered may be cut.
const FIRST_CUTS: u32 = 2;
