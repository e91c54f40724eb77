//! A block of a body while it arrives. Its readers follow at their own speed.
//!
//! A block that is not complete is never mistaken for a complete one: dropping its writer ends it as
//! broken, and its readers get an error.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use levada_store::Loan;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::waiters::Waiters;

/// The memory of blocks that no store has counted.
pub struct BlockMemory {
    /// Bytes of unfinished blocks.
    held: AtomicU64,
    /// Bytes of finished blocks, which last as long as their readers.
    lent: AtomicU64,
    /// Beyond it no further block of a long body is started, and started ones take turns.
    bound: u64,
    freed: Notify,
    turns: Arc<Semaphore>,
}

/// Blocks that grow on to their end when memory is short. The bytes that they take beyond the bound are few, and
/// one of them ends sooner or later, so that there is room again.
const TURNS: usize = 16;
/// The bytes of a block that may come before it waits for its turn: short bodies do not wait.
const WITHOUT_TURN: u64 = 16 << 10;
/// The most that is read at once when memory is short.
const SHORT_READ: usize = 16 << 10;

impl BlockMemory {
    /// `bound` in bytes of unfinished blocks.
    pub fn new(bound: u64) -> Arc<Self> {
        let (held, lent) = (AtomicU64::new(0), AtomicU64::new(0));
        let turns = Arc::new(Semaphore::new(TURNS));
        Arc::new(Self { held, lent, bound, freed: Notify::new(), turns })
    }

    /// Waits until another block may be started. Started blocks never wait for a reader, but for each
    /// other at most, so that there is room again in time.
    pub async fn room(&self) {
        loop {
            let freed = self.freed.notified();
            if self.held.load(Relaxed) <= self.bound {
                return;
            }
            freed.await;
        }
    }

    /// The most bytes to read at once for a block. What was read holds on to the whole buffer that it was
    /// read into, and a fetch that waits for room has such a buffer in hand.
    pub fn longest_read(&self) -> usize {
        if self.is_short() { SHORT_READ } else { usize::MAX }
    }

    /// Whether half of the memory is taken.
    pub(crate) fn is_short(&self) -> bool {
        self.held.load(Relaxed) > self.bound / 2
    }

    /// Bytes of blocks that are no store's.
    pub fn bytes(&self) -> u64 {
        self.held.load(Relaxed) + self.lent.load(Relaxed)
    }

    /// Whether readers that hold more than they need should release it.
    pub(crate) fn is_tight(&self) -> bool {
        self.bytes() > self.bound
    }

    fn release(&self, bytes: u64) {
        if bytes > 0 {
            self.held.fetch_sub(bytes, Relaxed);
            self.freed.notify_waiters();
        }
    }
}

/// A block that arrives, or has arrived.
pub struct GrowingBlock {
    memory: Arc<BlockMemory>,
    state: Mutex<GrowingState>,
}

#[derive(Default)]
struct GrowingState {
    /// Where each piece starts, and the piece.
    pieces: Vec<(u64, Bytes)>,
    bytes: u64,
    /// Bytes that are counted in the memory of blocks: as held before the end, as lent after it.
    counted: u64,
    /// For pieces that are a stored block's.
    loan: Option<Arc<Loan>>,
    end: Option<BlockEnd>,
    waiters: Waiters,
}

/// How a block has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockEnd {
    Whole,
    /// It is complete, but no longer here: the store has it.
    LetGo,
    Broken,
}

impl GrowingBlock {
    pub(crate) fn reader(self: &Arc<Self>) -> GrowingReader {
        let place = self.state.lock().waiters.enter();
        GrowingReader { block: self.clone(), place }
    }

    /// Whether the block is in the store only.
    pub(crate) fn has_let_go(&self) -> bool {
        self.state.lock().end == Some(BlockEnd::LetGo)
    }

