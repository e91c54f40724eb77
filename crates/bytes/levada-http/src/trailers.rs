//! The judge of trailers, for requests and responses over every version of HTTP.
//!
//! A sender knows trailers when the recipient has already used the head. So they must not say what a head may not say
//! (RFC 9110 Sec. 6.5.1): framing, routing, request modifiers, authentication, response control, content. Servers
//! that merge trailers into the head would believe a client that states its own address there. A section that frames
//! a message is a fault; of the others those fields pass that are known to be useful behind a body.

use http::{
    HeaderMap, HeaderName,
    header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
};

use crate::{
    server::{Fault, OVERHEAD},
    syntax::TRAILERS,
};

/// Bytes of a field line without name and value: colon, space and line end.
const FIELD_REST: usize = ": \r\n".len();
/// Fields that decide about framing or routing. They must not come after the body.
const FRAMING: [HeaderName; 3] = [HOST, CONTENT_LENGTH, TRANSFER_ENCODING];
/// Fields whose definitions allow them in trailers: RFC 9110 Sec. 8.8.3 and 11.6.3, RFC 9421 Sec. 4, RFC 9530 Sec. 2
/// and 3, Server Timing Sec. 2.
const ALLOWED: [&str; 8] = [
    "authentication-info",
    "content-digest",
    "digest",
    "etag",
    "repr-digest",
    "server-timing",
    "signature",
    "signature-input",
];
/// The end of a call of gRPC. Metadata of any name may come with it.
const GRPC_STATUS: &str = "grpc-status";
/// The names that gRPC keeps to itself.
const GRPC: &str = "grpc-";
/// How the names of metadata may not begin: with these, other protocols speak.
const FOREIGN: [&str; 14] = [
    "accept",
    "access-control-",
    "authorization",
    "cdn-",
    "content-",
    "cookie",
    "forwarded",
    "if-",
    "levada-",
    "proxy-",
    "sec-",
    "set-cookie",
    "x-accel-",
    "x-forwarded-",
];
/// Other names that metadata may not have: fields that control a response, its route or its connection.
const CONTROL: [&str; 34] = [
    "age",
    "allow",
    "alt-svc",
    "cache-control",
    "cache-status",
    "clear-site-data",
    "connection",
    "date",
    "early-data",
    "expect",
    "expires",
    "http2-settings",
    "keep-alive",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "range",
    "refresh",
    "retry-after",
    "server",
    "strict-transport-security",
    "te",
    "trailer",
    "upgrade",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "x-http-method-override",
    "x-original-url",
    "x-real-ip",
    "x-rewrite-url",
    "x-sendfile",
];

/// Judges the trailers of a request, and removes those that may not pass.
///
/// # Errors
/// The fault of a section that frames a message, or is too large. The same is found over HTTP/1.
pub fn judge_request_trailers(trailers: &mut HeaderMap) -> Result<(), Fault> {
    judge(trailers, false)
}

/// Judges the trailers of a response, and removes those that may not pass. Metadata of gRPC passes under any name of
/// its own.
///
/// # Errors
/// As for a request.
pub fn judge_response_trailers(trailers: &mut HeaderMap) -> Result<(), Fault> {
    let is_grpc = trailers.contains_key(GRPC_STATUS);
    judge(trailers, is_grpc)
}

fn judge(trailers: &mut HeaderMap, has_metadata: bool) -> Result<(), Fault> {
    if FRAMING.iter().any(|name| trailers.contains_key(name)) {
        return Err(Fault::TrailerForbidden);
    }
    let bytes: usize =
        trailers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_REST).sum();
    if trailers.len() > TRAILERS || bytes > OVERHEAD {
        return Err(Fault::TrailersTooLarge);
    }
    let passes = |name: &HeaderName| {
        let name = name.as_str();
        ALLOWED.contains(&name) || name.starts_with(GRPC) || (has_metadata && is_metadata(name))
    };
    while let Some(name) = trailers.keys().find(|name| !passes(name)).cloned() {
        trailers.remove(name);
    }
    Ok(())
}

/// Whether no other protocol gives a meaning to the name. An underscore is a hyphen to CGI.
fn is_metadata(name: &str) -> bool {
    let name = &*name.replace('_', "-");
    !CONTROL.contains(&name) && !FOREIGN.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trailers(names: &[&'static str]) -> HeaderMap {
        let value = || "1".parse().unwrap();
        names.iter().map(|name| (HeaderName::from_static(name), value())).collect()
    }

    fn passed(
        judge: fn(&mut HeaderMap) -> Result<(), Fault>,
        names: &[&'static str],
    ) -> Vec<String> {
        let mut all = trailers(names);
        judge(&mut all).unwrap();
        all.keys().map(ToString::to_string).collect()
    }

    const HEADS_ONLY: [&str; 14] = [
        "x-forwarded-for",
        "forwarded",
        "x-real-ip",
        "authorization",
        "cookie",
        "range",
        "content-encoding",
        "content-type",
        "set-cookie",
        "cache-control",
        "connection",
        "te",
        "x_forwarded_for",
        "levada-piece",
    ];

    #[test]
    fn fields_of_heads_do_not_pass_behind_a_body() {
        for judge in [judge_request_trailers, judge_response_trailers] {
            assert!(passed(judge, &HEADS_ONLY).is_empty());
            assert_eq!(passed(judge, &["x-sum", "content-digest"]), ["content-digest"]);
        }
        let with_status = [&HEADS_ONLY[..], &[GRPC_STATUS]].concat();
        assert_eq!(passed(judge_response_trailers, &with_status), [GRPC_STATUS]);
    }

    #[test]
    fn metadata_of_grpc_passes_with_its_status_only() {
        let names = [GRPC_STATUS, "grpc-message", "trace-bin", "x_request_cost"];
        assert_eq!(passed(judge_response_trailers, &names), names);
        assert!(passed(judge_response_trailers, &names[2..]).is_empty());
        assert_eq!(passed(judge_request_trailers, &names), names[..2]);
    }

    #[test]
    fn sections_that_frame_or_are_too_large_have_a_fault() {
        let of = |name: &'static str, count| {
            let mut trailers = HeaderMap::new();
            for _ in 0..count {
                trailers.append(name, "1".parse().unwrap());
            }
            judge_request_trailers(&mut trailers).err()
        };
        assert_eq!(of("x-sum", TRAILERS), None);
        assert_eq!(of("x-sum", TRAILERS + 1), Some(Fault::TrailersTooLarge));
        assert_eq!(of("host", 1), Some(Fault::TrailerForbidden));
        assert_eq!(of("content-length", 1), Some(Fault::TrailerForbidden));
    }
}
