//! The task of a connection over HTTP/2: frames in and out, pings for a dead server, the windows of streams.
//!
//! The window of the connection bounds the bytes that wait for readers that are behind. A stream that is not read
//! keeps its window full of them. All streams together must not fill the connection's, or slow readers would stop
//! the others: so the more streams there are, the smaller are their windows.

use std::{
    cmp::Ordering,
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::{Ping, PingPong, client::Connection};
use levada_http::Io;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::connection::ConnectionState;

/// Bytes of all responses of a connection that have come and were not read.
pub(super) const CONNECTION_WINDOW: u32 = 16 << 20;
/// The windows of all streams, as long as each has more than the smallest one. Streams that began when there were
/// fewer have larger ones, so that all together may have three times as much.
const STREAM_WINDOWS: u32 = 4 << 20;
/// The window of a stream, when there are few.
const LARGEST_WINDOW: u32 = 1 << 20;
/// The window of a stream in the first second: many may begin before the server has taken in another one.
pub(super) const FIRST_WINDOW: u32 = 128 << 10;
/// The window of a stream, when there are many.
const SMALLEST_WINDOW: u32 = 64 << 10;
/// The time between two changes to larger windows, so that a number of streams that goes up and down does not change
/// them each time.
const GROWTH_INTERVAL: Duration = Duration::from_secs(1);
/// How long a server may be silent, although requests wait, until it is asked whether it lives; and how long it may
/// take to say so.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// A server that lives and stays silent is asked again after as many times the silence. Servers of gRPC close
/// connections with more than one ping in five minutes.
const NEXT_PING: u32 = 31;

/// Drives a connection until it ends.
pub(super) async fn drive(connection: Connection<Io, Bytes>, state: Arc<ConnectionState>) {
    let mut ticks = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut connection = connection;
    let pings = connection.ping_pong();
    let (window, changed) = (FIRST_WINDOW, Instant::now());
    Driver { connection, pings, ticks, state, window, changed, quiet: 0, asked: false }.await;
}

struct Driver {
    connection: Connection<Io, Bytes>,
    pings: Option<PingPong>,
    ticks: Interval,
    state: Arc<ConnectionState>,
    /// The window of a stream.
    window: u32,
    /// When it was changed.
    changed: Instant,
    /// Ticks without anything from the server, while requests waited.
    quiet: u32,
    /// Whether the answer to a ping is awaited.
    asked: bool,
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        while this.ticks.poll_tick(cx).is_ready() {
            if this.asked {
                tracing::debug!("a connection over HTTP/2 is dead: no answer to a ping");
                this.state.close();
                return Poll::Ready(());
            }
            this.tick();
        }
        if this.asked
            && let Some(pings) = &mut this.pings
            && pings.poll_pong(cx).is_ready()
        {
            this.asked = false;
        }
        this.fit_windows();
        let polled = Pin::new(&mut this.connection).poll(cx);
        if let Poll::Ready(ended) = &polled {
            this.state.close();
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection over HTTP/2 ended");
            }
        }
        polled.map(drop)
    }
}

impl Driver {
    fn tick(&mut self) {
        let streams = self.state.streams.load(Relaxed);
        if self.state.heard.swap(false, Relaxed) || streams == 0 {
            self.quiet = 0;
            return;
        }
        self.quiet += 1;
        if self.quiet % NEXT_PING == 1
            && let Some(pings) = &mut self.pings
        {
            self.asked = pings.send_ping(Ping::opaque()).is_ok();
        }
    }

    fn fit_windows(&mut self) {
        let window = window_of(self.state.streams.load(Relaxed));
        let is_due = match window.cmp(&self.window) {
            Ordering::Equal => false,
            Ordering::Less => true,
            Ordering::Greater => self.changed.elapsed() >= GROWTH_INTERVAL,
        };
        // It fails until the server has taken in the last change, and is tried again then.
        if is_due && self.connection.set_initial_window_size(window).is_ok() {
            (self.window, self.changed) = (window, Instant::now());
        }
    }
}

/// The window of each of so many streams.
fn window_of(streams: usize) -> u32 {
    let streams = u32::try_from(streams.max(1).next_power_of_two()).unwrap_or(u32::MAX);
    (STREAM_WINDOWS / streams).clamp(SMALLEST_WINDOW, LARGEST_WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_all_streams_fit_into_that_of_the_connection() {
        // Each began when there were only those before it, and none of them is read.
        let all: u32 = (1..=100).map(window_of).sum();
        assert!(all <= CONNECTION_WINDOW && 100 * FIRST_WINDOW <= CONNECTION_WINDOW, "{all}");
        assert_eq!(window_of(1), LARGEST_WINDOW);
        assert_eq!(window_of(100), SMALLEST_WINDOW);
    }
}
