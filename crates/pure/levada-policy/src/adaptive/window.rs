//! The window over which requests are counted. Counts halve at the end of each epoch of half a
//! window, so that popularity follows demand.
//!
//! Shares are relative to all requests, so all shards of a policy have one window. A shard counts
//! some requests by itself, its turn, and then adds them to the window and reads what the others
//! have counted. So threads rarely write the same memory, and a shard lacks no more than one turn of
//! each other shard. A single shard takes a whole epoch as its turn.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Described at the top of this file.
#[derive(Debug)]
pub(super) struct Window {
    /// The counts as this shard knows them; `left` is the rest of its turn.
    known: Counts,
    turn: u32,
    longest_turn: u32,
    shared: Arc<Mutex<Counts>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    epoch: u16,
    // Requests until the epoch ends.
    left: u32,
    requests: u32,
}

impl Window {
    /// The window of one of `shards` shards, which have to be joined.
    pub(super) fn new(shards: u32) -> Self {
        let longest_turn = if shards > 1 { TURN } else { MOST };
        Self { known: Counts::default(), turn: 0, longest_turn, shared: Arc::default() }
    }

    /// Counts together with `first`.
    pub(super) fn join(&mut self, first: &Self) {
        self.shared = first.shared.clone();
    }

    /// Goes on with the counts of `former`, another window.
    pub(super) fn inherit(&mut self, former: &Self) {
        let counts = *lock(&former.shared);
        *lock(&self.shared) = counts;
        (self.known, self.turn) = (Counts { left: 0, ..counts }, 0);
    }

    /// Counts one request over a cluster of `nodes` nodes, up or down.
    #[inline]
    pub(super) fn count(&mut self, nodes: usize) {
        if self.known.left == 0 {
            self.begin_turn(nodes);
        }
        self.known.left -= 1;
        self.known.requests += 1;
    }

    /// Adds the turn that is over to the counts of all shards.
    #[inline(never)]
    fn begin_turn(&mut self, nodes: usize) {
        let mut counts = lock(&self.shared);
        counts.requests += self.turn;
        counts.left = counts.left.saturating_sub(self.turn);
        if counts.left == 0 {
            counts.epoch = counts.epoch.wrapping_add(1);
            counts.requests /= 2;
            counts.left = epoch_length(nodes);
        }
        self.turn = counts.left.min(self.longest_turn);
        self.known = Counts { left: self.turn, ..*counts };
    }

    /// The current epoch, modulo 2^16.
    #[inline]
    pub(super) fn epoch(&self) -> u16 {
        self.known.epoch
    }

    /// The share of an object in all requests of the window.
    pub(super) fn share(&self, count: u16) -> f64 {
        f64::from(count) / f64::from(self.known.requests.max(1))
    }

    /// Whether an object with this count has a share of at least 1/(32 n).
    #[inline]
    pub(super) fn is_hot(&self, count: u16, nodes: usize) -> bool {
        u64::from(count) * HOT_PER_NODE * nodes as u64 >= u64::from(self.known.requests)
    }
}

/// A copy counts by itself.
impl Clone for Window {
    fn clone(&self) -> Self {
        Self { shared: Arc::new(Mutex::new(*lock(&self.shared))), ..*self }
    }
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Half a window. A window holds at least 16 requests for each hot object.
fn epoch_length(nodes: usize) -> u32 {
    (nodes as u32).saturating_mul(16 * HOT_PER_NODE as u32 / 2).clamp(LEAST / 2, MOST / 2)
}

/// The most hot objects, per node.
const HOT_PER_NODE: u64 = 32;

/// The least and the most requests in a window.
const LEAST: u32 = 32_768;
const MOST: u32 = 1 << 30;

/// The longest turn of one of several shards: with 16 of them, turns that others have not added yet
/// are about 1 % of the least window.
const TURN: u32 = 32;
