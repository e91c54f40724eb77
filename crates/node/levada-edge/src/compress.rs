//! Compression in the life of a request: the codings that its client gets, a coded copy of a stored response, or a coded
//! stream of one that is not stored. `levada_body::compress` decides and codes.

use std::sync::Arc;

use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, IF_RANGE},
};
use levada_body::compress::{Accepts, Coder, Coding, CompressSettings, CopySource, copy_key};
use levada_body::{BlockedBody, LongBody, Representation};
use levada_cache::{ETag, Freshness};
use levada_store::{Object, StoredBody, StoredHead};

use crate::{
    body::ResponseBody,
    cache::{Cache, part_origin},
    request::RequestContext,
    resource::Resource,
};

/// The codings that the client gets from this node; the origin and the store see one normal form of them.
pub(crate) fn negotiate(context: &mut RequestContext) {
    let RequestContext { resource, parts, accepts, wants, .. } = context;
    let Some(compress) = &resource.handling.compress else { return };
    let as_is = resource.piece.is_some() || resource.digest().is_some();
    let as_is = as_is || wants.directives.no_transform;
    if !as_is {
        *accepts = Accepts::of(&parts.headers, &compress.codings);
    }
    let told = match compress.origin_codings && !as_is {
        true => accepts.as_value(),
        false => HeaderValue::from_static("identity"),
    };
    parts.headers.insert(ACCEPT_ENCODING, told);
}

/// A response that has coded copies.
pub(crate) enum Original<'a> {
    Stored(&'a Arc<Object>),
    Arriving(&'a Arc<BlockedBody>),
}

/// A coded copy.
pub(crate) enum CodedCopy {
    Stored(Arc<Object>),
    /// It is being made, or its head alone is asked for.
    Arriving(Arc<BlockedBody>),
}

impl Original<'_> {
    /// Whether coded copies of it are wanted.
    fn has_copies(&self) -> bool {
        let (copies, status, is_copy) = match self {
            Self::Stored(object) => (object.copies(), object.status(), object.is_coded_copy()),
            Self::Arriving(body) => {
                let head = &body.of.head;
                (head.copies, head.status, head.is_coded_copy())
            }
        };
        copies != 0 && status != StatusCode::PARTIAL_CONTENT && !is_copy
    }

    fn is_held_by(&self, request: &HeaderMap) -> bool {
        match self {
            Self::Stored(object) => object.is_held_by(request),
            Self::Arriving(body) => body.of.head.is_held_by(request),
        }
    }

    fn copies(&self) -> u64 {
        match self {
            Self::Stored(object) => object.copies(),
            Self::Arriving(body) => body.of.head.copies,
        }
    }

    /// As received, whatever purges there were.
    fn freshness(&self) -> Freshness {
        match self {
            Self::Stored(object) => object.received_freshness(),
            Self::Arriving(body) => body.of.head.freshness,
        }
    }

    /// The head of its copy.
    fn coded(&self, coding: Coding) -> StoredHead {
        match self {
            Self::Stored(object) => coding.head_of(&object.head()),
            Self::Arriving(body) => coding.head_of(&body.of.head),
        }
    }

    fn length(&self) -> Option<u64> {
        match self {
            Self::Stored(object) => Some(object.length()),
            Self::Arriving(body) => body.of.length,
        }
    }

    async fn source(&self, cache: &Arc<Cache>, context: &RequestContext) -> Option<CopySource> {
        let RequestContext { resource, parts, .. } = context;
        let object = match self {
            Self::Arriving(body) => return Some(CopySource::Blocks((*body).clone())),
            Self::Stored(object) => *object,
        };
        if object.blocks().is_some() {
            let body = part_origin::stored(cache, context, object, None);
            return Some(CopySource::Blocks(body));
        }
        if !matches!(object.stored_body(), StoredBody::File(_)) {
            return Some(CopySource::Object(object.clone()));
        }
        let (key, identity) = (resource.key(), resource.identity());
        let time = || resource.site.usual_time();
        let sought = cache.store.recall(key, identity, &parts.headers, &time).await;
        let same = |recalled: &Arc<Object>| recalled.copies() == object.copies();
        sought.object.filter(same).map(CopySource::Object)
    }
}

