//! Sealing by the fleet's key, which the state does not have: it carries the files and secrets, and cannot read them.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    digest::{SHA256, digest},
    rand::{SecureRandom as _, SystemRandom},
};

/// The key of a fleet.
#[derive(Clone, PartialEq, Eq)]
pub struct FleetKey([u8; 32]);

/// A value that this fleet's key did not seal, or that stands under another name.
#[derive(Debug, thiserror::Error)]
#[error("{0} cannot be opened by the key of this token: it is of another fleet, or was changed")]
pub struct NotSealedHere(pub String);

impl std::fmt::Debug for FleetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FleetKey")
    }
}

impl FleetKey {
    /// A new one.
    pub fn random() -> Self {
        Self(random())
    }

    /// Reads what [`text`](Self::text) wrote.
    pub fn read(text: &str) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// The key as text.
    pub fn text(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Seals a value, which opens under the same name only. The nonce comes first.
    pub fn seal(&self, name: &str, value: &[u8]) -> Vec<u8> {
        let nonce: [u8; NONCE_LEN] = random();
        let mut sealed = value.to_vec();
        let key = self.cipher();
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(name.as_bytes()),
            &mut sealed,
        )
        .expect("a value is shorter than the limit of the cipher, 256 GB");
        [&nonce[..], &sealed].concat()
    }

    /// Opens a value.
    ///
    /// # Errors
    /// If it was not sealed by this key under this name.
    pub fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, NotSealedHere> {
        let wrong = || NotSealedHere(name.to_owned());
        let (nonce, rest) = sealed.split_at_checked(NONCE_LEN).ok_or_else(wrong)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| wrong())?;
        let mut value = rest.to_vec();
        let key = self.cipher();
        let opened = key.open_in_place(nonce, Aad::from(name.as_bytes()), &mut value);
        let length = opened.map_err(|_| wrong())?.len();
        value.truncate(length);
        Ok(value)
    }

    fn cipher(&self) -> LessSafeKey {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &self.0);
        LessSafeKey::new(key.expect("the key has the length of the cipher"))
    }
}

/// Random bytes.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The system has no randomness only before it has started.
    SystemRandom::new().fill(&mut bytes).expect("the system gives random bytes");
    bytes
}

/// Random bytes as text.
pub(crate) fn random_text<const N: usize>() -> String {
    BASE64_URL_SAFE_NO_PAD.encode(random::<N>())
}

/// SHA-256, in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digits = digest(&SHA256, bytes);
    digits.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_value_opens_by_its_key_under_its_name_only() {
        let (key, other) = (FleetKey::random(), FleetKey::random());
        let sealed = key.seal("a", b"secret");
        assert!(!sealed.windows(6).any(|part| part == b"secret"));
        assert_eq!(key.open("a", &sealed).unwrap(), b"secret");
        assert!(key.open("b", &sealed).is_err());
        assert!(other.open("a", &sealed).is_err());
        assert!(key.open("a", &sealed[1..]).is_err());
        assert!(key.open("a", b"short").is_err());
        assert_eq!(FleetKey::read(&key.text()), Some(key));
    }
}
