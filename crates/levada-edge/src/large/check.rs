//! Computes the digest of a file that is sent in order, and compares it with the expected one (RFC
//! 9530).

use http::{HeaderMap, HeaderName, HeaderValue};
use levada_fetch::{Algorithm, Digest};
use ring::digest;

const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// A digest that is being computed, and its expected value.
pub(super) struct Check {
    context: digest::Context,
    expected: Vec<u8>,
}

impl Check {
    /// A check against the origin's `Repr-Digest`, or the client's digest. `None` when neither names a
    /// secure digest.
    pub(super) fn of(headers: &HeaderMap, wanted: Option<&Digest>) -> Option<Self> {
        let wanted = wanted.filter(|wanted| wanted.algorithm() == Algorithm::Sha256);
        if let Some(wanted) = wanted {
            let context = digest::Context::new(&digest::SHA256);
            return Some(Self { context, expected: base64(wanted.bytes()) });
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

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    /// Whether the bytes have the expected digest.
    pub(super) fn holds(self) -> bool {
        base64(self.context.finish().as_ref()) == self.expected
    }
}

/// RFC 4648 Sec. 4, with padding: the encoding of a byte sequence (RFC 9651 Sec. 4.1.8).
fn base64(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let sextet = (bits >> (18 - 6 * at)) as usize & 63;
            text.push(if at <= three.len() { ALPHABET[sextet] } else { b'=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_rfc_4648_says() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text.as_bytes());
        }
    }

    #[test]
    fn what_passes_is_held_against_what_was_told() {
        // The example of RFC 9530, appendix B.1.
        let body = b"{\"hello\": \"world\"}\n";
        let value = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";
        let mut headers = HeaderMap::new();
        headers.insert(REPR_DIGEST, HeaderValue::from_static(value));
        let check = |bytes: &[u8]| {
            let mut check = Check::of(&headers, None).unwrap();
            check.update(bytes);
            check.holds()
        };
        assert!(check(body));
        assert!(!check(b"{\"hello\": \"World\"}\n"));
        assert!(Check::of(&HeaderMap::new(), None).is_none());
        let weak = Digest::parse(&format!("md5={}", "0".repeat(32))).unwrap();
        assert!(Check::of(&HeaderMap::new(), Some(&weak)).is_none());
    }
}
