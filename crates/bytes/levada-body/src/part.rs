//! Parts of a body that are stored as the origin sent them, off the block grid.
//!
//! A range is fetched in blocks, so that neighbouring ranges share them. That gains nothing where the
//! range is the end of a body of unknown length, which would cost a request for the length first, and
//! where the blocks of one version look like those of another. Such a range goes to the origin
//! as the client asked for it ([`as_asked`]). The 206 is stored as it is, and answers later ranges that
//! lie inside it (RFC 9111 Sec. 3.3). Parts are never joined: that needs a strong validator (Sec. 3.4),
//! and with one there are blocks.
//!
//! A URI has a few [`places`] for parts, in addition to the place of its whole response. The first byte of a part
//! selects its place, so a part of the same range replaces an older one.

use std::{ops::Range, time::SystemTime};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_RANGE, IF_RANGE, RANGE},
    request::Parts as RequestParts,
};
use levada_cache::{CONDITIONAL, ContentRange, RangeSet, RangeSpec, Validators};
use levada_store::{Object, Store, StoredHead, disk::OriginTime};
use levada_types::{Key, weigh};

/// The most parts of a URI that are stored at a time.
const PLACES: u64 = 8;

/// The meaning of an answer to a request for a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartAnswer {
    /// It is the part.
    Part,
    /// There is another representation by now.
    Changed,
    /// It is the same one, but not the part.
    NoPart,
}

/// Judges the answer to a request for the bytes `span` of a representation with these validators and length.
pub fn judge(
    (known, length): (&Validators, Option<u64>),
    span: &Range<u64>,
    (status, headers): (StatusCode, &HeaderMap),
    received: SystemTime,
) -> PartAnswer {
    let same = Validators::of(headers, received).same_representation(known)
        && matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT);
    let part = ContentRange::of_part(headers)
        .filter(|part| status == StatusCode::PARTIAL_CONTENT && part.range.is_some());
    let told = part.as_ref().and_then(|part| part.length);
    if !same || length.zip(told).is_some_and(|(length, told)| length != told) {
        return PartAnswer::Changed;
    }
    match part.and_then(|part| part.range) == Some(span.clone()) {
        true => PartAnswer::Part,
        false => PartAnswer::NoPart,
    }
}

/// The field that asks for these bytes.
pub fn range_value(span: Range<u64>) -> HeaderValue {
    let text = format!("bytes={}-{}", span.start, span.end.saturating_sub(1));
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("bytes=0-"))
}

/// The length of the body that a head states.
pub fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The bytes of the representation that a response has, and the number of all its bytes.
pub fn span(status: StatusCode, headers: &HeaderMap) -> Option<(Range<u64>, u64)> {
    let length = content_length(headers)?;
    match status {
        StatusCode::OK => Some((0..length, length)),
        StatusCode::PARTIAL_CONTENT => {
            let ContentRange { range, length: whole } = ContentRange::of_part(headers)?;
            let range = range.filter(|range| range.end - range.start == length)?;
            Some((range, whole?))
        }
        _ => None,
    }
}