/// The coded copy of a response for this client: stored, or made now. `None` if it gets the original.
pub(crate) async fn copy(
    cache: &Arc<Cache>,
    context: &RequestContext,
    original: Original<'_>,
) -> Option<CodedCopy> {
    let RequestContext { resource, accepts, wants, parts, .. } = context;
    let length = original.length().unwrap_or(0);
    let best = accepts.codings().next().filter(|_| original.has_copies())?;
    let compress = resource.handling.compress.as_ref()?;
    let large = resource.site.serves_large_files().map_or(u64::MAX, |large| large.threshold);
    if length > compress.max_size || length >= large {
        return None;
    }
    let kept = stored(cache, context, &original, best).await;
    let is_held = |copy: &Arc<Object>| copy.is_held_by(&parts.headers);
    if wants.conditional && !kept.as_ref().is_some_and(is_held) {
        let mut heads = accepts.codings().map(|coding| original.coded(coding));
        if let Some(held) = heads.find(|head| head.is_held_by(&parts.headers)) {
            return Some(head_alone(cache, context, held));
        }
        // It got the original while no copy could be made.
        if !accepts.refuses_identity && original.is_held_by(&parts.headers) {
            return None;
        }
    }
    if let Some(copy) = kept {
        return Some(CodedCopy::Stored(copy));
    }
    let coded = original.coded(best);
    if parts.method == Method::HEAD {
        return Some(head_alone(cache, context, coded));
    }
    if wants.range && !accepts.refuses_identity && is_range_of_original(&parts.headers) {
        return None;
    }
    let source = original.source(cache, context).await?;
    if let Some(body) = make(cache, context, coded, source, best, compress).await {
        return Some(CodedCopy::Arriving(body));
    }
    for coding in accepts.codings().skip(1) {
        if let Some(copy) = stored(cache, context, &original, coding).await {
            return Some(CodedCopy::Stored(copy));
        }
    }
    None
}

/// Whether a range can only be one of the original: `If-Range` with a date or a weak tag may come from a client
/// that holds the beginning of a copy.
fn is_range_of_original(request: &HeaderMap) -> bool {
    let is_strong =
        |value: &HeaderValue| ETag::parse(value.as_bytes()).is_some_and(|tag| !tag.weak);
    request.get(IF_RANGE).is_none_or(is_strong)
}

fn head_alone(cache: &Cache, context: &RequestContext, head: StoredHead) -> CodedCopy {
    let of = representation(cache, context, head);
    let long = LongBody { version: 0, origin: None };
    CodedCopy::Arriving(BlockedBody::in_blocks(&cache.tiers, of, long, None))
}

/// A stored copy, under a head as fresh as its original's.
async fn stored(
    cache: &Cache,
    context: &RequestContext,
    original: &Original<'_>,
    coding: Coding,
) -> Option<Arc<Object>> {
    let RequestContext { resource, parts, .. } = context;
    let key = copy_key(resource.key(), original.copies(), coding);
    let (store, identity) = (&cache.store, resource.identity());
    let mut sought = store.get(key, identity, &parts.headers);
    if sought.object.is_none() && store.may_recall(sought.key) {
        let time = || resource.site.usual_time();
        sought = store.recall(key, identity, &parts.headers, &time).await;
    }
    let copy = sought.object.filter(|copy| copy.copies() == original.copies())?;
    if copy.received_freshness() == original.freshness() {
        return Some(copy);
    }
    let renewed = Arc::new(copy.renewed(original.coded(coding)));
    cache.keep(key, renewed.clone(), &cache.purges.begin());
    Some(renewed)
}

async fn make(
    cache: &Arc<Cache>,
    context: &RequestContext,
    coded: StoredHead,
    source: CopySource,
    coding: Coding,
    compress: &CompressSettings,
) -> Option<Arc<BlockedBody>> {
    let key = copy_key(context.resource.key(), coded.copies, coding);
    let of = representation(cache, context, coded);
    let keeper = cache.clone();
    let keep = move |copy| keeper.keep(key, copy, &keeper.purges.begin());
    cache.copies.make(key, of, source, (coding, &compress.levels), keep).await
}

fn representation(cache: &Cache, context: &RequestContext, head: StoredHead) -> Representation {
    let (key, identity) = (context.resource.key(), context.resource.identity().into());
    Representation { key, identity, head, block: cache.block, length: None }
}

/// Whether a node of this cluster may have coded the response, so that the origin does not have the rest of its body.
pub(crate) fn may_be_coded(resource: &Resource, headers: &HeaderMap) -> bool {
    resource.handling.compress.is_some() && headers.contains_key(CONTENT_ENCODING)
}

/// Whether a response that is not stored is compressed for this client.
pub(crate) fn streams(context: &RequestContext, status: StatusCode, headers: &HeaderMap) -> bool {
    let compress = context.resource.handling.compress.as_ref();
    !context.accepts.is_empty()
        && compress.is_some_and(|compress| compress.applies(status, headers))
}

/// Lets the origin judge whether a client holds the original of a coded response that is not stored.
pub(crate) fn ask_for_originals(context: &RequestContext, request: &mut HeaderMap) {
    if context.wants.conditional && !context.accepts.is_empty() && context.parts.method.is_safe() {
        context.accepts.ask_for_originals(request);
    }
}

/// Compresses a response that is not stored on its way to this client.
pub(crate) fn stream(
    cache: &Cache,
    context: &RequestContext,
    response: &mut Response<ResponseBody>,
) {
    let Some(compress) = &context.resource.handling.compress else { return };
    let status = response.status();
    if !compress.covers(status, response.headers_mut()) {
        return;
    }
    let Some(coding) = context.accepts.codings().next() else { return };
    if context.parts.method != Method::HEAD {
        let place = cache.copies.workers().admit_stream();
        let coder = place.and_then(|place| Coder::new(coding, &compress.levels, place));
        let Some(coder) = coder else { return };
        response.body_mut().code(coder);
    }
    coding.apply_to(response.headers_mut());
}
