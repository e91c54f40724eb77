//! Bytes of a head or line that is not complete. The reader gets them when it is.

use tokio::io::ReadBuf;

/// Empty, and without memory of its own, as long as heads arrive whole.
#[derive(Debug, Default)]
pub(super) struct HeldBytes {
    bytes: Vec<u8>,
    /// The number of bytes that may be read.
    ready: usize,
}

impl HeldBytes {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Lets the first `count` bytes be read.
    pub(super) fn release(&mut self, count: usize) {
        self.ready = count;
    }

    /// Drops the bytes that may not be read.
    pub(super) fn forget_rest(&mut self) {
        self.bytes.truncate(self.ready);
    }

    /// All the bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Copies the bytes that may be read, as many as fit. Returns false when there are none.
    pub(super) fn read(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let count = self.ready.min(buf.remaining());
        if count == 0 {
            return false;
        }
        buf.put_slice(&self.bytes[..count]);
        self.ready -= count;
        self.bytes.drain(..count);
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
        true
    }
}
