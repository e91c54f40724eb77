//! TLS: certificates by server name for clients, both sides for peers, and the cryptographic functions
//! that peers need.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
    sign::CertifiedKey,
};
use subtle::ConstantTimeEq as _;

/// A certificate chain and its key, both PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The chain, leaf first. The leaf's names are the server names it is used for.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or has no PEM item of the expected kind.
    #[error("{path}: {why}; give a readable PEM file")]
    File {
        /// The file.
        path: String,
        /// The reason.
        why: String,
    },
    /// Certificate and key do not match, or cannot be used.
    #[error("{path}: {why}")]
    Unusable {
        /// The certificate's file.
        path: String,
        /// The reason.
        why: rustls::Error,
    },
    /// A certificate names no server.
    #[error("{path}: the certificate names no server (no DNS subjectAltName)")]
    Nameless {
        /// The certificate's file.
        path: String,
    },
}

/// The configuration of a client listener: it presents the certificate for the requested server name,
/// else the first.
pub fn client_facing(certificates: &[Certificate]) -> Result<Arc<ServerConfig>, TlsError> {
    let resolver = ByName::new(certificates)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|why| unusable(Path::new("tls"), why))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// The configuration of the peer listener: it presents `identity` and requires certificates of
/// `authority`.
pub fn peer_server(
    identity: &Certificate,
    authority: &Path,
) -> Result<Arc<ServerConfig>, TlsError> {
    let roots = Arc::new(roots(authority)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
        .build()
        .map_err(|why| TlsError::File { path: shown(authority), why: why.to_string() })?;
    let (chain, key) = read(identity)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|why| unusable(&identity.certificate, why))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|why| unusable(&identity.certificate, why))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The configuration for connections to peers.
pub fn peer_client(
    identity: &Certificate,
    authority: &Path,
    h2: bool,
) -> Result<Arc<ClientConfig>, TlsError> {
    let (chain, key) = read(identity)?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|why| unusable(&identity.certificate, why))?
        .with_root_certificates(roots(authority)?)
        .with_client_auth_cert(chain, key)
        .map_err(|why| unusable(&identity.certificate, why))?;
    config.alpn_protocols = vec![if h2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(Arc::new(config))
}

/// The configuration for connections to `https` origins: it trusts the public authorities.
pub fn origin_client() -> Arc<ClientConfig> {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap_or_else(|_| unreachable!("the provider supports the default versions"))
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

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

/// Certificates by the server names they carry, wildcards included.
#[derive(Debug)]
struct ByName {
    names: HashMap<String, Arc<CertifiedKey>>,
    first: Option<Arc<CertifiedKey>>,
}

impl ByName {
    fn new(files: &[Certificate]) -> Result<Self, TlsError> {
        let mut by_name = Self { names: HashMap::new(), first: None };
        for file in files {
            let key = Arc::new(certified(file)?);
            let found = server_names(file, &key)?;
            if found.is_empty() {
                return Err(TlsError::Nameless { path: shown(&file.certificate) });
            }
            by_name.first.get_or_insert_with(|| key.clone());
            by_name.names.extend(found.into_iter().map(|name| (name, key.clone())));
        }
        Ok(by_name)
    }

    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase();
        self.names.get(&name).or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.names.get(&format!("*.{parent}"))
        })
    }
}

impl rustls::server::ResolvesServerCert for ByName {
    fn resolve(&self, hello: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|name| self.find(name));
        named.or(self.first.as_ref()).cloned()
    }
}

fn server_names(file: &Certificate, key: &CertifiedKey) -> Result<Vec<String>, TlsError> {
    let wrong = |why: String| TlsError::File { path: shown(&file.certificate), why };
    let leaf = key.cert.first().ok_or_else(|| wrong("holds no certificate".to_owned()))?;
    let certificate =
        webpki::EndEntityCert::try_from(leaf).map_err(|why| wrong(why.to_string()))?;
    Ok(certificate.valid_dns_names().map(str::to_ascii_lowercase).collect())
}

fn certified(file: &Certificate) -> Result<CertifiedKey, TlsError> {
    let (chain, key) = read(file)?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|why| unusable(&file.certificate, why))
}

fn read(
    file: &Certificate,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain = chain(&file.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&file.key)
        .map_err(|why| TlsError::File { path: shown(&file.key), why: why.to_string() })?;
    Ok((chain, key))
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |why: String| TlsError::File { path: shown(path), why };
    let chain = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|why| wrong(why.to_string()))?;
    if chain.is_empty() {
        return Err(wrong("holds no certificate".to_owned()));
    }
    Ok(chain)
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(path)? {
        roots.add(certificate).map_err(|why| unusable(path, why))?;
    }
    Ok(roots)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unusable(path: &Path, why: rustls::Error) -> TlsError {
    TlsError::Unusable { path: shown(path), why }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
