//! The reader of a body in blocks, at its own speed. It reads each block from wherever it is:
//!
//! ```text
//!   obtain(n) ── being fetched as part of the whole ──> Growing
//!             ├─ in the store ────────────────────────> Stored, ZeroCopy
//!             └─ by range (BlockOrigin) ──────────────> Growing
//!   nowhere ──── the whole again, for this reader alone > Again
//! ```

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use levada_http::{ZeroCopyChunk, ZeroCopyQueue};
use levada_store::{Block, Loan, loan::HandedOut};

use crate::{
    ReadError,
    again::{AgainReader, Delivered},
    blocked::{BlockOutcome, BlockedBody},
    growing::{BlockEnd, GrowingReader},
    read_at::ReadAt,
    running::BlockStatus,
    stored_reader::lent_chunk,
};

type Obtaining = Pin<Box<dyn Future<Output = Result<ReaderStep, ReadError>> + Send>>;

/// Reads a body in blocks.
pub struct BlockReader {
    body: Arc<BlockedBody>,
    /// Up to where blocks are fetched ahead.
    end: u64,
    number: u64,
    /// Its place among the readers of the running fetch.
    place: Option<u64>,
    step: ReaderStep,
    /// The block that broke off while it was read: once is not reason enough to give up.
    broken: Option<u64>,
    /// The pieces of a long body that its connection holds.
    handed: Option<HandedOut>,
    /// The block after which others were fetched ahead.
    ahead: Option<u64>,
    delivered: Delivered,
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
    /// The body has ended before it.
    AtEnd,
    /// This and all later ones come from a fetch of the reader's own.
    Again(AgainReader),
}

impl BlockReader {
    /// A reader that reads nothing at or after `end`.
    pub fn new(body: Arc<BlockedBody>, end: u64) -> Self {
        let (step, broken, handed, ahead) = (ReaderStep::Nowhere, None, None, None);
        let (place, delivered) = (None, Delivered::default());
        let mut reader =
            Self { body, end, number: 0, place, step, broken, handed, ahead, delivered };
        reader.move_to(Some(0));
        reader
    }

    /// Changes its place in the running fetch.
    fn move_to(&mut self, place: Option<u64>) {
        self.body.running.moved(std::mem::replace(&mut self.place, place), place);
    }

    /// Gets the block of the first byte that will be read, so that a representation that is gone is
    /// noticed before a head was sent.
    ///
    /// # Errors
    /// When the block cannot be had.
    pub async fn begin(&mut self, position: u64) -> Result<(), ReadError> {
        self.turn_to(position / self.body.of.block);
        poll_fn(|cx| self.poll_block(cx)).await
    }

    fn turn_to(&mut self, number: u64) {
        if number == self.number && !matches!(self.step, ReaderStep::Nowhere) {
            return;
        }
        self.move_to(Some(number));
        self.number = number;
        self.step = match self.body.running.at(number) {
            BlockStatus::Growing(block) => ReaderStep::Growing(block.reader()),
            _ => ReaderStep::Obtaining(Box::pin(obtain(self.body.clone(), number))),
        };
        if self.ahead.replace(number) != Some(number) {
            self.body.read_ahead(number, self.end);
        }
    }

    /// Waits for the block.
    fn poll_block(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ReadError>> {
        if let ReaderStep::Obtaining(obtaining) = &mut self.step {
            let obtained = ready!(obtaining.as_mut().poll(cx));
            self.step = ReaderStep::Nowhere;
            self.step = obtained?;
        }
        Poll::Ready(Ok(()))
    }

    /// The next piece, from the present block or a later one; `None` at the end.
    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        position: u64,
        most: u64,
    ) -> Poll<Option<Result<Bytes, ReadError>>> {
        loop {
            if let ReaderStep::Again(again) = &mut self.step {
                let piece = ready!(again.poll_at(cx, position));
                return Poll::Ready(piece.map(|piece| piece.map(|piece| self.hand(piece, None))));
            }
            self.turn_to(position / self.body.of.block);
            if let Err(error) = ready!(self.poll_block(cx)) {
                return Poll::Ready(Some(Err(error)));
            }
            match ready!(self.poll_step(cx, position % self.body.of.block, most)) {
                Ok(piece) => return Poll::Ready(Some(Ok(piece))),
                // Only the last block is short.
                Err(BlockEnd::Whole) => return Poll::Ready(None),
                Err(BlockEnd::Broken) if self.broken.replace(self.number) == Some(self.number) => {
                    return Poll::Ready(Some(Err(ReadError::Broken)));
                }
                // It was complete before this reader had read it, or another source may have it.
                Err(BlockEnd::LetGo | BlockEnd::Broken) => self.step = ReaderStep::Nowhere,
            }
        }
    }

    /// Asks for the whole body again after this error, if that may help. The running fetch need not wait for this
    /// reader any longer.
    fn ask_again(&mut self, position: u64, error: &ReadError) -> bool {
        let again = matches!(self.step, ReaderStep::Again(_));
        let is_lost =
            matches!(error, ReadError::Gone) || (again && !matches!(error, ReadError::Digest));
        let Some(source) = self.body.source().filter(|_| is_lost).cloned() else { return false };
        let Some(check) = self.delivered.check(position, self.body.is_identified()) else {
            return false;
        };
        self.step = ReaderStep::Again(AgainReader::new(source.again(&self.body), check));
        self.move_to(None);
        true
    }

