//! Messages about certificates between the nodes of a cluster.
//!
//! Connections of peers prove that both ends know the secret of the cluster, but without certificates they are not
//! encrypted. Keys go over them, so messages are sealed with a key that is derived from the secret.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request};
use ring::{
    aead::{self, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::{
    acme::{challenges::HeldProof, held::Held},
    secret::Secrets,
};

/// The path of messages at the listener for peers. They are posted.
pub const PEER_PATH: &str = "/.levada/certificates";

/// How long a peer may take: it answers from memory. A peer that is gone holds an order up for no longer.
const PEER_TIMEOUT: Duration = Duration::from_secs(3);
/// The purpose of the derived key and of sealed messages.
const PURPOSE: &[u8] = b"levada certificates 1";

/// Whether a request of a peer is a message.
pub fn is_message<B>(request: &Request<B>) -> bool {
    request.uri().path() == PEER_PATH && *request.method() == Method::POST
}

/// The answer of a peer, or why there is none.
pub type PeerAnswer = Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send>>;

/// The other nodes of the cluster.
pub trait OtherNodes: Send + Sync {
    /// The name of this node.
    fn me(&self) -> String;
    /// The others, and whether they are well.
    fn nodes(&self) -> Vec<(String, bool)>;
    /// The secrets of the cluster; `None`: connections are encrypted.
    fn secrets(&self) -> Option<Secrets>;
    /// Posts a message to [`PEER_PATH`] of a node.
    fn ask(&self, node: &str, message: Bytes) -> PeerAnswer;
}

/// A message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// Show this proof.
    Hold(HeldProof),
    /// Show it no more.
    Forget(HeldProof),
    /// Is there a certificate of this name that began after this time?
    Newer { name: String, than: Option<i64> },
    /// A certificate with its key.
    Take { pem: String },
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Done,
    Nothing,
    Certificate { pem: String },
}

/// The cluster as one node sees it.
#[derive(Clone, Default)]
pub(crate) struct Cluster(pub(crate) Option<Arc<dyn OtherNodes>>);

impl Cluster {
    /// The name of this node, and of all that are well.
    pub(crate) fn well(&self) -> (String, Vec<String>) {
        let Some(nodes) = &self.0 else { return (String::new(), Vec::new()) };
        let me = nodes.me();
        let well = nodes.nodes().into_iter().filter(|(_, well)| *well).map(|(name, _)| name);
        (me.clone(), well.chain([me]).collect())
    }

    /// The secrets of the cluster.
    pub(crate) fn secrets(&self) -> Option<Secrets> {
        self.0.as_ref().and_then(|nodes| nodes.secrets())
    }

    /// Tells all other nodes, also those that seem to be down: clients may reach them.
    pub(crate) async fn tell_all(&self, message: &Message) {
        for (node, answer) in self.ask_all(message).await {
            if let Err(why) = answer {
                tracing::info!(node, why, "a node was not told of a certificate or proof");
            }
        }
    }

    /// The newest certificate that another node has, newer than `held`.
    pub(crate) async fn newest(&self, name: &str, held: Option<&Held>) -> Option<Held> {
        let than = held.map(|held| held.leaf.begins);
        let mut newest: Option<Held> = None;
        let question = Message::Newer { name: name.to_owned(), than };
        for (node, answer) in self.ask_all(&question).await {
            let Ok(Answer::Certificate { pem }) = answer else { continue };
            match Held::of(pem) {
                Ok(theirs) if newest.as_ref().is_none_or(|known| theirs.is_newer_than(known)) => {
                    newest = Some(theirs);
                }
                Ok(_) => {}
                Err(why) => tracing::warn!(node, why, "a node has sent a wrong certificate"),
            }
        }
        newest
    }

    async fn ask_all(&self, message: &Message) -> Vec<(String, Result<Answer, String>)> {
        let Some(nodes) = &self.0 else { return Vec::new() };
        let (secrets, mut asking) = (nodes.secrets(), JoinSet::new());
        let plain = serde_json::to_vec(message).unwrap_or_default();
        for (node, _) in nodes.nodes() {
            let Some(sealed) = seal(secrets.as_ref(), plain.clone()) else { continue };
            let (asked, secrets) = (nodes.ask(&node, sealed), secrets.clone());
            asking.spawn(async move {
                let answer = match tokio::time::timeout(PEER_TIMEOUT, asked).await {
                    Err(_) => Err("it does not answer in time".to_owned()),
                    Ok(Err(why)) => Err(why),
                    Ok(Ok(bytes)) => open(secrets.as_ref(), &bytes)
                        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
                        .ok_or_else(|| "its answer is not understood".to_owned()),
                };
                (node, answer)
            });
        }
        asking.join_all().await
    }
}

/// Seals a message; `None` if the system has no random numbers.
pub(crate) fn seal(secrets: Option<&Secrets>, mut message: Vec<u8>) -> Option<Bytes> {
    let Some(secrets) = secrets else { return Some(message.into()) };
    let mut nonce = [0; NONCE_LEN];
    SystemRandom::new().fill(&mut nonce).ok()?;
    let unique = Nonce::assume_unique_for_key(nonce);
    key(secrets.first())?
        .seal_in_place_append_tag(unique, Aad::from(PURPOSE), &mut message)
        .ok()?;
    Some([&nonce[..], &message].concat().into())
}

/// Opens a message; `None` if another secret, or nobody, has sealed it.
pub(crate) fn open(secrets: Option<&Secrets>, sealed: &[u8]) -> Option<Vec<u8>> {
    let Some(secrets) = secrets else { return Some(sealed.to_vec()) };
    let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN)?;
    secrets.iter().find_map(|secret| {
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut message = sealed.to_vec();
        let opened = key(secret)?.open_in_place(nonce, Aad::from(PURPOSE), &mut message);
        let length = opened.ok()?.len();
        message.truncate(length);
        Some(message)
    })
}

