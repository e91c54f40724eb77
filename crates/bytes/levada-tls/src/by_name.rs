//! The certificates of a node by the server names that clients ask for.

use std::{collections::HashMap, sync::Arc};

use rustls::{server::ResolvesServerCert, sign::CertifiedKey};

use crate::{
    door::{Door, DoorSettings},
    ocsp::StapledKey,
    pem::{Certificate, TlsError, of_server, shown},
};

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
