//! Parts of a body: what a `Range` asks for, and the body that answers it (RFC 9110 Sec. 14).

use std::{
    collections::VecDeque,
    ops::Range,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE},
    request::Parts as RequestParts,
};
use levada_cache::{ContentRange, Multipart, RangeParts, RangeSet, RangeSpec, Validators};
use levada_http1::{ZeroCopyChunk, ZeroCopyQueue};
use levada_store::{Object, StoredHead, new_version};

use crate::{
    blocks::BlockReader,
    body::BodyError,
    fill::{FillEnd, FillRead, FillReader},
    large::PieceReader,
    zero_copy,
};

/// What a request wants of a representation.
pub(crate) enum Wanted {
    Whole,
    /// At least one part.
    Some(Box<RangeParts>),
    /// Only bytes that it does not have.
    Nothing,
}

/// What `request` wants of a stored representation of `length` bytes.
pub(crate) fn wanted(request: &RequestParts, head: &StoredHead, length: u64) -> Wanted {
    wanted_of(request, head.status, &head.validators, length)
}

/// The same of one that is not stored here.
pub(crate) fn wanted_of(
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
pub(crate) fn first_byte(request: &RequestParts) -> Option<u64> {
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

/// Where the bytes come from.
pub(crate) enum Cursor {
    Stored(Arc<Object>),
    Parcelled(ZeroCopyChunk, Arc<ZeroCopyQueue>),
    Growing(FillReader),
    Blocks(BlockReader),
    Pieces(Box<PieceReader>),
}

impl Cursor {
    /// The body of a stored object for a client, by way of `parcels` if that pays.
    pub(crate) fn of(object: &Arc<Object>, zero_copy: Option<&Arc<ZeroCopyQueue>>) -> Self {
        match (zero_copy::chunk(object.stored_body()), zero_copy) {
            (Some(chunk), Some(zero_copy)) => Self::Parcelled(chunk, zero_copy.clone()),
            _ => Self::Stored(object.clone()),
        }
    }

    /// What is at a position, `most` bytes of it or a little more.
    fn poll_at(
        &mut self,
        cx: &mut Context<'_>,
        position: u64,
        most: u64,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        match self {
            Self::Stored(object) => Poll::Ready(object.at(position).map(Ok)),
            Self::Parcelled(chunk, zero_copy) => {
                Poll::Ready(zero_copy.hand_in(chunk, position, most).map(Ok))
            }
            Self::Blocks(reader) => reader.poll_at(cx, position, most),
            Self::Pieces(reader) => reader.poll_at(cx, position),
            Self::Growing(reader) => match ready!(reader.poll_at(cx, position)) {
                FillRead::Piece(piece) => Poll::Ready(Some(Ok(piece))),
                FillRead::End(FillEnd::Broken | FillEnd::LetGo) => {
                    Poll::Ready(Some(Err(BodyError::Fill)))
                }
                FillRead::End(FillEnd::Whole) => Poll::Ready(None),
                FillRead::End(FillEnd::Continued(blocked)) => {
                    *self = Self::Blocks(BlockReader::new(blocked, u64::MAX));
                    self.poll_at(cx, position, most)
                }
            },
        }
    }
}

/// A body made of parts of another, and of what stands between them.
pub(crate) struct Script {
    cursor: Cursor,
    steps: VecDeque<Step>,
}

enum Step {
    Text(Bytes),
    /// These bytes; up to `u64::MAX`: to the end, wherever that is.
    Bytes(Range<u64>),
}

impl Script {
    /// All bytes from a position on; `length` where it is known.
    pub(crate) fn from(position: u64, length: Option<u64>, cursor: Cursor) -> Self {
        let range = position..length.unwrap_or(u64::MAX);
        Self { cursor, steps: VecDeque::from([Step::Bytes(range)]) }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            match self.steps.front_mut() {
                None => return Poll::Ready(None),
                Some(Step::Text(text)) => {
                    let text = std::mem::take(text);
                    self.steps.pop_front();
                    return Poll::Ready(Some(Ok(text)));
                }
                Some(Step::Bytes(range)) if range.is_empty() => drop(self.steps.pop_front()),
                Some(Step::Bytes(range)) => {
                    let due = range.end - range.start;
                    match ready!(self.cursor.poll_at(cx, range.start, due)) {
                        Some(Ok(mut piece)) => {
                            piece.truncate(usize::try_from(due).unwrap_or(usize::MAX));
                            range.start += piece.len() as u64;
                            return Poll::Ready(Some(Ok(piece)));
                        }
                        None if range.end == u64::MAX => drop(self.steps.pop_front()),
                        // Shorter than was said: never ended cleanly.
                        None => return Poll::Ready(Some(Err(BodyError::Fill))),
                        Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    }
                }
            }
        }
    }

    /// What is left, where it is known.
    pub(crate) fn left(&self) -> Option<u64> {
        let steps = self.steps.iter().map(|step| match step {
            Step::Text(text) => Some(text.len() as u64),
            Step::Bytes(range) if range.end == u64::MAX => None,
            Step::Bytes(range) => Some(range.end - range.start),
        });
        steps.sum()
    }
}

/// Turns the head of a 200 into that of the answer to a request for parts, and gives its body.
pub(crate) fn answer<B>(
    response: &mut Response<B>,
    parts: &RangeParts,
    length: u64,
    cursor: Cursor,
) -> Script {
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    let headers = response.headers_mut();
    if let [range] = parts.as_slice() {
        headers.insert(CONTENT_RANGE, ContentRange::of(range.clone(), length).to_value());
        headers.insert(CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
        return Script { cursor, steps: VecDeque::from([Step::Bytes(range.clone())]) };
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
    Script { cursor, steps }
}

/// The fields of a 416: what there is, and nothing of the representation.
pub(crate) fn unsatisfied(length: u64) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(CONTENT_RANGE, ContentRange::unsatisfied(length).to_value());
    headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    headers
}
