//! Proofs that the server may ask any node of the cluster for, while an order runs.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use ring::digest::{SHA256, digest};
use rustls::{
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    sign::CertifiedKey,
};
use serde::{Deserialize, Serialize};

/// How long a proof is kept that nobody takes back, because the node that ordered is gone.
const KEPT: Duration = Duration::from_secs(15 * 60);
/// The proofs that are kept at most.
const MOST: usize = 1_000;
/// Where the server asks for a file (RFC 8555 Sec. 8.3).
const FILES: &str = "/.well-known/acme-challenge/";

/// A proof of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HeldProof {
    /// A file with this token in its name.
    File { token: String, content: String },
    /// A certificate about this content.
    Certificate { name: String, content: String },
}

impl HeldProof {
    fn place(&self) -> (bool, String) {
        match self {
            Self::File { token, .. } => (false, token.clone()),
            Self::Certificate { name, .. } => (true, name.to_ascii_lowercase()),
        }
    }
}

/// The proofs at this node.
#[derive(Debug, Default)]
pub(crate) struct Challenges {
    /// Requests look here first.
    any: AtomicBool,
    held: Mutex<HashMap<(bool, String), (Shown, Instant)>>,
}

#[derive(Debug)]
enum Shown {
    File(String),
    Certificate(Arc<CertifiedKey>),
}

impl Challenges {
    /// Keeps a proof until it is forgotten.
    pub(crate) fn hold(&self, proof: &HeldProof) -> Result<(), String> {
        let shown = match proof {
            HeldProof::File { content, .. } => Shown::File(content.clone()),
            HeldProof::Certificate { name, content } => {
                let made = certificate(name, content);
                Shown::Certificate(Arc::new(made.map_err(|error| error.to_string())?))
            }
        };
        let mut held = self.held.lock();
        held.retain(|_, (_, since)| since.elapsed() < KEPT);
        if held.len() >= MOST {
            return Err("too many proofs at the same time".to_owned());
        }
        held.insert(proof.place(), (shown, Instant::now()));
        self.any.store(true, Relaxed);
        Ok(())
    }

    pub(crate) fn forget(&self, proof: &HeldProof) {
        let mut held = self.held.lock();
        held.remove(&proof.place());
        self.any.store(!held.is_empty(), Relaxed);
    }

    /// The content of the file at this path, if it is a proof.
    pub(crate) fn file(&self, path: &str) -> Option<String> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let token = path.strip_prefix(FILES)?;
        match &self.held.lock().get(&(false, token.to_owned()))?.0 {
            Shown::File(content) => Some(content.clone()),
            Shown::Certificate(_) => None,
        }
    }

    /// The certificate that proves a name.
    pub(crate) fn certificate(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        match &self.held.lock().get(&(true, name.to_ascii_lowercase()))?.0 {
            Shown::Certificate(key) => Some(key.clone()),
            Shown::File(_) => None,
        }
    }
}

/// The certificate of RFC 8737 Sec. 3: the name, and the digest of the content in a critical extension.
fn certificate(name: &str, content: &str) -> Result<CertifiedKey, Box<dyn std::error::Error>> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    let digest = digest(&SHA256, content.as_bytes());
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    // The certificate is not checked against its key: its critical extension would count as an error.
    let key = rustls::crypto::ring::sign::any_ecdsa_type(&key)?;
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_are_shown_until_they_are_forgotten() {
        let challenges = Challenges::default();
        let file = HeldProof::File { token: "abc".to_owned(), content: "abc.xyz".to_owned() };
        let of_name = |name: &str| HeldProof::Certificate {
            name: name.to_owned(),
            content: "abc.xyz".to_owned(),
        };
        challenges.hold(&file).unwrap();
        challenges.hold(&of_name("A.example")).unwrap();
        assert_eq!(challenges.file("/.well-known/acme-challenge/abc").unwrap(), "abc.xyz");
        assert_eq!(challenges.file("/.well-known/acme-challenge/abcd"), None);
        assert_eq!(challenges.file("/abc"), None);
        assert!(challenges.certificate("a.EXAMPLE").is_some());
        assert!(challenges.certificate("abc").is_none());
        challenges.forget(&file);
        challenges.forget(&of_name("a.example"));
        assert_eq!(challenges.file("/.well-known/acme-challenge/abc"), None);
        assert!(challenges.certificate("a.example").is_none());
        assert!(!challenges.any.load(Relaxed));
    }

    #[test]
    fn proofs_are_bounded() {
        let challenges = Challenges::default();
        let file =
            |token: usize| HeldProof::File { token: token.to_string(), content: String::new() };
        for token in 0..MOST {
            challenges.hold(&file(token)).unwrap();
        }
        assert!(challenges.hold(&file(MOST)).is_err());
    }
}
