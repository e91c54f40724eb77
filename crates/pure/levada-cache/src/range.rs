//! `Range`, `Content-Range` and the sizes of `multipart/byteranges` (RFC 9110, Sec. 14).
//!
//! ```text
//! Range: bytes=0-99, 200-, -50       the first 100 bytes, all from 200 on, the last 50
//! Content-Range: bytes 0-99/1000     these bytes and the length; bytes */1000 in a 416
//! ```
//!
//! A server may ignore `Range` at any time (Sec. 14.2). So an invalid, too long or unknown range is
//! [`None`], and the whole representation is sent. Only a valid request for bytes beyond the end
//! gets a 416.

use http::{HeaderMap, HeaderValue, header};
use std::{fmt, ops::Range};

/// The most ranges of one request; a request with more is treated as one without, because Sec. 14.2
/// warns of many small ranges.
pub const MAX_RANGES: usize = 16;

/// One `range-spec`, before the length is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeSpec {
    /// `first-last`, both included.
    Between(u64, u64),
    /// `first-`.
    From(u64),
    /// `-length`: the last bytes.
    Last(u64),
}

impl RangeSpec {
    fn parse(text: &[u8]) -> Option<Self> {
        let dash = text.iter().position(|&b| b == b'-')?;
        let (first, last) = (&text[..dash], &text[dash + 1..]);
        match (first.is_empty(), last.is_empty()) {
            (true, true) => None,
            (true, false) => Some(Self::Last(position(last)?)),
            (false, true) => Some(Self::From(position(first)?)),
            (false, false) => {
                let (first, last) = (position(first)?, position(last)?);
                (first <= last).then_some(Self::Between(first, last))
            }
        }
    }

    /// The bytes of a representation of `length` bytes; `None` if the range contains none of them.
    pub fn resolve(self, length: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::Between(first, last) => first..length.min(last.saturating_add(1)),
            Self::From(first) => first..length,
            Self::Last(count) => length.saturating_sub(count)..length,
        };
        (range.start < range.end).then_some(range)
    }
}

/// A position. A number that is too large counts as a position past every end.
fn position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, &b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        Some(n.saturating_mul(10).saturating_add(digit))
    })
}

/// The ranges of one request, in the order of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeSet {
    specs: [RangeSpec; MAX_RANGES],
    count: usize,
}

impl RangeSet {
    /// The ranges of `request`; `None` if it has none or if they must be ignored. `Range` applies
    /// to `GET` only (Sec. 14.2); the caller checks the method and [`crate::Validators::if_range`].
    pub fn of(request: &HeaderMap) -> Option<Self> {
        let mut lines = request.get_all(header::RANGE).iter();
        let only = lines.next()?;
        // Two lines would be joined to `bytes=0-1, bytes=2-3`, which is not a valid range.
        if lines.next().is_some() { None } else { Self::parse(only.as_bytes()) }
    }

    /// Reads the value of a `Range` field.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (unit, set) = value.trim_ascii().split_at_checked(6)?;
        if !unit.eq_ignore_ascii_case(b"bytes=") {
            return None;
        }
        let mut read = Self { specs: [RangeSpec::From(0); MAX_RANGES], count: 0 };
        for spec in crate::vary::list(set) {
            *read.specs.get_mut(read.count)? = RangeSpec::parse(spec)?;
            read.count += 1;
        }
        (read.count > 0).then_some(read)
    }

    /// The ranges, as requested.
    pub fn specs(&self) -> &[RangeSpec] {
        &self.specs[..self.count]
    }

    /// The only range; `None` if there are several. A range miss fetches it before the length is
    /// known.
    pub fn single(&self) -> Option<RangeSpec> {
        match self.specs() {
            [one] => Some(*one),
            _ => None,
        }
    }

    /// The parts to send of a representation of `length` bytes.
    ///
    /// Ranges that overlap or touch are merged; the others keep their order (Sec. 15.3.7.2).
    pub fn resolve(&self, length: u64) -> RangeParts {
        let mut parts = RangeParts { ranges: [const { 0..0 }; MAX_RANGES], count: 0 };
        for range in self.specs().iter().filter_map(|spec| spec.resolve(length)) {
            parts.add(range);
        }
        parts
    }
}

