//! The head of a large file: an ordinary object whose body is in the pieces.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use levada_access::fields::LARGE;
use levada_body::{LargeFile, version_of};
use levada_cache::{CacheStatus, Validators, belongs_in_304};
use levada_store::{NodeName, Object, identity::in_space};
use levada_types::Key;

use crate::{
    body::{ResponseBody, Source},
    cache::Cache,
    client_connection::ListenerKind,
    request::RequestContext,
    respond,
    sites::Site,
};

/// Whether a representation of this length with this head is served in pieces.
pub(crate) fn is_large(
    cache: &Cache,
    site: &Site,
    identity: &str,
    (headers, validators, length): (&HeaderMap, &Validators, u64),
) -> bool {
    let Some(large) = site.serves_large_files().filter(|large| length >= large.threshold) else {
        return false;
    };
    let units = headers.get(header::ACCEPT_RANGES).map(HeaderValue::as_bytes);
    large.plan.chunk > 0
        && units.is_none_or(|units| units.trim_ascii() == b"bytes")
        && version_of(headers, validators, length).is_some()
        && !cache.has_no_parts(file_key(identity))
}

/// The key of the file at its origin, from the identity of a piece or of the file.
pub(crate) fn file_key(identity: &str) -> Key {
    Key::of(in_space(identity).as_bytes())
}

/// Whether the request is answered with this head only, because the file is large.
pub(crate) fn head_is_enough(cache: &Cache, context: &RequestContext, object: &Object) -> bool {
    let site = &context.resource.site;
    if !context.head_is_enough || object.blocks().is_none() || object.status() != StatusCode::OK {
        return false;
    }
    let head = object.head();
    let facts = (&head.headers, &head.validators, object.length());
    is_large(cache, site, object.identity(), facts)
}

/// The size of the whole object, if the head of a whole response states it.
pub(crate) fn stated_size(status: StatusCode, headers: &HeaderMap) -> Option<u64> {
    let number = |name| headers.get(name).and_then(|v| v.to_str().ok()?.parse().ok());
    let length = || match number(header::CONTENT_LENGTH) {
        // A peer sends the head of a large file without its body.
        Some(0) => number(LARGE).or(Some(0)),
        length => length,
    };
    (status == StatusCode::OK).then(length).flatten()
}

/// The answer with the head of a large file: no body, and the length in a field of its own.
pub(crate) fn head(
    name: &NodeName,
    context: &RequestContext,
    object: &Arc<Object>,
    age: Option<u32>,
    mut status: CacheStatus<'static>,
) -> Response<ResponseBody> {
    if object.is_held_by(&context.parts.headers) {
        return respond::not_modified(name, object.fields(belongs_in_304), age, &status);
    }
    // Without a strong validator equal versions are only probable (RFC 9110 Sec. 15.3.7.3).
    status.detail = Some(if object.validators().is_strong() { "pieces" } else { "pieces-weak" });
    let mut response = Response::new(ResponseBody::new(Source::Empty));
    let headers = response.headers_mut();
    *headers = object.reply(&name.hit(age, &status));
    headers.insert(LARGE, HeaderValue::from(object.length()));
    if context.connection.listener == ListenerKind::Peer {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
    }
    response
}

/// Reads the description of a large file from the answer with its head; `None` if it has none that is usable. Removes
/// the fields that are for nodes only.
pub(super) fn file_of(response: &mut Response<ResponseBody>) -> Option<LargeFile> {
    let headers = response.headers_mut();
    let length = headers.remove(LARGE)?.to_str().ok()?.parse().ok()?;
    LargeFile::of(headers, length)
}
