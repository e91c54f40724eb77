//! Memory for the windows of all transfers of a node, shared fairly.
//!
//! ```text
//!   enter ──> memory for one piece is free, and nobody waits ──> a share
//!   wait ───> the queue before the room, in the order of arrival; bounded in number and time
//!   adjust ─> a share grows while nobody waits, and shrinks to an equal one while somebody does
//! ```
//!
//! A transfer takes as much as it can use. When memory is scarce, transfers with more than an equal
//! share return the excess as soon as the pieces in it have been taken. A part is reserved for new
//! transfers, so that they need not wait for that.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The memory for windows.
pub struct WindowRoom {
    bytes: u64,
    state: Mutex<WindowRoomState>,
}

struct WindowRoomState {
    free: u64,
    transfers: u64,
    /// Transfers that wait for their first piece's memory, by their tickets.
    waiting: BTreeMap<u64, WaitingTransfer>,
    last_ticket: u64,
    /// How many may wait, and for how long.
    length: usize,
    wait: Duration,
}

struct WaitingTransfer {
    piece: u64,
    grant: oneshot::Sender<WindowShare>,
}

/// The reserve for new transfers: one part in this many.
const RESERVE: u64 = 8;

/// Why a transfer gets no window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoWindow {
    /// A piece is larger than all memory for windows.
    TooSmall,
    /// As many transfers wait as may.
    QueueFull,
    /// No memory became free in time.
    QueueTimeout,
}

/// The share of one transfer, in pieces. Dropping it returns the memory.
pub struct WindowShare {
    room: Arc<WindowRoom>,
    piece: u64,
    pieces: u64,
}

/// A transfer in the queue; leaves it when dropped.
struct QueuedTransfer<'a> {
    room: &'a WindowRoom,
    ticket: u64,
}

impl WindowRoom {
    /// Room for so many bytes. Nobody waits before it until [`bound`](Self::bound) allows that.
    pub fn new(bytes: u64) -> Arc<Self> {
        let state = WindowRoomState {
            free: bytes,
            transfers: 0,
            waiting: BTreeMap::new(),
            last_ticket: 0,
            length: 0,
            wait: Duration::ZERO,
        };
        Arc::new(Self { bytes, state: Mutex::new(state) })
    }

    /// Sets how many transfers may wait, and for how long. Transfers that wait keep their deadline.
    pub fn bound(&self, length: usize, wait: Duration) {
        let mut state = self.state.lock();
        (state.length, state.wait) = (length, wait);
    }

    /// How many transfers wait.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Takes memory for one piece of `piece` bytes, for a new transfer, if it need not wait for that.
    pub fn enter_now(self: &Arc<Self>, piece: u64) -> Option<WindowShare> {
        let mut state = self.state.lock();
        (state.waiting.is_empty() && state.take(piece)).then(|| self.share(piece))
    }

    /// Waits for memory for one piece of `piece` bytes, for a new transfer.
    ///
    /// # Errors
    /// When no memory becomes free in time, or too many wait already.
    pub async fn enter(self: &Arc<Self>, piece: u64) -> Result<WindowShare, NoWindow> {
        if piece > self.bytes {
            return Err(NoWindow::TooSmall);
        }
        let (ticket, wait, granted) = {
            let mut state = self.state.lock();
            if state.waiting.is_empty() && state.take(piece) {
                return Ok(self.share(piece));
            }
            if state.waiting.len() >= state.length {
                return Err(NoWindow::QueueFull);
            }
            let (grant, granted) = oneshot::channel();
            state.last_ticket += 1;
            let ticket = state.last_ticket;
            state.waiting.insert(ticket, WaitingTransfer { piece, grant });
            (ticket, state.wait, granted)
        };
        let _queued = QueuedTransfer { room: self, ticket };
        let granted = tokio::time::timeout(wait, granted).await;
        granted.ok().and_then(Result::ok).ok_or(NoWindow::QueueTimeout)
    }

    /// The share of a transfer that has taken memory for its first piece.
    fn share(self: &Arc<Self>, piece: u64) -> WindowShare {
        WindowShare { room: self.clone(), piece: piece.max(1), pieces: 1 }
    }

    /// Gives free memory to transfers that wait. If one of them waits no more, its share is dropped, and the
    /// memory goes to the next.
    fn grant(self: &Arc<Self>) {
        while let Some(WaitingTransfer { piece, grant }) = {
            let mut state = self.state.lock();
            state.admit_next()
        } {
            let _ = grant.send(self.share(piece));
        }
    }
}

impl WindowRoomState {
    /// Takes memory for the first piece of a transfer.
    fn take(&mut self, piece: u64) -> bool {
        let Some(free) = self.free.checked_sub(piece.max(1)) else { return false };
        self.free = free;
        self.transfers += 1;
        true
    }

    /// The transfer that has waited longest, if there is memory for it, which it takes.
    fn admit_next(&mut self) -> Option<WaitingTransfer> {
        let piece = self.waiting.first_key_value()?.1.piece;
        self.take(piece).then(|| self.waiting.pop_first()).flatten().map(|(_, waiting)| waiting)
    }
}

