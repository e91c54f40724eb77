//! The head of a large file: an ordinary object whose body is in the pieces.

use std::{sync::Arc, time::SystemTime};

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use levada_access::fields::LARGE;
use levada_cache::{CacheStatus, Validators, belongs_in_304};
use levada_store::{NodeName, Object, identity::in_space};
use levada_types::{Key, hash64};
use parking_lot::RwLock;

use crate::{
    body::{ResponseBody, Source},
    cache::Cache,
    client_connection::ListenerKind,
    request::RequestContext,
    respond,
    sites::Site,
};

/// The number of a file's version; `None` if versions cannot be distinguished.
///
/// It is made of a strong entity tag. Without one, it is made of `Last-Modified` and the length: two
/// versions of one length made within one second then count as one. A weak entity tag does not promise
/// equal bytes, so it is only used in addition.
pub(crate) fn version_of(headers: &HeaderMap, validators: &Validators, length: u64) -> Option<u64> {
    let field = |name| headers.get(name).map(HeaderValue::as_bytes);
    let text = match validators.etag() {
        Some(tag) if !tag.weak => [b"strong ", tag.opaque].concat(),
        weak => {
            let modified = field(header::LAST_MODIFIED)?;
            let tag = weak.map_or(&b""[..], |tag| tag.opaque);
            [b"modified ", modified, b" ", tag].concat()
        }
    };
    Some(levada_types::weigh(Key(hash64(&text)), length))
}

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

/// A large file, as described by its head.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) length: u64,
    pub(crate) version: u64,
    pub(crate) validators: Validators,
    /// The `If-Range` of requests to the origin (RFC 9110 Sec. 13.1.5).
    pub(crate) if_range: Option<HeaderValue>,
    /// The origin announces that it supports ranges.
    pub(crate) offers_ranges: bool,
}

impl File {
    /// Reads the description of a large file from the answer with its head; `None` if it has none that
    /// is usable. Removes the fields that are for nodes only.
    pub(crate) fn of(response: &mut Response<ResponseBody>) -> Option<Self> {
        let headers = response.headers_mut();
        let length = headers.remove(LARGE)?.to_str().ok()?.parse().ok()?;
        let validators = Validators::of(headers, SystemTime::now());
        let strong = validators.is_strong();
        let validator = headers.get(header::ETAG).or_else(|| headers.get(header::LAST_MODIFIED));
        Some(Self {
            length,
            version: version_of(headers, &validators, length)?,
            if_range: validator.filter(|_| strong).cloned(),
            offers_ranges: headers.get(header::ACCEPT_RANGES).is_some_and(|units| units == "bytes"),
            validators,
        })
    }
}

/// Versions of recently served files, in a table of bounded size.
pub struct Known {
    slots: RwLock<Box<[(Key, Piecewise)]>>,
}

/// The facts that the places of a file's pieces follow from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piecewise {
    /// Its length in bytes.
    pub length: u64,
    /// The hash of its version.
    pub version: u64,
}

const SLOTS: usize = 1 << 10;

impl Default for Known {
    fn default() -> Self {
        Self { slots: RwLock::new(vec![(Key(0), Piecewise::default()); SLOTS].into()) }
    }
}

impl Known {
    pub(crate) fn remember(&self, key: Key, file: &File) {
        let known = Piecewise { length: file.length, version: file.version };
        let slot = key.0 as usize % SLOTS;
        if self.slots.read()[slot] != (key, known) {
            self.slots.write()[slot] = (key, known);
        }
    }

    /// The facts of the file with this key, if they are known.
    pub fn get(&self, key: Key) -> Option<Piecewise> {
        let (owner, known) = self.slots.read()[key.0 as usize % SLOTS];
        (owner == key && known.length > 0).then_some(known)
    }
}
