//! Writes a body block after block while its readers read it: a long one into the store.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    blocked::BlockedBody,
    growing::BlockWriter,
    running::{FetchEnd, WINDOW},
};

/// How long a slow reader may hold up a body that is kept nowhere, block by block: long enough for a pause of a
/// poor path, short enough that the other readers do not take it for a dead server.
const SLOW_READER_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval of checks whether readers have left. A leaving reader sends no notice; the memory of two blocks
/// waits for half a second at most.
const READERS_INTERVAL: Duration = Duration::from_millis(500);

/// The writing side of a running fetch. Dropped before its end is declared, the fetch has broken off.
pub struct BodyWriter {
    body: Arc<BlockedBody>,
    /// The block that is being filled.
    current: Option<BlockWriter>,
    number: u64,
    /// Whether blocks go into the store.
    kept: bool,
    written: u64,
}

/// The body has no reader, and is not kept either, or memory is short.
#[derive(Debug)]
pub struct NoReader;

impl BodyWriter {
    /// Begins with block 0.
    pub(crate) fn new(body: Arc<BlockedBody>) -> Self {
        let current = Some(begin_block(&body));
        let kept = body.is_kept();
        Self { body, current, number: 0, kept, written: 0 }
    }

    /// Waits until the body may grow. To be called before bytes are read for it.
    pub async fn room(&mut self) {
        if let Some(current) = &mut self.current {
            current.room().await;
        }
    }

    /// Adds a piece of body, and waits when it runs too far ahead of its readers; `readers_come` tells
    /// whether more are about to come. The body must be known as long before it grows beyond a block.
    ///
    /// # Errors
    /// When the body is for no one.
    pub async fn push(
        &mut self,
        mut piece: Bytes,
        readers_come: impl Fn() -> bool,
    ) -> Result<(), NoReader> {
        let length = self.written + piece.len() as u64;
        if self.kept && length > self.body.tiers.max_object {
            self.kept = false;
            // Before its readers see the piece, and tell their clients.
            self.body.give_up_keeping();
        }
        while !piece.is_empty() {
            let room = (self.number + 1).saturating_mul(self.body.of.block) - self.written;
            if room == 0 {
                self.close_block();
                self.advance(&readers_come).await?;
                continue;
            }
            let now = piece.split_to(piece.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            self.written += now.len() as u64;
            if let Some(current) = &self.current {
                current.push(now);
            }
        }
        Ok(())
    }

    /// Whether the body goes into the store.
    pub fn is_kept(&self) -> bool {
        self.kept
    }

    /// Whether what is missing could be asked for by range.
    pub fn is_resumable(&self) -> bool {
        self.kept && self.body.origin().is_some()
    }

    /// Whether a request reads it, or is about to.
    pub fn is_read(&self, readers_come: bool) -> bool {
        self.body.running.readers(readers_come).is_some()
    }

    /// Bytes so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The pieces of the block that is being filled.
    pub fn pieces(&self) -> Vec<Bytes> {
        self.current.as_ref().map(BlockWriter::pieces).unwrap_or_default()
    }

    /// A body of one block has ended as it should. `stored` takes the place of its pieces.
    pub fn finish_as(mut self, stored: &[Bytes]) {
        if let Some(current) = self.current.take() {
            current.finish_as(stored, None);
        }
        self.body.running.end(FetchEnd::Whole);
    }

    /// A longer body has ended as it should. Returns its length, if all of it was given to the store.
    pub fn finish(mut self) -> Option<u64> {
        self.close_block();
        self.body.running.end(FetchEnd::Whole);
        if self.is_found_again() {
            self.body.running.let_go_before(u64::MAX);
        }
        self.kept.then_some(self.written)
    }

    /// The current block is complete.
    fn close_block(&mut self) {
        match self.current.take() {
            Some(current) if self.kept => self.body.store_block(self.number, current),
            Some(current) => current.finish(),
            None => {}
        }
    }

    /// Whether a reader that falls behind finds a block again.
    fn is_found_again(&self) -> bool {
        self.kept && self.body.finds_blocks_again()
    }

    /// Begins the next block as soon as there is room and somebody to read it.
    async fn advance(&mut self, readers_come: &impl Fn() -> bool) -> Result<(), NoReader> {
        let (body, running) = (&self.body, &self.body.running);
        let next = self.number + 1;
        let slow_until = Instant::now() + SLOW_READER_TIMEOUT;
        loop {
            let change = running.change();
            let Some((slowest, quickest)) = running.readers(readers_come()) else {
                // When memory is short, it is for those who read.
                if self.kept && !body.tiers.memory.is_short() {
                    break;
                }
                return Err(NoReader);
            };
            // A body that is not kept waits for its slowest reader as well, for a while.
            let pace = if self.kept || Instant::now() > slow_until { quickest } else { slowest };
            // When memory is short, a body that is not kept takes no more of it than its readers
            // need.
            let lean = !self.kept && body.tiers.memory.is_tight();
            if lean {
                running.let_go_before(pace);
            }
            // Blocks that cannot be lent may be evicted before they are read: the fewer there are,
            // the less likely.
            let near = lean || body.tiers.loans.are_short_of(body.of.block);
            // The disk may be slower than the origin, and has room again later.
            if self.is_found_again() || pace + if near { 0 } else { WINDOW } >= next {
                break;
            }
            // A follower that leaves before it reads causes no notification.
            let _ = tokio::time::timeout(READERS_INTERVAL, change).await;
        }
        body.tiers.memory.room().await;
        self.current = Some(begin_block(body));
        self.number = next;
        Ok(())
    }
}

impl Drop for BodyWriter {
    fn drop(&mut self) {
        self.body.running.end(FetchEnd::Broken);
    }
}

fn begin_block(body: &BlockedBody) -> BlockWriter {
    let writer = BlockWriter::new(&body.tiers.memory);
    body.running.begin(writer.block().clone());
    writer
}
