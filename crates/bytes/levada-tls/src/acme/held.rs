//! A certificate with its key, as it is stored, sent to peers and shown.

use std::sync::Arc;

use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};

use crate::acme::leaf::Leaf;

/// See the module.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) leaf: Leaf,
    pub(crate) shown: Arc<CertifiedKey>,
    /// The key and the chain in PEM, in one text: the two are replaced together or not at all.
    pub(crate) pem: String,
}

impl Held {
    /// Reads a key and a chain, and checks that they belong together.
    pub(crate) fn of(pem: String) -> Result<Self, String> {
        let chain = CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("its chain cannot be read: {error}"))?;
        let leaf = chain.first().ok_or("it holds no certificate")?;
        let leaf =
            Leaf::of(leaf).map_err(|error| format!("its certificate is damaged: {error}"))?;
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| format!("its key cannot be read: {error}"))?;
        let provider = rustls::crypto::ring::default_provider();
        let shown = CertifiedKey::from_der(chain, key, &provider)
            .map_err(|error| format!("its key and its certificate cannot be used: {error}"))?;
        Ok(Self { leaf, shown: Arc::new(shown), pem })
    }

    /// Whether it was issued after another one. Of two of the same second, all nodes prefer the same.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        let age = |held: &Self| (held.leaf.begins, held.leaf.ends, held.leaf.serial.clone());
        age(self) > age(other)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A self-signed certificate with its key.
    pub(crate) fn pem(names: &[&str], begins: i32, ends: i32) -> String {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(begins, 1, 1);
        params.not_after = rcgen::date_time_ymd(ends, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        format!("{}{}", key.serialize_pem(), certificate.pem())
    }

    #[test]
    fn names_and_times_are_those_of_the_certificate() {
        let held = Held::of(pem(&["a.example", "*.b.example"], 2020, 2021)).unwrap();
        assert_eq!(held.leaf.names, ["a.example", "*.b.example"]);
        assert_eq!((held.leaf.begins, held.leaf.ends), (1_577_836_800, 1_609_459_200));
        assert!(held.leaf.covers(&["*.b.example".to_owned()]));
        assert!(!held.leaf.covers(&["a.example".to_owned(), "c.example".to_owned()]));
    }

    #[test]
    fn key_of_another_certificate_is_refused() {
        let (one, other) = (pem(&["a.example"], 2020, 2021), pem(&["a.example"], 2020, 2021));
        let at = |pem: &str| pem.find("-----BEGIN CERTIFICATE").unwrap();
        let mixed = format!("{}{}", &one[..at(&one)], &other[at(&other)..]);
        assert!(Held::of(mixed).unwrap_err().contains("cannot be used"));
        assert!(Held::of(one[at(&one)..].to_owned()).unwrap_err().contains("key cannot be read"));
        assert!(Held::of(String::new()).unwrap_err().contains("no certificate"));
        assert!(Held::of(one[..one.len() / 2].to_owned()).is_err());
    }

    #[test]
    fn one_of_two_certificates_is_newer_for_all_nodes() {
        let [one, other, later] = [(2020, 2021), (2020, 2021), (2021, 2022)]
            .map(|(begins, ends)| Held::of(pem(&["a.example"], begins, ends)).unwrap());
        assert!(later.is_newer_than(&one) && !one.is_newer_than(&later));
        assert_ne!(one.is_newer_than(&other), other.is_newer_than(&one));
        assert!(!one.is_newer_than(&one));
    }
}
