//! The memory that readers of long bodies hold outside the tiers.
//!
//! A connection keeps what it is given until its client takes it, and a block that is evicted
//! meanwhile lives on as long as somebody reads it. So that a thousand clients that read a byte per
//! second do not cost a thousand blocks, a reader takes a loan first: for the block, which all of its
//! readers share, or for what its connection may gather. When too much is lent it gets along with
//! neither: it hands out one small piece at a time, and finds the block again for the next.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use parking_lot::Mutex;

/// The most that a connection gathers before it writes, with some room for a last piece.
const GATHERED: u64 = 320 << 10;

/// The piece that is handed out without a loan, at most.
const SMALL: usize = 16 << 10;

/// All loans of a node.
#[derive(Debug)]
pub struct Loans {
    bytes: AtomicU64,
    bound: u64,
}

/// Bytes that may be held on to; given back when it drops.
#[derive(Debug)]
pub struct Loan {
    loans: Arc<Loans>,
    bytes: u64,
}

impl Loans {
    /// Loans of at most so many bytes together.
    pub fn new(bound: u64) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicU64::new(0), bound })
    }

    /// `None` when too much is lent already.
    pub fn take(self: &Arc<Self>, bytes: u64) -> Option<Arc<Loan>> {
        let within = |lent: u64| lent.checked_add(bytes).filter(|sum| *sum <= self.bound);
        self.bytes.fetch_update(Relaxed, Relaxed, within).ok()?;
        Some(Arc::new(Loan { loans: self.clone(), bytes }))
    }

    /// Whether a block more would be too much.
    pub fn are_short_of(&self, bytes: u64) -> bool {
        self.bytes() + bytes > self.bound
    }

    /// Bytes that are lent.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.loans.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

/// The loan for something that several may hold: one is enough for all of them.
#[derive(Default)]
pub struct SharedLoan(Mutex<Weak<Loan>>);

impl SharedLoan {
    /// The loan that others hold, or a new one; `None` when too much is lent already.
    pub fn take(&self, loans: &Arc<Loans>, bytes: u64) -> Option<Arc<Loan>> {
        let mut there = self.0.lock();
        there.upgrade().or_else(|| {
            let loan = loans.take(bytes)?;
            *there = Arc::downgrade(&loan);
            Some(loan)
        })
    }
}

impl std::fmt::Debug for SharedLoan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedLoan")
    }
}

/// The pieces that one reader has handed out.
pub struct HandedOut {
    loans: Arc<Loans>,
    /// For what the connection gathers.
    gathered: Option<Arc<Loan>>,
    small: Arc<SmallPiece>,
}

/// The small piece that is out.
#[derive(Default)]
struct SmallPiece(Mutex<Option<Option<Waker>>>);

impl HandedOut {
    /// A reader that has handed out nothing yet.
    pub fn new(loans: &Arc<Loans>) -> Self {
        Self { loans: loans.clone(), gathered: None, small: Arc::default() }
    }

    /// Ready when the next piece may be handed out.
    pub fn poll_back(&self, cx: &Context<'_>) -> Poll<()> {
        match &mut *self.small.0.lock() {
            None => Poll::Ready(()),
            Some(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// A piece for the connection: as it is, under the loan of what it is part of or under the reader's
    /// own, or a small copy, which holds on to nothing else.
    pub fn hand(&mut self, piece: Bytes, of: Option<&Arc<Loan>>) -> Bytes {
        if of.is_none() && self.gathered.is_none() {
            self.gathered = self.loans.take(GATHERED);
        }
        if let Some(loan) = of.or(self.gathered.as_ref()) {
            return Bytes::from_owner(LargePiece { piece, _loan: loan.clone() });
        }
        let piece = Bytes::copy_from_slice(&piece[..piece.len().min(SMALL)]);
        *self.small.0.lock() = Some(None);
        Bytes::from_owner(LoneSegment { piece, small: self.small.clone() })
    }
}

struct LargePiece {
    piece: Bytes,
    _loan: Arc<Loan>,
}

impl AsRef<[u8]> for LargePiece {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

struct LoneSegment {
    piece: Bytes,
    small: Arc<SmallPiece>,
}

impl AsRef<[u8]> for LoneSegment {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl Drop for LoneSegment {
    fn drop(&mut self) {
        self.piece = Bytes::new();
        let waiting = self.small.0.lock().take();
        if let Some(Some(waker)) = waiting {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn piece(len: usize) -> Bytes {
        vec![b'x'; len].into()
    }

    #[test]
    fn loans_stay_within_their_bound_and_come_back() {
        let loans = Loans::new(100);
        let first = loans.take(60).unwrap();
        assert!(loans.take(41).is_none());
        let second = loans.take(40).unwrap();
        assert_eq!(loans.bytes(), 100);
        drop((first, second));
        assert_eq!(loans.bytes(), 0);
        assert!(loans.take(u64::MAX).is_none());
    }

    #[test]
    fn one_loan_does_for_all_who_read_the_same() {
        let (loans, shared) = (Loans::new(100), SharedLoan::default());
        let both = (shared.take(&loans, 80).unwrap(), shared.take(&loans, 80).unwrap());
        assert_eq!(loans.bytes(), 80);
        drop(both.0);
        assert_eq!(loans.bytes(), 80);
        drop(both.1);
        assert_eq!(loans.bytes(), 0);
    }

    #[test]
    fn pieces_are_small_and_come_one_by_one_when_too_much_is_lent() {
        let loans = Loans::new(GATHERED);
        let cx = Context::from_waker(Waker::noop());
        let mut first = HandedOut::new(&loans);
        let large = first.hand(piece(200_000), None);
        assert_eq!((large.len(), loans.bytes()), (200_000, GATHERED));
        assert!(first.poll_back(&cx).is_ready());
        let mut second = HandedOut::new(&loans);
        let small = second.hand(piece(200_000), None);
        assert_eq!(small.len(), SMALL);
        assert!(second.poll_back(&cx).is_pending());
        // A reader that is gone leaves its loan with what its connection still has.
        drop(first);
        assert_eq!(loans.bytes(), GATHERED);
        drop(small);
        assert!(second.poll_back(&cx).is_ready());
        drop(large);
        assert_eq!(second.hand(piece(200_000), None).len(), 200_000);
    }
}
