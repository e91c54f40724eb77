//! TLS towards origins: trusted authorities, names, and the certificate of this node.

use std::{
    path::PathBuf,
    sync::{Arc, LazyLock},
};

use ring::digest::{SHA256, digest};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{CertificateDer, UnixTime},
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{
    handshake::{HandshakeSettings, TlsVersion},
    pem::{self, Certificate, TlsError, contradiction, unusable},
};

pub use rustls::{ClientConfig, pki_types::ServerName};

/// Authorities that a node trusts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Authorities {
    /// The authorities of the operating system; where it has none, those of Mozilla.
    System,
    /// The authorities that Mozilla trusts, as of this program's build.
    Mozilla,
    /// The authorities of a PEM file.
    File(PathBuf),
}

/// How a node connects to origins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OriginTls {
    /// The trusted authorities; if empty, those of the operating system.
    pub authorities: Vec<Authorities>,
    /// The name to ask for (SNI) and to find in the certificate, instead of the host.
    pub server_name: Option<String>,
    /// The certificate of this node.
    pub identity: Option<Certificate>,
    /// SHA-256 of public keys (SubjectPublicKeyInfo): the certificate must have one of them.
    pub pins: Vec<[u8; 32]>,
    /// Whether any certificate will do. Pinned keys are still looked at.
    pub unverified: bool,
    /// The oldest version; `None`: 1.2.
    pub min: Option<TlsVersion>,
}

/// The authorities of the operating system. Reading them takes some milliseconds, so it is done once.
static SYSTEM: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let errors: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
        let errors = errors.join("; ");
        tracing::warn!(
            errors,
            "this system has no certificate authorities (package ca-certificates): those of Mozilla are trusted"
        );
        return MOZILLA.clone();
    }
    Arc::new(roots)
});

static MOZILLA: LazyLock<Arc<RootCertStore>> =
    LazyLock::new(|| Arc::new(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }));

/// The configuration for connections to `https` servers, over HTTP/2 or HTTP/1.1: it trusts the authorities of this
/// system.
pub fn client(h2: bool) -> Arc<ClientConfig> {
    let protocol: &[u8] = if h2 { b"h2" } else { b"http/1.1" };
    let config = OriginTls::default().config(&[protocol]);
    config.unwrap_or_else(|_| unreachable!("the defaults name no files"))
}

impl OriginTls {
    /// The configuration of connections that speak these protocols. It reads files.
    ///
    /// # Errors
    /// With the file and the reason.
    pub fn config(&self, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, TlsError> {
        let min = self.min.unwrap_or(TlsVersion::Tls12);
        let handshake = HandshakeSettings { min, ..HandshakeSettings::default() };
        let provider = handshake.provider()?;
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&handshake.versions())
            .map_err(contradiction)?;
        let roots = self.roots()?;
        let builder = if self.unverified || !self.pins.is_empty() {
            let usual = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
            let usual = usual.map_err(contradiction)?;
            let verifier = Special { usual, unverified: self.unverified, pins: self.pins.clone() };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        } else {
            builder.with_root_certificates(roots)
        };
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(files) => {
                // Says so if the key is another certificate's.
                pem::certified(files)?;
                let (chain, key) = pem::read(files)?;
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|why| unusable(&files.certificate, why))?
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }

    /// A configuration that trusts nobody, in the place of one that cannot be read.
    pub fn nobody() -> Arc<ClientConfig> {
        let config = ClientConfig::builder_with_provider(pem::shared_provider())
            .with_safe_default_protocol_versions()
            .unwrap_or_else(|_| unreachable!("the provider supports the default versions"))
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        Arc::new(config)
    }

    /// Whether files belong to it, which a reload must read again.
    pub fn has_files(&self) -> bool {
        let is_file = |one: &Authorities| matches!(one, Authorities::File(_));
        self.identity.is_some() || self.authorities.iter().any(is_file)
    }

    /// The name that is asked for at a host.
    ///
    /// # Errors
    /// When it is neither a name nor an address.
    pub fn name_for(&self, host: &str) -> Result<ServerName<'static>, String> {
        let name = self.server_name.as_deref().unwrap_or(host);
        let wrong = |_| format!("{name:?} is neither a host name nor an address");
        ServerName::try_from(name.to_owned()).map_err(wrong)
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, TlsError> {
        match &self.authorities[..] {
            [] | [Authorities::System] => Ok(SYSTEM.clone()),
            [Authorities::Mozilla] => Ok(MOZILLA.clone()),
            several => {
                let mut roots = RootCertStore::empty();
                for one in several {
                    match one {
                        Authorities::System => roots.roots.extend(SYSTEM.roots.iter().cloned()),
                        Authorities::Mozilla => roots.roots.extend(MOZILLA.roots.iter().cloned()),
                        Authorities::File(path) => pem::add_authorities(&mut roots, path)?,
                    }
                }
                Ok(Arc::new(roots))
            }
        }
    }
}

/// Whether a certificate can be for this name.
pub fn is_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

/// A verifier with pinned keys, or one that accepts any certificate.
#[derive(Debug)]
struct Special {
    usual: Arc<WebPkiServerVerifier>,
    unverified: bool,
    pins: Vec<[u8; 32]>,
}

impl ServerCertVerifier for Special {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.unverified {
            self.usual.verify_server_cert(leaf, others, name, ocsp, now)?;
        }
        if !self.pins.is_empty() && !self.pins.contains(&pin(leaf)?) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// The digest of a certificate's public key (RFC 7469 Sec. 2.4).
fn pin(leaf: &CertificateDer<'_>) -> Result<[u8; 32], Error> {
    let parsed = X509Certificate::from_der(leaf).map_err(|_| CertificateError::BadEncoding)?;
    let key = parsed.1.public_key().raw;
    let mut pin = [0; 32];
    pin.copy_from_slice(digest(&SHA256, key).as_ref());
    Ok(pin)
}
