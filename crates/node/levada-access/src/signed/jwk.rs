//! The keys of those who sign: sets of JSON Web Keys (RFC 7517) by issuer, in the form that Traffic Server's
//! plugin `uri_signing` reads.

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{self, EcdsaKeyPair, Ed25519KeyPair, UnparsedPublicKey},
};
use serde::Deserialize;

use super::CannotSign;

/// The keys of each issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuers(BTreeMap<String, KeySet>);

/// Keys that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadKeys(String);

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct KeySet {
    /// The key that signs.
    renewal_kid: Option<String>,
    keys: Vec<Jwk>,
}

#[derive(Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Jwk {
    pub(super) kid: String,
    pub(super) alg: Algorithm,
    kty: String,
    crv: Option<String>,
    #[serde(default, deserialize_with = "bytes")]
    k: Vec<u8>,
    #[serde(default, deserialize_with = "bytes")]
    x: Vec<u8>,
    #[serde(default, deserialize_with = "bytes")]
    y: Vec<u8>,
    #[serde(default, deserialize_with = "bytes")]
    d: Vec<u8>,
}

/// The algorithms that are accepted. `none` is no algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum Algorithm {
    HS256,
    ES256,
    EdDSA,
}

fn bytes<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    URL_SAFE_NO_PAD.decode(text).map_err(|_| serde::de::Error::custom("no base64url"))
}

impl Issuers {
    /// Reads the keys of all issuers.
    ///
    /// # Errors
    /// With the first mistake.
    pub fn read(text: &str) -> Result<Self, BadKeys> {
        let issuers: BTreeMap<String, KeySet> =
            serde_json::from_str(text).map_err(|error| BadKeys(error.to_string()))?;
        for (issuer, set) in &issuers {
            for (at, key) in set.keys.iter().enumerate() {
                let bad =
                    |why: &str| BadKeys(format!("issuer {issuer:?}, key {:?}: {why}", key.kid));
                key.check().map_err(bad)?;
                if set.keys[..at].iter().any(|other| other.kid == key.kid) {
                    return Err(bad("there are two keys of this kid"));
                }
            }
            let renewal = set.renewal_kid.as_ref();
            if let Some(kid) = renewal.filter(|kid| set.keys.iter().all(|key| key.kid != **kid)) {
                return Err(BadKeys(format!(
                    "issuer {issuer:?}: no key has the renewal_kid {kid:?}"
                )));
            }
        }
        if issuers.is_empty() {
            return Err(BadKeys("there is no issuer".to_owned()));
        }
        Ok(Self(issuers))
    }

    pub(super) fn of(&self, issuer: &str) -> Option<&KeySet> {
        self.0.get(issuer)
    }

    /// The first issuer with a key that signs.
    pub(super) fn signing(&self) -> Option<(&str, &Jwk)> {
        self.0.iter().find_map(|(issuer, set)| {
            let key = set.keys.iter().find(|key| Some(&key.kid) == set.renewal_kid.as_ref())?;
            Some((issuer.as_str(), key))
        })
    }
}

impl KeySet {
    /// The keys that a token's header names: one, or without a `kid` all of the algorithm.
    pub(super) fn named<'a>(
        &'a self,
        kid: Option<&'a str>,
        alg: Algorithm,
    ) -> impl Iterator<Item = &'a Jwk> {
        let is_named = move |key: &&Jwk| kid.is_none_or(|kid| kid == key.kid) && key.alg == alg;
        self.keys.iter().filter(is_named)
    }
}

impl Jwk {
    fn check(&self) -> Result<(), &'static str> {
        let crv = self.crv.as_deref();
        match self.alg {
            Algorithm::HS256 if self.kty != "oct" => Err("HS256 needs the kty \"oct\""),
            Algorithm::HS256 if self.k.len() < 32 => Err("HS256 needs a key of 32 bytes at least"),
            Algorithm::ES256 if self.kty != "EC" || crv != Some("P-256") => {
                Err("ES256 needs the kty \"EC\" and the crv \"P-256\"")
            }
            Algorithm::ES256 if self.x.len() != 32 || self.y.len() != 32 => {
                Err("ES256 needs x and y of 32 bytes each")
            }
            Algorithm::EdDSA if self.kty != "OKP" || crv != Some("Ed25519") => {
                Err("EdDSA needs the kty \"OKP\" and the crv \"Ed25519\"")
            }
            Algorithm::EdDSA if self.x.len() != 32 => Err("EdDSA needs x of 32 bytes"),
            _ => Ok(()),
        }
    }

    fn point(&self) -> Vec<u8> {
        [&[4][..], &self.x, &self.y].concat()
    }

    /// Whether the signature is this key's.
    pub(super) fn verifies(&self, message: &[u8], shown: &[u8]) -> bool {
        match self.alg {
            Algorithm::HS256 => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, &self.k);
                hmac::verify(&key, message, shown).is_ok()
            }
            Algorithm::ES256 => {
                let key = UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, self.point());
                key.verify(message, shown).is_ok()
            }
            Algorithm::EdDSA => {
                UnparsedPublicKey::new(&signature::ED25519, &self.x).verify(message, shown).is_ok()
            }
        }
    }

    /// Signs a message.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, CannotSign> {
        let private = || CannotSign("the key that signs has no private part `d`");
        match self.alg {
            Algorithm::HS256 => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, &self.k);
                Ok(hmac::sign(&key, message).as_ref().to_vec())
            }
            Algorithm::ES256 => {
                let (form, random) =
                    (&signature::ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
                let pair = EcdsaKeyPair::from_private_key_and_public_key(
                    form,
                    &self.d,
                    &self.point(),
                    &random,
                )
                .map_err(|_| private())?;
                let signed = pair.sign(&random, message).map_err(|_| private())?;
                Ok(signed.as_ref().to_vec())
            }
            Algorithm::EdDSA => {
                let pair = Ed25519KeyPair::from_seed_and_public_key(&self.d, &self.x);
                Ok(pair.map_err(|_| private())?.sign(message).as_ref().to_vec())
            }
        }
    }
}

impl Algorithm {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::HS256 => "HS256",
            Self::ES256 => "ES256",
            Self::EdDSA => "EdDSA",
        }
    }
}

impl fmt::Debug for Jwk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without its secret parts.
        f.debug_struct("Jwk")
            .field("kid", &self.kid)
            .field("alg", &self.alg)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_in_keys_are_named() {
        let k = "Kh_RkUMj-fzbD37qBnDf_3e_RvQ3RP9PaSmVEpE24AM";
        let of = |keys: &str| format!(r#"{{"a": {{"renewal_kid": "1", "keys": [{keys}]}}}}"#);
        let oct = format!(r#"{{"kid": "1", "alg": "HS256", "kty": "oct", "k": "{k}"}}"#);
        assert!(Issuers::read(&of(&oct)).is_ok());
        for (text, why) in [
            ("{}".to_owned(), "no issuer"),
            ("[]".to_owned(), "expected a map"),
            (of(&oct.replace("HS256", "none")), "unknown variant `none`"),
            (of(&oct.replace(k, "c2hvcnQ")), "32 bytes"),
            (of(&oct.replace("oct", "EC")), "kty"),
            (of(&oct.replace("HS256", "ES256")), "P-256"),
            (of(&format!("{oct}, {oct}")), "two keys"),
            (of(&oct).replace("\"renewal_kid\": \"1\"", "\"renewal_kid\": \"2\""), "renewal_kid"),
        ] {
            let error = Issuers::read(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}, not {why}");
        }
    }
}
