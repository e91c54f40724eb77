//! Secrets that the nodes of a cluster share: comparing them, and signing with them.

use std::sync::Arc;

use subtle::ConstantTimeEq as _;

/// The secrets of a cluster: one, or several while it changes from one to another. The first signs, each is
/// accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secrets(Arc<[String]>);

impl Secrets {
    /// These secrets, the one that signs first; `None` if there are none.
    pub fn new(all: Vec<String>) -> Option<Self> {
        (!all.is_empty()).then(|| Self(all.into()))
    }

    /// The secret that signs.
    pub fn first(&self) -> &str {
        self.iter().next().unwrap_or_default()
    }

    /// The secrets that are accepted.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether each of the others is one of these.
    pub fn have_all_of(&self, others: &Self) -> bool {
        others.iter().all(|other| self.iter().any(|secret| secret == other))
    }

    /// Whether a node with the others accepts what this one signs, or the other way round.
    pub fn overlap(&self, others: &Self) -> bool {
        self.iter().any(|secret| others.iter().any(|other| secret == other))
    }
}

impl From<&str> for Secrets {
    fn from(only: &str) -> Self {
        Self([only.to_owned()].into())
    }
}

/// Compares secrets in a time that depends on their lengths only.
pub fn equal(shown: &[u8], secret: &[u8]) -> bool {
    shown.ct_eq(secret).into()
}

/// HMAC-SHA-256.
pub fn sign(secret: &[u8], message: &[u8]) -> [u8; 32] {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    let mut mark = [0; 32];
    mark.copy_from_slice(ring::hmac::sign(&key, message).as_ref());
    mark
}
