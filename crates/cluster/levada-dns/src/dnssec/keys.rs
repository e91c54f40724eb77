//! The keys of a zone. Each signs all of its records, as both a key- and a zone-signing key.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    digest::{SHA256, digest},
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};

use super::{ALGORITHM, Signatures};
use crate::wire::{Name, RecordSet, kind};

/// The keys of a zone.
pub struct ZoneKeys {
    pub(super) keys: Vec<Key>,
    pub(super) signatures: Arc<Signatures>,
}

pub(super) struct Key {
    pub(super) pair: EcdsaKeyPair,
    /// The data of its DNSKEY record.
    record: Vec<u8>,
    pub(super) tag: u16,
}

/// Why keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read {}: {why}; make a key: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out {0}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: std::io::Error,
    },
    /// The file has no key.
    #[error("{} has no PRIVATE KEY in PEM (PKCS #8)", .0.display())]
    NoKey(PathBuf),
    /// A key is of another kind, or damaged.
    #[error("{}: a key is no private key of the curve P-256: {why}", path.display())]
    Rejected {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: ring::error::KeyRejected,
    },
}

impl ZoneKeys {
    /// Reads the keys of a file in PEM: one, or several while a new one replaces an old one.
    ///
    /// # Errors
    /// When a key cannot be used.
    pub fn read(path: &Path, signatures: &Arc<Signatures>) -> Result<Self, KeyError> {
        let text = std::fs::read_to_string(path)
            .map_err(|why| KeyError::Unreadable { path: path.to_owned(), why })?;
        let keys = pem(&text).map(|der| Key::new(&der.unwrap_or_default()));
        let keys: Vec<_> = keys
            .collect::<Result<_, _>>()
            .map_err(|why| KeyError::Rejected { path: path.to_owned(), why })?;
        if keys.is_empty() {
            return Err(KeyError::NoKey(path.to_owned()));
        }
        Ok(Self { keys, signatures: signatures.clone() })
    }

    /// The records about the keys: DNSKEY, and for the zone above CDS and CDNSKEY.
    pub fn published(&self, apex: &Name, ttl: u32) -> [RecordSet; 3] {
        let mut sets =
            [kind::DNSKEY, kind::CDS, kind::CDNSKEY].map(|kind| RecordSet::new(kind, ttl));
        for key in &self.keys {
            let [keys, digests, keys_above] = &mut sets;
            keys.records.push(&key.record);
            keys_above.records.push(&key.record);
            digests.records.push(&key.digest(apex));
        }
        sets
    }
}

impl Key {
    fn new(der: &[u8]) -> Result<Self, ring::error::KeyRejected> {
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &SystemRandom::new())?;
        // Zone key and secure entry point (RFC 4034 Sec. 2.1), and the point without the byte for its form.
        let mut record = vec![1, 1, 3, ALGORITHM];
        record.extend_from_slice(&pair.public_key().as_ref()[1..]);
        let tag = tag(&record);
        Ok(Self { pair, record, tag })
    }

    /// The data of its DS record (RFC 4034 Sec. 5.1) with SHA-256.
    fn digest(&self, apex: &Name) -> Vec<u8> {
        let digest = digest(&SHA256, &[apex.wire(), &self.record].concat());
        let [high, low] = self.tag.to_be_bytes();
        [&[high, low, ALGORITHM, 2], digest.as_ref()].concat()
    }
}

/// RFC 4034 Appendix B.
fn tag(record: &[u8]) -> u16 {
    let pairs = record
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let sum: u32 = pairs.sum();
    (sum + (sum >> 16)) as u16
}

/// The private keys of a text; `None` for one that is no base64.
fn pem(text: &str) -> impl Iterator<Item = Option<Vec<u8>>> {
    let blocks = text.split("-----BEGIN PRIVATE KEY-----").skip(1);
    blocks.map(|block| {
        let body = block.split("-----END PRIVATE KEY-----").next()?;
        STANDARD.decode(body.split_ascii_whitespace().collect::<String>()).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_of_a_key_is_that_of_the_standard() {
        // RFC 6605 Sec. 6.1: the key of example.net has the tag 55648.
        let point = "GojIhhXUN/u4v54ZQqGSnyhWJwaubCvTmeexv7bR6edbkrSqQpF64cYbcB7wNcP+e+MAnLr+Wi9xMWyQLc8NAA==";
        let record = [&[1, 1, 3, ALGORITHM][..], &STANDARD.decode(point).unwrap()].concat();
        assert_eq!(tag(&record), 55648);
    }
}
