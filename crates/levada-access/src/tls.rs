//! TLS: certificates by server name for clients, both sides for peers, and the cryptographic functions
//! that peers need.

use std::{collections::HashMap, path::Path, sync::Arc};

pub use levada_tls::pem::{Certificate, TlsError};
use levada_tls::{
    door::{Door, DoorSettings},
    ocsp::StapledKey,
    origin::OriginTls,
    pem::{authorities, of_server, provider, read, shown, unusable},
};
use rustls::{
    ClientConfig, ServerConfig,
    server::{ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
};
use subtle::ConstantTimeEq as _;

/// The protocol of handshakes by which an authority asks for a proof (RFC 8737). No request comes after one.
pub const PROOF_PROTOCOL: &[u8] = b"acme-tls/1";

/// The door of a client listener. It presents what `resolver` finds, which is handed the certificates of files.
///
/// # Errors
/// When a file or a setting cannot be used.
pub fn client_facing(
    certificates: &[Certificate],
    settings: &DoorSettings<'_>,
    resolver: impl FnOnce(ByName) -> Arc<dyn ResolvesServerCert>,
) -> Result<Door, TlsError> {
    let files = ByName::new(certificates)?;
    let answers = files.answers.clone();
    Door::new(resolver(files), settings, answers)
}

/// The configuration of the peer listener: it presents `identity` and requires certificates of
/// `authority`.
pub fn peer_server(
    identity: &Certificate,
    authority: &Path,
) -> Result<Arc<ServerConfig>, TlsError> {
    let roots = Arc::new(authorities(authority)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::new(provider()))
        .build()
        .map_err(|why| TlsError::File { path: shown(authority), why: why.to_string() })?;
    let (chain, key) = read(identity)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
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
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()
        .map_err(|why| unusable(&identity.certificate, why))?
        .with_root_certificates(authorities(authority)?)
        .with_client_auth_cert(chain, key)
        .map_err(|why| unusable(&identity.certificate, why))?;
    config.alpn_protocols = vec![if h2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(Arc::new(config))
}

/// The configuration for connections to `https` servers, over HTTP/2 or HTTP/1.1: it trusts the authorities of this
/// system.
pub fn origin_client(h2: bool) -> Arc<ClientConfig> {
    let protocol: &[u8] = if h2 { b"h2" } else { b"http/1.1" };
    let config = OriginTls::default().config(&[protocol]);
    config.unwrap_or_else(|_| unreachable!("the defaults name no files"))
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
pub struct ByName {
    names: HashMap<String, Arc<StapledKey>>,
    first: Option<Arc<StapledKey>>,
    /// Until when the answer about each certificate is stapled, where there is one.
    answers: Vec<(String, Option<u64>)>,
}

impl ByName {
    fn new(files: &[Certificate]) -> Result<Self, TlsError> {
        let mut by_name = Self { names: HashMap::new(), first: None, answers: Vec::new() };
        for file in files {
            let (key, found) = of_server(file)?;
            let key = Arc::new(by_name.stapled(file, key));
            by_name.first.get_or_insert_with(|| key.clone());
            by_name.names.extend(found.into_iter().map(|name| (name, key.clone())));
        }
        Ok(by_name)
    }

    /// The certificate with its answer, if it has one that is good.
    fn stapled(&mut self, file: &Certificate, key: CertifiedKey) -> StapledKey {
        let Some(answer) = &file.ocsp else { return key.into() };
        let stapled = StapledKey::new(key, answer).unwrap_or_else(|(key, reason)| {
            tracing::warn!(reason, "OCSP answer is not stapled");
            key
        });
        self.answers.push((shown(&file.certificate), stapled.stapled_until()));
        stapled
    }

    /// The certificate of a server name, or the first one.
    pub fn of(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let found = match name {
            Some(name) => self.find(name),
            None => self.first.as_ref(),
        };
        found.map(|key| key.now().clone())
    }

    fn find(&self, name: &str) -> Option<&Arc<StapledKey>> {
        let name = name.to_ascii_lowercase();
        self.names.get(&name).or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.names.get(&format!("*.{parent}"))
        })
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|name| self.find(name));
        named.or(self.first.as_ref()).map(|key| key.now().clone())
    }
}
