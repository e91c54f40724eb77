//! Secrets that the nodes of a cluster share: comparing them, and signing with them.

use subtle::ConstantTimeEq as _;

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
