//! Signatures (RFC 4034 Sec. 3), and those that are kept: to sign takes 20 times as long as all the rest of an answer.

use std::collections::HashMap;

use parking_lot::Mutex;
use ring::{
    digest::{SHA256, digest},
    rand::SystemRandom,
};

use super::{ALGORITHM, Allowance, ZoneKeys, keys::Key};
use crate::wire::{Records, name::labels};

/// Signatures begin a day before the day in which they are made, for clocks that are behind,
const DAY: u64 = 86_400;
/// and are valid for eight days. They stay the same for a day.
const VALID: u64 = 8 * DAY;

/// Signatures that were made, by the digest of what they sign.
pub struct Signatures {
    shards: Box<[Mutex<Shard>]>,
}

/// Two generations of them: the older one goes when the younger one is full.
#[derive(Default)]
struct Shard {
    young: HashMap<[u8; 32], [u8; 64]>,
    old: HashMap<[u8; 32], [u8; 64]>,
}

const SHARDS: usize = 16;
/// Signatures of one generation in a shard: with all shards and generations about 4 MB.
const GENERATION: usize = 1024;

impl Default for Signatures {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl Signatures {
    fn get(&self, digest: &[u8; 32]) -> Option<[u8; 64]> {
        let mut shard = self.shards[usize::from(digest[0]) % SHARDS].lock();
        if let Some(known) = shard.young.get(digest) {
            return Some(*known);
        }
        let known = shard.old.remove(digest)?;
        shard.put(*digest, known);
        Some(known)
    }

    fn put(&self, digest: [u8; 32], signature: [u8; 64]) {
        self.shards[usize::from(digest[0]) % SHARDS].lock().put(digest, signature);
    }
}

impl Shard {
    fn put(&mut self, digest: [u8; 32], signature: [u8; 64]) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest, signature);
    }
}

impl ZoneKeys {
    /// The data of the RRSIG records for records of an owner: one for each key. `now` is in seconds since 1970. Returns
    /// whether all of them are there: an `allowance` may be used up.
    pub fn sign(
        &self,
        (owner, apex): (&[u8], &[u8]),
        (of, ttl, records): (u16, u32, &Records),
        (now, allowance): (u64, Option<Allowance<'_>>),
        mut with: impl FnMut(&[u8]),
    ) -> bool {
        let begin = (now / DAY).saturating_sub(1) * DAY;
        let times = [begin + VALID, begin].map(|time| (time as u32).to_be_bytes());
        let count = labels(owner).filter(|label| *label != b"*").count() as u8;
        let body = canonical(owner, of, ttl, records);
        let mut text = Vec::with_capacity(64 + apex.len() + body.len());
        for key in &self.keys {
            text.clear();
            text.extend_from_slice(&of.to_be_bytes());
            text.extend_from_slice(&[ALGORITHM, count]);
            text.extend_from_slice(&ttl.to_be_bytes());
            text.extend_from_slice(times.as_flattened());
            text.extend_from_slice(&key.tag.to_be_bytes());
            text.extend_from_slice(apex);
            let head = text.len();
            text.extend_from_slice(&body);
            let Some(signature) = self.signature(key, &text, allowance) else { return false };
            text.truncate(head);
            text.extend_from_slice(&signature);
            with(&text);
        }
        true
    }

    fn signature(
        &self,
        key: &Key,
        text: &[u8],
        allowance: Option<Allowance<'_>>,
    ) -> Option<[u8; 64]> {
        let digest = <[u8; 32]>::try_from(digest(&SHA256, text).as_ref()).ok()?;
        if let Some(known) = self.signatures.get(&digest) {
            return Some(known);
        }
        if allowance.is_some_and(|allowance| !allowance.take()) {
            return None;
        }
        let made = key.pair.sign(&SystemRandom::new(), text).ok()?;
        let signature = <[u8; 64]>::try_from(made.as_ref()).ok()?;
        self.signatures.put(digest, signature);
        Some(signature)
    }
}

/// Records in canonical form and order (RFC 4034 Sec. 6).
fn canonical(owner: &[u8], of: u16, ttl: u32, records: &Records) -> Vec<u8> {
    let mut sorted: Vec<_> = records.iter().collect();
    sorted.sort_unstable();
    let mut body = Vec::new();
    for data in sorted {
        body.extend_from_slice(owner);
        body.extend_from_slice(&of.to_be_bytes());
        body.extend_from_slice(&[0, 1]);
        body.extend_from_slice(&ttl.to_be_bytes());
        body.extend_from_slice(&(data.len() as u16).to_be_bytes());
        body.extend_from_slice(data);
    }
    body
}
