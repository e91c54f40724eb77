//! Bodies in blocks: each block is read from wherever it is. A short body has one block.
//!
//! A body longer than a block (`cache.block`) is never held as a whole. Its blocks come from the
//! store, from the fetch of the whole body if one is running, or by a range request of their own,
//! and are kept one by one. So a range costs the blocks that it touches, and a slow reader costs
//! one block, not the distance to a quicker one: a block that has left the memory meanwhile is read
//! or fetched again. When many are slow, it does not even cost that ([`levada_store::loan`]).
//!
//! A body of one block has neither a version nor an origin of blocks: it arrives once, in a block that
//! its readers share, and is stored as an ordinary object.
//!
//! Blocks of two versions never meet: a block's key contains the version of its object, and the origin
//! is asked for a block under `If-Range` with a strong validator (RFC 9110 Sec. 13.1.5, RFC 9111
//! Sec. 3.4).
//!
//! No tier promises to keep a block, and some origins send no ranges. A reader whose block is nowhere
//! then gets a fetch of the whole body of its own (`again`).

use std::{
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use http::{HeaderMap, StatusCode, header::CONTENT_ENCODING};
use levada_cache::Validators;
use levada_http::ZeroCopyQueue;
use levada_store::{Block, Loans, Store, StoredHead, block_key};
use levada_types::Key;

use crate::{
    Follower, ReadError,
    again::AskedAgain,
    body_writer::BodyWriter,
    growing::{BlockMemory, BlockWriter, GrowingBlock},
    part::content_length,
    running::RunningFetch,
};

/// Blocks that are fetched ahead of a reader when they are missing, in parallel.
const AHEAD: u64 = 4;

/// The places where a node keeps blocks, and what holds for them.
pub struct BlockTiers {
    /// Where complete blocks are kept.
    pub store: Arc<Store>,
    /// Blocks that readers hold although the store has evicted them.
    pub loans: Arc<Loans>,
    /// Blocks that are not complete, or not stored.
    pub memory: Arc<BlockMemory>,
    /// The longest body that is stored.
    pub max_object: u64,
}

/// The source of blocks that are not stored.
pub trait BlockOrigin: Send + Sync {
    /// Whether single blocks can be asked for, as far as is known by now.
    fn parts(&self) -> Parts;

    /// The time that it usually takes to answer.
    fn usual_time(&self) -> Duration;

    /// Asks for the whole body once more, for one reader. Its source has checked the head.
    fn again(self: Arc<Self>, body: &Arc<BlockedBody>) -> AskedAgain;

    /// Follows the fetch of a block, or begins one. `None` when the block cannot be asked for.
    fn fetch(
        self: Arc<Self>,
        body: &Arc<BlockedBody>,
        number: u64,
    ) -> Option<Follower<BlockOutcome>>;
}

/// The knowledge of an origin's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// It sends none, or none that differ from those of another representation.
    None,
    /// It has not said.
    Untried,
    /// It says that it sends them, or has sent one. Fetches may be planned on them.
    Offered,
}

/// The outcome of the fetch of one block.
#[derive(Clone)]
pub enum BlockOutcome {
    /// It arrives.
    Growing(Arc<GrowingBlock>),
    /// It will not, with the reason.
    Missing(ReadError),
}

/// The representation that a body belongs to.
pub struct Representation {
    /// The key of the URI, under which the head is stored.
    pub key: Key,
    /// The URI.
    pub identity: Arc<str>,
    /// The head of the response.
    pub head: StoredHead,
    /// Bytes in a block.
    pub block: u64,
    /// `None` while it is not known.
    pub length: Option<u64>,
}

impl Representation {
    /// Whether the whole body of this answer may go on where one of this representation was lost. Where no strong
    /// validator identifies it, its bytes have to be compared.
    pub fn may_be_continued_by(
        &self,
        (status, headers): (StatusCode, &HeaderMap),
        received: SystemTime,
    ) -> bool {
        let Self { head, length, .. } = self;
        status == StatusCode::OK
            && length.zip(content_length(headers)).is_none_or(|(one, other)| one == other)
            && headers.get(CONTENT_ENCODING) == head.headers.get(CONTENT_ENCODING)
            && (!head.validators.is_strong()
                || Validators::of(headers, received).same_representation(&head.validators))
    }
}

/// The properties of a body that has more blocks than one.
pub struct LongBody {
    /// Part of the blocks' keys.
    pub version: u64,
    /// Fetches what is missing; `None` when nothing can be fetched.
    pub origin: Option<Arc<dyn BlockOrigin>>,
}

/// A body in blocks, and how to get at them.
pub struct BlockedBody {
    pub(crate) tiers: Arc<BlockTiers>,
    /// The representation that it belongs to.
    pub of: Representation,
    /// Set when the body turns out to be longer than a block.
    long: OnceLock<LongBody>,
    /// Whether it goes into the store as it comes, as far as is known.
    kept: AtomicBool,
    /// The fetch of the whole body.
    pub(crate) running: RunningFetch,
    /// Where its only reader's client can be sent blocks that are in files.
    pub(crate) zero_copy: Option<Arc<ZeroCopyQueue>>,
}

