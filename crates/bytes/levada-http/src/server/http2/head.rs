//! The head of a request, put together from its fields (RFC 9113 Sec. 8.1 to 8.3).

use http::{
    HeaderMap, HeaderName, Method, Request, Uri, Version,
    header::{CONNECTION, CONTENT_LENGTH, TE, TRANSFER_ENCODING, UPGRADE},
    uri::{self, Authority, PathAndQuery, Scheme},
};
use hyper::ext::Protocol;

use super::hpack::HeaderField;
use crate::{server::facts::RequestLength, syntax};

/// The head of a request, or the trailers behind its body, as its fields come.
#[derive(Debug, Default)]
pub(super) struct HeadBuilder {
    method: Option<Method>,
    scheme: Option<Scheme>,
    authority: Option<Authority>,
    path: Option<PathAndQuery>,
    protocol: Option<Protocol>,
    headers: HeaderMap,
    /// The size that is left for its fields.
    left: usize,
    /// It is larger than it may be.
    is_too_large: bool,
    is_malformed: bool,
}

/// Why there is no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadHead {
    TooLarge,
    Malformed,
}

/// A complete head.
#[derive(Debug)]
pub(super) struct StreamHead {
    pub(super) request: Request<()>,
    pub(super) length: RequestLength,
}

impl HeadBuilder {
    /// A head of this size at most, with the memory of an earlier one.
    pub(super) fn new(headers: HeaderMap, most: usize) -> Self {
        Self { headers, left: most, ..Self::default() }
    }

    /// Takes the next field.
    pub(super) fn take(&mut self, field: HeaderField, size: usize) {
        match self.left.checked_sub(size) {
            Some(left) => self.left = left,
            None => self.is_too_large = true,
        }
        if self.is_too_large {
            return;
        }
        let is_late = !self.headers.is_empty();
        self.is_malformed |= match field {
            HeaderField::Plain(name, value) => {
                let is_of_connection = is_of_connection(&name)
                    || name == TE && !value.as_bytes().eq_ignore_ascii_case(b"trailers");
                self.is_too_large |= self.headers.try_append(name, value).is_err();
                is_of_connection
            }
            HeaderField::Method(method) => self.method.replace(method).is_some() || is_late,
            HeaderField::Scheme(scheme) => self.scheme.replace(scheme).is_some() || is_late,
            HeaderField::Authority(name) => self.authority.replace(name).is_some() || is_late,
            HeaderField::Path(path) => self.path.replace(path).is_some() || is_late,
            HeaderField::Protocol(protocol) => self.protocol.replace(protocol).is_some() || is_late,
            HeaderField::Bad => true,
        };
    }

    /// The head of a request, which `ends` with it or goes on with a body.
    pub(super) fn end(self, ends: bool) -> Result<StreamHead, BadHead> {
        let (mut uri, length) = (uri::Parts::default(), self.length(ends));
        match self {
            Self { is_too_large: true, .. } => Err(BadHead::TooLarge),
            Self { is_malformed: false, method: Some(method), headers, protocol, .. }
                if Self::fits(&method, &protocol, &self.scheme, &self.path) =>
            {
                // A URI of a scheme without an authority cannot be.
                uri.scheme = self.scheme.filter(|_| self.authority.is_some());
                (uri.authority, uri.path_and_query) = (self.authority, self.path);
                let mut request = Request::new(());
                *request.uri_mut() = Uri::from_parts(uri).map_err(|_| BadHead::Malformed)?;
                (*request.method_mut(), *request.headers_mut()) = (method, headers);
                *request.version_mut() = Version::HTTP_2;
                if let Some(protocol) = protocol {
                    request.extensions_mut().insert(protocol);
                }
                let length = length.ok_or(BadHead::Malformed)?;
                Ok(StreamHead { request, length })
            }
            _ => Err(BadHead::Malformed),
        }
    }

    /// Whether there are the pseudo fields of a request: all of them, or none but the authority in a CONNECT without
    /// a protocol (RFC 9113 Sec. 8.5, RFC 8441 Sec. 4).
    fn fits(
        method: &Method,
        protocol: &Option<Protocol>,
        scheme: &Option<Scheme>,
        path: &Option<PathAndQuery>,
    ) -> bool {
        match (*method == Method::CONNECT, protocol) {
            (true, None) => scheme.is_none() && path.is_none(),
            (false, Some(_)) => false,
            _ => scheme.is_some() && path.is_some(),
        }
    }

    /// The length of the body; `None` if there is another than `Content-Length` says. A length that is wrong by itself
    /// is refused by the judge of all requests.
    fn length(&self, ends: bool) -> Option<RequestLength> {
        let stated = self.headers.get(CONTENT_LENGTH);
        match stated.and_then(|length| syntax::decimal(length.as_bytes())) {
            Some(1..) if ends => None,
            Some(length) => Some(RequestLength::Counted(length)),
            None if ends => Some(RequestLength::Counted(0)),
            None => Some(RequestLength::Chunked),
        }
    }

    /// The trailers behind a body.
    pub(super) fn end_trailers(self) -> Result<HeaderMap, BadHead> {
        let has_pseudo = self.method.is_some()
            || self.scheme.is_some()
            || self.authority.is_some()
            || self.path.is_some()
            || self.protocol.is_some();
        match self.is_malformed || has_pseudo {
            true => Err(BadHead::Malformed),
            false if self.is_too_large => Err(BadHead::TooLarge),
            false => Ok(self.headers),
        }
    }
}

