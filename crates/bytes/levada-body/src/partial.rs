//! Parts of a body: the ranges that a request asks for, and the head and the steps of the answer to
//! them (RFC 9110 Sec. 14).

use std::collections::VecDeque;

use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE},
    request::Parts as RequestParts,
};
use levada_cache::{ContentRange, Multipart, RangeParts, RangeSet, RangeSpec, Validators};
use levada_store::{Object, StoredHead, new_version};

use crate::{
    part::Inside,
    read_at::{ReadAt, Script, Step},
};

/// The part of a representation that a request wants.
pub enum Wanted {
    /// All of it.
    Whole,
    /// At least one part.
    Some(Box<RangeParts>),
    /// Bytes inside of a stored part.
    Inside(Box<Inside>),
    /// Bytes that the stored part does not have.
    Elsewhere,
    /// Only bytes that it does not have.
    Nothing,
}

/// The part that `request` wants of a stored representation of `length` bytes.
pub fn wanted(request: &RequestParts, head: &StoredHead, length: u64) -> Wanted {
    if head.status == StatusCode::PARTIAL_CONTENT {
        let inside = Inside::of(&request.headers, head);
        return inside.map_or(Wanted::Elsewhere, |inside| Wanted::Inside(Box::new(inside)));
    }
    wanted_of(request, head.status, &head.validators, length)
}

/// The same of a stored object.
pub fn wanted_in(request: &RequestParts, object: &Object) -> Wanted {
    match object.status() {
        StatusCode::PARTIAL_CONTENT => wanted(request, &object.head(), object.length()),
        status => wanted_of(request, status, &object.validators(), object.length()),
    }
}

/// The same for a representation that is not stored here.
pub fn wanted_of(
    request: &RequestParts,
    status: StatusCode,
    validators: &Validators,
    length: u64,
) -> Wanted {
    if request.method != Method::GET || status != StatusCode::OK {
        return Wanted::Whole;
    }
    let Some(ranges) = RangeSet::of(&request.headers) else { return Wanted::Whole };
    if !validators.if_range(&request.headers) {
        return Wanted::Whole;
    }
    let parts = ranges.resolve(length);
    match parts.as_slice().is_empty() {
        true => Wanted::Nothing,
        false => Wanted::Some(Box::new(parts)),
    }
}

/// The first byte that a request for parts of an object of unknown length needs: that of the block to
/// begin with. `None` without a range to be honoured.
pub fn first_byte(request: &RequestParts) -> Option<u64> {
    if request.method != Method::GET {
        return None;
    }
    let ranges = RangeSet::of(&request.headers)?;
    let first = ranges.specs().iter().map(|spec| match spec {
        RangeSpec::Between(first, _) | RangeSpec::From(first) => *first,
        // Where the last bytes are is not known before the length is.
        RangeSpec::Last(_) => 0,
    });
    first.min()
}

/// Turns the head of a 200 into that of the answer to a request for parts, and gives its body.
pub fn answer<B, R: ReadAt>(
    response: &mut Response<B>,
    parts: &RangeParts,
    length: u64,
    reader: R,
) -> Script<R> {
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    let headers = response.headers_mut();
    if let [range] = parts.as_slice() {
        headers.insert(CONTENT_RANGE, ContentRange::of(range.clone(), length).to_value());
        headers.insert(CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
        return Script::new(VecDeque::from([Step::Bytes(range.clone())]), reader);
    }
    let boundary = format!("{:016x}{:016x}", new_version(), new_version());
    let content_type = headers.get(CONTENT_TYPE).cloned();
    let frame = Multipart { boundary: &boundary, content_type: content_type.as_ref(), length };
    headers.insert(CONTENT_LENGTH, HeaderValue::from(frame.body_length(parts)));
    if let Some(value) = frame.content_type_value() {
        headers.insert(CONTENT_TYPE, value);
    }
    let mut steps = VecDeque::with_capacity(2 * parts.as_slice().len() + 1);
    for range in parts.as_slice() {
        steps.push_back(Step::Text(frame.part_head(range).into()));
        steps.push_back(Step::Bytes(range.clone()));
    }
    steps.push_back(Step::Text(frame.end().into()));
    Script::new(steps, reader)
}

/// Turns the head of a stored part into that of the answer to a request for bytes inside of it, and gives
/// its body.
pub fn answer_inside<B, R: ReadAt>(
    response: &mut Response<B>,
    inside: Inside,
    reader: R,
) -> Script<R> {
    inside.describe(response);
    Script::new(VecDeque::from([Step::Bytes(inside.bytes)]), reader)
}

/// The fields of a 416: what there is, and nothing of the representation.
pub fn unsatisfied(length: u64) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(CONTENT_RANGE, ContentRange::unsatisfied(length).to_value());
    headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    headers
}
