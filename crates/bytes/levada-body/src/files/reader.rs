//! The bytes of an open file on their way to a client.
//!
//! ```text
//!   short, or no zero copy ── preadv2 (RWF_NOWAIT) ── else a thread that may wait for the disk
//!   long, in the page cache ── ZeroCopyQueue: sendfile by the connection's guard
//!   the last bytes of a range ── read, once the others have left, and handed out if the file is unchanged
//! ```
//!
//! So a client never takes a mixture of two versions for a whole.

use std::{
    io,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
};

use crate::{ReadAt, ReadError};
use bytes::Bytes;
use futures_util::task::AtomicWaker;
use levada_http::{FileRange, ZeroCopyChunk, ZeroCopyQueue};
use levada_net::cached::are_cached;
use tokio::task::JoinHandle;

use crate::files::open::OpenFile;

/// Bytes that are read at once.
pub(crate) const PIECE: u64 = 64 << 10;

/// The last bytes of a range, which are read even where the system sends the others.
const TAIL: u64 = 4 << 10;

/// Bytes that the system may send before the page cache is looked at again.
const CHUNK: u64 = 1 << 20;

/// Reads an open file.
pub struct FileReader {
    file: OpenFile,
    queue: Option<Arc<ZeroCopyQueue>>,
    left: Arc<AtomicWaker>,
    /// Dead when all that was handed in was sent.
    unsent: Weak<Unsent>,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

/// Held by chunks that have not left.
struct Unsent(Arc<AtomicWaker>);

impl Drop for Unsent {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl FileReader {
    /// `queue`: that of the client's connection, if the system may send the bytes.
    pub(crate) fn new(file: OpenFile, queue: Option<Arc<ZeroCopyQueue>>) -> Self {
        let (left, unsent) = (Arc::new(AtomicWaker::new()), Weak::new());
        Self { file, queue, left, unsent, reading: None }
    }

    /// Has the system send bytes up to `end`, if it need not wait for them.
    fn hand_in(&mut self, position: u64, end: u64) -> Option<Bytes> {
        let queue = self.queue.as_ref()?;
        let length = CHUNK.min(end - position);
        if !is_in_memory(&self.file, position, length) {
            return None;
        }
        let unsent = Arc::new(Unsent(self.left.clone()));
        // Chunks leave in order: with the last one, all have left.
        self.unsent = Arc::downgrade(&unsent);
        let range = FileRange::new(self.file.file.clone(), position, length, Some(unsent));
        queue.hand_in(&ZeroCopyChunk::File(range), 0, length)
    }

    /// Waits until the bytes that the system sends have left.
    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.unsent.strong_count() == 0 {
            return Poll::Ready(());
        }
        self.left.register(cx.waker());
        if self.unsent.strong_count() == 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        position: u64,
        length: u64,
    ) -> Poll<io::Result<Bytes>> {
        if let Some(reading) = &mut self.reading {
            let read = ready!(std::pin::Pin::new(reading).poll(cx));
            self.reading = None;
            return Poll::Ready(read.unwrap_or_else(|error| Err(io::Error::other(error))));
        }
        match read_now(&self.file, position, length) {
            Ok(bytes) => Poll::Ready(Ok(bytes)),
            Err(_) => {
                let file = self.file.clone();
                let read = move || read(&file, position, length);
                self.reading = Some(tokio::task::spawn_blocking(read));
                self.poll_read(cx, position, length)
            }
        }
    }
}

impl ReadAt for FileReader {
    fn poll_at(
        &mut self,
        cx: &mut Context<'_>,
        position: u64,
        most: u64,
    ) -> Poll<Option<Result<Bytes, ReadError>>> {
        let is_reading = self.reading.is_some();
        if !is_reading
            && most > PIECE
            && let Some(stand_in) = self.hand_in(position, position + most - TAIL)
        {
            return Poll::Ready(Some(Ok(stand_in)));
        }
        ready!(self.poll_left(cx));
        let read = ready!(self.poll_read(cx, position, most.min(PIECE)));
        Poll::Ready(match read {
            Ok(bytes) if bytes.is_empty() => None,
            Ok(bytes) if bytes.len() as u64 == most && !self.file.is_unchanged() => {
                tracing::warn!("a file changed while it was sent: the response was cut");
                Some(Err(ReadError::Gone))
            }
            Ok(bytes) => Some(Ok(bytes)),
            Err(error) => Some(Err(ReadError::Failed(Arc::new(error)))),
        })
    }
}

/// The whole of a short file, of one version. An error where that would have to wait.
pub(crate) fn read_whole_now(file: &OpenFile) -> io::Result<Bytes> {
    checked(file, read_now(file, 0, file.state.size)?)
}

/// The same, which may wait.
pub(crate) fn read_whole(file: &OpenFile) -> io::Result<Bytes> {
    checked(file, read(file, 0, file.state.size)?)
}

fn checked(file: &OpenFile, bytes: Bytes) -> io::Result<Bytes> {
    match bytes.len() as u64 == file.state.size && file.is_unchanged() {
        true => Ok(bytes),
        false => Err(io::ErrorKind::Interrupted.into()),
    }
}

/// Reads what is in memory.
fn read_now(file: &OpenFile, position: u64, length: u64) -> io::Result<Bytes> {
    use rustix::io::{ReadWriteFlags, preadv2};
    if length == 0 {
        return Ok(Bytes::new());
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    let into = &mut [io::IoSliceMut::new(&mut bytes)];
    let read = preadv2(&file.file, into, position, ReadWriteFlags::NOWAIT)?;
    // A part: the rest may be on the disk.
    if read < bytes.len() && position + (read as u64) < file.state.size {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    bytes.truncate(read);
    Ok(bytes.into())
}

/// Whether a part of the file is in the page cache. The system tells owners only; for others a byte here and
/// there is looked at.
fn is_in_memory(file: &OpenFile, position: u64, length: u64) -> bool {
    const STRIDE: usize = 128 << 10;
    match are_cached(&file.file, position..position + length) {
        Ok(all) => all,
        Err(_) => (position..position + length)
            .step_by(STRIDE)
            .all(|at| read_now(file, at, 1).is_ok_and(|bytes| !bytes.is_empty())),
    }
}

/// Reads `length` bytes, fewer at the end of the file.
fn read(file: &OpenFile, position: u64, length: u64) -> io::Result<Bytes> {
    use std::os::unix::fs::FileExt as _;
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.file.read_at(&mut bytes[filled..], position + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes.into())
}
