//! The digest of a file that arrives in pieces.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use levada_fetch::{Algorithm, Digest};
use md5::Digest as _;

/// Computes digests of a file. Bytes that arrive in order are digested at once; all others are read
/// from the file at the end.
pub struct Hasher {
    at: u64,
    contexts: Vec<DigestContext>,
}

enum DigestContext {
    Sha256(ring::digest::Context),
    Md5(md5::Md5),
}

impl Hasher {
    /// For these algorithms; without any it does nothing.
    pub fn new(algorithms: &[Algorithm]) -> Self {
        let mut hasher = Self { at: 0, contexts: Vec::new() };
        for &algorithm in algorithms {
            hasher.add(algorithm);
        }
        hasher
    }

    /// Whether there are no digests to compute.
    pub fn is_idle(&self) -> bool {
        self.contexts.is_empty()
    }

    /// Adds an algorithm and starts all of them again at the first byte.
    pub fn add(&mut self, algorithm: Algorithm) {
        if !self.contexts.iter().any(|context| context.algorithm() == algorithm) {
            self.reset();
            self.contexts.push(DigestContext::new(algorithm));
        }
    }

    /// Starts again at the first byte.
    pub fn reset(&mut self) {
        self.at = 0;
        for context in &mut self.contexts {
            *context = DigestContext::new(context.algorithm());
        }
    }

    /// Call this before the bytes from `offset` on change.
    pub fn rewind(&mut self, offset: u64) {
        if offset < self.at {
            self.reset();
        }
    }

    /// Digests `bytes` if they are the next ones.
    pub fn offer(&mut self, offset: u64, bytes: &[u8]) {
        if offset == self.at && !self.contexts.is_empty() {
            self.update(bytes);
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.at += bytes.len() as u64;
        self.contexts.iter_mut().for_each(|context| context.update(bytes));
    }

    /// Reads the missing bytes of the first `length` bytes of `file`, and returns the digests.
    ///
    /// # Errors
    /// When the file cannot be read or is shorter.
    pub fn finish(mut self, file: &File, length: u64) -> io::Result<Vec<Digest>> {
        let mut buffer = vec![0; if self.at < length { READ } else { 0 }];
        while self.at < length {
            let most = usize::try_from(length - self.at).unwrap_or(READ).min(READ);
            let read = file.read_at(&mut buffer[..most], self.at)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (bytes, _) = buffer.split_at(read);
            self.update(bytes);
        }
        Ok(self.contexts.into_iter().filter_map(DigestContext::finish).collect())
    }
}

impl DigestContext {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(ring::digest::Context::new(&ring::digest::SHA256)),
            Algorithm::Md5 => Self::Md5(md5::Md5::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(context) => context.update(bytes),
            Self::Md5(context) => context.update(bytes),
        }
    }

    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Sha256(_) => Algorithm::Sha256,
            Self::Md5(_) => Algorithm::Md5,
        }
    }

    fn finish(self) -> Option<Digest> {
        let algorithm = self.algorithm();
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let hex = match self {
            Self::Sha256(context) => hex(context.finish().as_ref()),
            Self::Md5(context) => hex(&context.finalize()),
        };
        Digest::from_hex(algorithm, &hex)
    }
}

/// The digest of bytes in memory.
pub(crate) fn digest_of(algorithm: Algorithm, bytes: &[u8]) -> Option<Digest> {
    let mut context = DigestContext::new(algorithm);
    context.update(bytes);
    context.finish()
}

/// The SHA-256 of a `Repr-Digest` (RFC 9530, Sec. 3). Other algorithms are ignored.
pub(crate) fn repr_digest(value: &str) -> Option<Digest> {
    let members = value.split(',').filter_map(|member| member.trim().split_once('='));
    let (_, bytes) = members.into_iter().find(|(name, _)| *name == "sha-256")?;
    let bytes = bytes.split(';').next()?.trim().strip_prefix(':')?.strip_suffix(':')?;
    let bytes = BASE64_STANDARD.decode(bytes).ok()?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Digest::from_hex(Algorithm::Sha256, &hex)
}

/// The size of a read.
const READ: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const ABC: &str = "sha-256=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn what_did_not_come_in_order_is_read_at_the_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        for offers in [&[(0, "abc")][..], &[(1, "bc"), (0, "a")], &[]] {
            let mut hasher = Hasher::new(&[Algorithm::Sha256, Algorithm::Md5]);
            for (at, text) in offers {
                hasher.offer(*at, text.as_bytes());
            }
            let digests = hasher.finish(&file, 3).unwrap();
            assert_eq!(digests[0].to_string(), ABC);
            assert_eq!(digests[1].to_string(), "md5=900150983cd24fb0d6963f7d28e17f72");
        }
        assert!(Hasher::new(&[Algorithm::Md5]).finish(&file, 4).is_err());
    }

    #[test]
    fn a_repr_digest_is_read() {
        let value = "sha-512=:AAAA:, sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:";
        assert_eq!(repr_digest(value).unwrap().to_string(), ABC);
        for wrong in ["", "sha-256=abc", "sha-256=:!:", "sha-256=:AAAA:"] {
            assert_eq!(repr_digest(wrong), None, "{wrong}");
        }
    }
}
