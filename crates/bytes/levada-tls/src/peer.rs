//! TLS between the nodes of a cluster: each shows a certificate, and requires one of the same authority.

use std::{path::Path, sync::Arc};

use rustls::{ClientConfig, ServerConfig, server::WebPkiClientVerifier};

use crate::pem::{Certificate, TlsError, authorities, provider, read, shown, unusable};

/// The configuration of the peer listener: it presents `identity` and requires certificates of
/// `authority`.
pub fn server(identity: &Certificate, authority: &Path) -> Result<Arc<ServerConfig>, TlsError> {
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
pub fn client(
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
