//! An authority, a server's certificate and a client's, as files.

use std::{net::IpAddr, path::PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use tempfile::TempDir;

/// The files; they go when this is dropped.
pub(crate) struct Certificates {
    directory: TempDir,
}

impl Certificates {
    /// For a server at this address, and a client with this common name.
    pub(crate) fn new(server: IpAddr, client: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: String| std::fs::write(directory.path().join(name), text).unwrap();
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "authority");
        write("ca.pem", authority.self_signed(&authority_key).unwrap().pem());
        let issuer = Issuer::new(authority, authority_key);
        let issue = |name: &str, common: &str| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.subject_alt_names.push(SanType::IpAddress(server));
            params.distinguished_name.push(DnType::CommonName, common);
            // The group that may do everything in Kubernetes.
            params.distinguished_name.push(DnType::OrganizationName, "system:masters");
            params.extended_key_usages = vec![
                rcgen::ExtendedKeyUsagePurpose::ServerAuth,
                rcgen::ExtendedKeyUsagePurpose::ClientAuth,
            ];
            write(&format!("{name}.pem"), params.signed_by(&key, &issuer).unwrap().pem());
            write(&format!("{name}.key"), key.serialize_pem());
        };
        issue("server", "server");
        issue("client", client);
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}