    /// The block ends. `stored` takes the place of the pieces.
    fn end(&self, end: BlockEnd, stored: Option<(&[Bytes], Option<Arc<Loan>>)>) {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return;
        }
        state.end = Some(end);
        let held = state.counted;
        if let Some((segments, loan)) = stored {
            state.replace(segments);
            (state.loan, state.counted) = (loan, 0);
        } else {
            self.memory.lent.fetch_add(held, Relaxed);
        }
        self.memory.release(held);
        state.waiters.wake();
    }
}

impl GrowingState {
    fn append(&mut self, piece: Bytes) {
        let start = self.bytes;
        self.bytes += piece.len() as u64;
        self.pieces.push((start, piece));
    }

    fn replace(&mut self, segments: &[Bytes]) {
        self.pieces.clear();
        self.bytes = 0;
        segments.iter().for_each(|segment| self.append(segment.clone()));
    }
}

impl Drop for GrowingBlock {
    fn drop(&mut self) {
        let GrowingState { counted, end, .. } = *self.state.get_mut();
        match end {
            None => self.memory.release(counted),
            Some(_) => drop(self.memory.lent.fetch_sub(counted, Relaxed)),
        }
    }
}

/// The writing end of a block. Dropped early, the block is broken.
pub struct BlockWriter {
    block: Arc<GrowingBlock>,
    /// The right to go on although memory is short.
    turn: Option<OwnedSemaphorePermit>,
}

impl BlockWriter {
    /// Begins a block.
    pub fn new(memory: &Arc<BlockMemory>) -> Self {
        let block = GrowingBlock { memory: memory.clone(), state: Mutex::default() };
        Self { block: Arc::new(block), turn: None }
    }

    /// The block for its readers.
    pub fn block(&self) -> &Arc<GrowingBlock> {
        &self.block
    }

    /// Waits until the block may grow. To be called before bytes are read for it, so that those who wait have
    /// none in hand.
    pub async fn room(&mut self) {
        let memory = &self.block.memory;
        let has_room = memory.held.load(Relaxed) <= memory.bound;
        if has_room || self.turn.is_some() || self.written() < WITHOUT_TURN {
            return;
        }
        let turn = memory.turns.clone().acquire_owned().await.ok();
        // Otherwise it goes to the next one at once: all who waited go on, one after another.
        self.turn = turn.filter(|_| memory.is_short());
    }

    /// Adds a piece.
    pub fn push(&self, piece: Bytes) {
        let len = piece.len() as u64;
        if len == 0 {
            return;
        }
        self.block.memory.held.fetch_add(len, Relaxed);
        let mut state = self.block.state.lock();
        state.counted += len;
        state.append(piece);
        state.waiters.wake();
    }

    /// Bytes so far.
    pub fn written(&self) -> u64 {
        self.block.state.lock().bytes
    }

    /// The pieces so far.
    pub(crate) fn pieces(&self) -> Vec<Bytes> {
        self.block.state.lock().pieces.iter().map(|(_, piece)| piece.clone()).collect()
    }

    /// The block is complete, and no store has it.
    pub(crate) fn finish(self) {
        self.block.end(BlockEnd::Whole, None);
    }

    /// The block is complete. `stored`, the same bytes as a store keeps them, takes the place of the
    /// pieces: pieces as they came from the network hold on to whole read buffers.
    pub(crate) fn finish_as(self, stored: &[Bytes], loan: Option<Arc<Loan>>) {
        self.block.end(BlockEnd::Whole, Some((stored, loan)));
    }

    /// The block is complete and in the store, and is not kept at hand.
    pub(crate) fn let_go(self) {
        self.block.end(BlockEnd::LetGo, Some((&[], None)));
    }
}

impl Drop for BlockWriter {
    fn drop(&mut self) {
        self.block.end(BlockEnd::Broken, None);
    }
}

/// Reads a block at its own speed.
pub(crate) struct GrowingReader {
    block: Arc<GrowingBlock>,
    place: u64,
}

