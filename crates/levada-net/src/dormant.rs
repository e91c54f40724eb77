//! Detection of connections whose client has stopped acknowledging.
//!
//! When a route moves, acknowledgements go to another node. The kernel then retransmits for a
//! quarter of an hour, and the client does not learn that the connection is lost. WWW'09 (Sec.
//! 3.1.2) gives such a connection up after one timeout retransmission, and sends a reset. The
//! kernel has no setting for this, so a [`DormancyWatch`] checks ten times a second:
//!
//! ```text
//! a write ──> sets `wrote`, lists it once  (the cost on the hot path: two flags)
//! sweep: wrote since the last sweep?       it makes progress: check again next time
//!        nothing outstanding?              removed from the list until it writes again
//!        too many timeouts in a row?       reset
//! ```
//!
//! So connections that are idle, or that send fast, cost no system call. A client that has closed
//! its window answers window probes: it is slow, not dormant.

use std::{
    io::{self, IoSlice},
    os::fd::{AsRawFd as _, BorrowedFd, RawFd},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::tcp::{TcpInfo, reset_on_close};

/// Watches the connections of one worker. `T` is data of the connection's owner.
pub struct DormancyWatch<T> {
    /// Connections that have written and have not been found without outstanding data since.
    owing: Mutex<Vec<Arc<WatchedConnection<T>>>>,
    retries: u8,
}

/// The watch's entry for a connection.
pub struct WatchedConnection<T> {
    /// Data of the owner.
    pub about: T,
    /// The socket, while it is open. The watch holds the lock while it uses the socket, so that the
    /// socket is not closed and its number not reused meanwhile.
    socket: Mutex<Option<RawFd>>,
    wrote: AtomicBool,
    listed: AtomicBool,
}

/// A stream that reports its writes to a watch.
pub struct MonitoredStream<T> {
    watch: Option<Arc<DormancyWatch<T>>>,
    connection: Arc<WatchedConnection<T>>,
    stream: TcpStream,
}

impl<T> DormancyWatch<T> {
    /// Creates a watch. It considers a connection dormant if `retries` retransmissions after
    /// timeouts were not acknowledged when the next timeout expires.
    pub fn new(retries: u8) -> Arc<Self> {
        Arc::new(Self { owing: Mutex::default(), retries })
    }

    /// Checks every connection that has written and had no progress since the last sweep. It calls
    /// `dormant` for the dormant ones, which must close them; closing then sends a reset.
    pub fn sweep(self: &Arc<Self>, mut dormant: impl FnMut(&WatchedConnection<T>, &TcpInfo)) {
        let mut connections = std::mem::take(&mut *lock(&self.owing));
        connections.retain(|connection| self.keep(connection, &mut dormant));
        lock(&self.owing).append(&mut connections);
    }

    fn keep(
        &self,
        connection: &WatchedConnection<T>,
        dormant: &mut impl FnMut(&WatchedConnection<T>, &TcpInfo),
    ) -> bool {
        if connection.wrote.swap(false, Relaxed) {
            return true;
        }
        // A write from now on lists it again.
        connection.listed.store(false, Relaxed);
        let verdict = connection.look(|socket| {
            let info = TcpInfo::of(&socket)?;
            let is_dormant = is_dormant(&info, self.retries);
            if is_dormant {
                reset_on_close(&socket)?;
            }
            Ok::<_, io::Error>((info, is_dormant))
        });
        match verdict {
            Some(Ok((info, true))) => {
                dormant(connection, &info);
                false
            }
            Some(Ok((info, false))) if info.unacked > 0 || info.unsent > 0 => {
                !connection.listed.swap(true, Relaxed)
            }
            // It has no outstanding data, was closed, or the system gives no information.
            _ => false,
        }
    }
}

/// Whether data was retransmitted after timeouts more than `retries` times, and the client sent
/// nothing for the whole last timeout. A client that acknowledges other data, or the same data
/// again, is alive on a poor path. If the window is closed, probes take the place of data: the
/// first one counts as the data, the next ones as retransmissions.
///
/// At the last timeout the kernel retransmitted once more. If a queue is full, the retransmission
/// before it may have been lost like the data, so the watch waits for the answer to this one: for
/// the timeout of RFC 6298 without its minimum. With `retries` of zero it does not wait, and the
/// first timeout decides.
fn is_dormant(info: &TcpInfo, retries: u8) -> bool {
    // The expired timeout was half as long as the current one.
    let is_silent = info.last_ack >= info.timeout / 2;
    let is_answered_by_now = retries == 0 || info.last_sent >= info.rtt + 4 * info.rtt_deviation;
    (info.unacked > 0 && info.retransmits > retries && is_silent && is_answered_by_now)
        || info.probes > retries + 1
}

impl<T> WatchedConnection<T> {
    fn look<R>(&self, look: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        let socket = lock(&self.socket);
        // SAFETY: the descriptor is open: `MonitoredStream` owns the stream, lends it by shared reference
        // only, and clears this field, under the lock, before it drops the stream.
        #[expect(unsafe_code)]
        let borrowed = (*socket).map(|socket| unsafe { BorrowedFd::borrow_raw(socket) });
        borrowed.map(look)
    }
}

impl<T> MonitoredStream<T> {
    /// Lets `watch` watch a stream; without a watch, the stream works as usual.
    pub fn new(
        stream: TcpStream,
        watch: Option<Arc<DormancyWatch<T>>>,
        connection: Arc<WatchedConnection<T>>,
    ) -> Self {
        *lock(&connection.socket) = Some(stream.as_raw_fd());
        Self { watch, connection, stream }
    }

    /// The stream. Call [`wrote`](Self::wrote) after writing to it directly.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The watch's entry.
    pub fn connection(&self) -> &Arc<WatchedConnection<T>> {
        &self.connection
    }

    /// Records that data was passed to the kernel.
    #[inline]
    pub fn wrote(&self) {
        let Some(watch) = &self.watch else { return };
        self.connection.wrote.store(true, Relaxed);
        if !self.connection.listed.load(Relaxed) && !self.connection.listed.swap(true, Relaxed) {
            lock(&watch.owing).push(self.connection.clone());
        }
    }
}

impl<T> WatchedConnection<T> {
    /// The entry for a connection that will be watched.
    pub fn new(about: T) -> Arc<Self> {
        Arc::new(Self {
            about,
            socket: Mutex::new(None),
            wrote: AtomicBool::new(false),
            listed: AtomicBool::new(false),
        })
    }

    /// The bytes that the client has acknowledged so far; `None` if the connection is closed, or the system
    /// gives no information.
    pub fn acknowledged(&self) -> Option<u64> {
        self.look(|socket| TcpInfo::of(&socket).ok())?.map(|info| info.acknowledged)
    }
}

impl<T> Drop for MonitoredStream<T> {
    fn drop(&mut self) {
        *lock(&self.connection.socket) = None;
    }
}

impl<T> AsyncRead for MonitoredStream<T> {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl<T> AsyncWrite for MonitoredStream<T> {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        if written.is_ready() {
            this.wrote();
        }
        written
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        if written.is_ready() {
            this.wrote();
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// No code under these locks can panic and leave the data inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    fn silent(retransmits: u8, last_ack: Duration, timeout: Duration) -> TcpInfo {
        TcpInfo { unacked: 3, retransmits, last_ack, timeout, ..TcpInfo::default() }
    }

    #[test]
    fn dormant_is_what_lets_a_retransmission_and_its_timeout_pass() {
        assert!(!is_dormant(&silent(1, 250 * MS, 400 * MS), 1), "the first retransmission is out");
        assert!(is_dormant(&silent(2, 610 * MS, 800 * MS), 1));
        assert!(is_dormant(&silent(1, 210 * MS, 400 * MS), 0));
    }

    #[test]
    fn what_was_sent_last_may_still_be_answered() {
        let sent = |last_sent| TcpInfo {
            rtt: 60 * MS,
            rtt_deviation: 10 * MS,
            last_sent,
            ..silent(2, 610 * MS, 800 * MS)
        };
        assert!(!is_dormant(&sent(99 * MS), 1));
        assert!(is_dormant(&sent(100 * MS), 1));
        assert!(is_dormant(&sent(99 * MS), 0), "the first timeout decides");
    }

    #[test]
    fn who_acknowledges_anything_is_not_dormant() {
        assert!(!is_dormant(&silent(3, 40 * MS, 1600 * MS), 1));
    }

    #[test]
    fn who_has_closed_the_window_is_not_dormant_while_probes_are_answered() {
        let slow = |probes| TcpInfo { probes, backoff: 4, unsent: 1, ..TcpInfo::default() };
        assert!(!is_dormant(&slow(1), 0));
        assert!(is_dormant(&slow(2), 0));
        assert!(!is_dormant(&slow(2), 1));
    }
}