/// The parts to send: no two overlap, and none is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeParts {
    ranges: [Range<u64>; MAX_RANGES],
    count: usize,
}

impl RangeParts {
    /// The parts, from the first position to one past the last. If there are none, answer 416 with
    /// [`ContentRange::unsatisfied`]; if one, a 206 with `Content-Range`; if more, [`Multipart`].
    pub fn as_slice(&self) -> &[Range<u64>] {
        &self.ranges[..self.count]
    }

    /// The first position of all parts, and one past the last.
    pub fn span(&self) -> (u64, u64) {
        let parts = self.as_slice();
        let first = parts.iter().map(|part| part.start).min().unwrap_or(0);
        (first, parts.iter().map(|part| part.end).max().unwrap_or(0))
    }

    /// Adds a range and merges it with parts that overlap or touch it. A merged part may touch
    /// another part, so it is removed and added again.
    fn add(&mut self, mut range: Range<u64>) {
        let mut place = self.count;
        while let Some(at) = self.as_slice().iter().position(|part| touch(part, &range)) {
            range = range.start.min(self.ranges[at].start)..range.end.max(self.ranges[at].end);
            self.ranges[at..self.count].rotate_left(1);
            self.count -= 1;
            place = place.min(at);
        }
        self.ranges[self.count] = range;
        self.count += 1;
        self.ranges[place..self.count].rotate_right(1);
    }
}

fn touch(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start <= b.end && b.start <= a.end
}

/// The value of `Content-Range` (Sec. 14.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The range, to one past the last byte; `None` in a 416.
    pub range: Option<Range<u64>>,
    /// The length of the whole representation; `None` if unknown (`*`).
    pub length: Option<u64>,
}

impl ContentRange {
    /// A range of a representation with this length.
    pub fn of(range: Range<u64>, length: u64) -> Self {
        Self { range: Some(range), length: Some(length) }
    }

    /// The value for a 416: the length only.
    pub fn unsatisfied(length: u64) -> Self {
        Self { range: None, length: Some(length) }
    }

    /// The one part of a 206 with these fields. `None` if it has several: then the body contains
    /// their ranges (RFC 9110, Sec. 15.3.7.2).
    pub fn of_part(response: &HeaderMap) -> Option<Self> {
        let mut lines = response.get_all(header::CONTENT_RANGE).iter();
        let (Some(only), None) = (lines.next(), lines.next()) else { return None };
        Self::parse(only).filter(|told| told.range.is_some() && !is_multipart(response))
    }

    /// Parses the value of an origin; `None` if it is not well formed or contradictory.
    pub fn parse(value: &HeaderValue) -> Option<Self> {
        let (unit, rest) = value.as_bytes().trim_ascii().split_at_checked(6)?;
        if !unit.eq_ignore_ascii_case(b"bytes ") {
            return None;
        }
        let slash = rest.iter().position(|&b| b == b'/')?;
        let (range, length) = (&rest[..slash], &rest[slash + 1..]);
        let length = if length == b"*" { None } else { Some(exact(length)?) };
        if range == b"*" {
            return length.map(Self::unsatisfied);
        }
        let dash = range.iter().position(|&b| b == b'-')?;
        let (first, last) = (exact(&range[..dash])?, exact(&range[dash + 1..])?);
        let fits = first <= last && length.is_none_or(|length| last < length);
        fits.then(|| Self { range: Some(first..last.saturating_add(1)), length })
    }

    /// The field value.
    pub fn to_value(&self) -> HeaderValue {
        // It has digits and punctuation only, so this cannot fail.
        HeaderValue::try_from(self.to_string()).unwrap_or(HeaderValue::from_static("bytes */*"))
    }
}

fn is_multipart(response: &HeaderMap) -> bool {
    const TYPE: &[u8] = b"multipart/byteranges";
    let content_type = response.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let start = content_type.and_then(|text| text.trim_ascii().get(..TYPE.len()));
    start.is_some_and(|start| start.eq_ignore_ascii_case(TYPE))
}

/// A number of a response. It must be exact, so a number that is too large is invalid.
fn exact(digits: &[u8]) -> Option<u64> {
    position(digits).filter(|&n| n < u64::MAX)
}

