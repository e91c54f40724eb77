//! Response fields of this node, and the responses that it makes itself.

use std::fmt::Write;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode,
    header::{self, CONTENT_LENGTH, CONTENT_TYPE, LOCATION},
};
use levada_body::partial;
use levada_cache::{CacheStatus, strip_fields};
use levada_policy::Pick;
use levada_rules::{MadeAnswer, Page};

use crate::{
    body::{ResponseBody, Source},
    resource::Resource,
};
use levada_failure::{Failed, PROXY_STATUS, grpc};
use levada_store::NodeName;

/// The outcome of a request: its response, or the failure that becomes one.
pub(crate) type PipelineResult = Result<Response<ResponseBody>, Failed>;

/// Names the peer, or the server of a switch, that answered in `Proxy-Status` (RFC 9209), with the reason of the
/// choice if the site shows it.
pub(crate) fn next_hop(
    name: &NodeName,
    headers: &mut HeaderMap,
    server: &str,
    resource: &Resource,
    pick: Pick,
) {
    let mut status = format!("{}; next-hop=\"{server}\"", name.token);
    if resource.handling.debug {
        let policy = resource.site.decider.name();
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

/// The client has it already; `fields` are the stored ones that a 304 has.
pub(crate) fn not_modified(
    name: &NodeName,
    fields: HeaderMap,
    age: Option<u32>,
    status: &CacheStatus<'_>,
) -> Response<ResponseBody> {
    without_body(name, StatusCode::NOT_MODIFIED, fields, age, status)
}

/// The range that was asked for is not there (RFC 9110 Sec. 15.5.17).
pub(crate) fn unsatisfied(
    name: &NodeName,
    length: u64,
    status: &CacheStatus<'_>,
) -> Response<ResponseBody> {
    let fields = partial::unsatisfied(length);
    without_body(name, StatusCode::RANGE_NOT_SATISFIABLE, fields, None, status)
}

fn without_body(
    name: &NodeName,
    code: StatusCode,
    mut fields: HeaderMap,
    age: Option<u32>,
    status: &CacheStatus<'_>,
) -> Response<ResponseBody> {
    name.add_hit(&mut fields, age, status);
    let mut response = Response::new(ResponseBody::new(Source::Empty));
    (*response.status_mut(), *response.headers_mut()) = (code, fields);
    response
}

/// A response with a short text.
pub(crate) fn plain(status: StatusCode, text: String) -> Response<ResponseBody> {
    levada_failure::plain(status, text).map(ResponseBody::text)
}

/// The answer of a route that asks no server.
pub(crate) fn route(answer: &MadeAnswer) -> Response<ResponseBody> {
    let MadeAnswer { status, content_type, body, location, .. } = answer.clone();
    let mut response = levada_failure::fixed(status, content_type, body).map(ResponseBody::text);
    response.headers_mut().extend(location.map(|location| (LOCATION, location)));
    response
}

/// Gives a response another body.
pub(crate) fn with_page(response: &mut Response<ResponseBody>, page: &Page, method: &Method) {
    let is_head = *method == Method::HEAD;
    let body = if is_head { Bytes::new() } else { page.body.clone() };
    response.body_mut().replace(Source::Text(body));
    let headers = response.headers_mut();
    strip_fields(headers, &OF_BODY);
    headers.insert(CONTENT_TYPE, page.content_type.clone());
    headers.insert(CONTENT_LENGTH, HeaderValue::from(page.body.len()));
}

/// Fields that describe a body.
static OF_BODY: [HeaderName; 8] = [
    header::ACCEPT_RANGES,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LOCATION,
    header::CONTENT_RANGE,
    header::ETAG,
    header::LAST_MODIFIED,
];

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

/// A response to a call of gRPC: a refusal of the node has no body there.
pub(crate) fn to_call(response: Response<ResponseBody>) -> Response<ResponseBody> {
    let (mut head, mut body) = response.into_parts();
    if !body.passes_by() && !head.status.is_success() {
        grpc::refuse(&mut head, &body.take_text().unwrap_or_default());
        body.replace(Source::Empty);
    }
    Response::from_parts(head, body)
}
