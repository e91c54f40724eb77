//! Long bodies: read block by block, each from wherever it is.
//!
//! A body longer than a block (`cache.block`) is never held as a whole. Its blocks come from the
//! store, from the fetch of the whole body if one is running, or by a range request of their own,
//! and are kept one by one. So a range costs the blocks that it touches, and a slow reader costs
//! one block, not the distance to a quicker one: a block that has left the memory meanwhile is read
//! or fetched again. When many are slow, it does not even cost that ([`levada_store::loan`]).
//!
//! ```text
//!   obtain(n) ── being fetched as part of the whole ──> Growing
//!             ├─ in the store ────────────────────────> Stored
//!             └─ by range: follow or lead fetch::block ─> Growing
//! ```
//!
//! Blocks of two versions never meet: a block's key contains the version of its object, and the origin
//! is asked for a block under `If-Range` with a strong validator (RFC 9110 Sec. 13.1.5, RFC 9111
//! Sec. 3.4).

pub(crate) mod fetch;
mod long;
mod reader;
mod running;

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, header};
use levada_cache::CONDITIONAL;
use levada_http1::ZeroCopyQueue;
use levada_purge::Purges;
use levada_store::{Block, Label, Loans, Store, StoredHead, block_key};
use levada_types::Key;
use levada_upstream::UpstreamHead;

pub(crate) use long::LongBodyWriter;
pub(crate) use reader::{BlockReader, GrowingReader};
pub(crate) use running::RunningFetch;

use crate::{
    body::BodyError,
    fill::{FetchOutcome, Fill, FillEnd, FillHandle, FillReader, Fills},
    sites::Site,
};
use running::BlockStatus;

/// Blocks that are fetched ahead of a reader when they are missing, in parallel.
const AHEAD: u64 = 4;

/// The places where a node keeps blocks, and what holds for them.
pub(crate) struct BlockTiers {
    pub(crate) store: Arc<Store>,
    pub(crate) loans: Arc<Loans>,
    pub(crate) fills: Arc<Fills>,
    pub(crate) purges: Arc<Purges>,
    /// The longest body that is stored.
    pub(crate) max_object: u64,
}

/// The source of blocks that are not stored.
pub(crate) trait BlockOrigin: Send + Sync {
    /// Begins to fetch a block into `fill`.
    fn fetch(self: Arc<Self>, blocked: Arc<BlockedBody>, number: u64, fill: Arc<Fill>);
}

/// A body in blocks, and how to get at them.
pub(crate) struct BlockedBody {
    pub(crate) tiers: Arc<BlockTiers>,
    /// Fetches the blocks that are missing.
    pub(crate) origin: Arc<dyn BlockOrigin>,
    pub(crate) site: Arc<Site>,
    /// The key of the URI, under which the head is stored.
    pub(crate) key: Key,
    pub(crate) identity: Box<str>,
    pub(crate) head: Arc<StoredHead>,
    pub(crate) version: u64,
    /// Bytes in a block.
    pub(crate) block: u64,
    /// `None` while it is not known.
    pub(crate) length: Option<u64>,
    /// How the origin is asked for a block; `None` when parts of this representation cannot be told
    /// from those of another.
    pub(crate) request: Option<UpstreamHead>,
    /// Whether blocks go into the store as they come.
    pub(crate) kept: bool,
    /// The fetch of the whole body.
    pub(crate) running: Option<Arc<RunningFetch>>,
    /// Where its only reader's client can be sent blocks that are in files.
    pub(crate) zero_copy: Option<Arc<ZeroCopyQueue>>,
}

/// Where a block is.
pub(crate) enum BlockLocation {
    Stored(Arc<Block>),
    Growing(FillReader),
    /// The body has ended before it.
    End,
}

/// The request for a part of a representation: of `onward`, without what the client asked of its own
/// copy. `None` without a strong validator to ask under.
pub(crate) fn part_request(onward: &UpstreamHead, head: &StoredHead) -> Option<UpstreamHead> {
    if !head.validators.is_strong() {
        return None;
    }
    let validator =
        head.headers.get(header::ETAG).or_else(|| head.headers.get(header::LAST_MODIFIED))?;
    let mut request = onward.clone();
    request.method = Method::GET;
    for name in &CONDITIONAL {
        request.headers.remove(name);
    }
    request.headers.insert(header::IF_RANGE, validator.clone());
    Some(request)
}

/// The field that asks for these bytes.
pub(crate) fn range_value(first: u64, end: u64) -> HeaderValue {
    let text = format!("bytes={first}-{}", end.saturating_sub(1));
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("bytes=0-"))
}

impl BlockedBody {
    pub(crate) fn block_key(&self, number: u64) -> Key {
        block_key(self.key, self.version, number)
    }

