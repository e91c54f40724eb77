//! The certificate of a handshake: a proof, one from a file, or one that was ordered.

use std::{collections::HashMap, fmt, sync::Arc};

use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::acme::Certificates;

/// The protocol of handshakes that ask for a proof (RFC 8737 Sec. 6.2).
/// The protocol of handshakes by which an authority asks for a proof (RFC 8737). No request comes after one.
pub const PROOF_PROTOCOL: &[u8] = b"acme-tls/1";

/// Finds a certificate that comes from a file: by a server name, or the one for clients without.
pub type FindCertificate = Box<dyn Fn(Option<&str>) -> Option<Arc<CertifiedKey>> + Send + Sync>;

/// Ordered certificates by their names. A name whose certificate has not come has none.
#[derive(Debug, Default)]
pub(crate) struct OrderedByName {
    pub(crate) names: HashMap<String, Option<Arc<CertifiedKey>>>,
    pub(crate) first: Option<Arc<CertifiedKey>>,
}

impl OrderedByName {
    fn find(&self, name: &str) -> Option<&Option<Arc<CertifiedKey>>> {
        self.names.get(name).or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.names.get(&format!("*.{parent}"))
        })
    }
}

pub(crate) struct Resolver {
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) files: FindCertificate,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name();
        if let Some(mut protocols) = hello.alpn()
            && protocols.any(|protocol| protocol == PROOF_PROTOCOL)
        {
            return self.certificates.challenges.certificate(name?);
        }
        let ordered = self.certificates.by_name.load();
        if let Some(name) = name {
            if let Some(key) = (self.files)(Some(name)) {
                return Some(key);
            }
            match ordered.find(&name.to_ascii_lowercase()) {
                Some(Some(key)) => return Some(key.clone()),
                // A certificate for another name would only hide what is missing.
                Some(None) => {
                    self.certificates.refused(name);
                    return None;
                }
                None => {}
            }
        }
        (self.files)(None).or_else(|| ordered.first.clone())
    }
}
