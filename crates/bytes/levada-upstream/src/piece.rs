//! A piece of a large file that is asked for.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use http::HeaderValue;
use levada_fetch::{Choice, ChunkUrl};

use crate::WaitNotices;

/// Ends the field of a request for a piece that may be relayed.
const RELAY: &str = ";relay";

/// A requested piece of a file.
#[derive(Debug)]
pub struct Piece {
    /// Its URL.
    pub url: ChunkUrl,
    /// The slots of nodes that must not be used as its source.
    pub avoided: Vec<usize>,
    /// A node that lacks it may relay it from the node that the policy chooses.
    pub may_relay: bool,
    /// How many pieces the client takes before it.
    pub ahead: u32,
    /// That it waits for its turn at the origin.
    pub notices: Arc<WaitNotices>,
    /// The slot of the node that the request was sent to.
    source: AtomicUsize,
    /// Bytes received so far.
    received: AtomicU64,
}

impl Piece {
    /// A piece that comes after `ahead` others of its file.
    pub fn new(url: ChunkUrl, choice: &Choice, ahead: u32, me: usize) -> Arc<Self> {
        let (source, received) = (AtomicUsize::new(me), AtomicU64::new(0));
        let avoided: Vec<_> = choice.tried.iter().chain(&choice.behind).copied().collect();
        let (may_relay, notices) = (choice.may_relay, Arc::default());
        Arc::new(Self { url, avoided, may_relay, ahead, notices, source, received })
    }

    /// Splits the target of a peer's request for a piece.
    pub fn split<'t>(target: &'t str, wanted: &HeaderValue) -> Option<(&'t str, Arc<Self>)> {
        let (file, url) = ChunkUrl::split(target)?;
        let wanted = wanted.to_str().unwrap_or_default();
        let choice = Choice { may_relay: wanted.ends_with(RELAY), ..Choice::default() };
        // Earlier versions do not say how far ahead it is.
        let ahead = wanted.trim_end_matches(RELAY).parse().unwrap_or_default();
        Some((file, Self::new(url, &choice, ahead, 0)))
    }

    /// How a peer is asked for it.
    pub fn wanted(&self) -> HeaderValue {
        let relay = if self.may_relay && !self.avoided.is_empty() { RELAY } else { "" };
        HeaderValue::try_from(format!("{}{relay}", self.ahead)).unwrap_or(HeaderValue::from(0))
    }

    /// Notes the slot of the node that the request is sent to.
    pub fn set_source(&self, slot: usize) {
        self.source.store(slot, Relaxed);
    }

    /// The slot of that node.
    pub fn source(&self) -> usize {
        self.source.load(Relaxed)
    }

    /// Notes the bytes received so far.
    pub fn set_received(&self, bytes: u64) {
        self.received.store(bytes, Relaxed);
    }

    /// The bytes received so far.
    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Bytes in it.
    pub fn bytes(&self) -> u64 {
        self.url.range.end - self.url.range.start
    }
}
