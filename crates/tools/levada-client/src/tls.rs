//! The trusted certificate authorities of a client.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

use crate::connect::Versions;

/// The trusted certificate authorities.
#[derive(Clone, Debug, Default)]
pub enum Roots {
    /// The system's, as set by `SSL_CERT_FILE` and `SSL_CERT_DIR`; Mozilla's if the system has
    /// none.
    #[default]
    System,
    /// The certificates of a PEM file only.
    File(PathBuf),
    /// All certificates are accepted. An attacker on the path can then read and change the data.
    Anyone,
}

impl Roots {
    /// The authorities of a file, if there is one, and the system's otherwise; anyone if `is_anyone`.
    pub fn of(file: Option<&Path>, is_anyone: bool) -> Self {
        match (file, is_anyone) {
            (_, true) => Self::Anyone,
            (Some(file), _) => Self::File(file.to_owned()),
            (None, _) => Self::System,
        }
    }
}

/// The reason why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file of certificates is not usable.
    #[error("{path}: {why}; give a PEM file with certificates")]
    File {
        /// The path.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// rustls rejected the configuration.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
    /// The cryptography has no cipher suite for QUIC.
    #[error("no cipher suite for QUIC")]
    Quic,
}

/// The protocols to offer over TCP.
pub(crate) fn over_tcp(versions: Versions) -> &'static [&'static [u8]] {
    match versions {
        Versions::Http1 => &[b"http/1.1"],
        Versions::All | Versions::Http3 => &[b"h2", b"http/1.1"],
    }
}

/// The TLS configuration for https servers that offers these protocols.
///
/// # Errors
/// When the file of certificates is not usable.
pub fn config(roots: &Roots, protocols: &[&[u8]]) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let mut config = match roots {
        Roots::Anyone => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trusting(provider)))
            .with_no_client_auth(),
        Roots::System => builder.with_root_certificates(system()).with_no_client_auth(),
        Roots::File(path) => builder.with_root_certificates(file(path)?).with_no_client_auth(),
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

fn system() -> RootCertStore {
    let mut store = RootCertStore::empty();
    // Certificates that cannot be read or parsed are skipped: the others may be enough.
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if store.is_empty() {
        store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    store
}

fn file(path: &Path) -> Result<RootCertStore, TlsError> {
    let wrong = |why: String| TlsError::File { path: path.to_owned(), why };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| wrong(e.to_string()))? {
        let certificate = certificate.map_err(|e| wrong(e.to_string()))?;
        store.add(certificate).map_err(|e| wrong(e.to_string()))?;
    }
    if store.is_empty() {
        return Err(wrong("it has no certificate".to_owned()));
    }
    Ok(store)
}

/// Accepts any certificate. Signatures are still checked, so that both sides use the same keys.
#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
