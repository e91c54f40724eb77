//! Writes a long body block after block, into the store, while its readers read it.

use levada_store::Block;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{BlockedBody, RunningFetch, running::WINDOW};
use crate::fill::{Fill, FillEnd, FillWriter};

/// How long a slow reader may hold up a body that is kept nowhere, block by block.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether readers have left.
const LOOK: Duration = Duration::from_millis(500);

/// The writing side of a running fetch. Dropped before [`LongBodyWriter::finish`], the fetch has broken off.
pub(crate) struct LongBodyWriter {
    blocked: Arc<BlockedBody>,
    running: Arc<RunningFetch>,
    number: u64,
    /// The block that is being filled.
    current: Option<FillWriter>,
    /// Whether blocks go into the store.
    kept: bool,
    written: u64,
}

/// The body has no reader, and is not kept either.
pub(crate) struct NoReader;

impl LongBodyWriter {
    /// Begins with block 0.
    pub(crate) fn begin(blocked: Arc<BlockedBody>, running: Arc<RunningFetch>) -> Self {
        let current = Some(block_writer(&blocked, &running, 0));
        let kept = blocked.kept;
        Self { blocked, running, number: 0, current, kept, written: 0 }
    }

    /// Goes on after block 0, which `first` has filled.
    pub(crate) async fn after(
        first: &Arc<Fill>,
        blocked: Arc<BlockedBody>,
        running: Arc<RunningFetch>,
    ) -> Result<Self, NoReader> {
        let kept = blocked.kept;
        // Another fill of the same bytes: `first` leads to the running fetch, which must not lead back.
        let fill = blocked.tiers.fills.block(blocked.block_key(0), &blocked.identity);
        let continued = FillEnd::Continued(blocked.clone());
        if kept {
            let block = store(&blocked, 0, first);
            blocked.complete(&fill, FillEnd::Whole, &block);
            running.begin(fill);
            blocked.complete(first, continued, &block);
        } else {
            fill.end(FillEnd::Whole, Some(&first.pieces()));
            running.begin(fill);
            first.end(continued, None);
        }
        let written = blocked.block;
        let mut long = Self { blocked, running, number: 0, current: None, kept, written };
        long.advance().await?;
        Ok(long)
    }

    /// Adds a piece of body, and waits when it runs too far ahead of its readers.
    pub(crate) async fn push(&mut self, mut piece: Bytes) -> Result<(), NoReader> {
        while !piece.is_empty() {
            let room = (self.number + 1).saturating_mul(self.blocked.block) - self.written;
            if room == 0 {
                self.close_block();
                self.advance().await?;
                continue;
            }
            let now = piece.split_to(piece.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            self.written += now.len() as u64;
            if let Some(current) = &self.current {
                current.push(now);
            }
        }
        self.kept &= self.written <= self.blocked.tiers.max_object;
        Ok(())
    }

    pub(crate) fn version(&self) -> u64 {
        self.blocked.version
    }

    /// Whether blocks go into the store. Otherwise nobody may join any more.
    pub(crate) fn kept(&self) -> bool {
        self.kept
    }

    /// Whether what is missing could be asked for by range.
    pub(crate) fn resumable(&self) -> bool {
        self.kept && self.blocked.request.is_some()
    }

    /// Bytes so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// The body has ended as it should. Returns its length, if all of it was given to the store.
    pub(crate) fn finish(mut self) -> Option<u64> {
        self.close_block();
        self.running.end(Ok(self.written));
        if self.is_found_again() {
            self.running.let_go_before(u64::MAX);
        }
        self.kept.then_some(self.written)
    }

    /// The current block is complete.
    fn close_block(&mut self) {
        let Some(current) = self.current.take() else { return };
        let fill = current.fill();
        match self.kept {
            true => {
                let block = store(&self.blocked, self.number, fill);
                self.blocked.complete(fill, FillEnd::Whole, &block);
            }
            false => fill.end(FillEnd::Whole, None),
        }
    }

    /// Whether a reader that falls behind finds a block again: on disk, or at the origin by range.
    fn is_found_again(&self) -> bool {
        let blocked = &self.blocked;
        self.kept && (blocked.offers_ranges() || blocked.tiers.store.has_disk())
    }

    /// Begins the next block as soon as there is room and somebody to read it.
    async fn advance(&mut self) -> Result<(), NoReader> {
        let (blocked, running) = (&self.blocked, &self.running);
        let next = self.number + 1;
        let free = self.is_found_again();
        let patient_until = Instant::now() + PATIENCE;
        loop {
            let change = running.change();
            let Some((slowest, quickest)) = running.readers() else {
                if self.kept {
                    break;
                }
                return Err(NoReader);
            };
            // A body that is not kept waits for its slowest reader as well, within its patience.
            let pace = if self.kept || Instant::now() > patient_until { quickest } else { slowest };
            // When memory is short, a body that is not kept takes no more of it than its readers
            // need.
            let lean = !self.kept && blocked.tiers.fills.is_tight();
            if lean {
                running.let_go_before(pace);
            }
            // Blocks that cannot be lent may be evicted before they are read: the fewer there are,
            // the less likely.
            let near = lean || blocked.tiers.loans.are_short_of(blocked.block);
            if free || pace + if near { 0 } else { WINDOW } >= next {
                break;
            }
            // A reader that leaves before it has entered causes no notification.
            let _ = tokio::time::timeout(LOOK, change).await;
        }
        blocked.tiers.fills.room().await;
        self.current = Some(block_writer(blocked, running, next));
        self.number = next;
        Ok(())
    }
}

impl Drop for LongBodyWriter {
    fn drop(&mut self) {
        self.running.end(Err(()));
    }
}

fn block_writer(blocked: &BlockedBody, running: &RunningFetch, number: u64) -> FillWriter {
    let fill = blocked.tiers.fills.block(blocked.block_key(number), &blocked.identity);
    running.begin(fill.clone());
    let mut writer = FillWriter::new(fill);
    writer.share(blocked.head.clone(), None, blocked.kept);
    writer
}

fn store(blocked: &BlockedBody, number: u64, fill: &Fill) -> Arc<Block> {
    let pieces = fill.pieces();
    let block =
        Arc::new(Block::new(blocked.key, blocked.version, number, pieces.iter(), blocked.block));
    blocked.tiers.store.put_block(blocked.block_key(number), block.clone());
    block
}
