//! Reading a long body at one's own speed.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;

use super::{
    Blocked, Got,
    loan::{Handed, Loan},
    running::Place,
};
use crate::{
    body::BodyError,
    fill::{End, Read, Reader},
    guard::{Goods, Parcels},
    store::Block,
};

type Obtaining = Pin<Box<dyn Future<Output = Result<Got, BodyError>> + Send>>;

/// Reads a body in blocks.
pub(crate) struct BlockReader {
    blocked: Arc<Blocked>,
    /// Up to where blocks are fetched ahead.
    end: u64,
    number: u64,
    now: Now,
    place: Option<Place>,
    /// The block that broke off while it was read: once is not reason enough to give up.
    broken: Option<u64>,
    /// What its connection has got of it.
    handed: Handed,
    /// The block after which others were fetched ahead.
    ahead: Option<u64>,
}

/// Where the block is that is being read.
enum Now {
    Nowhere,
    Obtaining(Obtaining),
    Growing(Reader),
    /// Under a loan, or to be found again for every piece.
    Stored(Arc<Block>, Option<Arc<Loan>>),
    /// To be sent from there.
    Parcelled(Goods, Arc<Parcels>),
}

impl BlockReader {
    /// A reader that reads nothing at or after `end`.
    pub(crate) fn new(blocked: Arc<Blocked>, end: u64) -> Self {
        let place = blocked.running.as_ref().map(|running| running.enter());
        let handed = Handed::new(&blocked.node.loans);
        let (now, broken, ahead) = (Now::Nowhere, None, None);
        Self { blocked, end, number: 0, now, place, broken, handed, ahead }
    }

    /// Gets the block of the first byte that will be read, so that a representation that is gone is
    /// noticed before a head was sent.
    pub(crate) async fn begin(&mut self, position: u64) -> Result<(), BodyError> {
        self.turn_to(position / self.blocked.block);
        std::future::poll_fn(|cx| self.poll_block(cx)).await.map(|_| ())
    }

    /// What is at `position`, up to the end of a piece; `None` at the end of a body whose length was
    /// not known. What is in a file is given out for good, and `most` of it only.
    pub(crate) fn poll_at(
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
                Now::Parcelled(goods, parcels) => match parcels.hand_in(goods, within, most) {
                    Some(piece) => return Poll::Ready(Some(Ok(piece))),
                    None => Read::End(End::Whole),
                },
                Now::Stored(block, loan) => match block.at(within) {
                    Some(piece) => {
                        let piece = self.handed.hand(piece, loan.as_ref(), false);
                        if loan.is_none() {
                            self.now = Now::Nowhere;
                        }
                        return Poll::Ready(Some(Ok(piece)));
                    }
                    None => Read::End(End::Whole),
                },
                Now::Growing(reader) => ready!(reader.poll_at(cx, within)),
                Now::Nowhere | Now::Obtaining(_) => continue,
            };
            match read {
                Read::Piece(piece) => {
                    return Poll::Ready(Some(Ok(self.handed.hand(piece, None, true))));
                }
                // It was complete before this reader had read it.
                Read::End(End::LetGo) => self.now = Now::Nowhere,
                Read::End(End::Broken) if self.broken != Some(self.number) => {
                    self.broken = Some(self.number);
                    self.now = Now::Nowhere;
                }
                Read::End(End::Broken) => return Poll::Ready(Some(Err(BodyError::Fill))),
                // Only the last block is short.
                Read::End(_) => return Poll::Ready(None),
            }
        }
    }

    fn turn_to(&mut self, number: u64) {
        if number == self.number && !matches!(self.now, Now::Nowhere) {
            return;
        }
        self.number = number;
        if let Some(place) = &self.place {
            place.at(number);
        }
        self.now = Now::Obtaining(Box::pin(self.blocked.clone().obtain(number)));
        if self.ahead.replace(number) != Some(number) {
            self.blocked.read_ahead(number, self.end);
        }
    }

    /// Waits for the block; false when the body has ended before it.
    fn poll_block(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        let Now::Obtaining(obtaining) = &mut self.now else { return Poll::Ready(Ok(true)) };
        self.now = match ready!(obtaining.as_mut().poll(cx)) {
            Ok(Got::Stored(block)) => {
                let loan = block.loan(&self.blocked.node.loans);
                match (block.goods(loan.as_ref()), &self.blocked.parcels) {
                    (Some(goods), Some(parcels)) => Now::Parcelled(goods, parcels.clone()),
                    _ => Now::Stored(block, loan),
                }
            }
            Ok(Got::Growing(reader)) => Now::Growing(reader),
            Ok(Got::End) => {
                self.now = Now::Nowhere;
                return Poll::Ready(Ok(false));
            }
            Err(error) => {
                self.now = Now::Nowhere;
                return Poll::Ready(Err(error));
            }
        };
        Poll::Ready(Ok(true))
    }
}