impl WindowShare {
    /// Adjusts the share towards `wanted` pieces as far as is fair, and never below the `held` ones.
    /// Returns the number of pieces.
    pub fn adjust(&mut self, held: usize, wanted: usize) -> usize {
        let (held, wanted) = (held.max(1) as u64, wanted.max(1) as u64);
        let mut state = self.room.state.lock();
        let waiting = state.waiting.len() as u64;
        let fair = (self.room.bytes / (state.transfers + waiting) / self.piece).max(1);
        let reserve = self.room.bytes / RESERVE;
        let scarce = waiting > 0 || state.free < reserve;
        let most = if scarce { wanted.min(fair) } else { wanted };
        let beyond = self.pieces.saturating_sub(most.max(held));
        self.pieces -= beyond;
        state.free += beyond * self.piece;
        // Memory that was just returned is for other transfers, and so is all while somebody waits.
        while beyond == 0 && waiting == 0 && self.pieces < wanted {
            let left = if self.pieces < fair { 0 } else { reserve };
            if state.free < self.piece + left {
                break;
            }
            state.free -= self.piece;
            self.pieces += 1;
        }
        drop(state);
        if beyond > 0 && waiting > 0 {
            self.room.grant();
        }
        self.pieces as usize
    }
}

impl Drop for WindowShare {
    fn drop(&mut self) {
        let is_awaited = {
            let mut state = self.room.state.lock();
            state.free += self.pieces * self.piece;
            state.transfers -= 1;
            !state.waiting.is_empty()
        };
        if is_awaited {
            self.room.grant();
        }
    }
}

impl Drop for QueuedTransfer<'_> {
    fn drop(&mut self) {
        self.room.state.lock().waiting.remove(&self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    type Entered = Result<WindowShare, NoWindow>;
    type Entering = Pin<Box<dyn Future<Output = Entered>>>;

    /// A transfer that has asked for a window, and what it got so far.
    fn enter(room: &Arc<WindowRoom>, piece: u64) -> (Entering, Option<Entered>) {
        let room = room.clone();
        let mut entering: Entering = Box::pin(async move { room.enter(piece).await });
        let got = poll(&mut entering);
        (entering, got)
    }

    fn poll(entering: &mut Entering) -> Option<Entered> {
        match entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(got) => Some(got),
            Poll::Pending => None,
        }
    }

    #[test]
    fn transfer_that_is_alone_gets_its_window() {
        let room = WindowRoom::new(80);
        let mut share = room.enter_now(10).unwrap();
        assert_eq!(share.adjust(1, 4), 4);
        assert_eq!(share.adjust(4, 100), 8, "as much as there is");
    }

    #[test]
    fn those_who_came_first_give_back_what_is_more_than_their_share() {
        let room = WindowRoom::new(80);
        let mut first = room.enter_now(10).unwrap();
        assert_eq!(first.adjust(0, 7), 7);
        let mut second = room.enter_now(10).unwrap();
        assert_eq!(second.adjust(1, 7), 1, "nothing is free");
        assert_eq!(first.adjust(7, 7), 7, "it is full of pieces");
        assert_eq!(first.adjust(6, 7), 6);
        assert_eq!(second.adjust(1, 7), 2);
        assert_eq!(first.adjust(2, 7), 4, "an equal share");
        assert_eq!(second.adjust(2, 7), 4);
        drop(first);
        assert_eq!(second.adjust(2, 7), 7);
    }

    #[test]
    fn what_is_not_wanted_any_more_goes_back() {
        let room = WindowRoom::new(80);
        let mut first = room.enter_now(10).unwrap();
        first.adjust(0, 8);
        assert!(room.enter_now(10).is_none());
        assert_eq!(first.adjust(3, 2), 3);
        assert!(room.enter_now(10).is_some());
        drop(first);
        let state = room.state.lock();
        assert_eq!((state.free, state.transfers), (80, 0));
    }

    #[tokio::test]
    async fn transfers_wait_in_the_order_of_arrival_for_what_others_give_back() {
        let room = WindowRoom::new(80);
        room.bound(2, LONG);
        let mut first = room.enter(10).await.unwrap();
        first.adjust(0, 8);
        let ((mut second, early), (mut third, later)) = (enter(&room, 10), enter(&room, 10));
        assert!(early.is_none() && later.is_none());
        assert_eq!(enter(&room, 10).1.unwrap().err(), Some(NoWindow::QueueFull));
        assert_eq!(first.adjust(7, 8), 7, "one piece for the one that waits longest");
        let second = poll(&mut second).unwrap().unwrap();
        assert!(poll(&mut third).is_none());
        assert!(room.enter_now(10).is_none(), "somebody waits");
        assert_eq!(first.adjust(1, 8), 2, "a third of eight pieces");
        let mut third = poll(&mut third).unwrap().unwrap();
        assert_eq!(third.adjust(1, 8), 4, "nobody waits any more: all but the reserve");
        drop((first, second, third));
        assert_eq!(room.state.lock().free, 80);
    }

    #[tokio::test]
    async fn transfer_that_waits_no_more_leaves_its_turn_to_the_next() {
        let room = WindowRoom::new(10);
        room.bound(2, LONG);
        let first = room.enter(10).await.unwrap();
        let ((second, _), (mut third, _)) = (enter(&room, 10), enter(&room, 10));
        drop(second);
        drop(first);
        assert!(poll(&mut third).unwrap().is_ok());
        // It was granted a window, and did not live to take it.
        let held = room.enter(10).await.ok();
        assert!(held.is_some(), "the third has ended");
        let ((second, _), (mut third, _)) = (enter(&room, 10), enter(&room, 10));
        drop(held);
        drop(second);
        assert!(poll(&mut third).unwrap().is_ok());
    }

    #[tokio::test]
    async fn wait_for_a_window_ends() {
        let room = WindowRoom::new(10);
        room.bound(1, Duration::from_millis(1));
        let _first = room.enter(10).await.unwrap();
        assert_eq!(room.enter(10).await.err(), Some(NoWindow::QueueTimeout));
        assert_eq!(room.enter(11).await.err(), Some(NoWindow::TooSmall));
        assert!(room.state.lock().waiting.is_empty());
    }
}
