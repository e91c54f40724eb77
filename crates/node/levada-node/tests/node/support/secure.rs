//! Certificates made for each test, and a client that checks them.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use levada_config::Certificate;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, date_time_ymd,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::within;

static AUTHORITIES: AtomicU32 = AtomicU32::new(0);

/// An authority with a directory for its certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    directory: tempfile::TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Authorities are distinguished by their names.
        let number = AUTHORITIES.fetch_add(1, Relaxed);
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        let key = KeyPair::generate().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let own = params.self_signed(&key).unwrap();
        std::fs::write(directory.path().join("authority.pem"), own.pem()).unwrap();
        Self { issuer: Issuer::new(params, key), directory }
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("authority.pem")
    }

    /// A certificate for these names and addresses.
    pub(crate) fn issue(&self, names: &[&str]) -> Certificate {
        self.issue_with(names, |_| ())
    }

    /// A certificate that differs in something.
    pub(crate) fn issue_with(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Certificate {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let file = |end: &str| self.directory.path().join(format!("{}.{end}", names[0]));
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names.clone()).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(file("pem"), certificate.pem()).unwrap();
        std::fs::write(file("key"), key.serialize_pem()).unwrap();
        Certificate { certificate: file("pem"), key: file("key"), ocsp: None }
    }
}

impl Authority {
    /// A revocation list with these serial numbers.
    pub(crate) fn revoke(&self, serials: &[u64]) -> std::path::PathBuf {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2090, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let path = self.directory.path().join("authority.crl");
        std::fs::write(&path, list.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
        path
    }
}

/// A TLS connection that offers these protocols and trusts this authority.
pub(crate) async fn connect(
    address: SocketAddr,
    name: &str,
    authority: &Path,
    protocols: &[&str],
    identity: Option<&Certificate>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => config.with_no_client_auth(),
        Some(files) => {
            let chain = CertificateDer::pem_file_iter(&files.certificate).unwrap();
            let key = rustls::pki_types::PrivateKeyDer::from_pem_file(&files.key).unwrap();
            config.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    let stream = within(TcpStream::connect(address)).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    within(TlsConnector::from(Arc::new(config)).connect(name, stream)).await
}
