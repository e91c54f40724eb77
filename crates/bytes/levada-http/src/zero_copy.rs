//! Large parts of bodies on their way to a client, each by as few system calls as possible.
//!
//! ```text
//!   body ──── chunk ───────────> ZeroCopyQueue ──┐
//!     └──── stand-in ──> SendQueue ── Wire ──────┴─ sendfile, writev, splice ──> socket
//! ```
//!
//! A body may be in a file, in many segments of memory, or in a pipe from a server's socket. Such a body
//! queues a chunk, and its frame is a stand-in: as many bytes of a region that has no other use. The
//! connection knows a stand-in by its address and never reads it. In its place it sends the chunk: the
//! system takes it from the file or the pipe by itself, or takes all segments at once. Chunks leave in the
//! order in which they were queued. A stand-in that does not match the first chunk ends the connection:
//! its own bytes must never reach a client.

use std::{
    any::Any,
    collections::VecDeque,
    fs::File,
    io,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use levada_net::pipe::Pipe;
use parking_lot::Mutex;

/// The longest chunk.
pub(crate) const LONGEST: usize = 1 << 20;

/// All stand-ins are parts of it. The system gives it no memory as long as it is not read.
static REGION: LazyLock<Box<[u8]>> = LazyLock::new(|| vec![0; LONGEST].into_boxed_slice());

/// The chunks that one connection is about to send.
#[derive(Debug, Default)]
pub struct ZeroCopyQueue(Mutex<VecDeque<QueuedChunk>>);

/// A source of bytes that the system can send by itself.
#[derive(Clone, Debug)]
pub enum ZeroCopyChunk {
    /// A part of a file.
    File(FileRange),
    /// Segments of memory.
    Memory(Segments),
    /// A pipe. Its bytes leave in the order in which they came.
    Pipe(PipedBytes),
}

/// The bytes in a pipe.
#[derive(Clone, Debug)]
pub struct PipedBytes {
    pub(crate) pipe: Arc<Pipe>,
    /// Whether the body ends with them.
    pub(crate) is_last: bool,
}

/// A guard that is dropped when the bytes it accounts for are no longer needed.
pub type Hold = Arc<dyn Any + Send + Sync>;

/// A part of a file.
#[derive(Clone, Debug)]
pub struct FileRange {
    file: Arc<File>,
    start: u64,
    length: u64,
    _hold: Option<Hold>,
}

/// The segments of a body in memory.
#[derive(Clone, Debug)]
pub struct Segments {
    pub(crate) segments: Arc<[Bytes]>,
    _hold: Option<Hold>,
}

#[derive(Debug)]
struct QueuedChunk {
    chunk: ZeroCopyChunk,
    /// The position in the chunk of the first byte that is still to be sent.
    at: u64,
    length: usize,
    sent: usize,
}

impl FileRange {
    /// `length` bytes of a file from `start` on.
    pub fn new(file: Arc<File>, start: u64, length: u64, hold: Option<Hold>) -> Self {
        Self { file, start, length, _hold: hold }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The position in the file where the part begins.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    fn length(&self) -> u64 {
        self.length
    }
}

impl Segments {
    /// A body in memory.
    pub fn new(segments: Arc<[Bytes]>, hold: Option<Hold>) -> Self {
        Self { segments, _hold: hold }
    }
}

impl ZeroCopyChunk {
    fn length(&self) -> u64 {
        match self {
            Self::File(range) => range.length(),
            Self::Memory(body) => body.segments.iter().map(|segment| segment.len() as u64).sum(),
            Self::Pipe(piped) => piped.pipe.held() as u64,
        }
    }
}

impl ZeroCopyQueue {
    /// Queues the chunk's bytes from `at` on, `most` of them at most, and returns their stand-in. `None`
    /// at the end of the chunk.
    pub fn hand_in(&self, chunk: &ZeroCopyChunk, at: u64, most: u64) -> Option<Bytes> {
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

    /// The chunk that `stand_in` stands for, and the position in it.
    pub(crate) fn due(&self, stand_in: &[u8]) -> io::Result<(ZeroCopyChunk, u64)> {
        let queued = self.0.lock();
        let first = queued.front().filter(|chunk| {
            offset(stand_in) == Some(chunk.sent) && stand_in.len() <= chunk.length - chunk.sent
        });
        let first =
            first.ok_or_else(|| io::Error::other("a zero-copy chunk is not where it should be"))?;
        Ok((first.chunk.clone(), first.at))
    }

    /// Notes that `count` bytes of the first chunk were sent.
    pub(crate) fn sent(&self, count: usize) {
        let mut queued = self.0.lock();
        if let Some(first) = queued.front_mut() {
            first.sent += count;
            first.at += count as u64;
            if first.sent >= first.length {
                queued.pop_front();
            }
        }
    }
}

/// `length` bytes of segments from `at` on.
pub(crate) fn parts(segments: &[Bytes], at: u64, length: usize) -> impl Iterator<Item = &[u8]> {
    let (mut skipped, mut left) = (usize::try_from(at).unwrap_or(usize::MAX), length);
    segments.iter().filter_map(move |segment| {
        let from = skipped.min(segment.len());
        let to = from + left.min(segment.len() - from);
        (skipped, left) = (skipped - from, left - (to - from));
        (from < to).then(|| &segment[from..to])
    })
}

/// Whether these bytes are a stand-in.
pub(crate) fn stands_in(bytes: &[u8]) -> bool {
    !bytes.is_empty() && offset(bytes).is_some()
}

/// The position of bytes in the region, if they lie there.
fn offset(bytes: &[u8]) -> Option<usize> {
    let offset = bytes.as_ptr().addr().wrapping_sub(REGION.as_ptr().addr());
    (offset < LONGEST).then_some(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(length: u64) -> ZeroCopyChunk {
        let file = Arc::new(tempfile::tempfile().unwrap());
        ZeroCopyChunk::File(FileRange::new(file, 0, length, None))
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