impl GrowingReader {
    /// The bytes at a position, up to the end of their piece, or the end of the block.
    pub(crate) fn poll_at(&self, cx: &Context<'_>, position: u64) -> Poll<Result<Bytes, BlockEnd>> {
        let mut state = self.block.state.lock();
        if position < state.bytes {
            let at = state.pieces.partition_point(|(start, _)| *start <= position) - 1;
            let (start, piece) = &state.pieces[at];
            return Poll::Ready(Ok(piece.slice((position - start) as usize..)));
        }
        self.poll_end(&mut state, cx).map(Err)
    }

    /// Waits for the end, whatever it is. The bytes that are read then are the store's own.
    pub(crate) fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll_end(&mut self.block.state.lock(), cx).map(drop)
    }

    fn poll_end(&self, state: &mut GrowingState, cx: &Context<'_>) -> Poll<BlockEnd> {
        if let Some(end) = state.end {
            return Poll::Ready(end);
        }
        state.waiters.wait(self.place, cx);
        Poll::Pending
    }
}

impl Drop for GrowingReader {
    fn drop(&mut self) {
        self.block.state.lock().waiters.leave(self.place);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::atomic::AtomicUsize,
        task::{Wake, Waker},
    };

    use super::*;

    fn read(reader: &GrowingReader, position: u64) -> Poll<Result<Bytes, BlockEnd>> {
        reader.poll_at(&Context::from_waker(Waker::noop()), position)
    }

