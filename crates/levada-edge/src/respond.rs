//! Response fields of this node, and the responses that it makes itself.

use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{self, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER, VIA},
};
use levada_policy::Pick;
use levada_redirector::ChosenServer;
use std::fmt::Write;

use crate::{
    body::ResponseBody,
    failure::{Failed, Failure},
    fields::PIECE,
    fields::REFUSED,
    large,
    node::Node,
    resource::Resource,
    sites::Site,
};

pub(crate) const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Adds this node to `Via` (RFC 9110 Sec. 7.6.3), and removes the cache directives that are for Levada
/// only (RFC 9213).
pub(crate) fn via(node: &Node, headers: &mut HeaderMap) {
    levada_cache::strip_own_target(headers);
    headers.append(VIA, node.via.clone());
}

/// Names the peer that served in `Proxy-Status` (RFC 9209), with the reason of the choice if the site
/// shows it.
pub(crate) fn next_hop(
    node: &Node,
    headers: &mut HeaderMap,
    peer: &str,
    resource: &Resource,
    pick: Pick,
) {
    named(node, headers, peer, &resource.site, pick);
}

fn named(node: &Node, headers: &mut HeaderMap, peer: &str, site: &Site, pick: Pick) {
    let mut status = format!("{}; next-hop=\"{peer}\"", node.token);
    if site.settings.debug {
        let policy = site.decider.name();
        let _ = write!(
            status,
            "; details=\"policy={policy} reason={} set={}\"",
            pick.reason.as_str(),
            pick.set_size
        );
    }
    if let Ok(value) = HeaderValue::try_from(status) {
        headers.append(PROXY_STATUS, value);
    }
}

/// Names the server of a switch that answered, with the reason of the choice if the site shows it.
pub(crate) fn server(node: &Node, headers: &mut HeaderMap, site: &Site, chosen: &ChosenServer) {
    named(node, headers, &chosen.server, site, chosen.pick);
}

/// The answer to a request that could not be served, with the reason as text and in `Proxy-Status`.
pub(crate) fn failure(node: &Node, failed: &Failed) -> Response<ResponseBody> {
    let failure = failed.failure;
    let text = format!("{}: {}\n", failure.status(), failure.as_str());
    let mut response = plain(failure.status(), text);
    let headers = response.headers_mut();
    let mut status = format!("{}; error={}", node.token, failure.proxy_error());
    if let Some(next_hop) = &failed.next_hop {
        // Names and addresses have no quotes: they were checked when the configuration was read.
        status.push_str(&format!("; next-hop=\"{next_hop}\""));
    }
    if let Ok(value) = HeaderValue::try_from(status) {
        headers.insert(PROXY_STATUS, value);
    }
    if let Some(seconds) = failure.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if failure == Failure::Overload {
        headers.insert(REFUSED, HeaderValue::from_static("full"));
    }
    if let Some(value) = large::tell(failure) {
        headers.insert(PIECE, value);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.extensions_mut().insert(failure);
    response
}

/// A response with a short text.
pub(crate) fn plain(status: StatusCode, text: String) -> Response<ResponseBody> {
    let length = text.len();
    let mut response = Response::new(ResponseBody::text(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    response
}

/// The answer to `OPTIONS *`, which asks about the node as a whole (RFC 9110 Sec. 9.3.7).
pub(crate) fn options() -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::text(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let allowed = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}

/// A redirect (307) to the node that serves the request.
pub(crate) fn redirect_client(location: &str) -> Option<Response<ResponseBody>> {
    let location = HeaderValue::from_str(location).ok()?;
    let mut response = plain(StatusCode::TEMPORARY_REDIRECT, String::new());
    response.headers_mut().insert(LOCATION, location);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Some(response)
}