impl BlockedBody {
    /// A body that arrives as a whole, and its writer.
    pub fn arriving(
        tiers: &Arc<BlockTiers>,
        of: Representation,
        kept: bool,
    ) -> (Arc<Self>, BodyWriter) {
        let (long, running) = (OnceLock::new(), RunningFetch::new());
        let (tiers, kept) = (tiers.clone(), AtomicBool::new(kept));
        let body = Arc::new(Self { tiers, of, long, kept, running, zero_copy: None });
        (body.clone(), BodyWriter::new(body))
    }

    /// A body whose blocks are stored, or fetched one by one.
    pub fn in_blocks(
        tiers: &Arc<BlockTiers>,
        of: Representation,
        long: LongBody,
        zero_copy: Option<Arc<ZeroCopyQueue>>,
    ) -> Arc<Self> {
        // Bytes that no validator identifies are noted as they are handed out.
        let zero_copy = zero_copy.filter(|_| of.head.validators.is_strong());
        let (long, tiers, running) = (long.into(), tiers.clone(), RunningFetch::none());
        Arc::new(Self { tiers, of, long, kept: true.into(), running, zero_copy })
    }

    /// Whether it goes into the store as it comes. One without a stated length may turn out to be too long.
    pub fn is_kept(&self) -> bool {
        self.kept.load(Relaxed)
    }

    pub(crate) fn give_up_keeping(&self) {
        self.kept.store(false, Relaxed);
    }

    /// The body is longer than a block.
    pub fn set_long(&self, long: impl FnOnce() -> LongBody) {
        self.long.get_or_init(long);
    }

    /// Whether it is longer than a block, as far as is known.
    pub fn is_long(&self) -> bool {
        self.long().is_some()
    }

    /// The properties that it has if it is longer than a block.
    pub fn long(&self) -> Option<&LongBody> {
        self.long.get()
    }

    /// The source of single blocks that are not stored, if there is one.
    pub fn origin(&self) -> Option<&Arc<dyn BlockOrigin>> {
        self.source().filter(|source| source.parts() != Parts::None)
    }

    /// The source of the whole body, or of its blocks.
    pub(crate) fn source(&self) -> Option<&Arc<dyn BlockOrigin>> {
        self.long()?.origin.as_ref()
    }

    fn offers_parts(&self) -> bool {
        self.source().is_some_and(|source| source.parts() == Parts::Offered)
    }

    /// Whether a strong validator tells its bytes from those of another representation.
    pub(crate) fn is_identified(&self) -> bool {
        self.of.head.validators.is_strong()
    }

    /// Whether a block of this body would be found again after it has left the memory: on disk, or at the
    /// origin by range.
    pub(crate) fn finds_blocks_again(&self) -> bool {
        let all = self.of.length.unwrap_or(self.of.block);
        self.offers_parts() || self.tiers.store.disk_takes(self.of.block, all)
    }

    /// Whether it is being fetched as a whole.
    pub fn is_running(&self) -> bool {
        self.running.exists()
    }

    /// The key of a block. A body of one block has none that is used.
    pub fn block_key(&self, number: u64) -> Key {
        block_key(self.of.key, self.version(), number)
    }

    fn version(&self) -> u64 {
        self.long().map_or(0, |long| long.version)
    }

    /// The bytes of a block, as far as the length is known.
    pub fn span(&self, number: u64) -> Range<u64> {
        let first = number.saturating_mul(self.of.block);
        let end = first.saturating_add(self.of.block);
        first..self.of.length.map_or(end, |length| length.min(end))
    }

    /// Whether a block can be read without asking the origin for it.
    fn holds(&self, number: u64) -> bool {
        self.running.brings(number) || self.tiers.store.holds(self.block_key(number))
    }

    /// Whether all blocks from byte `first` to `end` can be read without asking the origin.
    pub fn holds_all(&self, first: u64, end: u64) -> bool {
        (first / self.of.block..end.div_ceil(self.of.block)).all(|number| self.holds(number))
    }

    /// A block is complete: it goes into the store, and stays at hand if it may be lent, or if it is
    /// nowhere else.
    pub fn store_block(&self, number: u64, writer: BlockWriter) {
        let (pieces, length) = (writer.pieces(), writer.written());
        let block = Block::new(self.of.key, self.version(), number, pieces.iter(), length);
        let block = Arc::new(block);
        self.tiers.store.put_block(self.block_key(number), block.clone());
        let loan = block.loan(&self.tiers.loans);
        if loan.is_none() && self.tiers.store.holds(self.block_key(number)) {
            writer.let_go();
        } else {
            writer.finish_as(block.body(), loan);
        }
    }

    /// Begins to fetch the blocks after `number` before they are read, up to byte `end`.
    pub(crate) fn read_ahead(self: &Arc<Self>, number: u64, end: u64) {
        let Some(origin) = self.source().filter(|_| self.offers_parts()) else { return };
        let last = end.div_ceil(self.of.block).min(number + 1 + AHEAD);
        for next in number + 1..last {
            if !self.holds(next)
                && let Some(follower) = origin.clone().fetch(self, next)
            {
                // Its reader is about to come.
                follower.stay();
            }
        }
    }
}
