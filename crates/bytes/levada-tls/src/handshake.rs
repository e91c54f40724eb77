//! The choices that handshakes may make: versions, cipher suites and curves, by the names that operators know.

use std::sync::Arc;

use rustls::{
    CipherSuite, NamedGroup, SupportedProtocolVersion,
    crypto::CryptoProvider,
    version::{TLS12, TLS13},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pem::{TlsError, contradiction, provider};

/// A version of TLS; older ones are not spoken.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Deserialize,
    Serialize,
    JsonSchema,
)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    Tls13,
}

/// The choices of handshakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeSettings {
    /// The oldest version.
    pub min: TlsVersion,
    /// The newest version.
    pub max: TlsVersion,
    /// Cipher suites, the preferred one first. A version without one here has all of its own.
    pub ciphers: Vec<CipherSuite>,
    /// Groups of the key exchange, the preferred one first; all if empty.
    pub curves: Vec<NamedGroup>,
}

impl Default for HandshakeSettings {
    fn default() -> Self {
        let (min, max) = (TlsVersion::Tls12, TlsVersion::Tls13);
        Self { min, max, ciphers: Vec::new(), curves: Vec::new() }
    }
}

/// The cipher suites: the name of IANA, the name of OpenSSL, and the suite.
pub const CIPHERS: [(&str, &str, CipherSuite); 9] = [
    ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// The groups: their names, the usual one first.
pub const CURVES: [(&[&str], NamedGroup); 3] = [
    (&["X25519"], NamedGroup::X25519),
    (&["P-256", "secp256r1", "prime256v1"], NamedGroup::secp256r1),
    (&["P-384", "secp384r1"], NamedGroup::secp384r1),
];

/// The cipher suite of a name of IANA or OpenSSL.
pub fn cipher(name: &str) -> Option<CipherSuite> {
    let is_it = |known: &str| known.eq_ignore_ascii_case(name);
    let found = CIPHERS.iter().find(|(iana, openssl, _)| is_it(iana) || is_it(openssl));
    found.map(|(.., suite)| *suite)
}

/// The group of a name.
pub fn curve(name: &str) -> Option<NamedGroup> {
    let is_it = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    CURVES.iter().find(|(names, _)| is_it(names)).map(|(_, group)| *group)
}

impl HandshakeSettings {
    /// The versions, the newest one first.
    pub(crate) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let all = [(TlsVersion::Tls13, &TLS13), (TlsVersion::Tls12, &TLS12)];
        let within = |(version, _): &(TlsVersion, _)| (self.min..=self.max).contains(version);
        all.into_iter().filter(within).map(|(_, version)| version).collect()
    }

    /// The cryptography that these settings leave.
    ///
    /// # Errors
    /// When no version, no suite or no group is left.
    pub(crate) fn provider(&self) -> Result<Arc<CryptoProvider>, TlsError> {
        let mut provider = provider();
        if self.min > self.max {
            return Err(contradiction("the minimum version of TLS is above the maximum"));
        }
        let own = |version| {
            let of_version =
                |suite: &CipherSuite| is_tls13(*suite) == (version == TlsVersion::Tls13);
            self.ciphers.iter().copied().filter(of_version).collect::<Vec<_>>()
        };
        let (tls12, tls13) = (own(TlsVersion::Tls12), own(TlsVersion::Tls13));
        let rank = |suite: CipherSuite| {
            let named = if is_tls13(suite) { &tls13 } else { &tls12 };
            if named.is_empty() { Some(0) } else { named.iter().position(|one| *one == suite) }
        };
        provider.cipher_suites.retain(|suite| rank(suite.suite()).is_some());
        provider.cipher_suites.sort_by_key(|suite| (!is_tls13(suite.suite()), rank(suite.suite())));
        if !self.curves.is_empty() {
            let rank = |group: NamedGroup| self.curves.iter().position(|one| *one == group);
            provider.kx_groups.retain(|group| rank(group.name()).is_some());
            provider.kx_groups.sort_by_key(|group| rank(group.name()));
        }
        Ok(Arc::new(provider))
    }
}

/// Whether the suite belongs to TLS 1.3.
pub fn is_tls13(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_256_GCM_SHA384
            | CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_and_group_of_the_library_has_a_name() {
        let provider = provider();
        assert!(provider.cipher_suites.iter().all(|suite| {
            CIPHERS.iter().any(|(iana, openssl, known)| {
                *known == suite.suite() && cipher(iana) == cipher(openssl)
            })
        }));
        let named = |group: NamedGroup| CURVES.iter().any(|(_, known)| *known == group);
        assert!(provider.kx_groups.iter().all(|group| named(group.name())));
    }

    #[test]
    fn suites_of_one_version_leave_those_of_the_other() {
        let names = ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"];
        let ciphers = names.iter().map(|name| cipher(name).unwrap()).collect();
        let settings = HandshakeSettings { ciphers, ..HandshakeSettings::default() };
        let suites = settings.provider().unwrap().cipher_suites.clone();
        let suites: Vec<_> = suites.iter().map(|suite| suite.suite()).collect();
        assert_eq!(suites.iter().filter(|suite| is_tls13(**suite)).count(), 3);
        let tls12: Vec<_> = suites.into_iter().filter(|suite| !is_tls13(*suite)).collect();
        assert_eq!(tls12, names.map(|name| cipher(name).unwrap()), "in the order of the names");
    }

    #[test]
    fn minimum_above_the_maximum_is_an_error() {
        let (min, max) = (TlsVersion::Tls13, TlsVersion::Tls12);
        let settings = HandshakeSettings { min, max, ..HandshakeSettings::default() };
        assert!(settings.provider().unwrap_err().to_string().contains("above the maximum"));
    }
}
