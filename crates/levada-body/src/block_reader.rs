//! The reader of a body in blocks, at its own speed.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use levada_http1::{ZeroCopyChunk, ZeroCopyQueue};
use levada_store::{Block, Loan, loan::HandedOut};

use crate::{
    ReadError,
    blocked::{BlockLocation, BlockedBody},
    growing::{BlockEnd, GrowingRead, GrowingReader},
    read_at::ReadAt,
    stored_reader::lent_chunk,
};

type Obtaining = Pin<Box<dyn Future<Output = Result<BlockLocation, ReadError>> + Send>>;

/// Reads a body in blocks.
pub struct BlockReader {
    body: Arc<BlockedBody>,
    /// Up to where blocks are fetched ahead.
    end: u64,
    number: u64,
    step: ReaderStep,
    /// The block that broke off while it was read: once is not reason enough to give up.
    broken: Option<u64>,
    /// The pieces of a long body that its connection holds.
    handed: Option<HandedOut>,
    /// The block after which others were fetched ahead.
    ahead: Option<u64>,
}

/// Where the block is that is being read.
enum ReaderStep {
    Nowhere,
    Obtaining(Obtaining),
    Growing(GrowingReader),
    /// Under a loan, or to be found again for every piece.
    Stored(Arc<Block>, Option<Arc<Loan>>),
    /// To be sent from there.
    ZeroCopy(ZeroCopyChunk, Arc<ZeroCopyQueue>),
}

impl BlockReader {
    /// A reader that reads nothing at or after `end`.
    pub fn new(body: Arc<BlockedBody>, end: u64) -> Self {
        body.running.moved(None, Some(0));
        let (step, broken, handed, ahead) = (ReaderStep::Nowhere, None, None, None);
        Self { body, end, number: 0, step, broken, handed, ahead }
    }

    /// Gets the block of the first byte that will be read, so that a representation that is gone is
    /// noticed before a head was sent.
    ///
    /// # Errors
    /// When the block cannot be had.
    pub async fn begin(&mut self, position: u64) -> Result<(), ReadError> {
        self.turn_to(position / self.body.of.block);
        poll_fn(|cx| self.poll_block(cx)).await.map(|_| ())
    }

    fn turn_to(&mut self, number: u64) {
        if number == self.number && !matches!(self.step, ReaderStep::Nowhere) {
            return;
        }
        self.body.running.moved(Some(self.number), Some(number));
        self.number = number;
        self.step = match self.body.at_hand(number) {
            Some(reader) => ReaderStep::Growing(reader),
            None => ReaderStep::Obtaining(Box::pin(self.body.clone().obtain(number))),
        };
        if self.ahead.replace(number) != Some(number) {
            self.body.read_ahead(number, self.end);
        }
    }

    /// Waits for the block; false when the body has ended before it.
    fn poll_block(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, ReadError>> {
        let ReaderStep::Obtaining(obtaining) = &mut self.step else { return Poll::Ready(Ok(true)) };
        let location = ready!(obtaining.as_mut().poll(cx));
        self.step = ReaderStep::Nowhere;
        self.step = match location {
            Ok(BlockLocation::Stored(block)) => self.stored(block),
            Ok(BlockLocation::Growing(reader)) => ReaderStep::Growing(reader),
            Ok(BlockLocation::End) => return Poll::Ready(Ok(false)),
            Err(error) => return Poll::Ready(Err(error)),
        };
        Poll::Ready(Ok(true))
    }

    fn stored(&self, block: Arc<Block>) -> ReaderStep {
        let loan = block.loan(&self.body.tiers.loans);
        match (lent_chunk(block.stored_body(), loan.as_ref()), &self.body.zero_copy) {
            (Some(chunk), Some(queue)) => ReaderStep::ZeroCopy(chunk, queue.clone()),
            _ => ReaderStep::Stored(block, loan),
        }
    }

    /// Reads in the present block. `None` when the block has to be found again.
    fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        within: u64,
        most: u64,
    ) -> Poll<Option<GrowingRead>> {
        let read = match &self.step {
            ReaderStep::ZeroCopy(chunk, queue) => queue.hand_in(chunk, within, most),
            ReaderStep::Stored(block, loan) => {
                let (piece, loan) = (block.at(within), loan.clone());
                if loan.is_none() && piece.is_some() {
                    self.step = ReaderStep::Nowhere;
                }
                piece.map(|piece| self.hand(piece, loan.as_ref(), false))
            }
            ReaderStep::Growing(reader) => match ready!(reader.poll_at(cx, within)) {
                GrowingRead::Piece(piece) => Some(self.hand(piece, None, true)),
                end => return Poll::Ready(Some(end)),
            },
            ReaderStep::Nowhere | ReaderStep::Obtaining(_) => return Poll::Ready(None),
        };
        let end = GrowingRead::End(BlockEnd::Whole);
        Poll::Ready(Some(read.map_or(end, GrowingRead::Piece)))
    }

    /// A piece for the connection. The only block of a short body needs no loan.
    fn hand(&mut self, piece: Bytes, loan: Option<&Arc<Loan>>, apart: bool) -> Bytes {
        if !self.body.is_long() {
            return piece;
        }
        let handed = self.handed.get_or_insert_with(|| HandedOut::new(&self.body.tiers.loans));
        handed.hand(piece, loan, apart)
    }
}

impl ReadAt for BlockReader {
    /// `None` at the end of a body whose length was not known.
    fn poll_at(
        &mut self,
        cx: &mut Context<'_>,
        position: u64,
        most: u64,
    ) -> Poll<Option<Result<Bytes, ReadError>>> {
        if let Some(handed) = &self.handed {
            ready!(handed.poll_back(cx));
        }
        loop {
            self.turn_to(position / self.body.of.block);
            match ready!(self.poll_block(cx)) {
                Err(error) => return Poll::Ready(Some(Err(error))),
                Ok(false) => return Poll::Ready(None),
                Ok(true) => {}
            }
            match ready!(self.poll_step(cx, position % self.body.of.block, most)) {
                None => {}
                Some(GrowingRead::Piece(piece)) => return Poll::Ready(Some(Ok(piece))),
                // It was complete before this reader had read it.
                Some(GrowingRead::End(BlockEnd::LetGo)) => self.step = ReaderStep::Nowhere,
                Some(GrowingRead::End(BlockEnd::Broken)) if self.broken != Some(self.number) => {
                    self.broken = Some(self.number);
                    self.step = ReaderStep::Nowhere;
                }
                Some(GrowingRead::End(BlockEnd::Broken)) => {
                    return Poll::Ready(Some(Err(ReadError::Broken)));
                }
                // Only the last block is short.
                Some(GrowingRead::End(BlockEnd::Whole)) => return Poll::Ready(None),
            }
        }
    }

    fn poll_kept(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.body.is_long() {
            return Poll::Ready(false);
        }
        self.turn_to(0);
        if let ReaderStep::Growing(reader) = &self.step {
            ready!(reader.poll_ended(cx));
        }
        // It may have ended because the body goes on in another block.
        Poll::Ready(!self.body.is_long())
    }
}

impl Drop for BlockReader {
    fn drop(&mut self) {
        self.body.running.moved(Some(self.number), None);
    }
}
