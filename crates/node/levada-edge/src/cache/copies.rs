//! The response with an object, stored or on its way: with its coded copy where the client takes one.

use std::sync::Arc;

use http::{HeaderMap, Response};
use levada_body::{BlockedBody, ReadError};
use levada_cache::CacheStatus;
use levada_store::{NodeName, Object};

use super::{Cache, part_origin, stored};
use crate::{
    body::ResponseBody,
    compress::{self, CodedCopy, Original},
    large,
    request::RequestContext,
};

/// A response on its way into the store, or its coded copy. The leader's client also gets its `own` fields.
pub(crate) async fn arriving(
    cache: &Arc<Cache>,
    context: &RequestContext,
    body: &Arc<BlockedBody>,
    own: HeaderMap,
    status: CacheStatus<'static>,
) -> Result<Response<ResponseBody>, ReadError> {
    let copy = match context.accepts.is_empty() {
        true => None,
        false => Box::pin(compress::copy(cache, context, Original::Arriving(body))).await,
    };
    let body = match &copy {
        Some(CodedCopy::Stored(copy)) => {
            return from_object(cache, context, copy, None, status).await;
        }
        Some(CodedCopy::Arriving(copy)) => copy,
        None => body,
    };
    stored::arriving(&cache.forwarder.name, &context.parts, body, own, status).await
}

/// The response with an object that a fetch has renewed or found to be large, or that stands in for one: its head alone,
/// where that is enough.
pub(crate) async fn whole_or_head(
    cache: &Arc<Cache>,
    context: &RequestContext,
    object: &Arc<Object>,
    age: Option<u32>,
    status: CacheStatus<'static>,
) -> Result<Response<ResponseBody>, ReadError> {
    if large::head_is_enough(cache, context, object) {
        return Ok(large::head(&cache.forwarder.name, context, object, age, status));
    }
    from_object(cache, context, object, age, status).await
}

/// A stored response, wherever its body is, unless that cannot be had.
pub(crate) async fn from_object(
    cache: &Arc<Cache>,
    context: &RequestContext,
    object: &Arc<Object>,
    age: Option<u32>,
    mut status: CacheStatus<'static>,
) -> Result<Response<ResponseBody>, ReadError> {
    let (object, being_made) = coded_copy(cache, context, object.clone()).await;
    if let Some(copy) = being_made {
        return from_copy(&cache.forwarder.name, context, &copy, age, status).await;
    }
    if object.blocks().is_none() {
        return Ok(stored::answer(&cache.forwarder.name, context, &object, age, &status));
    }
    let body = part_origin::stored(cache, context, &object, context.zero_copy.as_ref());
    stored::from_blocks(&cache.forwarder.name, &context.parts, &body, age, &mut status).await
}

/// The coded copy of a stored response, where its client gets one that is stored; otherwise the response itself, with
/// a copy that is being made.
pub(crate) async fn coded_copy(
    cache: &Arc<Cache>,
    context: &RequestContext,
    object: Arc<Object>,
) -> (Arc<Object>, Option<Arc<BlockedBody>>) {
    if context.accepts.is_empty() {
        return (object, None);
    }
    match Box::pin(compress::copy(cache, context, Original::Stored(&object))).await {
        None => (object, None),
        Some(CodedCopy::Stored(copy)) => (copy, None),
        Some(CodedCopy::Arriving(copy)) => (object, Some(copy)),
    }
}

/// A response with a coded copy that is being made.
pub(crate) async fn from_copy(
    name: &NodeName,
    context: &RequestContext,
    copy: &Arc<BlockedBody>,
    age: Option<u32>,
    mut status: CacheStatus<'static>,
) -> Result<Response<ResponseBody>, ReadError> {
    stored::from_blocks(name, &context.parts, copy, age, &mut status).await
}
