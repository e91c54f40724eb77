//! Computes the digest of a file that is sent in order, and compares it with the expected one (RFC
//! 9530).

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use levada_fetch::{Algorithm, Digest};
use ring::digest;

const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// A digest that is being computed, and its expected value.
pub struct DigestCheck {
    context: digest::Context,
    expected: Vec<u8>,
}

impl DigestCheck {
    /// A check against the origin's `Repr-Digest`, or the client's digest. `None` when neither names a
    /// secure digest.
    pub fn of(headers: &HeaderMap, wanted: Option<&Digest>) -> Option<Self> {
        let wanted = wanted.filter(|wanted| wanted.algorithm() == Algorithm::Sha256);
        if let Some(wanted) = wanted {
            let context = digest::Context::new(&digest::SHA256);
            return Some(Self { context, expected: BASE64_STANDARD.encode(wanted.bytes()).into() });
        }
        let declared = |name: &str| {
            let lines = headers.get_all(REPR_DIGEST).iter();
            let mut members =
                lines.filter_map(|v: &HeaderValue| v.to_str().ok()).flat_map(|v| v.split(','));
            members.find_map(|member| {
                let value = member.trim().strip_prefix(name)?.strip_prefix("=:")?;
                Some(value.split_once(':')?.0.as_bytes().to_vec())
            })
        };
        let known = [("sha-256", &digest::SHA256), ("sha-512", &digest::SHA512)];
        known.into_iter().find_map(|(name, algorithm)| {
            Some(Self { context: digest::Context::new(algorithm), expected: declared(name)? })
        })
    }

    /// Takes in the next bytes of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    /// Whether the bytes have the expected digest.
    pub fn holds(self) -> bool {
        BASE64_STANDARD.encode(self.context.finish()).as_bytes() == self.expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_held_against_what_was_told() {
        // The example of RFC 9530, appendix B.1.
        let body = b"{\"hello\": \"world\"}\n";
        let value = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";
        let mut headers = HeaderMap::new();
        headers.insert(REPR_DIGEST, HeaderValue::from_static(value));
        let check = |bytes: &[u8]| {
            let mut check = DigestCheck::of(&headers, None).unwrap();
            check.update(bytes);
            check.holds()
        };
        assert!(check(body));
        assert!(!check(b"{\"hello\": \"World\"}\n"));
        assert!(DigestCheck::of(&HeaderMap::new(), None).is_none());
        let weak = Digest::parse(&format!("md5={}", "0".repeat(32))).unwrap();
        assert!(DigestCheck::of(&HeaderMap::new(), Some(&weak)).is_none());
    }
}
