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

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The memory for windows.
pub struct WindowRoom {
    bytes: u64,
    /// The free bytes, which transfers get in the order of arrival.
    free: Arc<Semaphore>,
    state: Mutex<WindowRoomState>,
}

struct WindowRoomState {
    transfers: u64,
    /// Transfers that wait for their first piece's memory.
    waiting: usize,
    /// How many may wait, and for how long.
    length: usize,
    wait: Duration,
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
    piece: u32,
    memory: OwnedSemaphorePermit,
}

/// A transfer in the queue; leaves it when dropped.
struct QueuedTransfer<'a>(&'a WindowRoom);

impl WindowRoom {
    /// Room for so many bytes. Nobody waits before it until [`bound`](Self::bound) allows that.
    pub fn new(bytes: u64) -> Arc<Self> {
        let state = WindowRoomState { transfers: 0, waiting: 0, length: 0, wait: Duration::ZERO };
        let free = usize::try_from(bytes).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Arc::new(Self { bytes, free: Arc::new(Semaphore::new(free)), state: Mutex::new(state) })
    }

    /// Sets how many transfers may wait, and for how long. Transfers that wait keep their deadline.
    pub fn bound(&self, length: usize, wait: Duration) {
        let mut state = self.state.lock();
        (state.length, state.wait) = (length, wait);
    }

    /// How many transfers wait.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// Takes memory for one piece of `piece` bytes, for a new transfer, if it need not wait for that.
    pub fn enter_now(self: &Arc<Self>, piece: u64) -> Option<WindowShare> {
        let piece = u32::try_from(piece).ok()?.max(1);
        Some(self.share(piece, self.free.clone().try_acquire_many_owned(piece).ok()?))
    }

    /// Waits for memory for one piece of `piece` bytes, for a new transfer.
    ///
    /// # Errors
    /// When no memory becomes free in time, or too many wait already.
    pub async fn enter(self: &Arc<Self>, piece: u64) -> Result<WindowShare, NoWindow> {
        if piece > self.bytes {
            return Err(NoWindow::TooSmall);
        }
        if let Some(share) = self.enter_now(piece) {
            return Ok(share);
        }
        let wait = {
            let mut state = self.state.lock();
            if state.waiting >= state.length {
                return Err(NoWindow::QueueFull);
            }
            state.waiting += 1;
            state.wait
        };
        let _queued = QueuedTransfer(self);
        let piece = u32::try_from(piece.max(1)).map_err(|_| NoWindow::TooSmall)?;
        let granted = self.free.clone().acquire_many_owned(piece);
        let granted = tokio::time::timeout(wait, granted).await;
        let memory = granted.ok().and_then(Result::ok).ok_or(NoWindow::QueueTimeout)?;
        Ok(self.share(piece, memory))
    }

    /// The share of a transfer that has taken memory for its first piece.
    fn share(self: &Arc<Self>, piece: u32, memory: OwnedSemaphorePermit) -> WindowShare {
        self.state.lock().transfers += 1;
        WindowShare { room: self.clone(), piece, memory }
    }
}

impl WindowShare {
    /// Adjusts the share towards `wanted` pieces as far as is fair, and never below the `held` ones.
    /// Returns the number of pieces.
    pub fn adjust(&mut self, held: usize, wanted: usize) -> usize {
        let (held, wanted, piece) = (held.max(1), wanted.max(1), self.piece as usize);
        let WindowRoom { bytes, free, state } = &*self.room;
        let (transfers, waiting) = {
            let state = state.lock();
            (state.transfers, state.waiting)
        };
        let fair = bytes / (transfers + waiting as u64) / u64::from(self.piece);
        let (fair, reserve) = ((fair as usize).max(1), (bytes / RESERVE) as usize);
        let scarce = waiting > 0 || free.available_permits() < reserve;
        let most = if scarce { wanted.min(fair) } else { wanted };
        let mut pieces = self.memory.num_permits() / piece;
        let beyond = pieces.saturating_sub(most.max(held));
        if beyond > 0 || waiting > 0 {
            // Memory that was just returned is for other transfers, and so is all while somebody waits.
            drop(self.memory.split(beyond * piece));
            return pieces - beyond;
        }
        while pieces < wanted {
            let left = if pieces < fair { 0 } else { reserve };
            if free.available_permits() < piece + left {
                break;
            }
            let Ok(more) = free.clone().try_acquire_many_owned(self.piece) else { break };
            self.memory.merge(more);
            pieces += 1;
        }
        pieces
    }
}

impl Drop for WindowShare {
    fn drop(&mut self) {
        self.room.state.lock().transfers -= 1;
    }
}

impl Drop for QueuedTransfer<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
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
        assert_eq!((room.free.available_permits(), room.state.lock().transfers), (80, 0));
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
        assert_eq!(room.free.available_permits(), 80);
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
        assert_eq!(room.waiting(), 0);
    }
}
