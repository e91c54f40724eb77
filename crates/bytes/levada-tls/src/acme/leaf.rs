//! The content of a certificate: its names, its time, and its identifier for the server.

use instant_acme::CertificateIdentifier;
use rustls::pki_types::CertificateDer;
use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer as _, X509Certificate},
};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    /// The names, in lower case.
    pub(crate) names: Vec<String>,
    /// Seconds of Unix time.
    pub(crate) begins: i64,
    pub(crate) ends: i64,
    pub(crate) serial: Vec<u8>,
    /// For the server's suggestion of a time to renew (RFC 9773); `None`: the certificate has none.
    pub(crate) identifier: Option<CertificateIdentifier<'static>>,
}

impl Leaf {
    pub(crate) fn of(der: &CertificateDer<'_>) -> Result<Self, String> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        let alternative = parsed.subject_alternative_name().map_err(|error| error.to_string())?;
        let general = alternative.map_or(&[][..], |names| &names.value.general_names[..]);
        let dns = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        };
        Ok(Self {
            names: general.iter().filter_map(dns).collect(),
            begins: parsed.validity().not_before.timestamp(),
            ends: parsed.validity().not_after.timestamp(),
            serial: parsed.raw_serial().to_vec(),
            identifier: CertificateIdentifier::try_from(der).ok().map(|id| id.into_owned()),
        })
    }

    /// Whether it has all these names.
    pub(crate) fn covers(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }

    /// A number of its own, for times that all nodes choose alike.
    pub(crate) fn seed(&self) -> u64 {
        levada_types::hash64(&self.serial)
    }
}