fn key(secret: &str) -> Option<LessSafeKey> {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let derived = hmac::sign(&secret, PURPOSE);
    let algorithm: &'static aead::Algorithm = &CHACHA20_POLY1305;
    UnboundKey::new(algorithm, derived.as_ref()).ok().map(LessSafeKey::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(all: &[&str]) -> Option<Secrets> {
        Secrets::new(all.iter().map(|secret| (*secret).to_owned()).collect())
    }

    #[test]
    fn sealed_message_is_read_with_its_secret_only() {
        let (own, other) = (secrets(&["the secret"]), secrets(&["another one"]));
        let both = secrets(&["another one", "the secret"]);
        let sealed = seal(own.as_ref(), b"a private key".to_vec()).unwrap();
        assert_eq!(open(both.as_ref(), &sealed).unwrap(), b"a private key");
        let by_first = seal(both.as_ref(), b"a private key".to_vec()).unwrap();
        assert!(open(own.as_ref(), &by_first).is_none());
        assert_eq!(open(other.as_ref(), &by_first).unwrap(), b"a private key");
        assert!(!sealed.windows(7).any(|part| part == b"private"));
        assert_eq!(open(own.as_ref(), &sealed).unwrap(), b"a private key");
        assert!(open(other.as_ref(), &sealed).is_none());
        let mut changed = sealed.to_vec();
        *changed.last_mut().unwrap() ^= 1;
        assert!(open(own.as_ref(), &changed).is_none());
        for short in 0..NONCE_LEN + 16 {
            assert!(open(own.as_ref(), &sealed[..short.min(sealed.len())]).is_none());
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_a_reader_fail(bytes: Vec<u8>) {
            proptest::prop_assert!(open(secrets(&["the secret"]).as_ref(), &bytes).is_none());
            let _ = serde_json::from_slice::<Message>(&bytes);
            let _ = Held::of(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}
