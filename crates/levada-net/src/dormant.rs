//! Connections whose client has stopped to acknowledge.
//!
//! When a route moves, acknowledgements go elsewhere; the kernel sends again what it has for a quarter
//! of an hour, and never tells the client. WWW'09 (Sec. 3.1.2) gives such a connection up after one
//! timeout retransmission, and sends a reset. The kernel cannot be told to do that, so a [`Watch`]
//! looks, ten times a second:
//!
//! ```text
//! a write ──> wrote, and listed once       (what the hot path pays: two flags)
//! sweep: wrote since the last sweep?       it moves: look again next time
//!        nothing outstanding?              off the list, until it writes again
//!        too many timeouts in a row?       reset
//! ```
//!
//! So connections that are idle, or that send quickly, cost no system call. A client that has closed its
//! window answers the probes of it: it is slow, not dormant.

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

/// Looks after the connections of one worker. `T` is what their owner knows of each of them.
pub struct Watch<T> {
    /// Connections that have written and were not found without outstanding data since.
    owing: Mutex<Vec<Arc<Seat<T>>>>,
    retries: u8,
}

/// A connection, as the watch sees it.
pub struct Seat<T> {
    /// What its owner knows of it.
    pub about: T,
    /// The socket, while it is open. Whoever looks at it holds the lock, so that it is not closed, and
    /// its number not given to another, meanwhile.
    socket: Mutex<Option<RawFd>>,
    wrote: AtomicBool,
    listed: AtomicBool,
}

/// A stream that tells its watch when it writes.
pub struct Watched<T> {
    watch: Option<Arc<Watch<T>>>,
    seat: Arc<Seat<T>>,
    stream: TcpStream,
}

impl<T> Watch<T> {
    /// A watch that gives a connection up when `retries` retransmissions after timeouts have not been
    /// acknowledged by the time the next timeout is over.
    pub fn new(retries: u8) -> Arc<Self> {
        Arc::new(Self { owing: Mutex::default(), retries })
    }

    /// Looks at every connection that wrote something and has not moved since the last sweep. The dormant
    /// ones will be ended by a reset as soon as they are closed, which `dormant` must bring about.
    pub fn sweep(self: &Arc<Self>, mut dormant: impl FnMut(&Seat<T>, &TcpInfo)) {
        let mut seats = std::mem::take(&mut *lock(&self.owing));
        seats.retain(|seat| self.keep(seat, &mut dormant));
        lock(&self.owing).append(&mut seats);
    }

    fn keep(&self, seat: &Seat<T>, dormant: &mut impl FnMut(&Seat<T>, &TcpInfo)) -> bool {
        if seat.wrote.swap(false, Relaxed) {
            return true;
        }
        // Whoever writes from here on lists it anew.
        seat.listed.store(false, Relaxed);
        let verdict = seat.look(|socket| {
            let info = TcpInfo::of(&socket)?;
            let is_dormant = is_dormant(&info, self.retries);
            if is_dormant {
                reset_on_close(&socket)?;
            }
            Ok::<_, io::Error>((info, is_dormant))
        });
        match verdict {
            Some(Ok((info, true))) => {
                dormant(seat, &info);
                false
            }
            Some(Ok((info, false))) if info.unacked > 0 || info.unsent > 0 => {
                !seat.listed.swap(true, Relaxed)
            }
            // Nothing outstanding, closed meanwhile, or a system that does not tell.
            _ => false,
        }
    }
}

/// Whether data has been sent again after timeouts more than `retries` times, and the last of these
/// timeouts passed without any sign of the client: one that acknowledges other data, or the same again,
/// is there, and its path is just poor. A closed window is probed instead; the first probe stands for
/// the data, those that follow for what is sent again.
///
/// With the last timeout the kernel has sent the data once more. Where a queue is full, the
/// retransmission before may have been lost like the data, so the answer to this one is awaited: for RFC
/// 6298's timeout, without its least value. Not by who allows none at all, and has the first timeout decide.
fn is_dormant(info: &TcpInfo, retries: u8) -> bool {
    // The timeout that is over was half as long as the one that runs.
    let is_silent = info.last_ack >= info.timeout / 2;
    let is_answered_by_now = retries == 0 || info.last_sent >= info.rtt + 4 * info.rtt_deviation;
    (info.unacked > 0 && info.retransmits > retries && is_silent && is_answered_by_now)
        || info.probes > retries + 1
}

impl<T> Seat<T> {
    fn look<R>(&self, look: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        let socket = lock(&self.socket);
        // SAFETY: the descriptor is open: `Watched` owns the stream, hands it out by shared reference
        // only, and empties this place, for which it needs the lock, before the stream is dropped.
        #[expect(unsafe_code)]
        let borrowed = (*socket).map(|socket| unsafe { BorrowedFd::borrow_raw(socket) });
        borrowed.map(look)
    }
}

impl<T> Watched<T> {
    /// Has `watch` look after a stream; without one, it passes everything on and that is all.
    pub fn new(stream: TcpStream, watch: Option<Arc<Watch<T>>>, seat: Arc<Seat<T>>) -> Self {
        if watch.is_some() {
            *lock(&seat.socket) = Some(stream.as_raw_fd());
        }
        Self { watch, seat, stream }
    }

    /// The stream. Who writes to it directly says so by [`wrote`](Self::wrote).
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Its place.
    pub fn seat(&self) -> &Arc<Seat<T>> {
        &self.seat
    }

    /// Something was handed to the kernel.
    #[inline]
    pub fn wrote(&self) {
        let Some(watch) = &self.watch else { return };
        self.seat.wrote.store(true, Relaxed);
        if !self.seat.listed.load(Relaxed) && !self.seat.listed.swap(true, Relaxed) {
            lock(&watch.owing).push(self.seat.clone());
        }
    }
}

impl<T> Seat<T> {
    /// A place for a connection that is about to be watched.
    pub fn new(about: T) -> Arc<Self> {
        Arc::new(Self {
            about,
            socket: Mutex::new(None),
            wrote: AtomicBool::new(false),
            listed: AtomicBool::new(false),
        })
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        *lock(&self.seat.socket) = None;
    }
}

impl<T> AsyncRead for Watched<T> {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl<T> AsyncWrite for Watched<T> {
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

/// Nothing that is done under these locks can panic half way.
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
