//! Answers from stored responses and from responses on their way into the store: the head for this
//! client, and the source of its body.

use std::{sync::Arc, time::SystemTime};

use http::{HeaderMap, HeaderValue, Method, Response, header::CONTENT_LENGTH, request::Parts};
use levada_body::{
    BlockReader, BlockedBody, ReadError, Script, StoredReader, chunk,
    partial::{self, Wanted},
};
use levada_cache::{CacheStatus, ForwardReason, belongs_in_304, not_modified_fields};
use levada_store::{NodeName, Object};

use crate::{
    body::{ResponseBody, Source},
    request::RequestContext,
    respond,
};

/// A stored response: whole, in part, its head alone, or 304 when the client has it already.
pub(crate) fn answer(
    name: &NodeName,
    context: &RequestContext,
    object: &Arc<Object>,
    age: Option<u32>,
    status: &CacheStatus<'static>,
) -> Response<ResponseBody> {
    let RequestContext { wants, parts, .. } = context;
    if wants.conditional && object.is_held_by(&parts.headers) {
        return respond::not_modified(name, object.fields(belongs_in_304), age, status);
    }
    let mut response = Response::new(ResponseBody::new(Source::Empty));
    *response.status_mut() = object.status();
    *response.headers_mut() = object.reply(&name.hit(age, status));
    let wanted = match wants.range {
        true => partial::wanted_in(parts, object),
        false => Wanted::Whole,
    };
    let source = match wanted {
        _ if parts.method == Method::HEAD => Source::Empty,
        Wanted::Whole | Wanted::Elsewhere => whole(context, object),
        Wanted::Nothing => return respond::unsatisfied(name, object.length(), status),
        Wanted::Some(ranges) => {
            let reader = StoredReader::new(object, context.zero_copy.as_ref());
            partial::answer(&mut response, &ranges, object.length(), reader).into()
        }
        Wanted::Inside(inside) => {
            let reader = StoredReader::new(object, context.zero_copy.as_ref());
            partial::answer_inside(&mut response, *inside, reader).into()
        }
    };
    response.body_mut().replace(source);
    response
}

/// The same, whole, with its fields as text: no map is made of them. Only for a request that takes text
/// ([`RequestContext`]), and whose fields are not needed any more.
pub(crate) fn answer_in_text(
    name: &NodeName,
    context: &mut RequestContext,
    object: &Arc<Object>,
    age: u32,
    status: &CacheStatus<'static>,
) -> Response<ResponseBody> {
    let fields = object.reply_text(&name.hit(Some(age), status));
    let mut response = Response::new(ResponseBody::new(whole(context, object)).with_fields(fields));
    *response.status_mut() = object.status();
    // The connection gives the memory of the map to its next request.
    let mut map = std::mem::take(&mut context.parts.headers);
    map.clear();
    *response.headers_mut() = map;
    response
}

fn whole(context: &RequestContext, object: &Arc<Object>) -> Source {
    if chunk(object.stored_body()).is_none() {
        return Source::Stored { object: object.clone(), next: 0 };
    }
    let reader = StoredReader::new(object, context.zero_copy.as_ref());
    Script::whole(Some(object.length()), reader).into()
}

/// The response to a client whose body is on its way into the store. The leader's client also gets its
/// `own` fields, which are not stored.
pub(crate) async fn arriving(
    name: &NodeName,
    parts: &Parts,
    body: &Arc<BlockedBody>,
    own: HeaderMap,
    mut status: CacheStatus<'_>,
) -> Result<Response<ResponseBody>, ReadError> {
    let head = &body.of.head;
    if !status.collapsed {
        status.forwarded_status = status.forwarded_status.or(Some(head.status.as_u16()));
        status.stored = true;
    }
    let age = Some(head.freshness().age(SystemTime::now())).filter(|age| *age > 0);
    let mut response = from_blocks(name, parts, body, age, &mut status).await?;
    response.headers_mut().extend(own);
    Ok(response)
}

/// A response that is read block by block, unless it cannot be had.
pub(crate) async fn from_blocks(
    name: &NodeName,
    parts: &Parts,
    body: &Arc<BlockedBody>,
    age: Option<u32>,
    status: &mut CacheStatus<'_>,
) -> Result<Response<ResponseBody>, ReadError> {
    let (head, length) = (&body.of.head, body.of.length);
    if head.is_held_by(&parts.headers) {
        return Ok(respond::not_modified(name, not_modified_fields(&head.headers), age, status));
    }
    // While the length is not known the whole is sent: a server may ignore a range.
    let wanted = length.map_or(Wanted::Whole, |length| partial::wanted(parts, head, length));
    let (first, end) = match &wanted {
        Wanted::Whole => (0, length.unwrap_or(u64::MAX)),
        Wanted::Nothing => {
            return Ok(respond::unsatisfied(name, length.unwrap_or_default(), status));
        }
        Wanted::Some(ranges) => ranges.span(),
        Wanted::Inside(_) => (0, length.unwrap_or(u64::MAX)),
        Wanted::Elsewhere => return Err(ReadError::Gone),
    };
    let mut reader = BlockReader::new(body.clone(), end);
    if parts.method != Method::HEAD {
        let whole = body.is_running() || body.holds_all(first, end);
        if !whole && body.origin().is_none() {
            return Err(ReadError::Gone);
        }
        if status.forwarded.is_none() && !whole {
            // A request that stored blocks answer in part only (RFC 9211 Sec. 2.2).
            status.forwarded = Some(ForwardReason::Partial);
            status.stored = true;
        }
        reader.begin(first).await?;
    }
    status.stored &= body.is_kept();
    let mut response = Response::new(());
    *response.status_mut() = head.status;
    let headers = response.headers_mut();
    headers.clone_from(&head.headers);
    // A body that arrives has the field if its length is known, unless it has no content (204).
    if let Some(length) = length.filter(|_| !body.is_running()) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    name.add_hit(headers, age, status);
    let source = match (wanted, length) {
        _ if parts.method == Method::HEAD => Source::Empty,
        (Wanted::Some(ranges), Some(length)) => {
            partial::answer(&mut response, &ranges, length, reader).into()
        }
        (Wanted::Inside(inside), _) => {
            partial::answer_inside(&mut response, *inside, reader).into()
        }
        _ => Script::whole(length, reader).into(),
    };
    Ok(response.map(|()| ResponseBody::new(source)))
}