    /// The bytes of a block, as far as the length is known.
    pub(crate) fn span(&self, number: u64) -> std::ops::Range<u64> {
        let first = number.saturating_mul(self.block);
        let end = first.saturating_add(self.block);
        first..self.length.map_or(end, |length| length.min(end))
    }

    /// Whether the origin says that it can be asked for any block: a strong validator alone does not.
    pub(crate) fn offers_ranges(&self) -> bool {
        let says = self.head.headers.get(header::ACCEPT_RANGES);
        self.request.is_some() && says.is_some_and(|units| units.as_bytes() == b"bytes")
    }

    /// Whether a block can be read without asking the origin for it.
    pub(crate) fn holds(&self, number: u64) -> bool {
        let coming = self.running.as_ref().is_some_and(|running| running.brings(number));
        coming || self.tiers.store.holds(self.block_key(number))
    }

    /// Whether all blocks from byte `first` to `end` can be read without asking the origin.
    pub(crate) fn holds_all(&self, first: u64, end: u64) -> bool {
        (first / self.block..end.div_ceil(self.block)).all(|number| self.holds(number))
    }

    /// A block is complete and was given to the store: `fill` keeps it at hand if it may be lent, or if
    /// it is nowhere else.
    fn complete(&self, fill: &Fill, end: FillEnd, block: &Block) {
        let loan = block.loan(&self.tiers.loans);
        if loan.is_none() && self.tiers.store.holds(self.block_key(block.number)) {
            fill.let_go(end);
        } else {
            fill.end_block(end, block.body(), loan);
        }
    }

    /// Gets a block, or gets it to grow.
    async fn obtain(self: Arc<Self>, number: u64) -> Result<BlockLocation, BodyError> {
        if let Some(running) = &self.running {
            loop {
                let change = running.change();
                match running.at(number) {
                    BlockStatus::Growing(fill) => return Ok(BlockLocation::Growing(fill.reader())),
                    BlockStatus::Ended => return Ok(BlockLocation::End),
                    // Far ahead of the whole fetch: by range, if that is possible.
                    BlockStatus::Later { far: true } if self.request.is_some() => break,
                    BlockStatus::Later { .. } => change.await,
                    // No other source has more of it.
                    BlockStatus::Broken(Some(fill)) if self.request.is_none() => {
                        return Ok(BlockLocation::Growing(fill.reader()));
                    }
                    BlockStatus::Past | BlockStatus::Broken(_) => break,
                }
            }
        }
        let (key, version) = (self.block_key(number), self.version);
        if self.zero_copy.is_some()
            && let Some(block) = self.tiers.store.block_in_file(key, self.key, version, number)
        {
            return Ok(BlockLocation::Stored(block));
        }
        if let Some(block) = self.tiers.store.block(key, self.key, version, number).await {
            return Ok(BlockLocation::Stored(block));
        }
        let Some(reader) = self.fetch(number) else { return Err(BodyError::Gone) };
        match reader.outcome().await {
            FetchOutcome::Share { .. } => Ok(BlockLocation::Growing(reader)),
            // The representation is not what it was, or the origin cannot send parts of it.
            FetchOutcome::Unshared
            | FetchOutcome::Renewed(_)
            | FetchOutcome::Large(_)
            | FetchOutcome::Blocked(_) => Err(BodyError::Gone),
            FetchOutcome::Failed(failed) => Err(BodyError::Failed(failed.failure)),
        }
    }

    /// Follows the fetch of a block, or leads it. `None` when it cannot be asked for.
    fn fetch(self: &Arc<Self>, number: u64) -> Option<FillReader> {
        self.request.as_ref()?;
        let FillHandle { reader, leads } = self.join(number)?;
        if leads {
            self.origin.clone().fetch(self.clone(), number, reader.fill().clone());
        }
        Some(reader)
    }

    /// Blocks are purged with their object: only a fetch that began before a purge is not followed.
    fn join(&self, number: u64) -> Option<FillHandle> {
        let BlockTiers { fills, purges, .. } = &*self.tiers;
        let pending = purges.begin();
        let begun = (Label::new(self.site.id, pending.born()), pending.begun());
        let may_follow = |label: &Label, begun| purges.may_follow(label, begun, &self.identity);
        fills.join(self.block_key(number), &self.identity, begun, may_follow)
    }

    /// Begins to fetch the blocks after `number` before they are read, up to byte `end`.
    fn read_ahead(self: &Arc<Self>, number: u64, end: u64) {
        let last = end.div_ceil(self.block).min(number + 1 + AHEAD);
        for next in number + 1..last {
            if !self.holds(next) {
                drop(self.fetch(next));
            }
        }
    }
}

/// Turns the fields of a 206 into those that the 200 would have had, for an object that is kept as
/// a whole.
pub(crate) fn as_whole(headers: &mut HeaderMap, length: u64) {
    headers.remove(header::CONTENT_RANGE);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
}
