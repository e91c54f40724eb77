//! The head of a coded response, and of an original that has coded copies.

use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{self, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, ETAG, VARY},
};
use levada_cache::ETag;
use levada_store::{StoredHead, new_version};

use crate::compress::{coding::Coding, settings::CompressSettings};

/// Digests of the original's bytes (RFC 1864, RFC 3230, RFC 9530).
const DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];

impl Coding {
    /// Turns the head of an original into that of its copy in this coding.
    pub fn apply_to(self, headers: &mut HeaderMap) {
        headers.remove(CONTENT_LENGTH);
        // Parts of a body that is made for each client cannot be combined.
        headers.remove(header::ACCEPT_RANGES);
        headers.remove(header::TRAILER);
        for name in &DIGESTS {
            headers.remove(name);
        }
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(self.as_str()));
        vary(headers);
        match headers.get(ETAG).and_then(|tag| self.tag(tag)) {
            Some(own) => drop(headers.insert(ETAG, own)),
            None => drop(headers.remove(ETAG)),
        }
    }

    /// The tag of a copy. It is weak, since two copies of one original may differ in their bytes, and
    /// distinct for each coding (RFC 9110 Sec. 8.8.3.3).
    fn tag(self, of_original: &HeaderValue) -> Option<HeaderValue> {
        let ETag { opaque, .. } = ETag::parse(of_original.as_bytes())?;
        let tag = [b"W/\"", opaque, b"-", self.as_str().as_bytes(), b"\""].concat();
        HeaderValue::from_bytes(&tag).ok()
    }

    /// The head of the copy of a stored original.
    pub fn head_of(self, original: &StoredHead) -> StoredHead {
        let mut head = original.clone();
        self.apply_to(&mut head.headers);
        if original.headers.contains_key(header::ACCEPT_RANGES) {
            let units = HeaderValue::from_static("bytes");
            head.headers.insert(header::ACCEPT_RANGES, units);
        }
        head.validators = head.validators_of(head.freshness.received());
        head
    }
}

/// Adds `Accept-Encoding` to `Vary`.
pub(crate) fn vary(headers: &mut HeaderMap) {
    let names = |line: &HeaderValue| {
        let mut names = line.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        names.any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding"))
    };
    if !headers.get_all(VARY).iter().any(names) {
        headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    }
}

impl CompressSettings {
    /// Prepares the head of an original that is about to be stored, or renewed by a 304: if its copies are wanted
    /// it says so, and no longer depends on `Accept-Encoding` itself.
    pub fn prepare(&self, head: &mut StoredHead, request: &HeaderMap) {
        if !self.applies(head.status, &head.headers) {
            return;
        }
        if head.copies == 0 {
            head.copies = new_version();
        }
        vary(&mut head.headers);
        head.vary = std::mem::take(&mut head.vary).without(&ACCEPT_ENCODING);
        head.variant = head.vary.key(request);
    }

    /// Whether a response that is not stored is to be coded; adds `Vary` if another client might get it
    /// otherwise.
    pub fn covers(&self, status: StatusCode, headers: &mut HeaderMap) -> bool {
        let applies = self.applies(status, headers);
        if applies {
            vary(headers);
        }
        applies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        fields.iter().map(field).collect()
    }

    #[test]
    fn coded_head_has_its_own_validator_and_no_digest_of_the_original() {
        let mut coded = headers(&[
            ("etag", "\"v1\""),
            ("content-length", "900"),
            ("accept-ranges", "bytes"),
            ("trailer", "server-timing"),
            ("content-md5", "x"),
            ("repr-digest", "sha-256=:x:"),
            ("content-type", "text/css"),
            ("vary", "origin"),
        ]);
        Coding::Br.apply_to(&mut coded);
        let expected = headers(&[
            ("etag", "W/\"v1-br\""),
            ("content-type", "text/css"),
            ("content-encoding", "br"),
            ("vary", "origin"),
            ("vary", "accept-encoding"),
        ]);
        assert_eq!(coded, expected);
    }

    #[test]
    fn weak_tag_becomes_one_weak_tag_per_coding() {
        for coding in Coding::ALL {
            let mut coded = headers(&[("etag", "W/\"v1\"")]);
            coding.apply_to(&mut coded);
            assert_eq!(coded[ETAG], format!("W/\"v1-{}\"", coding.as_str()));
        }
        let mut coded = headers(&[("etag", "no tag")]);
        Coding::Gzip.apply_to(&mut coded);
        assert!(!coded.contains_key(ETAG));
    }

    #[test]
    fn vary_names_the_field_once() {
        for line in ["Accept-Encoding", "origin, ACCEPT-ENCODING", "*"] {
            let mut fields = headers(&[("vary", line)]);
            vary(&mut fields);
            assert_eq!(fields.get_all(VARY).iter().count(), 1, "{line}");
        }
    }
}