/// The status and the fields of the part that came, after all.
pub fn as_part(mut headers: HeaderMap, range: Range<u64>, length: u64) -> (StatusCode, HeaderMap) {
    headers.insert(CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
    headers.insert(CONTENT_RANGE, ContentRange::of(range, length).to_value());
    (StatusCode::PARTIAL_CONTENT, headers)
}

/// The keys of a URI's parts.
pub fn places(uri: Key) -> impl Iterator<Item = Key> {
    (0..PLACES).map(move |place| place_key(uri, place))
}

/// The key of the part with these fields.
pub fn place(uri: Key, headers: &HeaderMap) -> Key {
    let told = ContentRange::of_part(headers).and_then(|told| told.range);
    place_key(uri, weigh(uri, told.map_or(0, |range| range.start)) % PLACES)
}

fn place_key(uri: Key, place: u64) -> Key {
    // Keeps the places apart from blocks and variants, which are named by small numbers and versions.
    const PART: u64 = 0x70_61_72_74_73;
    Key(weigh(Key(weigh(uri, PART)), place))
}

/// The key of a fetch of this range alone.
pub fn fetch_key(of: Key, range: RangeSpec) -> Key {
    let (kind, first, last) = match range {
        RangeSpec::Between(first, last) => (0, first, last),
        RangeSpec::From(first) => (1, first, 0),
        RangeSpec::Last(count) => (2, count, 0),
    };
    Key(weigh(Key(weigh(Key(weigh(of, kind)), first)), last))
}

/// The range of a request that can be asked for as it is: one range of at most `most` bytes, without a
/// condition, which would have to be evaluated for the part alone.
pub fn as_asked(request: &RequestParts, most: u64) -> Option<RangeSpec> {
    let has_condition = |name: &HeaderName| *name != RANGE && request.headers.contains_key(name);
    if request.method != Method::GET || CONDITIONAL.iter().any(has_condition) {
        return None;
    }
    let range = RangeSet::of(&request.headers)?.single()?;
    let is_short = match range {
        RangeSpec::Between(first, last) => last - first < most,
        RangeSpec::From(_) => false,
        RangeSpec::Last(count) => (1..=most).contains(&count),
    };
    is_short.then_some(range)
}

/// Prepares the head of a 206 for the store: one range of at most `most` bytes whose content has its
/// length, and that has what was `asked` for. Returns whether it can be stored.
///
/// An origin may give exactly the last bytes that it was asked for, and count the last position one too
/// far (`4-9/10` for the last five bytes). Position and length of what it sent are believed then, and
/// the end of the representation is where they end.
pub fn settle(headers: &mut HeaderMap, asked: Option<RangeSpec>, most: u64) -> bool {
    let Some(ContentRange { range: Some(range), length: Some(length) }) =
        ContentRange::of_part(headers)
    else {
        return false;
    };
    let stated = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let (due, came) = (range.end - range.start, stated.unwrap_or(range.end - range.start));
    if due > most {
        return false;
    }
    let is_off = came < due && range.end == length && asked == Some(RangeSpec::Last(came));
    if is_off {
        let end = range.start + came;
        headers.insert(CONTENT_RANGE, ContentRange::of(range.start..end, end).to_value());
    } else if came != due {
        return false;
    }
    headers.insert(CONTENT_LENGTH, HeaderValue::from(came));
    let end = if is_off { range.start + came } else { length };
    let wanted = asked.map_or(Some(range.clone()), |asked| asked.resolve(end));
    wanted.is_some_and(|wanted| range.start <= wanted.start && wanted.end <= range.start + came)
}

/// The bytes of a stored part that answer a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Inside {
    /// Where they are in the part.
    pub(crate) bytes: Range<u64>,
    /// Where they are in the representation.
    told: ContentRange,
}

impl Inside {
    /// `None` when the part does not have all that is asked for, or the request is not for one range.
    pub fn of(request: &HeaderMap, head: &StoredHead) -> Option<Self> {
        let ContentRange { range, length } = ContentRange::of_part(&head.headers)?;
        let (part, length) = (range?, length?);
        let has_condition =
            |name: &HeaderName| *name != IF_RANGE && *name != RANGE && request.contains_key(name);
        if CONDITIONAL.iter().any(has_condition) || !head.validators.if_range(request) {
            return None;
        }
        let wanted = RangeSet::of(request)?.resolve(length);
        let [wanted] = wanted.as_slice() else { return None };
        (part.start <= wanted.start && wanted.end <= part.end).then(|| Self {
            bytes: wanted.start - part.start..wanted.end - part.start,
            told: ContentRange::of(wanted.clone(), length),
        })
    }

    /// Makes the part's head that of the answer.
    pub fn describe<B>(&self, response: &mut Response<B>) {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let headers = response.headers_mut();
        headers.insert(CONTENT_RANGE, self.told.to_value());
        headers.insert(CONTENT_LENGTH, HeaderValue::from(self.bytes.end - self.bytes.start));
    }
}

/// Whether the disk may have parts of a URI that the memory does not have.
pub fn may_recall(store: &Store, uri: Key) -> bool {
    store.has_disk() && places(uri).any(|place| store.may_recall(place))
}

