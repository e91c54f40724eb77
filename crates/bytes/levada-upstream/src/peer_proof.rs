//! The proof that a connection to a node's listener for peers comes from a peer. It is given once, before
//! HTTP begins, and shows that the caller knows the cluster's secret without sending the secret.
//!
//! ```text
//! caller                                                        node
//!   greeting, nonce c ──────────────────────────────────────────>
//!   <─────────────────────────────────────────────────── nonce s
//!   HMAC(secret, greeting, c, s, name of the node) ─────────────>   then HTTP
//! ```
//!
//! A proof that was recorded is of no use on another connection, because of the nonce, nor at another node,
//! because of the name. Like plain HTTP, the connection can still be read and changed by a party between the
//! nodes: where there may be one, use certificates instead.

use std::io;

use levada_tls::secret::Secrets;
use ring::{
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Gives and checks proofs for one node.
#[derive(Debug)]
pub struct PeerProof {
    /// The first gives proofs.
    keys: Vec<hmac::Key>,
    node: String,
}

/// Begins with a byte that neither HTTP nor TLS begins with.
const GREETING: [u8; 16] = *b"\0levada-peer/1\r\n";
const NONCE: usize = 32;
const PROOF: usize = 32;

impl PeerProof {
    /// The first byte of a connection that begins with a proof.
    pub const FIRST: u8 = GREETING[0];

    /// Proofs for connections to the node of this name.
    pub fn new(secrets: &Secrets, node: &str) -> Self {
        let key = |secret: &str| hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        Self { keys: secrets.iter().map(key).collect(), node: node.to_owned() }
    }

    /// Gives the proof, as the caller.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn give(&self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
        let own = nonce()?;
        stream.write_all(&[&GREETING[..], &own].concat()).await?;
        stream.flush().await?;
        let mut other = [0; NONCE];
        stream.read_exact(&mut other).await?;
        let message = self.message(&own, &other);
        let proof = self.keys.first().map(|key| hmac::sign(key, &message));
        stream.write_all(proof.as_ref().map_or(&[], AsRef::as_ref)).await?;
        stream.flush().await
    }

    /// Whether the caller gives a proof that is right.
    ///
    /// # Errors
    /// When the connection fails, or the caller speaks another protocol.
    pub async fn check(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> io::Result<bool> {
        let (mut greeting, mut other) = ([0; GREETING.len()], [0; NONCE]);
        stream.read_exact(&mut greeting).await?;
        if greeting != GREETING {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.read_exact(&mut other).await?;
        let own = nonce()?;
        stream.write_all(&own).await?;
        stream.flush().await?;
        let mut proof = [0; PROOF];
        stream.read_exact(&mut proof).await?;
        let message = self.message(&other, &own);
        // Compares in constant time.
        Ok(self.keys.iter().any(|key| hmac::verify(key, &message, &proof).is_ok()))
    }

    fn message(&self, of_caller: &[u8; NONCE], of_node: &[u8; NONCE]) -> Vec<u8> {
        [&GREETING[..], of_caller, of_node, self.node.as_bytes()].concat()
    }
}

fn nonce() -> io::Result<[u8; NONCE]> {
    let mut bytes = [0; NONCE];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("no randomness")).map(|()| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn checked(caller: PeerProof, node: PeerProof) -> bool {
        let (mut one, mut other) = tokio::io::duplex(1024);
        let (given, checked) = tokio::join!(caller.give(&mut one), node.check(&mut other));
        given.unwrap();
        checked.unwrap()
    }

    #[tokio::test]
    async fn proof_is_right_with_the_same_secret_at_the_same_node() {
        let proof = |secret: &str, node| PeerProof::new(&secret.into(), node);
        assert!(checked(proof("secret", "a"), proof("secret", "a")).await);
        assert!(!checked(proof("guess", "a"), proof("secret", "a")).await);
        assert!(!checked(proof("secret", "b"), proof("secret", "a")).await);
    }

    #[tokio::test]
    async fn first_secret_gives_proofs_and_each_checks_them() {
        let proof = |secrets: &[&str]| {
            let secrets = secrets.iter().map(|secret| (*secret).to_owned()).collect();
            PeerProof::new(&Secrets::new(secrets).unwrap(), "a")
        };
        assert!(checked(proof(&["old", "new"]), proof(&["old"])).await);
        assert!(!checked(proof(&["new", "old"]), proof(&["old"])).await);
        assert!(checked(proof(&["new", "old"]), proof(&["old", "new"])).await);
        assert!(checked(proof(&["new"]), proof(&["old", "new"])).await);
        assert!(!checked(proof(&["old", "new"]), proof(&["new"])).await);
    }

    #[tokio::test]
    async fn recorded_proof_is_of_no_use() {
        let node = PeerProof::new(&"secret".into(), "a");
        let (mut one, mut other) = tokio::io::duplex(1024);
        let caller = async {
            let greeting = [&GREETING[..], &[7; NONCE]].concat();
            one.write_all(&greeting).await.unwrap();
            let recorded = hmac::sign(&node.keys[0], &node.message(&[7; NONCE], &[8; NONCE]));
            one.write_all(recorded.as_ref()).await.unwrap();
        };
        let (_, checked) = tokio::join!(caller, node.check(&mut other));
        assert!(!checked.unwrap());
    }

    #[tokio::test]
    async fn other_protocol_is_an_error() {
        let node = PeerProof::new(&"secret".into(), "a");
        for bytes in [&b"\0levada-peer/2\r\n"[..], b"\0GET / HTTP/1.1\r\n\r\n", b"\0"] {
            let (mut one, mut other) = tokio::io::duplex(1024);
            one.write_all(bytes).await.unwrap();
            drop(one);
            assert!(node.check(&mut other).await.is_err());
        }
    }
}
