//! A body that is asked for once more, for one reader whose block is nowhere any longer.
//!
//! ```text
//!   bytes of the source:  0 ─────── from ─────────── to ────────> end
//!                           skipped      compared        handed out
//! ```
//!
//! The bytes `from..to` are those that the reader has handed out. A strong validator says that the
//! source sends the same ones. Without one they are compared by a digest under a secret seed: if they
//! are the same, the client gets one version of the body, from its first byte to its last.

use std::{
    future::Future,
    hash::{BuildHasher, RandomState},
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use xxhash_rust::xxh3::Xxh3;

use crate::ReadError;

/// The bytes of a body from its first one on.
pub type BodyAgain =
    Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<Bytes, ReadError>>> + Send>;

/// A body that has been asked for again.
pub type AskedAgain = Pin<Box<dyn Future<Output = Result<BodyAgain, ReadError>> + Send>>;

/// How often one reader may ask again: each time costs the origin a whole body.
const TRIES: u8 = 3;

/// The bytes that a reader has handed out, and how often it has asked again.
#[derive(Default)]
pub(crate) struct Delivered {
    /// `None` before the first byte.
    span: Option<Range<u64>>,
    digest: Option<Box<Xxh3>>,
    seed: u64,
    /// It was read in several ranges, and only the last one is known.
    torn: bool,
    tries: u8,
}

impl Delivered {
    /// Notes a piece of a body that no validator identifies.
    pub(crate) fn note(&mut self, position: u64, piece: &[u8]) {
        let end = position + piece.len() as u64;
        let goes_on = self.span.as_ref().is_none_or(|span| span.end == position);
        let start = self.span.as_ref().filter(|_| goes_on).map_or(position, |span| span.start);
        self.torn |= !goes_on;
        self.span = Some(start..end);
        if self.digest.is_none() {
            self.seed = RandomState::new().hash_one(end);
        }
        let digest = self.digest.take().filter(|_| goes_on);
        let digest = digest.unwrap_or_else(|| Box::new(Xxh3::with_seed(self.seed)));
        self.digest.insert(digest).update(piece);
    }

    /// The check of a body that is asked for again to be read from `position` on; `None` when it is not to be
    /// asked for.
    pub(crate) fn check(&mut self, position: u64, is_identified: bool) -> Option<Check> {
        let span = self.span.clone().unwrap_or(position..position);
        let known = is_identified || (span.end == position && !self.torn);
        if !known || self.tries == TRIES {
            return None;
        }
        self.tries += 1;
        let expected = self.digest.as_ref().map(|digest| digest.digest128());
        Some(Check { span, expected, digest: Xxh3::with_seed(self.seed) })
    }
}

/// Bytes that must be the same again.
pub(crate) struct Check {
    span: Range<u64>,
    expected: Option<u128>,
    digest: Xxh3,
}

impl Check {
    /// Takes the bytes at `start` along. False when they are others than before.
    fn passes(&mut self, start: u64, piece: &[u8]) -> bool {
        let Some(expected) = self.expected else { return true };
        let within = |position: u64| (position.max(start) - start).min(piece.len() as u64) as usize;
        self.digest.update(&piece[within(self.span.start)..within(self.span.end)]);
        if start + (piece.len() as u64) < self.span.end {
            return true;
        }
        self.expected = None;
        self.digest.digest128() == expected
    }
}

/// Reads a body that was asked for again.
pub(crate) struct AgainReader {
    source: Source,
    check: Box<Check>,
    /// Where the present piece starts, and what is left of it.
    position: u64,
    piece: Bytes,
}

enum Source {
    Asked(AskedAgain),
    Body(BodyAgain),
}

impl AgainReader {
    pub(crate) fn new(asked: AskedAgain, check: Check) -> Self {
        let (source, check) = (Source::Asked(asked), Box::new(check));
        Self { source, check, position: 0, piece: Bytes::new() }
    }

    /// The bytes at a position that is not before the last one.
    pub(crate) fn poll_at(
        &mut self,
        cx: &mut Context<'_>,
        position: u64,
    ) -> Poll<Option<Result<Bytes, ReadError>>> {
        loop {
            // The position lies behind what was read.
            let Some(ahead) = position.checked_sub(self.position) else {
                return Poll::Ready(Some(Err(ReadError::Gone)));
            };
            let skipped = ahead.min(self.piece.len() as u64);
            self.piece.advance(skipped as usize);
            self.position += skipped;
            if !self.piece.is_empty() {
                return Poll::Ready(Some(Ok(self.piece.clone())));
            }
            match &mut self.source {
                Source::Asked(asked) => match ready!(asked.as_mut().poll(cx)) {
                    Ok(body) => self.source = Source::Body(body),
                    Err(error) => return Poll::Ready(Some(Err(error))),
                },
                Source::Body(body) => match ready!(body(cx)) {
                    Some(Ok(piece)) if self.check.passes(self.position, &piece) => {
                        self.piece = piece;
                    }
                    Some(Ok(_)) => return Poll::Ready(Some(Err(ReadError::Gone))),
                    None if self.position == position => return Poll::Ready(None),
                    None => return Poll::Ready(Some(Err(ReadError::Broken))),
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                },
            }
        }
    }
}
