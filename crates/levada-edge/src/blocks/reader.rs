//! Readers of long and of growing bodies, each at its own speed.

use levada_store::{Block, Loan, loan::HandedOut};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use levada_http1::{ZeroCopyChunk, ZeroCopyQueue};

use super::{BlockLocation, BlockedBody, running::ReaderPlace};
use crate::{
    body::BodyError,
    body_reader::ReadAt,
    fill::{FillEnd, FillRead, FillReader},
    zero_copy,
};

type Obtaining = Pin<Box<dyn Future<Output = Result<BlockLocation, BodyError>> + Send>>;

/// Reads a body in blocks.
pub(crate) struct BlockReader {
    blocked: Arc<BlockedBody>,
    /// Up to where blocks are fetched ahead.
    end: u64,
    number: u64,
    now: ReaderStep,
    place: Option<ReaderPlace>,
    /// The block that broke off while it was read: once is not reason enough to give up.
    broken: Option<u64>,
    /// The pieces that its connection holds.
    handed: HandedOut,
    /// The block after which others were fetched ahead.
    ahead: Option<u64>,
}

/// Where the block is that is being read.
enum ReaderStep {
    Nowhere,
    Obtaining(Obtaining),
    Growing(FillReader),
    /// Under a loan, or to be found again for every piece.
    Stored(Arc<Block>, Option<Arc<Loan>>),
    /// To be sent from there.
    Parcelled(ZeroCopyChunk, Arc<ZeroCopyQueue>),
}

impl BlockReader {
    /// A reader that reads nothing at or after `end`.
    pub(crate) fn new(blocked: Arc<BlockedBody>, end: u64) -> Self {
        let place = blocked.running.as_ref().map(|running| running.enter());
        let handed = HandedOut::new(&blocked.tiers.loans);
        let (now, broken, ahead) = (ReaderStep::Nowhere, None, None);
        Self { blocked, end, number: 0, now, place, broken, handed, ahead }
    }

    /// Gets the block of the first byte that will be read, so that a representation that is gone is
    /// noticed before a head was sent.
    pub(crate) async fn begin(&mut self, position: u64) -> Result<(), BodyError> {
        self.turn_to(position / self.blocked.block);
        std::future::poll_fn(|cx| self.poll_block(cx)).await.map(|_| ())
    }

    fn turn_to(&mut self, number: u64) {
        if number == self.number && !matches!(self.now, ReaderStep::Nowhere) {
            return;
        }
        self.number = number;
        if let Some(place) = &self.place {
            place.at(number);
        }
        self.now = ReaderStep::Obtaining(Box::pin(self.blocked.clone().obtain(number)));
        if self.ahead.replace(number) != Some(number) {
            self.blocked.read_ahead(number, self.end);
        }
    }

    /// Waits for the block; false when the body has ended before it.
    fn poll_block(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        let ReaderStep::Obtaining(obtaining) = &mut self.now else { return Poll::Ready(Ok(true)) };
        self.now = match ready!(obtaining.as_mut().poll(cx)) {
            Ok(BlockLocation::Stored(block)) => {
                let loan = block.loan(&self.blocked.tiers.loans);
                match (
                    zero_copy::lent_chunk(block.stored_body(), loan.as_ref()),
                    &self.blocked.zero_copy,
                ) {
                    (Some(chunk), Some(zero_copy)) => {
                        ReaderStep::Parcelled(chunk, zero_copy.clone())
                    }
                    _ => ReaderStep::Stored(block, loan),
                }
            }
            Ok(BlockLocation::Growing(reader)) => ReaderStep::Growing(reader),
            Ok(BlockLocation::End) => {
                self.now = ReaderStep::Nowhere;
                return Poll::Ready(Ok(false));
            }
            Err(error) => {
                self.now = ReaderStep::Nowhere;
                return Poll::Ready(Err(error));
            }
        };
        Poll::Ready(Ok(true))
    }
}

impl ReadAt for BlockReader {
    /// `None` at the end of a body whose length was not known.
    fn poll_at(
        &mut self,
        cx: &mut Context<'_>,
        position: u64,
        most: u64,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        ready!(self.handed.poll_back(cx));
        loop {
            self.turn_to(position / self.blocked.block);
            let within = position % self.blocked.block;
            match ready!(self.poll_block(cx)) {
                Err(error) => return Poll::Ready(Some(Err(error))),
                Ok(false) => return Poll::Ready(None),
                Ok(true) => {}
            }
            let read = match &self.now {
                ReaderStep::Parcelled(chunk, zero_copy) => {
                    match zero_copy.hand_in(chunk, within, most) {
                        Some(piece) => return Poll::Ready(Some(Ok(piece))),
                        None => FillRead::End(FillEnd::Whole),
                    }
                }
                ReaderStep::Stored(block, loan) => match block.at(within) {
                    Some(piece) => {
                        let piece = self.handed.hand(piece, loan.as_ref(), false);
                        if loan.is_none() {
                            self.now = ReaderStep::Nowhere;
                        }
                        return Poll::Ready(Some(Ok(piece)));
                    }
                    None => FillRead::End(FillEnd::Whole),
                },
                ReaderStep::Growing(reader) => ready!(reader.poll_at(cx, within)),
                ReaderStep::Nowhere | ReaderStep::Obtaining(_) => continue,
            };
            match read {
                FillRead::Piece(piece) => {
                    return Poll::Ready(Some(Ok(self.handed.hand(piece, None, true))));
                }
                // It was complete before this reader had read it.
                FillRead::End(FillEnd::LetGo) => self.now = ReaderStep::Nowhere,
                FillRead::End(FillEnd::Broken) if self.broken != Some(self.number) => {
                    self.broken = Some(self.number);
                    self.now = ReaderStep::Nowhere;
                }
                FillRead::End(FillEnd::Broken) => return Poll::Ready(Some(Err(BodyError::Fill))),
                // Only the last block is short.
                FillRead::End(_) => return Poll::Ready(None),
            }
        }
    }
}

/// Reads a body that is being fetched and was not known to be long: from the fill of its first block,
/// and block by block as soon as it turns out to have more.
pub(crate) enum GrowingReader {
    Fill(FillReader),
    Blocks(BlockReader),
}

impl ReadAt for GrowingReader {
    fn poll_at(
        &mut self,
        cx: &mut Context<'_>,
        position: u64,
        most: u64,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        let reader = match self {
            Self::Blocks(reader) => return reader.poll_at(cx, position, most),
            Self::Fill(reader) => reader,
        };
        match ready!(reader.poll_at(cx, position)) {
            FillRead::Piece(piece) => Poll::Ready(Some(Ok(piece))),
            FillRead::End(FillEnd::Broken | FillEnd::LetGo) => {
                Poll::Ready(Some(Err(BodyError::Fill)))
            }
            FillRead::End(FillEnd::Whole) => Poll::Ready(None),
            FillRead::End(FillEnd::Continued(blocked)) => {
                *self = Self::Blocks(BlockReader::new(blocked, u64::MAX));
                self.poll_at(cx, position, most)
            }
        }
    }

    fn poll_kept(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        match self {
            Self::Fill(reader) => reader.poll_ended(cx).map(|()| true),
            Self::Blocks(_) => Poll::Ready(false),
        }
    }
}
