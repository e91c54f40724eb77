//! The fetch of a whole long body, as its readers see it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::{Notify, futures::OwnedNotified};

use crate::fill::Fill;

/// Blocks that stay at hand behind the one that is being filled, and how far a fetch may run ahead of
/// its quickest reader when nothing else could give a later reader its block.
pub(crate) const WINDOW: u64 = 4;

/// The state that a running fetch shares with its readers.
pub(crate) struct RunningFetch {
    state: Mutex<RunningFetchState>,
    changed: Arc<Notify>,
    /// The fetch of the object: its readers are about to enter.
    door: Weak<Fill>,
}

#[derive(Default)]
struct RunningFetchState {
    recent: VecDeque<(u64, Arc<Fill>)>,
    /// The first block that has not been begun.
    next: u64,
    /// The length, once all has come.
    end: Option<Result<u64, ()>>,
    /// Where each reader is.
    readers: HashMap<u64, u64>,
    next_reader: u64,
}

/// The state of a block in a running fetch.
pub(crate) enum BlockStatus {
    /// It is at hand, complete or not.
    Growing(Arc<Fill>),
    /// It has not been begun; `far`: there are many before it.
    Later { far: bool },
    /// It was let go: the store may have it.
    Past,
    /// The body ended before it.
    Ended,
    /// It will not come: the fetch broke off, in this block if there is a part of it.
    Broken(Option<Arc<Fill>>),
}

impl RunningFetch {
    /// A fetch for the readers of `door`, which enter one by one.
    pub(crate) fn new(door: &Arc<Fill>) -> Arc<Self> {
        let door = Arc::downgrade(door);
        Arc::new(Self { state: Mutex::default(), changed: Arc::default(), door })
    }

    /// Completes at the next change after this call.
    pub(crate) fn change(&self) -> OwnedNotified {
        self.changed.clone().notified_owned()
    }

    pub(crate) fn at(&self, number: u64) -> BlockStatus {
        let state = self.state.lock();
        let broken = state.end == Some(Err(())) && number + 1 == state.next;
        let at_hand = |fill: &Arc<Fill>| !fill.has_let_go();
        let recent = state.recent.iter().find(|(recent, fill)| *recent == number && at_hand(fill));
        let fill = recent.map(|(_, fill)| fill.clone());
        if let Some(fill) = fill.clone().filter(|_| !broken) {
            return BlockStatus::Growing(fill);
        }
        match state.end {
            _ if broken => BlockStatus::Broken(fill),
            _ if number < state.next => BlockStatus::Past,
            None => BlockStatus::Later { far: number > state.next + WINDOW },
            Some(Ok(_)) => BlockStatus::Ended,
            Some(Err(())) => BlockStatus::Broken(None),
        }
    }

    /// Whether the fetch will bring this block soon, or has it at hand.
    pub(crate) fn brings(&self, number: u64) -> bool {
        matches!(
            self.at(number),
            BlockStatus::Growing(_) | BlockStatus::Later { far: false } | BlockStatus::Ended
        )
    }

    /// The next block is being filled.
    pub(crate) fn begin(&self, fill: Arc<Fill>) {
        let mut state = self.state.lock();
        let number = state.next;
        state.recent.push_back((number, fill));
        state.next += 1;
        while state.recent.len() as u64 > WINDOW + 1 {
            state.recent.pop_front();
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Blocks before this one are not kept at hand any longer.
    pub(crate) fn let_go_before(&self, number: u64) {
        self.state.lock().recent.retain(|(recent, _)| *recent >= number);
    }

    /// Nothing more will come.
    pub(crate) fn end(&self, end: Result<u64, ()>) {
        self.state.lock().end.get_or_insert(end);
        self.changed.notify_waiters();
    }

    /// How far the slowest and the quickest reader have come; `None` without readers.
    pub(crate) fn readers(&self) -> Option<(u64, u64)> {
        let coming = self.door.upgrade().filter(|door| door.is_read()).map(|_| 0);
        let state = self.state.lock();
        let places = || state.readers.values().copied().chain(coming);
        places().min().zip(places().max())
    }

    /// A reader's place.
    pub(crate) fn enter(self: &Arc<Self>) -> ReaderPlace {
        let mut state = self.state.lock();
        let id = state.next_reader;
        state.next_reader += 1;
        state.readers.insert(id, 0);
        drop(state);
        ReaderPlace { running: self.clone(), id }
    }
}

/// A reader's place in a running fetch, which goes with the reader.
pub(crate) struct ReaderPlace {
    running: Arc<RunningFetch>,
    id: u64,
}

impl ReaderPlace {
    /// The reader has come to this block.
    pub(crate) fn at(&self, number: u64) {
        if let Some(place) = self.running.state.lock().readers.get_mut(&self.id) {
            *place = number;
        }
        self.running.changed.notify_waiters();
    }
}

impl Drop for ReaderPlace {
    fn drop(&mut self) {
        self.running.state.lock().readers.remove(&self.id);
        self.running.changed.notify_waiters();
    }
}
