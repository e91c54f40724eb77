//! A connection between two requests that are far apart.
//!
//! ```text
//!   requests ── nothing for a while ──> rest ── bytes, a deadline, a stop ──> requests
//! ```
//!
//! Buffers and everything that a request needs take ten times the memory of all else. A
//! connection that rests has none of them, and gets new ones as soon as something happens. A rest only ends:
//! whatever has happened is dealt with there.

use std::{future::poll_fn, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{ConnectionEnd, Outlet};

/// The time without a request after which a connection rests. Requests of one page follow each other faster.
pub const QUIET: Duration = Duration::from_secs(1);

/// What a connection comes to when its requests are served.
#[derive(Debug)]
pub enum Served<S> {
    /// It has ended.
    Ended(ConnectionEnd),
    /// It rests. If nothing comes, it ends at this instant.
    Resting(S, Instant),
    /// It has switched to another protocol. These bytes of it have come already.
    Switched(S, Vec<u8>),
}

/// Returns when something happens on a connection that rests: the client sends or leaves, the time is `until`,
/// or all of it is `over`.
pub async fn rest(
    stream: &mut impl Outlet,
    until: Option<Instant>,
    over: impl Future<Output = ()>,
) {
    tokio::select! {
        () = poll_fn(|cx| stream.poll_arrived(cx)) => {}
        () = sleep_until(until.unwrap_or_else(Instant::now)) => {}
        () = over => {}
    }
}
