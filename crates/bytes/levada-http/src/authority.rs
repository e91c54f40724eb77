//! The authority that a request names.

use http::{HeaderValue, Request, Version, header::HOST};

use crate::names_host;

/// The host of requests of HTTP/1.0 that name none, at every node: only a site of all hosts has it, since no
/// name below `invalid` exists (RFC 6761 Sec. 6.4).
pub const NO_HOST: &str = "no-host.invalid";

/// The authority of an absolute-form or HTTP/2 request, else the one `Host` (RFC 9112 Sec. 3.2). `None` where that is
/// wrong.
pub fn authority<B>(request: &Request<B>) -> Option<&str> {
    if let Some(authority) = request.uri().authority() {
        return Some(authority.as_str());
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) if names_host(host.as_bytes()) => Some(host),
        (None, None) if request.version() == Version::HTTP_10 => Some(NO_HOST),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_names_the_authority_or_one_good_host_does() {
        for (version, target, hosts, expected) in [
            (Version::HTTP_11, "/", &["a.test:81"][..], Some("a.test:81")),
            (Version::HTTP_11, "http://b.test/", &["a.test"], Some("b.test")),
            (Version::HTTP_2, "https://b.test/", &[], Some("b.test")),
            (Version::HTTP_11, "/", &["a.test", "a.test"], None),
            (Version::HTTP_11, "/", &["a/b"], None),
            (Version::HTTP_11, "/", &[], None),
            (Version::HTTP_10, "/", &["a.test"], Some("a.test")),
            (Version::HTTP_10, "/", &[], Some(NO_HOST)),
        ] {
            let mut request = Request::builder().version(version).uri(target);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            let request = request.body(()).unwrap();
            assert_eq!(authority(&request), expected, "{version:?} {target} {hosts:?}");
        }
    }
}