    fn piece(text: &'static str) -> Poll<Result<Bytes, BlockEnd>> {
        Poll::Ready(Ok(Bytes::from_static(text.as_bytes())))
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn readers_follow_at_their_own_speed() {
        let memory = BlockMemory::new(100);
        let writer = BlockWriter::new(&memory);
        let (quick, slow) = (writer.block().reader(), writer.block().reader());
        writer.push("abc".into());
        writer.push("de".into());
        assert_eq!((read(&quick, 0), read(&quick, 3)), (piece("abc"), piece("de")));
        assert_eq!((read(&slow, 1), read(&slow, 4)), (piece("bc"), piece("e")));
        assert!(read(&quick, 5).is_pending());
        writer.finish();
        assert_eq!(read(&quick, 5), Poll::Ready(Err(BlockEnd::Whole)));
        assert_eq!(read(&slow, 0), piece("abc"));
    }

    #[test]
    fn a_writer_that_drops_early_breaks_its_block() {
        let memory = BlockMemory::new(100);
        let writer = BlockWriter::new(&memory);
        let reader = writer.block().reader();
        writer.push("abc".into());
        drop(writer);
        assert_eq!(read(&reader, 0), piece("abc"));
        assert_eq!(read(&reader, 3), Poll::Ready(Err(BlockEnd::Broken)));
    }

    #[test]
    fn unfinished_blocks_are_held_and_finished_ones_lent() {
        let memory = BlockMemory::new(2);
        let writer = BlockWriter::new(&memory);
        let block = writer.block().clone();
        writer.push("abc".into());
        assert_eq!((memory.held.load(Relaxed), memory.is_tight()), (3, true));
        writer.finish();
        assert_eq!((memory.held.load(Relaxed), memory.bytes()), (0, 3));
        drop(block);
        assert_eq!(memory.bytes(), 0);
        let unfinished = BlockWriter::new(&memory);
        unfinished.push("abc".into());
        drop(unfinished);
        assert_eq!(memory.bytes(), 0);
    }

    #[test]
    fn bytes_that_a_store_has_are_not_counted() {
        let memory = BlockMemory::new(100);
        let (first, second) = (BlockWriter::new(&memory), BlockWriter::new(&memory));
        let (kept, gone) = (first.block().reader(), second.block().reader());
        first.push("ab".into());
        first.push("c".into());
        second.push("abc".into());
        first.finish_as(&["abc".into()], None);
        second.let_go();
        assert_eq!((memory.bytes(), read(&kept, 0)), (0, piece("abc")));
        assert!(gone.block.has_let_go());
        assert_eq!(read(&gone, 0), Poll::Ready(Err(BlockEnd::LetGo)));
    }

    #[test]
    fn a_piece_and_the_end_wake_readers_that_wait() {
        let memory = BlockMemory::new(100);
        let writer = BlockWriter::new(&memory);
        let (one, other, gone) =
            (writer.block().reader(), writer.block().reader(), writer.block().reader());
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let cx = Context::from_waker(&waker);
        assert!(one.poll_at(&cx, 0).is_pending() && other.poll_ended(&cx).is_pending());
        assert!(gone.poll_at(&cx, 0).is_pending());
        drop(gone);
        writer.push("a".into());
        assert_eq!(count.0.load(Relaxed), 2);
        assert!(other.poll_ended(&cx).is_pending());
        writer.finish();
        assert!(other.poll_ended(&cx).is_ready());
        assert_eq!(count.0.load(Relaxed), 3);
    }

    /// A block that has so many bytes.
    fn grown(memory: &Arc<BlockMemory>, bytes: u64) -> BlockWriter {
        let writer = BlockWriter::new(memory);
        writer.push(vec![b'x'; bytes as usize].into());
        writer
    }

    fn has_room(writer: &mut BlockWriter) -> bool {
        pin!(writer.room()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn blocks_beyond_the_bound_grow_in_turns() {
        let memory = BlockMemory::new(2 * WITHOUT_TURN);
        let mut writers: Vec<_> = (0..=TURNS).map(|_| grown(&memory, WITHOUT_TURN)).collect();
        assert_eq!(memory.longest_read(), SHORT_READ);
        let mut waiting = writers.pop().unwrap();
        assert!(writers.iter_mut().all(has_room) && writers.iter_mut().all(has_room));
        assert!(!has_room(&mut waiting));
        assert!(has_room(&mut BlockWriter::new(&memory)), "a short body waits");
        writers.pop().unwrap().finish();
        assert!(has_room(&mut waiting) && memory.turns.available_permits() == 0);
        drop((waiting, writers));
        assert_eq!((memory.turns.available_permits(), memory.longest_read()), (TURNS, usize::MAX));
    }

    #[test]
    fn all_that_wait_go_on_when_there_is_room_again() {
        let memory = BlockMemory::new(200 * WITHOUT_TURN);
        let large = grown(&memory, 200 * WITHOUT_TURN);
        let mut all: Vec<_> = (0..3 * TURNS).map(|_| grown(&memory, WITHOUT_TURN)).collect();
        let cx = &mut Context::from_waker(Waker::noop());
        let mut rooms: Vec<_> = all.iter_mut().map(|writer| Box::pin(writer.room())).collect();
        let ready =
            rooms.iter_mut().filter_map(|room| room.as_mut().poll(cx).is_ready().then_some(()));
        assert_eq!(ready.count(), TURNS);
        drop(rooms);
        let (mut some, mut rest) = (all, Vec::new());
        rest.extend(some.split_off(TURNS));
        let mut rooms: Vec<_> = rest.iter_mut().map(|writer| Box::pin(writer.room())).collect();
        assert!(rooms.iter_mut().all(|room| room.as_mut().poll(cx).is_pending()));
        large.finish();
        some.pop().unwrap().finish();
        assert!(rooms.iter_mut().all(|room| room.as_mut().poll(cx).is_ready()));
    }

    #[tokio::test]
    async fn a_further_block_waits_for_room() {
        let memory = BlockMemory::new(2);
        let writer = BlockWriter::new(&memory);
        writer.push("abc".into());
        let (other, begun) = (memory.clone(), Arc::new(Notify::new()));
        let waiting = tokio::spawn({
            let begun = begun.clone();
            async move {
                begun.notify_one();
                other.room().await;
            }
        });
        begun.notified().await;
        assert!(!waiting.is_finished());
        writer.finish();
        waiting.await.unwrap();
    }
}
