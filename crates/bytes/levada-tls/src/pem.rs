//! Certificates, keys, authorities and revocation lists from PEM files. Errors name the file.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    RootCertStore,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, CertificateRevocationListDer, PrivateKeyDer,
        pem::{Error as PemError, PemObject},
    },
    sign::CertifiedKey,
};

/// A certificate chain and its key, both PEM files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Certificate {
    /// The chain, leaf first. The leaf's names are the server names it is used for.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// An OCSP answer about the leaf, DER; it is stapled to the certificate.
    pub ocsp: Option<PathBuf>,
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
    /// A key belongs to another certificate.
    #[error(
        "{key}: this is not the key of {certificate}; give the two files that were made together"
    )]
    OtherKey {
        /// The key's file.
        key: String,
        /// The certificate's file.
        certificate: String,
    },
    /// A secret cannot be used.
    #[error("{path}: {why}; `openssl rand -out {path} 48` makes one")]
    Secret {
        /// The file.
        path: String,
        /// The reason.
        why: String,
    },
    /// The settings of TLS contradict each other.
    #[error("{0}")]
    Settings(String),
}

/// The cryptography of all connections.
pub fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// Reads a chain with its key, and checks that they belong together.
///
/// # Errors
/// With the file and the reason.
pub fn certified(file: &Certificate) -> Result<CertifiedKey, TlsError> {
    let (chain, key) = read(file)?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|why| match why {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::OtherKey { key: shown(&file.key), certificate: shown(&file.certificate) }
        }
        why => unusable(&file.certificate, why),
    })
}

/// Reads a chain with its key for a listener: the leaf must name servers. Returns the names, too, in lower case.
///
/// # Errors
/// With the file and the reason.
pub fn of_server(file: &Certificate) -> Result<(CertifiedKey, Vec<String>), TlsError> {
    let key = certified(file)?;
    let path = || shown(&file.certificate);
    let wrong = |why: String| TlsError::File { path: path(), why };
    let leaf = key.cert.first().ok_or_else(|| wrong("holds no certificate".to_owned()))?;
    let leaf = webpki::EndEntityCert::try_from(leaf).map_err(|why| wrong(why.to_string()))?;
    let names: Vec<_> = leaf.valid_dns_names().map(str::to_ascii_lowercase).collect();
    if names.is_empty() {
        return Err(TlsError::Nameless { path: path() });
    }
    Ok((key, names))
}

/// Reads a chain and a key.
///
/// # Errors
/// With the file and the reason.
pub fn read(
    file: &Certificate,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain = chain(&file.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&file.key).map_err(|why| wrong(&file.key, &why))?;
    Ok((chain, key))
}

/// Reads the certificates of a file; there is one at least.
///
/// # Errors
/// With the file and the reason.
pub fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    all(path, "certificate")
}

/// Reads the revocation lists of a file; there is one at least.
///
/// # Errors
/// With the file and the reason.
pub fn revocation_lists(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    all(path, "revocation list")
}

/// Reads the authorities of a file.
///
/// # Errors
/// With the file and the reason.
pub fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    add_authorities(&mut roots, path)?;
    Ok(roots)
}

/// Adds the authorities of a file.
///
/// # Errors
/// With the file and the reason.
pub fn add_authorities(roots: &mut RootCertStore, path: &Path) -> Result<(), TlsError> {
    for certificate in chain(path)? {
        roots.add(certificate).map_err(|why| unusable(path, why))?;
    }
    Ok(())
}

/// The error of a file that cannot be used.
pub fn unusable(path: &Path, why: rustls::Error) -> TlsError {
    TlsError::Unusable { path: shown(path), why }
}

/// A path as text.
pub fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The settings of a builder cannot be used.
pub(crate) fn contradiction(why: impl ToString) -> TlsError {
    TlsError::Settings(why.to_string())
}

/// A shared provider.
pub(crate) fn shared_provider() -> Arc<CryptoProvider> {
    Arc::new(provider())
}

fn all<T: PemObject>(path: &Path, kind: &str) -> Result<Vec<T>, TlsError> {
    let items = T::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|why| wrong(path, &why))?;
    if items.is_empty() {
        return Err(TlsError::File { path: shown(path), why: format!("holds no {kind}") });
    }
    Ok(items)
}

fn wrong(path: &Path, why: &PemError) -> TlsError {
    TlsError::File { path: shown(path), why: why.to_string() }
}