/// Whether a field is not known in HTTP/2 (RFC 9113 Sec. 8.2.2).
pub(super) fn is_of_connection(name: &HeaderName) -> bool {
    *name == CONNECTION
        || *name == TRANSFER_ENCODING
        || *name == UPGRADE
        || *name == "keep-alive"
        || *name == "proxy-connection"
}

#[cfg(test)]
mod tests {
    use super::{
        super::hpack::{Decoder, encoder::write_field},
        *,
    };

    fn built(fields: &[(&str, &str)], most: usize) -> HeadBuilder {
        let (mut block, mut head) = (Vec::new(), HeadBuilder::new(HeaderMap::new(), most));
        for (name, value) in fields {
            write_field(&mut block, name.as_bytes(), value.as_bytes());
        }
        Decoder::new().decode(&block, |field, size| head.take(field, size)).unwrap();
        head
    }

    fn head(fields: &[(&str, &str)]) -> Result<StreamHead, BadHead> {
        built(fields, 1000).end(false)
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":authority", "a.test"), (":path", "/a?b")];

    #[test]
    fn requests_have_their_pseudo_fields_once_and_first() {
        let whole = head(&[&GET[..], &[("x-a", "1"), ("x-a", "2")]].concat()).unwrap();
        assert_eq!(whole.request.uri(), "https://a.test/a?b");
        assert_eq!(whole.request.headers().get_all("x-a").iter().count(), 2);
        assert_eq!(whole.request.version(), Version::HTTP_2);
        let without = |name: &str| {
            let rest: Vec<_> = GET.into_iter().filter(|(other, _)| *other != name).collect();
            head(&rest).map(|head| head.request.uri().to_string())
        };
        assert_eq!(without(":authority"), Ok("/a?b".to_owned()));
        for name in [":method", ":scheme", ":path"] {
            assert_eq!(without(name), Err(BadHead::Malformed), "{name}");
        }
        for at in 0..GET.len() {
            let twice = [&GET[..], &GET[at..=at]].concat();
            assert_eq!(head(&twice).unwrap_err(), BadHead::Malformed);
            let mut late = GET.to_vec();
            let moved = late.remove(at);
            late.extend([("x", "y"), moved]);
            assert_eq!(head(&late).unwrap_err(), BadHead::Malformed);
        }
    }

    #[test]
    fn fields_of_connections_are_malformed() {
        for (name, value, is_good) in [
            ("connection", "close", false),
            ("keep-alive", "1", false),
            ("proxy-connection", "x", false),
            ("transfer-encoding", "chunked", false),
            ("upgrade", "websocket", false),
            ("te", "gzip", false),
            ("te", "Trailers", true),
            ("Accept", "x", false),
            (":status", "200", false),
        ] {
            let head = head(&[&GET[..], &[(name, value)]].concat());
            assert_eq!(head.is_ok(), is_good, "{name}: {value}");
        }
    }

    #[test]
    fn connect_has_an_authority_or_a_protocol_with_all() {
        let method = (":method", "CONNECT");
        let plain = head(&[method, (":authority", "a.test:1")]).unwrap();
        assert_eq!(plain.request.uri(), "a.test:1");
        assert!(head(&[method, (":authority", "a.test:1"), (":path", "/")]).is_err());
        let protocol = (":protocol", "WebSocket");
        let extended = head(&[&[method, protocol][..], &GET[1..]].concat()).unwrap();
        assert_eq!(extended.request.extensions().get::<Protocol>().unwrap().as_str(), "websocket");
        assert!(head(&[&GET[..1], &[protocol], &GET[1..]].concat()).is_err(), "not for GET");
        assert!(head(&[method, protocol, (":authority", "a.test:1")]).is_err());
    }

    #[test]
    fn body_is_as_long_as_its_length_says() {
        let of = |length: Option<&str>, ends| {
            let length: Vec<_> =
                length.map(|length| ("content-length", length)).into_iter().collect();
            let whole = built(&[&GET[..], &length].concat(), 1000).end(ends);
            whole.map(|head| head.length).ok()
        };
        assert_eq!(of(None, true), Some(RequestLength::Counted(0)));
        assert_eq!(of(None, false), Some(RequestLength::Chunked));
        assert_eq!(of(Some("5"), false), Some(RequestLength::Counted(5)));
        assert_eq!(of(Some("0"), true), Some(RequestLength::Counted(0)));
        assert_eq!(of(Some("5"), true), None);
        assert_eq!(of(Some("x"), true), Some(RequestLength::Counted(0)), "refused by the judge");
    }

    #[test]
    fn lists_of_fields_are_bounded_and_trailers_have_no_pseudo_fields() {
        // Four fields with 32 bytes each beyond name and value.
        let size = GET.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
        assert!(built(&GET, size).end(true).is_ok());
        assert_eq!(built(&GET, size - 1).end(true).unwrap_err(), BadHead::TooLarge);
        assert_eq!(built(&[("x-sum", "1")], 100).end_trailers().unwrap().len(), 1);
        assert_eq!(built(&GET[3..], 100).end_trailers().unwrap_err(), BadHead::Malformed);
        assert_eq!(built(&[("x-sum", "1")], 10).end_trailers().unwrap_err(), BadHead::TooLarge);
    }
}
