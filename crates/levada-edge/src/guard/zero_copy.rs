//! Large parts of bodies on their way to a client, each by as few calls of the system as there can be.
//!
//! ```text
//!   body ──── parcel ────────────> Parcels ──┐
//!     └──── stand-in ──> hyper ──> Guarded ──┴─ sendfile, writev, splice ──> socket
//! ```
//!
//! hyper writes bytes that it is given, a few pieces at a time. So a body that is in a file, in memory in
//! many segments, or in a pipe that a server's answer goes through, hands in a parcel, and gives hyper as
//! many bytes of a region that nobody else uses: they are known by where they lie, and never read. For them
//! the guard sends the parcel: the system takes it from the file or the pipe by itself, or all segments at
//! once. Parcels leave in the order in which they came. What does not fit together ends the connection: the
//! stand-in's own bytes must never reach a client.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use levada_net::pipe::Pipe;
use levada_store::{Loan, disk::FileBody};
use parking_lot::Mutex;

/// The longest parcel.
pub(crate) const LONGEST: usize = 1 << 20;

/// What stands-in are cut from. The system gives it no memory as long as nobody reads it.
static REGION: LazyLock<Box<[u8]>> = LazyLock::new(|| vec![0; LONGEST].into_boxed_slice());

/// The parcels of one connection.
#[derive(Debug, Default)]
pub(crate) struct ZeroCopyQueue(Mutex<VecDeque<QueuedChunk>>);

/// What parcels are parts of.
#[derive(Clone, Debug)]
pub(crate) enum ZeroCopyChunk {
    File(Arc<FileBody>),
    Memory(Segments),
    /// What is in it leaves in the order in which it came.
    Pipe(Arc<Pipe>),
}

/// The segments of a body in memory.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    pub(crate) segments: Arc<[Bytes]>,
    /// Held as long as they are, where they need one.
    pub(crate) _loan: Option<Arc<Loan>>,
}

#[derive(Debug)]
struct QueuedChunk {
    chunk: ZeroCopyChunk,
    /// The first byte of them that is still to be sent.
    at: u64,
    length: usize,
    sent: usize,
}

impl ZeroCopyChunk {
    fn length(&self) -> u64 {
        match self {
            Self::File(stretch) => stretch.length(),
            Self::Memory(body) => body.segments.iter().map(|segment| segment.len() as u64).sum(),
            Self::Pipe(pipe) => pipe.held() as u64,
        }
    }
}

impl ZeroCopyQueue {
    /// Hands in what there is from `at` on, at most so much of it, and gives what stands in for it.
    /// `None` at the end of the goods.
    pub(crate) fn hand_in(&self, chunk: &ZeroCopyChunk, at: u64, most: u64) -> Option<Bytes> {
        let left = chunk.length().saturating_sub(at).min(most);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(LONGEST);
        if length == 0 {
            return None;
        }
        let chunk = QueuedChunk { chunk: chunk.clone(), at, length, sent: 0 };
        self.0.lock().push_back(chunk);
        let region: &'static [u8] = &REGION;
        Some(Bytes::from_static(&region[..length]))
    }

    /// What `stand_in` stands for, from where on.
    pub(super) fn due(&self, stand_in: &[u8]) -> io::Result<(ZeroCopyChunk, u64)> {
        let zero_copy = self.0.lock();
        let first = zero_copy.front().filter(|chunk| {
            offset(stand_in) == Some(chunk.sent) && stand_in.len() <= chunk.length - chunk.sent
        });
        let first =
            first.ok_or_else(|| io::Error::other("a zero-copy chunk is not where it should be"))?;
        Ok((first.chunk.clone(), first.at))
    }

    /// So many bytes of the first parcel were sent.
    pub(super) fn sent(&self, count: usize) {
        let mut zero_copy = self.0.lock();
        if let Some(first) = zero_copy.front_mut() {
            first.sent += count;
            first.at += count as u64;
            if first.sent >= first.length {
                zero_copy.pop_front();
            }
        }
    }
}

/// The bytes of segments from `at` on, so many of them.
pub(super) fn parts(segments: &[Bytes], at: u64, length: usize) -> impl Iterator<Item = &[u8]> {
    let (mut skipped, mut left) = (usize::try_from(at).unwrap_or(usize::MAX), length);
    segments.iter().filter_map(move |segment| {
        let from = skipped.min(segment.len());
        let to = from + left.min(segment.len() - from);
        (skipped, left) = (skipped - from, left - (to - from));
        (from < to).then(|| &segment[from..to])
    })
}

/// Whether these bytes stand in for others.
pub(super) fn stands_in(bytes: &[u8]) -> bool {
    !bytes.is_empty() && offset(bytes).is_some()
}

/// Where in the region bytes lie, if they do.
fn offset(bytes: &[u8]) -> Option<usize> {
    let offset = bytes.as_ptr().addr().wrapping_sub(REGION.as_ptr().addr());
    (offset < LONGEST).then_some(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(length: u64) -> ZeroCopyChunk {
        ZeroCopyChunk::File(Arc::new(FileBody::of(tempfile::tempfile().unwrap(), 0, length)))
    }

    #[test]
    fn stand_ins_are_known_by_where_they_lie() {
        let zero_copy = ZeroCopyQueue::default();
        let stand_in = zero_copy.hand_in(&chunk(10), 3, u64::MAX).unwrap();
        assert_eq!(stand_in.len(), 7);
        assert!(stands_in(&stand_in) && stands_in(&stand_in[6..]) && !stands_in(&[0; 7]));
        assert!(!stands_in(&stand_in[7..]), "nothing stands in for nothing");
        assert_eq!(zero_copy.hand_in(&chunk(10), 10, 5), None);
    }

    #[test]
    fn segments_are_written_from_where_the_last_write_ended() {
        let segments = [&b"abc"[..], b"defg", b"h"].map(Bytes::from_static);
        let written = |at, length| parts(&segments, at, length).collect::<Vec<_>>();
        assert_eq!(written(0, 8), [&b"abc"[..], b"defg", b"h"]);
        assert_eq!(written(2, 4), [&b"c"[..], b"def"]);
        assert_eq!(written(3, 1), [b"d"]);
        assert_eq!(written(7, 9), [b"h"]);
        assert!(written(8, 1).is_empty() && written(3, 0).is_empty());
    }

    #[test]
    fn zero_copy_chunks_leave_in_order_and_nothing_else_does() {
        let zero_copy = ZeroCopyQueue::default();
        let first = zero_copy.hand_in(&chunk(10), 0, 6).unwrap();
        let second = zero_copy.hand_in(&chunk(20), 5, u64::MAX).unwrap();
        assert!(zero_copy.due(&first[1..]).is_err());
        // In pieces, as a pace would have it.
        assert_eq!(zero_copy.due(&first[..2]).unwrap().1, 0);
        zero_copy.sent(2);
        assert!(zero_copy.due(&second).is_err(), "the first has not been sent");
        assert_eq!(zero_copy.due(&first[2..]).unwrap().1, 2);
        zero_copy.sent(4);
        assert_eq!(zero_copy.due(&second).unwrap().1, 5);
        zero_copy.sent(15);
        assert!(zero_copy.due(&second).is_err(), "all have been sent");
    }
}
