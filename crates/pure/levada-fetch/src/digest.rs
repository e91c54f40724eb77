//! The digest of a file, as a client that knows it names it: `sha-256=` or `md5=` and hexadecimal
//! digits.
//!
//! Cosync compares files by MD5 (WORLDS'04, Sec. 4); it is read for that reason, and is no proof of
//! anything.

use std::fmt;

/// How a digest is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// SHA-256.
    Sha256,
    /// MD5, as in the paper.
    Md5,
}

impl Algorithm {
    /// Its name in the registry of RFC 9530.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "sha-256",
            Self::Md5 => "md5",
        }
    }

    /// Bytes of a digest.
    pub const fn size(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Md5 => 16,
        }
    }
}

/// A file's digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    /// As long as the algorithm says.
    bytes: [u8; 32],
}

impl Digest {
    /// Reads `sha-256=<64 hexadecimal digits>` or `md5=<32>`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, hex) = text.trim().split_once('=')?;
        let algorithm = [Algorithm::Sha256, Algorithm::Md5]
            .into_iter()
            .find(|algorithm| name.eq_ignore_ascii_case(algorithm.as_str()))?;
        Self::from_hex(algorithm, &hex.to_ascii_lowercase())
    }

    /// Reads lower-case hexadecimal digits, as many as the algorithm has.
    pub fn from_hex(algorithm: Algorithm, hex: &str) -> Option<Self> {
        let digits = hex.as_bytes();
        if digits.len() != 2 * algorithm.size() {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self { algorithm, bytes })
    }

    /// How it was made.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.size()]
    }

    /// Its bytes in hexadecimal.
    pub fn hex(&self) -> String {
        self.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.algorithm.as_str(), self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_and_written_alike() {
        let texts = [format!("sha-256={}", "0a".repeat(32)), format!("md5={}", "ff".repeat(16))];
        for text in texts {
            assert_eq!(Digest::parse(&text).unwrap().to_string(), text);
        }
        let upper = format!(" SHA-256={} ", "AB".repeat(32));
        assert_eq!(Digest::parse(&upper).unwrap().bytes(), [0xab; 32]);
    }

    #[test]
    fn what_is_no_digest_is_refused() {
        let long = "0".repeat(66);
        for text in ["", "sha-256", "sha-256=", "md5=00", "sha-1=00", &format!("sha-256={long}")] {
            assert_eq!(Digest::parse(text), None, "{text}");
        }
        assert_eq!(Digest::parse(&format!("md5={}", "0g".repeat(16))), None);
    }
}
