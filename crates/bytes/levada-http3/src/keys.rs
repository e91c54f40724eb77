//! Keys that the nodes of a cluster make from its secret: any node ends a connection that it does not know, and knows the
//! addresses that another one has proved. A node alone makes them from a private key, so that a restart changes nothing.
//!
//! ```text
//! key of resets, mark = HKDF(secret, "reset")       key of tokens = HKDF(secret, "token")
//! connection id       = socket (1 bit) | random (7) | mark (8) | random (48)
//! reset token         = HMAC(key of resets, port | address of the listener | connection id), 16 bytes
//! ```
//!
//! A client whose packets reach a node without its connection gets a stateless reset (RFC 9000 Sec. 10.3): a packet that
//! ends with the token that it has got with the connection id. The mark says which secret it comes from, while a cluster
//! has two. The keys do not change with time: they would have to be good for as long as a connection lasts.
//!
//! A node must not give away the token of a connection that is open at another one (Sec. 10.3.2, 21.11). So only nodes
//! whose listeners have the same address make the same tokens; for all addresses (`0.0.0.0`) they are the same everywhere.
//! Tokens of Retry packets hold the client's address and the time, so that any node of the cluster may take them.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use arc_swap::ArcSwap;
use quinn::crypto::{CryptoError, HandshakeTokenKey, HmacKey};
use ring::{
    hkdf, hmac,
    rand::{SecureRandom as _, SystemRandom},
};

const KEY: usize = 32;
/// Where a connection id has the mark of its secret.
const MARK: usize = 1;

/// See the module.
pub struct QuicKeys {
    /// From the secrets, the one for new connections first, and from what this process has drawn.
    resets: Vec<ResetKey>,
    tokens: hkdf::Prk,
    drawn: [u8; KEY],
}

struct ResetKey {
    mark: u8,
    key: hmac::Key,
}

impl QuicKeys {
    /// Keys from secrets that other nodes have as well; new connections and tokens come from the first. Without a secret
    /// they are of this process only. `before` has what this process has drawn.
    pub fn new<S: AsRef<[u8]>>(secrets: &[S], before: Option<&Self>) -> Self {
        let drawn = before.map_or_else(draw, |before| before.drawn);
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"levada quic 1");
        let all = secrets.iter().map(AsRef::as_ref).chain([&drawn[..]]);
        let all: Vec<hkdf::Prk> = all.map(|secret| salt.extract(secret)).collect();
        let tokens =
            hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &derived::<KEY>(&all[0], b"token"));
        Self { resets: all.iter().map(ResetKey::of).collect(), tokens, drawn }
    }

    /// The mark of the connection ids of new connections.
    pub(crate) fn mark(&self, id: &mut [u8]) {
        if let (Some(at), Some(first)) = (id.get_mut(MARK), self.resets.first()) {
            *at = first.mark;
        }
    }

    /// Whether a node with these keys may have made this connection id.
    pub(crate) fn know(&self, id: &[u8]) -> bool {
        self.of(id).is_some()
    }

    fn of(&self, id: &[u8]) -> Option<&ResetKey> {
        let mark = id.get(MARK)?;
        self.resets.iter().find(|key| key.mark == *mark)
    }

    /// The key of the tokens in Retry packets.
    pub(crate) fn tokens(&self) -> Arc<dyn HandshakeTokenKey> {
        Arc::new(self.tokens.clone())
    }
}

impl Default for QuicKeys {
    fn default() -> Self {
        Self::new::<[u8; 0]>(&[], None)
    }
}

impl fmt::Debug for QuicKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicKeys").finish_non_exhaustive()
    }
}

impl ResetKey {
    fn of(secret: &hkdf::Prk) -> Self {
        let bytes = derived::<{ KEY + 1 }>(secret, b"reset");
        Self { mark: bytes[KEY], key: hmac::Key::new(hmac::HMAC_SHA256, &bytes[..KEY]) }
    }
}

fn draw() -> [u8; KEY] {
    let mut bytes = [0; KEY];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.unwrap_or_else(|_| unreachable!("the system has randomness"));
    bytes
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derived<const LENGTH: usize>(secret: &hkdf::Prk, label: &[u8]) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    let filled = secret.expand(&[label], Length(LENGTH)).and_then(|okm| okm.fill(&mut bytes));
    filled.unwrap_or_else(|_| unreachable!("the length is that of the buffer"));
    bytes
}

