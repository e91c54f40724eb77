//! TLS towards the servers of a source.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// The PEM files of a client. They are read for every connection, so that renewed ones are followed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientTls {
    /// The authorities of the server's certificate; `None`: those of the system.
    pub authority: Option<PathBuf>,
    /// The certificate of this client, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is no such PEM.
    #[error("{path}: {why}; give a readable PEM file")]
    File {
        /// The file.
        path: String,
        /// The fault.
        why: String,
    },
    /// The certificates do not fit.
    #[error("TLS cannot be used: {0}")]
    Rustls(#[from] rustls::Error),
}

/// The same, as PEM text.
#[derive(Default)]
pub(crate) struct ClientPem {
    pub(crate) authority: Option<Pem>,
    pub(crate) identity: Option<(Pem, Pem)>,
}

/// PEM text, and the place that it came from.
pub(crate) struct Pem {
    pub(crate) text: Vec<u8>,
    pub(crate) place: String,
}

impl ClientTls {
    /// Reads the files.
    pub(crate) async fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let authority = match &self.authority {
            Some(path) => Some(Pem::read(path).await?),
            None => None,
        };
        let identity = match &self.identity {
            Some((certificate, key)) => {
                Some((Pem::read(certificate).await?, Pem::read(key).await?))
            }
            None => None,
        };
        ClientPem { authority, identity }.config()
    }
}

impl Pem {
    pub(crate) async fn read(path: &Path) -> Result<Self, TlsError> {
        let place = path.display().to_string();
        match tokio::fs::read(path).await {
            Ok(text) => Ok(Self { text, place }),
            Err(why) => Err(TlsError::File { path: place, why: why.to_string() }),
        }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let found = CertificateDer::pem_slice_iter(&self.text).collect::<Result<Vec<_>, _>>();
        match found {
            Ok(found) if found.is_empty() => Err(self.wrong("it has no certificate".to_owned())),
            Ok(found) => Ok(found),
            Err(why) => Err(self.wrong(why.to_string())),
        }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(&self.text).map_err(|why| self.wrong(why.to_string()))
    }

    fn wrong(&self, why: String) -> TlsError {
        TlsError::File { path: self.place.clone(), why }
    }
}

impl ClientPem {
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        match &self.authority {
            Some(pem) => {
                for certificate in pem.certificates()? {
                    roots.add(certificate)?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let config = match &self.identity {
            Some((certificate, key)) => {
                builder.with_client_auth_cert(certificate.certificates()?, key.key()?)?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Arc::new(config))
    }
}
