//! Tasks that wait for a change. Each has a place of its own, so that a task that gives up leaves
//! nothing.

use std::{
    collections::HashMap,
    task::{Context, Waker},
};

/// The waiting tasks, by the numbers of their places.
#[derive(Default)]
pub(crate) struct Waiters {
    waiting: HashMap<u64, Waker>,
    next: u64,
}

impl Waiters {
    /// The number of a new place.
    pub(crate) fn enter(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Wakes the task of `cx` at the next change.
    pub(crate) fn wait(&mut self, place: u64, cx: &Context<'_>) {
        self.waiting.insert(place, cx.waker().clone());
    }

    pub(crate) fn leave(&mut self, place: u64) {
        self.waiting.remove(&place);
    }

    pub(crate) fn wake(&mut self) {
        // Draining costs something even when nothing waits.
        if !self.waiting.is_empty() {
            self.waiting.drain().for_each(|(_, waker)| waker.wake());
        }
    }
}