/// Makes the reset tokens of a listener, by the keys that the process has at the time.
pub(crate) struct ResetTokens {
    keys: Arc<ArcSwap<QuicKeys>>,
    /// Port and address of the listener.
    place: [u8; 18],
}

impl ResetTokens {
    pub(crate) fn at(listener: SocketAddr, keys: &Arc<ArcSwap<QuicKeys>>) -> Self {
        let address = match listener.ip().to_canonical() {
            address if address.is_unspecified() => Ipv6Addr::UNSPECIFIED,
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut place = [0; 18];
        place[..2].copy_from_slice(&listener.port().to_be_bytes());
        place[2..].copy_from_slice(&address.octets());
        Self { keys: keys.clone(), place }
    }

    fn token(&self, id: &[u8]) -> [u8; KEY] {
        let keys = self.keys.load();
        let mut token = [0; KEY];
        // An id without a mark of ours has no token, and no reset is sent for it.
        if let Some(key) = keys.of(id).or(keys.resets.first()) {
            let mut signed = hmac::Context::with_key(&key.key);
            signed.update(&self.place);
            signed.update(id);
            token.copy_from_slice(signed.sign().as_ref());
        }
        token
    }
}

impl HmacKey for ResetTokens {
    fn sign(&self, id: &[u8], token: &mut [u8]) {
        let made = self.token(id);
        let length = token.len().min(KEY);
        token[..length].copy_from_slice(&made[..length]);
    }

    fn signature_len(&self) -> usize {
        KEY
    }

    fn verify(&self, id: &[u8], token: &[u8]) -> Result<(), CryptoError> {
        // quinn makes tokens and compares them in constant time; nothing verifies by this.
        if self.token(id)[..] == *token { Ok(()) } else { Err(CryptoError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(keys: QuicKeys, listener: &str, id: &[u8]) -> [u8; KEY] {
        let keys = Arc::new(ArcSwap::from_pointee(keys));
        ResetTokens::at(listener.parse().unwrap(), &keys).token(id)
    }

    fn keys(secrets: &[&str]) -> QuicKeys {
        QuicKeys::new(secrets, None)
    }

    fn id_of(keys: &QuicKeys) -> [u8; 8] {
        let mut id = *b"\x07-random";
        keys.mark(&mut id);
        id
    }

    #[test]
    fn nodes_with_a_secret_make_the_same_token_at_the_same_address() {
        let id = id_of(&keys(&["secret"]));
        let made = token(keys(&["secret"]), "10.0.0.1:443", &id);
        assert_eq!(token(keys(&["secret"]), "10.0.0.1:443", &id), made);
        for (secret, listener) in [
            ("another", "10.0.0.1:443"),
            ("secret", "10.0.0.2:443"),
            ("secret", "10.0.0.1:444"),
            ("secret", "0.0.0.0:443"),
        ] {
            assert_ne!(token(keys(&[secret]), listener, &id), made, "{secret} {listener}");
        }
        let all = token(keys(&["secret"]), "0.0.0.0:443", &id);
        assert_eq!(token(keys(&["secret"]), "[::]:443", &id), all);
        assert_ne!(token(QuicKeys::default(), "0.0.0.0:443", &id), all);
    }

    #[test]
    fn connections_of_each_secret_are_known_while_it_changes() {
        let rounds: [&[&str]; 4] = [&["old"], &["old", "new"], &["new", "old"], &["new"]];
        for pair in rounds.windows(2) {
            for (maker, other) in [(pair[0], pair[1]), (pair[1], pair[0])] {
                let id = id_of(&keys(maker));
                assert!(keys(other).know(&id), "{maker:?} {other:?}");
                let made = token(keys(maker), "0.0.0.0:443", &id);
                assert_eq!(token(keys(other), "0.0.0.0:443", &id), made, "{maker:?} {other:?}");
            }
        }
        assert!(!keys(&["new"]).know(&id_of(&keys(&["old"]))));
    }

    #[test]
    fn reload_keeps_what_the_process_has_drawn() {
        let before = QuicKeys::default();
        let id = id_of(&before);
        let after = QuicKeys::new(&["secret"], Some(&before));
        assert!(after.know(&id) && id_of(&after) != id);
        assert_eq!(token(after, "0.0.0.0:443", &id), token(before, "0.0.0.0:443", &id));
    }
}
