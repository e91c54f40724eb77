//! Basic authentication (RFC 7617) by the users of an htpasswd file.
//!
//! A hash takes long on purpose, so it is made on a thread for blocking calls, and a few at once at most: a
//! flood of wrong passwords delays other new users, but nobody who has been verified. Pairs of user and
//! password that were right are remembered by a keyed digest, in a table of fixed size.

use std::{collections::HashMap, fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use parking_lot::Mutex;
use ring::{hmac, rand::SystemRandom};
use tokio::sync::Semaphore;

use crate::password::PasswordHash;

/// Users and the hashes of their passwords.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(HashMap<String, PasswordHash>);

/// A line of an htpasswd file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadUser {
    /// Its number, from 1.
    pub line: usize,
    /// The reason.
    pub why: String,
}

impl Users {
    /// Reads an htpasswd file: `user:hash` on each line; empty lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    /// With the first line that cannot be used.
    pub fn read(text: &str) -> Result<Self, BadUser> {
        let mut users = HashMap::new();
        for (number, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = |why: String| BadUser { line: number, why };
            let (user, hash) =
                line.split_once(':').ok_or_else(|| bad("expected user:hash".to_owned()))?;
            // A second colon begins a comment.
            let hash = hash.split(':').next().unwrap_or_default();
            let hash = PasswordHash::read(hash).map_err(|why| bad(why.to_string()))?;
            if users.insert(user.to_owned(), hash).is_some() {
                return Err(bad(format!("the user {user:?} is there already")));
            }
        }
        Ok(Self(users))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the password is the user's. It takes as long for a user who does not exist.
    fn know(&self, user: &str, password: &[u8]) -> bool {
        let own = self.0.get(user);
        let hash = own.or_else(|| self.0.values().next());
        hash.is_some_and(|hash| hash.is_of(password)) && own.is_some()
    }
}

/// Basic authentication at work.
pub struct BasicAuth {
    users: Arc<Users>,
    /// The answer's `WWW-Authenticate`.
    pub(crate) challenge: HeaderValue,
    key: hmac::Key,
    /// The digests of pairs that were right.
    right: Mutex<Remembered>,
    hashing: Arc<Semaphore>,
}

/// A set of bounded size, of two generations: when the younger is full, the older is forgotten.
#[derive(Default)]
struct Remembered {
    young: std::collections::HashSet<[u8; 32]>,
    old: std::collections::HashSet<[u8; 32]>,
}

/// Pairs in one generation.
const REMEMBERED: usize = 4096;
/// Hashes that are made at once.
const HASHING: usize = 2;

impl BasicAuth {
    /// Authentication of `users`. Returns `None` if the realm cannot stand in a field.
    pub fn new(users: Arc<Users>, realm: &str) -> Option<Self> {
        let quoted = realm.replace('\\', "\\\\").replace('"', "\\\"");
        let challenge = format!("Basic realm=\"{quoted}\", charset=\"UTF-8\"").parse().ok()?;
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok()?;
        let hashing = Arc::new(Semaphore::new(HASHING));
        Some(Self { users, challenge, key, right: Mutex::default(), hashing })
    }

    /// Whether the request names a user and the right password.
    pub async fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(pair) = credentials(headers) else { return false };
        let digest = self.digest(&pair);
        if self.right.lock().knows(&digest) {
            return true;
        }
        let Ok(place) = self.hashing.clone().acquire_owned().await else { return false };
        let users = self.users.clone();
        let hash = move || {
            let _place = place;
            let (user, password) = pair.split_once(':')?;
            users.know(user, password.as_bytes()).then_some(())
        };
        let is_right = matches!(tokio::task::spawn_blocking(hash).await, Ok(Some(())));
        if is_right {
            self.right.lock().insert(digest);
        }
        is_right
    }

    fn digest(&self, pair: &str) -> [u8; 32] {
        let mut digest = [0; 32];
        digest.copy_from_slice(hmac::sign(&self.key, pair.as_bytes()).as_ref());
        digest
    }
}

impl Remembered {
    fn knows(&self, digest: &[u8; 32]) -> bool {
        self.young.contains(digest) || self.old.contains(digest)
    }

    fn insert(&mut self, digest: [u8; 32]) {
        if self.young.len() >= REMEMBERED {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest);
    }
}

/// The user and the password, with a colon between them.
fn credentials(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, text) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    String::from_utf8(STANDARD.decode(text.trim()).ok()?).ok()
}

impl fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicAuth").field("challenge", &self.challenge).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# users\n\nann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n\
                        bob:$apr1$s4lt5678$yNwm1lYcTNGUenhMtvKEA1:a comment\n";

    fn shown(scheme: &str, pair: &str) -> HeaderMap {
        let value = format!("{scheme} {}", STANDARD.encode(pair)).parse().unwrap();
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    }

    #[tokio::test]
    async fn user_with_the_right_password_passes() {
        let auth = BasicAuth::new(Arc::new(Users::read(FILE).unwrap()), "a \"b\"").unwrap();
        assert_eq!(auth.challenge, "Basic realm=\"a \\\"b\\\"\", charset=\"UTF-8\"");
        for _ in 0..2 {
            for (scheme, pair, is_right) in [
                ("Basic", "ann:secret", true),
                ("basic", "bob:secret", true),
                ("Basic", "ann:Secret", false),
                ("Basic", "eve:secret", false),
                ("Basic", "ann", false),
                ("Basic", "", false),
                ("Bearer", "ann:secret", false),
            ] {
                assert_eq!(auth.admits(&shown(scheme, pair)).await, is_right, "{scheme} {pair}");
            }
            assert!(!auth.admits(&HeaderMap::new()).await);
        }
        assert_eq!(auth.right.lock().young.len(), 2, "the wrong ones are not remembered");
    }

    #[test]
    fn remembered_pairs_are_bounded() {
        let mut remembered = Remembered::default();
        for number in 0..100_000_u32 {
            let mut digest = [0; 32];
            digest[..4].copy_from_slice(&number.to_be_bytes());
            remembered.insert(digest);
            assert!(remembered.knows(&digest));
        }
        assert!(remembered.young.len() + remembered.old.len() <= 2 * REMEMBERED);
    }

    #[test]
    fn line_that_cannot_be_used_is_named() {
        for (text, line) in [
            ("ann", 1),
            ("#\nann:secret", 2),
            ("ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\nann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", 2),
        ] {
            assert_eq!(Users::read(text).unwrap_err().line, line, "{text}");
        }
        assert!(Users::read("# nobody\n").unwrap().is_empty());
    }
}
