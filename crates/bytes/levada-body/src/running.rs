//! The fetch of a whole body, as its readers see it.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{Notify, futures::Notified};

use crate::growing::GrowingBlock;

/// Blocks that stay at hand behind the one that is being filled, and how far a fetch may run ahead of
/// its quickest reader when nothing else could give a later reader its block.
pub(crate) const WINDOW: u64 = 4;

/// The blocks that are at hand: the window, and the one that is being filled.
const RECENT: usize = WINDOW as usize + 1;

/// The state that a running fetch shares with its readers.
pub(crate) struct RunningFetch {
    state: Mutex<RunningState>,
    changed: Notify,
    /// There is one.
    exists: bool,
}

#[derive(Default)]
struct RunningState {
    /// A block and its number, at the place that the number gives.
    recent: [Option<(u64, Arc<GrowingBlock>)>; RECENT],
    /// The first block that has not been started.
    next: u64,
    end: Option<FetchEnd>,
    readers: ReaderPlaces,
}

/// How a running fetch has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FetchEnd {
    Whole,
    Broken,
}

/// The number of readers in each block. Most bodies have one block only, and allocate nothing here.
#[derive(Default)]
struct ReaderPlaces {
    in_first: usize,
    in_later: BTreeMap<u64, usize>,
}

/// The state of a block in a running fetch.
pub(crate) enum BlockStatus {
    /// It is at hand, complete or not.
    Growing(Arc<GrowingBlock>),
    /// It has not been started; `far`: there are many before it.
    Later { far: bool },
    /// It was let go: the store may have it.
    Past,
    /// The body ended before it.
    Ended,
    /// It will not come: the fetch broke off, in this block if there is a part of it.
    Broken(Option<Arc<GrowingBlock>>),
}