impl fmt::Display for ContentRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes ")?;
        match &self.range {
            Some(range) => write!(f, "{}-{}", range.start, range.end.saturating_sub(1))?,
            None => f.write_str("*")?,
        }
        match self.length {
            Some(length) => write!(f, "/{length}"),
            None => f.write_str("/*"),
        }
    }
}

/// The framing of a `multipart/byteranges` body (Sec. 14.6).
///
/// For every part, the body contains [`Multipart::part_head`] and the bytes of the part, and at the
/// end [`Multipart::end`].
#[derive(Clone, Debug)]
pub struct Multipart<'a> {
    /// Separates the parts: a token that does not occur in the content, chosen by the caller.
    pub boundary: &'a str,
    /// The content type of the whole representation, repeated in every part.
    pub content_type: Option<&'a HeaderValue>,
    /// The length of the whole representation.
    pub length: u64,
}

impl Multipart<'_> {
    /// The value of `Content-Type` of the response.
    pub fn content_type_value(&self) -> Option<HeaderValue> {
        HeaderValue::try_from(format!("multipart/byteranges; boundary={}", self.boundary)).ok()
    }

    /// The text before the bytes of one part.
    pub fn part_head(&self, range: &Range<u64>) -> Vec<u8> {
        let mut head = format!("\r\n--{}\r\n", self.boundary).into_bytes();
        if let Some(content_type) = self.content_type {
            head.extend_from_slice(b"Content-Type: ");
            head.extend_from_slice(content_type.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        let content_range = ContentRange::of(range.clone(), self.length);
        head.extend_from_slice(format!("Content-Range: {content_range}\r\n\r\n").as_bytes());
        head
    }

    /// The text after the last part.
    pub fn end(&self) -> Vec<u8> {
        format!("\r\n--{}--\r\n", self.boundary).into_bytes()
    }

    /// The length of the body: `Content-Length` of the response.
    pub fn body_length(&self, parts: &RangeParts) -> u64 {
        let one = |range: &Range<u64>| {
            (range.end - range.start).saturating_add(self.part_head(range).len() as u64)
        };
        parts.as_slice().iter().map(one).fold(self.end().len() as u64, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;
    use proptest::prelude::*;

    fn parts(range: &str, length: u64) -> Option<Vec<(u64, u64)>> {
        let parts = RangeSet::parse(range.as_bytes())?.resolve(length);
        Some(parts.as_slice().iter().map(|part| (part.start, part.end)).collect())
    }

    #[test]
    fn ranges_are_read_and_cut_to_the_length() {
        for (range, expected) in [
            ("bytes=0-4", vec![(0, 5)]),
            ("Bytes=5-", vec![(5, 10)]),
            ("bytes=-3", vec![(7, 10)]),
            ("bytes=-99", vec![(0, 10)]),
            ("bytes=8-99", vec![(8, 10)]),
            ("bytes= 0-0 ,, 2-3 ,\t-1", vec![(0, 1), (2, 4), (9, 10)]),
            ("bytes=6-7, 0-1", vec![(6, 8), (0, 2)]),
            ("bytes=0-99999999999999999999999", vec![(0, 10)]),
        ] {
            assert_eq!(parts(range, 10), Some(expected), "{range}");
        }
    }

    #[test]
    fn ranges_that_overlap_or_touch_become_one() {
        for (range, expected) in [
            ("bytes=0-4,2-6", vec![(0, 7)]),
            ("bytes=0-1,2-3", vec![(0, 4)]),
            ("bytes=8-9,0-1,4-5,1-4", vec![(8, 10), (0, 6)]),
            ("bytes=0-1,4-5,8-9,0-", vec![(0, 10)]),
            ("bytes=0-,0-,0-,0-", vec![(0, 10)]),
        ] {
            assert_eq!(parts(range, 10), Some(expected), "{range}");
        }
    }

    #[test]
    fn range_past_the_end_is_not_satisfiable() {
        for range in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(parts(range, 10), Some(vec![]), "{range}");
        }
        assert_eq!(parts("bytes=0-", 0), Some(vec![]));
        assert_eq!(parts("bytes=-5", 0), Some(vec![]));
        assert_eq!(parts("bytes=20-30, 1-2", 10), Some(vec![(1, 3)]));
    }

    #[test]
    fn what_is_no_range_is_ignored() {
        for range in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=1-2x",
            "bytes=1 -2",
            "bytes =1-2",
            "lines=1-2",
            "bytes=1-2-3",
            "bytes=+1-2",
            "bytes:0-1",
            "bytes=0-1, x",
        ] {
            assert_eq!(parts(range, 10), None, "{range}");
        }
        let many = vec!["0-0"; MAX_RANGES + 1].join(",");
        assert_eq!(parts(&format!("bytes={many}"), 10), None);
        assert!(
            RangeSet::of(&headers(&[("range", "bytes=0-1"), ("range", "bytes=2-3")])).is_none()
        );
        assert!(RangeSet::of(&headers(&[("range", "bytes=0-1")])).unwrap().single().is_some());
    }

    #[test]
    fn content_range_is_read_as_it_is_written() {
        for (text, range, length) in [
            ("bytes 0-4/10", Some(0..5), Some(10)),
            ("bytes 0-4/*", Some(0..5), None),
            ("bytes */10", None, Some(10)),
        ] {
            let read = ContentRange::parse(&HeaderValue::from_static(text)).unwrap();
            assert_eq!(read, ContentRange { range, length });
            assert_eq!(read.to_value(), text);
        }
        for wrong in [
            "bytes 0-10/10",
            "bytes 5-4/10",
            "bytes */*",
            "bytes=0-4/10",
            "bytes 0-4",
            "bytes -4/10",
            "bytes 0-18446744073709551615/*",
            "bytes 0-4/99999999999999999999",
        ] {
            assert_eq!(ContentRange::parse(&HeaderValue::from_static(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn multipart_body_is_as_long_as_announced() {
        let content: Vec<u8> = (0..100).collect();
        let parts = RangeSet::parse(b"bytes=90-, 0-4, 20-29").unwrap().resolve(100);
        let content_type = HeaderValue::from_static("a/b");
        let multipart = Multipart { boundary: "b", content_type: Some(&content_type), length: 100 };
        let mut body = Vec::new();
        for part in parts.as_slice() {
            body.extend(multipart.part_head(part));
            body.extend(&content[part.start as usize..part.end as usize]);
        }
        body.extend(multipart.end());
        assert_eq!(body.len() as u64, multipart.body_length(&parts));
        assert!(body.starts_with(
            b"\r\n--b\r\nContent-Type: a/b\r\nContent-Range: bytes 90-99/100\r\n\r\nZ"
        ));
        assert_eq!(multipart.content_type_value().unwrap(), "multipart/byteranges; boundary=b");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), length: u64) {
            let mut value = b"bytes=".to_vec();
            value.extend(&bytes);
            let _ = RangeSet::parse(&bytes);
            let _ = RangeSet::parse(&value).map(|set| set.resolve(length));
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                let _ = ContentRange::parse(&value);
            }
        }

        #[test]
        fn parts_are_what_was_asked_for_each_byte_once(
            specs in prop::collection::vec((0u64..40, 0u64..40, 0u8..3), 1..MAX_RANGES),
            length in 0u64..40,
        ) {
            let text: Vec<String> = specs.iter().map(|&(a, b, kind)| match kind {
                0 => format!("{}-{}", a.min(b), a.max(b)),
                1 => format!("{a}-"),
                _ => format!("-{b}"),
            }).collect();
            let asked = |at: u64| specs.iter().any(|&(a, b, kind)| match kind {
                0 => (a.min(b)..=a.max(b)).contains(&at),
                1 => at >= a,
                _ => at >= length.saturating_sub(b),
            });
            let parts = parts(&format!("bytes={}", text.join(",")), length).unwrap();
            for at in 0..length {
                let times = parts.iter().filter(|(start, end)| (*start..*end).contains(&at)).count();
                prop_assert_eq!(times, usize::from(asked(at)), "byte {}", at);
            }
            prop_assert!(parts.iter().all(|(start, end)| start < end && *end <= length));
        }
    }
}
