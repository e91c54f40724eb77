//! `Cache-Status` tells how a request was handled (RFC 9211), case by case.

use crate::support::*;

/// Method, target and fields of a request, and the expected `Cache-Status`.
type Told = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static str);

/// The requests, in this order.
const TOLD: [Told; 14] = [
    ("GET", "/a", &[], "fwd=uri-miss; fwd-status=200; stored"),
    ("GET", "/a", &[], "hit; ttl=*"),
    ("HEAD", "/a", &[], "hit; ttl=*"),
    ("GET", "/a", &[("If-None-Match", "\"1\"")], "hit; ttl=*"),
    ("GET", "/a", &[("Cache-Control", "no-cache")], "fwd=request; fwd-status=304"),
    ("GET", "/a", &[("If-Match", "\"2\"")], "fwd=request; fwd-status=412; detail=precondition"),
    ("POST", "/a", &[("Content-Length", "0")], "fwd=method; fwd-status=200; detail=method"),
    ("GET", "/a", &[], "fwd=uri-miss; fwd-status=200; stored"),
    ("GET", "/vary", &[("Accept-Language", "en")], "fwd=uri-miss; fwd-status=200; stored"),
    ("GET", "/vary", &[("Accept-Language", "pt")], "fwd=vary-miss; fwd-status=200; stored"),
    ("GET", "/private", &[], "fwd=uri-miss; fwd-status=200; detail=private"),
    ("GET", "/old", &[], "fwd=uri-miss; fwd-status=200; stored"),
    ("GET", "/old", &[], "fwd=stale; fwd-status=200; stored"),
    ("HEAD", "/none", &[], "fwd=uri-miss; fwd-status=200; detail=head"),
];

#[tokio::test]
async fn field_tells_what_became_of_every_request() {
    let origin = Origin::start().await;
    let node = start(single(&[origin.address])).await;
    let at = node.addresses.clients[0];
    origin.script("/a", |asked| {
        let reply = Reply::cached("a").with("etag", "\"1\"");
        match (asked.header("if-match"), asked.header("if-none-match")) {
            (Some(_), _) => Reply::ok("").status("412 Precondition Failed"),
            (_, Some(_)) => reply.status("304 Not Modified"),
            _ => reply,
        }
    });
    origin.on("/vary", Reply::cached("v").with("vary", "accept-language"));
    origin.on("/private", Reply::ok("p").with("cache-control", "private"));
    origin.on("/old", Reply::cached("o").with("age", "100").with("etag", "\"1\""));
    for (method, target, fields, told) in TOLD {
        let mut wire = Wire::saying(at, head_of(method, target, fields)).await;
        let answer = wire.answer_to(method).await;
        let status = answer.field("cache-status");
        let (before, after) = told.split_once('*').unwrap_or((told, ""));
        let rest = status.strip_prefix("n0; ").and_then(|rest| rest.strip_prefix(before));
        let ok = rest.is_some_and(|rest| match told.contains('*') {
            true => rest.strip_suffix(after).is_some_and(|ttl| ttl.parse::<i64>().is_ok()),
            false => rest.is_empty(),
        });
        assert!(ok, "{method} {target} {fields:?}: {status}, not {told}");
        settled(&node).await;
    }
}