/// Brings the parts of a URI from the disk into the memory, unless an origin with this time is faster.
pub async fn recall(
    store: &Store,
    uri: Key,
    identity: &str,
    request: &HeaderMap,
    origin: OriginTime<'_>,
) {
    for place in places(uri).filter(|place| store.may_recall(*place)) {
        store.recall(place, identity, request, origin).await;
    }
}

/// The parts in memory that have all that a request asks for.
pub fn stored(
    store: &Store,
    uri: Key,
    identity: &str,
    request: &RequestParts,
) -> impl Iterator<Item = levada_store::Sought> {
    let has_it = |object: &Object| {
        object.status() == StatusCode::PARTIAL_CONTENT
            && Inside::of(&request.headers, &object.head()).is_some()
    };
    places(uri)
        .map(|place| store.get(place, identity, &request.headers))
        .filter(move |sought| sought.object.as_deref().is_some_and(has_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn told(headers: &HeaderMap) -> &str {
        headers[CONTENT_RANGE].to_str().unwrap()
    }

    #[test]
    fn part_is_stored_with_the_range_of_its_content_only() {
        let settled = |range: &str, length: &str, asked| {
            let mut headers = headers(&[("content-range", range), ("content-length", length)]);
            let stored = settle(&mut headers, asked, 100);
            (stored, told(&headers).to_owned())
        };
        let last = Some(RangeSpec::Last(5));
        assert_eq!(settled("bytes 5-9/10", "5", last), (true, "bytes 5-9/10".into()));
        let same = Some(RangeSpec::Between(0, 4));
        assert_eq!(settled("bytes 0-4/10", "5", same), (true, "bytes 0-4/10".into()));
        assert_eq!(settled("bytes 0-4/10", "5", None), (true, "bytes 0-4/10".into()));
        // Exactly the last five bytes, the last position one too far.
        assert_eq!(settled("bytes 4-9/10", "5", last), (true, "bytes 4-8/9".into()));
        for (range, length, asked) in [
            ("bytes 0-4/10", "5", last),
            ("bytes 4-9/10", "5", None),
            ("bytes 4-9/10", "5", Some(RangeSpec::From(4))),
            ("bytes 4-9/10", "4", last),
            ("bytes 4-9/11", "5", last),
            ("bytes 6-9/10", "5", last),
            ("bytes 0-100/200", "101", None),
            ("bytes 0-9/*", "10", None),
            ("bytes */10", "0", None),
        ] {
            assert!(!settled(range, length, asked).0, "{range} {length} {asked:?}");
        }
    }

    #[test]
    fn only_one_short_range_without_conditions_is_asked_for_as_it_is() {
        let asked = |fields: &[(&'static str, &str)]| {
            let (mut parts, ()) = http::Request::new(()).into_parts();
            parts.headers = headers(fields);
            as_asked(&parts, 100)
        };
        assert_eq!(asked(&[("range", "bytes=-5")]), Some(RangeSpec::Last(5)));
        assert_eq!(asked(&[("range", "bytes=5-104")]), Some(RangeSpec::Between(5, 104)));
        for range in ["bytes=-0", "bytes=-101", "bytes=5-105", "bytes=5-", "bytes=0-1,4-5", "x"] {
            assert_eq!(asked(&[("range", range)]), None, "{range}");
        }
        for condition in ["if-range", "if-none-match", "if-match", "if-modified-since"] {
            assert_eq!(asked(&[("range", "bytes=-5"), (condition, "\"a\"")]), None, "{condition}");
        }
    }

    #[test]
    fn places_of_a_uri_are_few_and_those_of_a_range_the_same() {
        let uri = Key::of(b"http://a.test/");
        let all: std::collections::HashSet<Key> = places(uri).collect();
        assert_eq!(all.len() as u64, PLACES);
        for first in 0..1000 {
            let range = format!("bytes {first}-{}/5000", first + 9);
            let at = place(uri, &headers(&[("content-range", &range)]));
            assert!(all.contains(&at) && at != uri);
        }
    }
}
