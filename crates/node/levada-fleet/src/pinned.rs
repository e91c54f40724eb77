//! TLS between nodes and the one that keeps the state: its certificate has no authority, and the token says which one
//! it is.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
};
use serde::{Deserialize, Serialize};

use crate::{file_store::replace_file, seal::sha256};

/// The certificate of a state, and its key.
#[derive(Serialize, Deserialize)]
pub(crate) struct Identity {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// It cannot be made.
    #[error("no certificate can be made: {0}")]
    Made(#[from] rcgen::Error),
    /// Its file cannot be used.
    #[error("the certificate of the state cannot be read or written: {0}")]
    File(#[from] std::io::Error),
    /// Its file is damaged.
    #[error("the certificate of the state is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    /// TLS refuses it.
    #[error("TLS refuses the certificate of the state: {0}")]
    Tls(#[from] Error),
}

impl Identity {
    /// A new one.
    ///
    /// # Errors
    /// If none can be made.
    pub(crate) fn new() -> Result<Self, IdentityError> {
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(vec![NAME.to_owned()])?;
        let certificate = params.self_signed(&key)?.der().to_vec();
        Ok(Self { certificate, key: key.serialize_der() })
    }

    /// Reads it from a file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn read(path: &Path) -> Result<Self, IdentityError> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }

    /// Writes it to a file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<(), IdentityError> {
        Ok(replace_file(path, &serde_json::to_vec(self)?)?)
    }

    /// The digest by which clients know it.
    pub(crate) fn digest(&self) -> String {
        sha256(&self.certificate)
    }

    /// The side that keeps the state.
    pub(crate) fn server(&self) -> Result<Arc<ServerConfig>, IdentityError> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(self.certificate.clone())], key)?;
        Ok(Arc::new(config))
    }
}

/// The name in the certificate.
pub(crate) const NAME: &str = "levada-fleet";

/// The side that asks, which accepts the certificate with this digest only.
pub(crate) fn client(digest: &str) -> Result<Arc<ClientConfig>, Error> {
    /// The configuration of each digest keeps the sessions of its connections.
    static KNOWN: Mutex<Vec<(String, Arc<ClientConfig>)>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, config)) = known.iter().find(|(other, _)| other == digest) {
        return Ok(config.clone());
    }
    let provider = Arc::new(ring::default_provider());
    let pinned = Pinned { digest: digest.to_owned(), provider: provider.clone() };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_no_client_auth();
    let config = Arc::new(config);
    known.push((digest.to_owned(), config.clone()));
    Ok(config)
}

#[derive(Debug)]
struct Pinned {
    digest: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if sha256(certificate) == self.digest {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General("the state has another certificate than the token says".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