impl RunningFetch {
    /// A fetch that has not started its first block.
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), exists: true }
    }

    /// No fetch: all blocks are past.
    pub(crate) fn none() -> Self {
        let state = RunningState { next: u64::MAX, ..RunningState::default() };
        Self { state: Mutex::new(state), changed: Notify::new(), exists: false }
    }

    /// Whether there is a fetch.
    pub(crate) fn exists(&self) -> bool {
        self.exists
    }

    /// Completes at the next change after this call.
    pub(crate) fn change(&self) -> Notified<'_> {
        self.changed.notified()
    }

    pub(crate) fn at(&self, number: u64) -> BlockStatus {
        let state = self.state.lock();
        let broken = state.end == Some(FetchEnd::Broken) && number + 1 == state.next;
        let recent = state.recent[place(number)].as_ref();
        let block = recent.filter(|(recent, block)| *recent == number && !block.has_let_go());
        let block = block.map(|(_, block)| block.clone());
        match (block, state.end) {
            (block, _) if broken => BlockStatus::Broken(block),
            (Some(block), _) => BlockStatus::Growing(block),
            _ if number < state.next => BlockStatus::Past,
            (_, None) => BlockStatus::Later { far: number > state.next + WINDOW },
            (_, Some(FetchEnd::Whole)) => BlockStatus::Ended,
            (_, Some(FetchEnd::Broken)) => BlockStatus::Broken(None),
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
    pub(crate) fn begin(&self, block: Arc<GrowingBlock>) {
        let mut state = self.state.lock();
        let number = state.next;
        state.recent[place(number)] = Some((number, block));
        state.next += 1;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Blocks before this one are not kept at hand any longer.
    pub(crate) fn let_go_before(&self, number: u64) {
        for recent in &mut self.state.lock().recent {
            recent.take_if(|(recent, _)| *recent < number);
        }
    }

    /// Nothing more will come.
    pub(crate) fn end(&self, end: FetchEnd) {
        let mut state = self.state.lock();
        if state.end.is_none() {
            state.end = Some(end);
            drop(state);
            self.changed.notify_waiters();
        }
    }

    /// How far the slowest and the quickest reader have come; `None` without readers. Readers that are
    /// `coming` begin with the first block.
    pub(crate) fn readers(&self, coming: bool) -> Option<(u64, u64)> {
        self.state.lock().readers.span(coming)
    }

    /// A reader has come from the block `from`, if it is not new, to `to`, if it has not gone.
    pub(crate) fn moved(&self, from: Option<u64>, to: Option<u64>) {
        if self.exists() && from != to {
            self.state.lock().readers.moved(from, to);
            self.changed.notify_waiters();
        }
    }
}

impl ReaderPlaces {
    fn moved(&mut self, from: Option<u64>, to: Option<u64>) {
        match to {
            None => {}
            Some(0) => self.in_first += 1,
            Some(later) => *self.in_later.entry(later).or_default() += 1,
        }
        match from {
            None => {}
            Some(0) => self.in_first -= 1,
            Some(later) => {
                if let Some(readers) = self.in_later.get_mut(&later) {
                    *readers -= 1;
                }
                self.in_later.retain(|_, readers| *readers > 0);
            }
        }
    }

    /// The first and the last block with a reader.
    fn span(&self, coming: bool) -> Option<(u64, u64)> {
        let in_first = (coming || self.in_first > 0).then_some(0);
        let first = in_first.or(self.in_later.keys().next().copied())?;
        Some((first, self.in_later.keys().next_back().copied().unwrap_or(first)))
    }
}

/// The place of a block among those at hand.
fn place(number: u64) -> usize {
    (number % RECENT as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growing::{BlockMemory, BlockWriter};

    fn block() -> BlockWriter {
        BlockWriter::new(&BlockMemory::new(0))
    }

    #[test]
    fn the_latest_blocks_are_at_hand() {
        let running = RunningFetch::new();
        let blocks: Vec<_> = (0..=RECENT as u64).map(|_| block()).collect();
        assert!(matches!(running.at(0), BlockStatus::Later { far: false }));
        blocks.iter().for_each(|writer| running.begin(writer.block().clone()));
        assert!(matches!(running.at(0), BlockStatus::Past));
        assert!((1..=RECENT as u64).all(|number| running.brings(number)));
        assert!(matches!(running.at(RECENT as u64 + 1), BlockStatus::Later { far: false }));
        assert!(matches!(running.at(100), BlockStatus::Later { far: true }));
        running.let_go_before(3);
        assert!(!running.brings(2) && running.brings(3));
        running.end(FetchEnd::Whole);
        assert!(matches!(running.at(100), BlockStatus::Ended));
    }

    #[test]
    fn a_fetch_that_breaks_off_has_a_part_of_its_last_block() {
        let running = RunningFetch::new();
        let blocks = [block(), block()];
        blocks.iter().for_each(|writer| running.begin(writer.block().clone()));
        running.end(FetchEnd::Broken);
        assert!(matches!(running.at(0), BlockStatus::Growing(_)));
        assert!(matches!(running.at(1), BlockStatus::Broken(Some(_))));
        assert!(matches!(running.at(2), BlockStatus::Broken(None)));
    }

    #[test]
    fn a_body_without_a_fetch_is_past() {
        let none = RunningFetch::none();
        assert!(matches!(none.at(0), BlockStatus::Past) && !none.brings(7));
    }

    #[test]
    fn the_slowest_and_the_quickest_reader_are_known() {
        let running = RunningFetch::new();
        assert_eq!(running.readers(false), None);
        running.moved(None, Some(0));
        running.moved(None, Some(0));
        running.moved(Some(0), Some(3));
        assert_eq!(running.readers(false), Some((0, 3)));
        running.moved(Some(0), Some(2));
        assert_eq!(running.readers(false), Some((2, 3)));
        assert_eq!(running.readers(true), Some((0, 3)));
        running.moved(Some(3), None);
        assert_eq!(running.readers(false), Some((2, 2)));
        running.moved(Some(2), None);
        assert_eq!(running.readers(false), None);
    }
}
