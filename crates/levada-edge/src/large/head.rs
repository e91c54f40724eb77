//! The head of a large file: an object like any other, whose body is elsewhere.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use levada_cache::{CacheStatus, Validators};
use levada_store::Object;
use levada_types::{Key, hash64};
use parking_lot::RwLock;

use crate::{
    body::{ResponseBody, Source},
    client_connection::Door,
    clock,
    fields::LARGE,
    node::Node,
    request::RequestContext,
    sites::Site,
    stored,
};

/// The number by which versions of a file are told apart; `None` where they cannot be.
///
/// Of a strong entity tag, and where there is none, of `Last-Modified` and the length: two versions
/// made within one second and of one length are then taken for one. A weak entity tag promises no
/// equal bytes, so it counts only beside these.
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
    node: &Node,
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
        && !node.no_parts.holds(file_key(identity), node.clock.now())
}

/// The key of the file's URL, of a piece's identity or its own.
pub(crate) fn file_key(identity: &str) -> Key {
    let url = identity.rsplit_once(' ').map_or(identity, |(_, url)| url);
    Key::of(url.as_bytes())
}

/// Whether whoever asks is served with the head of this object, because the file is large.
pub(crate) fn head_is_enough(node: &Node, context: &RequestContext, object: &Object) -> bool {
    let site = &context.resource.site;
    let told = (&object.head.headers, &object.head.validators, object.length());
    context.head_is_enough
        && object.blocks().is_some()
        && object.head.status == StatusCode::OK
        && is_large(node, site, object.identity(), told)
}

/// The answer to whoever is served with the head of a large file: no body, and the length apart.
pub(crate) fn head(
    node: &Node,
    context: &RequestContext,
    object: &Arc<Object>,
    age: Option<u32>,
    mut status: CacheStatus<'static>,
) -> Response<ResponseBody> {
    if stored::has_already(&object.head, &context.parts) {
        return stored::not_modified(node, &object.head, age, &status);
    }
    // Without a strong validator a version is no more than likely to be one (RFC 9110 Sec. 15.3.7.3).
    status.detail = Some(if object.head.validators.is_strong() { "pieces" } else { "pieces-weak" });
    let mut response = Response::new(ResponseBody::new(Source::Empty));
    let headers = response.headers_mut();
    *headers = object.reply(age.unwrap_or(0), &status, &node.cache_name);
    if age.is_none() {
        headers.remove(header::AGE);
    }
    headers.insert(LARGE, HeaderValue::from(object.length()));
    if context.connection.door == Door::Peer {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
    }
    response
}

/// A large file, as its head tells of it.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) length: u64,
    pub(crate) version: u64,
    pub(crate) validators: Validators,
    /// What the origin is asked for parts under (RFC 9110 Sec. 13.1.5).
    pub(crate) if_range: Option<HeaderValue>,
    /// The origin says that it sends parts.
    pub(crate) offers_ranges: bool,
}

impl File {
    /// What the answer of whoever has its head tells of a large file; `None` when it tells nothing that
    /// could be used. What only nodes say to each other is taken out.
    pub(crate) fn of(response: &mut Response<ResponseBody>) -> Option<Self> {
        let headers = response.headers_mut();
        let length = headers.remove(LARGE)?.to_str().ok()?.parse().ok()?;
        let validators = Validators::of(headers, clock::wall());
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

/// Versions of files that were served lately, in bounded room.
pub(crate) struct Known {
    slots: RwLock<Box<[(Key, Piecewise)]>>,
}

/// What the place of a file's pieces follows from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piecewise {
    pub(crate) length: u64,
    pub(crate) version: u64,
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

    pub(crate) fn get(&self, key: Key) -> Option<Piecewise> {
        let (owner, known) = self.slots.read()[key.0 as usize % SLOTS];
        (owner == key && known.length > 0).then_some(known)
    }
}
