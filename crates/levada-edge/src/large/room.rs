//! Memory for the windows of all transfers of a node, shared fairly.
//!
//! A transfer takes as much as it can use. When memory is scarce, transfers with more than an equal
//! share return the excess as soon as the pieces in it have been taken. A part is reserved for new
//! transfers, so that they need not wait for that.

use std::sync::Arc;

use parking_lot::Mutex;

/// The memory for windows.
pub(crate) struct Room {
    bytes: u64,
    state: Mutex<WindowRoomState>,
}

struct WindowRoomState {
    free: u64,
    transfers: u64,
}

/// The reserve for new transfers: one part in this many.
const RESERVE: u64 = 8;

/// The share of one transfer, in pieces. Dropping it returns the memory.
pub(super) struct Share {
    room: Arc<Room>,
    piece: u64,
    pieces: u64,
}

impl Room {
    pub(super) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { bytes, state: Mutex::new(WindowRoomState { free: bytes, transfers: 0 }) })
    }

    /// Takes memory for one piece of `piece` bytes, for a new transfer. `None` when there is not
    /// enough.
    pub(super) fn enter(self: &Arc<Self>, piece: u64) -> Option<Share> {
        let mut state = self.state.lock();
        state.free = state.free.checked_sub(piece)?;
        state.transfers += 1;
        Some(Share { room: self.clone(), piece: piece.max(1), pieces: 1 })
    }
}

impl Share {
    /// Adjusts the share towards `wanted` pieces as far as is fair, and never below the `held` ones.
    /// Returns the number of pieces.
    pub(super) fn adjust(&mut self, held: usize, wanted: usize) -> usize {
        let (held, wanted) = (held.max(1) as u64, wanted.max(1) as u64);
        let mut state = self.room.state.lock();
        let fair = (self.room.bytes / state.transfers / self.piece).max(1);
        let reserve = self.room.bytes / RESERVE;
        let most = if state.free < reserve { wanted.min(fair) } else { wanted };
        let beyond = self.pieces.saturating_sub(most.max(held));
        self.pieces -= beyond;
        state.free += beyond * self.piece;
        // Memory that was just returned is for other transfers.
        while beyond == 0 && self.pieces < wanted {
            let left = if self.pieces < fair { 0 } else { reserve };
            if state.free < self.piece + left {
                break;
            }
            state.free -= self.piece;
            self.pieces += 1;
        }
        self.pieces as usize
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.room.state.lock();
        state.free += self.pieces * self.piece;
        state.transfers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfer_that_is_alone_gets_its_window() {
        let room = Room::new(80);
        let mut share = room.enter(10).unwrap();
        assert_eq!(share.adjust(1, 4), 4);
        assert_eq!(share.adjust(4, 100), 8, "as much as there is");
    }

    #[test]
    fn those_who_came_first_give_back_what_is_more_than_their_share() {
        let room = Room::new(80);
        let mut first = room.enter(10).unwrap();
        assert_eq!(first.adjust(0, 7), 7);
        let mut second = room.enter(10).unwrap();
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
        let room = Room::new(80);
        let mut first = room.enter(10).unwrap();
        first.adjust(0, 8);
        assert!(room.enter(10).is_none());
        assert_eq!(first.adjust(3, 2), 3);
        assert!(room.enter(10).is_some());
        drop(first);
        let state = room.state.lock();
        assert_eq!((state.free, state.transfers), (80, 0));
    }
}
