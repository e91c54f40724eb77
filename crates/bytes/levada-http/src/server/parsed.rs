//! Judges requests that another parser has read, such as those of HTTP/2, by the rules of HTTP/1.
//!
//! A request that is refused over HTTP/1 must not reach an origin because it came over HTTP/2: the
//! node writes it as HTTP/1 there.

use http::{
    HeaderMap, Method, Request, Uri,
    header::{CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING},
};

use super::{
    facts::LONGEST,
    fault::Fault,
    head::{has_known_form, is_target, names_host},
    parser::{HeadBounds, REQUEST_LINE},
};
use crate::syntax;

/// Bytes of a request line without method and target: two spaces, the version, CR.
const LINE_REST: usize = " ".len() * 2 + "HTTP/1.1\r".len();

/// Checks a request head of HTTP/2 as the parser checks one of HTTP/1.
///
/// # Errors
/// The fault that is found in the same request over HTTP/1.
pub fn check_parsed<B>(request: &Request<B>, bounds: HeadBounds) -> Result<(), Fault> {
    let (uri, headers) = (request.uri(), request.headers());
    check_target(request.method(), uri, bounds)?;
    check_host(uri, headers)?;
    check_length(headers)?;
    if headers.contains_key(TRANSFER_ENCODING) {
        return Err(Fault::EncodingUnknown);
    }
    if field_count(uri, headers) > bounds.fields { Err(Fault::TooManyFields) } else { Ok(()) }
}

fn check_target(method: &Method, uri: &Uri, bounds: HeadBounds) -> Result<(), Fault> {
    let is_web = uri.scheme_str().is_none_or(|scheme| {
        scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
    });
    let target = match (uri.path_and_query(), uri.authority()) {
        (Some(target), _) if *method != Method::CONNECT => target.as_str(),
        (_, Some(authority)) => authority.as_str(),
        _ => return Err(Fault::Target),
    };
    let line = method.as_str().len() + target.len() + LINE_REST;
    if line >= bounds.head.min(REQUEST_LINE) {
        return Err(Fault::RequestLineTooLong);
    }
    let target = target.as_bytes();
    let is_good = is_web && is_target(target) && has_known_form(method.as_str().as_bytes(), target);
    if is_good { Ok(()) } else { Err(Fault::Target) }
}

/// `:authority` is HTTP/2's `Host`. A request with both must not name two hosts (RFC 9113 section 8.3.1).
fn check_host(uri: &Uri, headers: &HeaderMap) -> Result<(), Fault> {
    let mut hosts = headers.get_all(HOST).iter().map(|host| host.as_bytes());
    let (host, more) = (hosts.next(), hosts.next());
    let authority = uri.authority().map(|authority| authority.as_str().as_bytes());
    let named = match (authority, host, more) {
        (_, _, Some(_)) => return Err(Fault::HostRepeated),
        (None, None, None) => return Err(Fault::HostMissing),
        (Some(one), Some(other), None) if !one.eq_ignore_ascii_case(other) => {
            return Err(Fault::HostRepeated);
        }
        (Some(named), ..) | (None, Some(named), None) => named,
    };
    if names_host(named) { Ok(()) } else { Err(Fault::HostInvalid) }
}

fn check_length(headers: &HeaderMap) -> Result<(), Fault> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else { return Ok(()) };
    if lengths.next().is_some() {
        return Err(Fault::LengthRepeated);
    }
    let length = syntax::decimal(syntax::trimmed(length.as_bytes()));
    length.filter(|&length| length <= LONGEST).map(drop).ok_or(Fault::LengthInvalid)
}

/// The fields of this request over HTTP/1: `:authority` becomes `Host`, and the parts of a cookie become one
/// field (RFC 9113 section 8.2.3).
fn field_count(uri: &Uri, headers: &HeaderMap) -> usize {
    let crumbs = headers.get_all(COOKIE).iter().count();
    let host = usize::from(uri.authority().is_some() && !headers.contains_key(HOST));
    headers.len() - crumbs.saturating_sub(1) + host
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: HeadBounds = HeadBounds { head: 32 << 10, fields: 100 };

    fn fault_of(method: &str, uri: &str, fields: &[(&str, &str)]) -> Option<Fault> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        check_parsed(&request.body(()).unwrap(), BOUNDS).err()
    }

    #[test]
    fn head_is_judged_by_the_rules_of_http1() {
        for (uri, fault) in [
            ("http://a.test/", None),
            ("https://a.test:8443/a?b=|c", None),
            ("http://[::1]/", None),
            ("http://a.test:x@evil.com/", Some(Fault::HostInvalid)),
            ("http://user@a.test/", Some(Fault::HostInvalid)),
            ("http://a.test:123456/", Some(Fault::HostInvalid)),
            ("ftp://a.test/", Some(Fault::Target)),
            ("http://a.test/\"", Some(Fault::Target)),
            ("/", Some(Fault::HostMissing)),
        ] {
            assert_eq!(fault_of("GET", uri, &[]), fault, "{uri}");
        }
        let long = format!("http://a.test/{}", "x".repeat(REQUEST_LINE));
        assert_eq!(fault_of("GET", &long, &[]), Some(Fault::RequestLineTooLong));
        assert_eq!(fault_of("CONNECT", "a.test:443", &[]), None);
        assert_eq!(fault_of("CONNECT", "a.test", &[]), Some(Fault::Target));
    }

    #[test]
    fn fields_are_judged_by_the_rules_of_http1() {
        let of = |fields: &[(&str, &str)]| fault_of("GET", "http://a.test/", fields);
        assert_eq!(of(&[("host", "A.test"), ("content-length", "5")]), None);
        assert_eq!(of(&[("host", "b.test")]), Some(Fault::HostRepeated));
        assert_eq!(of(&[("host", "a.test"), ("host", "a.test")]), Some(Fault::HostRepeated));
        assert_eq!(of(&[("content-length", "+5")]), Some(Fault::LengthInvalid));
        let twice = [("content-length", "5"), ("content-length", "5")];
        assert_eq!(of(&twice), Some(Fault::LengthRepeated));
        assert_eq!(of(&[("x", "y"); 100]), Some(Fault::TooManyFields), "Host is the first one");
        assert_eq!(of(&[("x", "y"); 99]), None);
        assert_eq!(of(&[("cookie", "a=b"); 500]), None, "parts of one field");
    }
}