    /// Reads in the present block.
    fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        within: u64,
        most: u64,
    ) -> Poll<Result<Bytes, BlockEnd>> {
        let piece = match &self.step {
            ReaderStep::ZeroCopy(chunk, queue) => queue.hand_in(chunk, within, most),
            ReaderStep::Stored(block, loan) => {
                let (piece, loan) = (block.at(within), loan.clone());
                if loan.is_none() && piece.is_some() {
                    self.step = ReaderStep::Nowhere;
                }
                piece.map(|piece| self.hand(piece, loan.as_ref()))
            }
            ReaderStep::Growing(reader) => {
                let read = ready!(reader.poll_at(cx, within));
                return Poll::Ready(read.map(|piece| self.hand(piece, None)));
            }
            ReaderStep::Nowhere
            | ReaderStep::Obtaining(_)
            | ReaderStep::AtEnd
            | ReaderStep::Again(_) => None,
        };
        Poll::Ready(piece.ok_or(BlockEnd::Whole))
    }

    /// Notes what is handed out of a body that may have to be asked for again.
    fn note(&mut self, position: u64, piece: &[u8], most: u64) {
        let is_short = self.body.of.length.is_some_and(|length| length <= self.body.of.block);
        if !is_short && !self.body.is_identified() {
            let used = piece.len().min(usize::try_from(most).unwrap_or(usize::MAX));
            self.delivered.note(position, &piece[..used]);
        }
    }

    /// A piece for the connection. The only block of a short body needs no loan.
    fn hand(&mut self, piece: Bytes, loan: Option<&Arc<Loan>>) -> Bytes {
        if !self.body.is_long() {
            return piece;
        }
        let handed = self.handed.get_or_insert_with(|| HandedOut::new(&self.body.tiers.loans));
        handed.hand(piece, loan)
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
            let piece = ready!(self.poll_piece(cx, position, most));
            match &piece {
                Some(Err(error)) if self.ask_again(position, error) => continue,
                Some(Ok(piece)) => self.note(position, piece, most),
                _ => {}
            }
            return Poll::Ready(piece);
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
        self.move_to(None);
    }
}

/// Gets a block, or gets it to grow.
async fn obtain(body: Arc<BlockedBody>, number: u64) -> Result<ReaderStep, ReadError> {
    if let Some(step) = obtain_running(&body, number).await {
        return Ok(step);
    }
    // A body of one block is nowhere else: its fetch has broken off.
    let long = body.long().ok_or(ReadError::Broken)?;
    let (key, object, store) = (body.block_key(number), body.of.key, &body.tiers.store);
    if body.zero_copy.is_some()
        && let Some(block) = store.block_in_file(key, object, long.version, number)
    {
        return Ok(stored(&body, block));
    }
    let part = (long.version, number);
    let usual = || body.origin().map_or(Duration::MAX, |origin| origin.usual_time());
    if let Some(block) = store.block(key, object, part, &usual).await {
        return Ok(stored(&body, block));
    }
    let origin = body.origin().ok_or(ReadError::Gone)?.clone();
    let follower = origin.fetch(&body, number).ok_or(ReadError::Gone)?;
    let error = match follower.outcome().await {
        Some(BlockOutcome::Growing(block)) => return Ok(ReaderStep::Growing(block.reader())),
        Some(BlockOutcome::Missing(error)) => error,
        None => ReadError::Broken,
    };
    // The disk may have it, and have been passed by as slow.
    match store.block(key, object, part, &|| Duration::MAX).await {
        Some(block) => Ok(stored(&body, block)),
        None => Err(error),
    }
}

/// Gets a block from the running fetch. `None` when another source may have it.
async fn obtain_running(body: &BlockedBody, number: u64) -> Option<ReaderStep> {
    loop {
        let change = body.running.change();
        match body.running.at(number) {
            BlockStatus::Growing(block) => return Some(ReaderStep::Growing(block.reader())),
            BlockStatus::Ended => return Some(ReaderStep::AtEnd),
            // Far ahead of the whole fetch: by range, if that is possible.
            BlockStatus::Later { far: true } if body.origin().is_some() => return None,
            BlockStatus::Later { .. } => change.await,
            // No other source has more of it.
            BlockStatus::Broken(Some(block)) if body.origin().is_none() => {
                return Some(ReaderStep::Growing(block.reader()));
            }
            BlockStatus::Past | BlockStatus::Broken(_) => return None,
        }
    }
}

fn stored(body: &BlockedBody, block: Arc<Block>) -> ReaderStep {
    let loan = block.loan(&body.tiers.loans);
    match (lent_chunk(block.stored_body(), loan.as_ref()), &body.zero_copy) {
        (Some(chunk), Some(queue)) => ReaderStep::ZeroCopy(chunk, queue.clone()),
        _ => ReaderStep::Stored(block, loan),
    }
}
