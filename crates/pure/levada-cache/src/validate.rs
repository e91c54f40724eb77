//! Validators, conditional requests and updates by a 304 (RFC 9110, Sec. 8.8 and 13; RFC 9111, Sec.
//! 4.3).

use crate::{
    date::parse_date,
    freshness::millis,
    hop::{is_hop_by_hop, nominated},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use std::time::SystemTime;

/// Whether a request has a precondition that only the origin may evaluate (RFC 9111, Sec. 4.3.2).
pub fn has_precondition(request: &HeaderMap) -> bool {
    request.contains_key(header::IF_MATCH) || request.contains_key(header::IF_UNMODIFIED_SINCE)
}

/// An entity tag (RFC 9110, Sec. 8.8.3): `"opaque"` or `W/"opaque"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ETag<'a> {
    /// Whether it is a weak tag, which identifies equivalent content and not equal bytes.
    pub weak: bool,
    /// The text between the quotes.
    pub opaque: &'a [u8],
}

impl<'a> ETag<'a> {
    /// Parses a field value that is one entity tag.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (tag, rest) = Self::take(value.trim_ascii())?;
        rest.is_empty().then_some(tag)
    }

    /// The tags that `If-None-Match` lists.
    pub fn held(request: &'a HeaderMap) -> impl Iterator<Item = Self> {
        request.get_all(header::IF_NONE_MATCH).iter().flat_map(|line| Tags::of(line.as_bytes()))
    }

    /// Takes one tag from the front of a list.
    fn take(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (weak, quoted) = match text.strip_prefix(b"W/") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let inner = quoted.strip_prefix(b"\"")?;
        let end = inner.iter().position(|&b| b == b'"')?;
        let opaque = &inner[..end];
        let clean = opaque.iter().all(|&b| b > b' ' && b != 0x7f);
        clean.then_some((Self { weak, opaque }, &inner[end + 1..]))
    }

    /// Strong comparison (Sec. 8.8.3.2).
    pub fn strongly_equals(&self, other: &Self) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Weak comparison.
    pub fn weakly_equals(&self, other: &Self) -> bool {
        self.opaque == other.opaque
    }
}

/// The validators of a stored response, parsed once when it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    etag: Option<HeaderValue>,
    last_modified: Option<i64>,
    /// `Last-Modified`, else `Date`, else the time of arrival; compared with `If-Modified-Since`.
    changed: i64,
    /// `Date` is at least a second after `Last-Modified`, so `Last-Modified` is a strong validator.
    settled: bool,
}

impl Validators {
    /// Reads the validators of a response that arrived at `received`.
    pub fn of(response: &HeaderMap, received: SystemTime) -> Self {
        let moment = |name| response.get(name).and_then(|v: &HeaderValue| parse_date(v.as_bytes()));
        let (last_modified, date) = (moment(header::LAST_MODIFIED), moment(header::DATE));
        let etag = response.get(header::ETAG).filter(|v| ETag::parse(v.as_bytes()).is_some());
        // A copy: the original value keeps the whole network buffer in memory.
        let etag = etag.and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok());
        Self {
            etag,
            last_modified,
            changed: last_modified.or(date).unwrap_or((millis(received) / 1000) as i64),
            settled: last_modified.zip(date).is_some_and(|(changed, made)| made > changed),
        }
    }

    /// The same validators of a representation whose bytes are made again at times: the date does not identify them.
    pub fn of_remade(self) -> Self {
        Self { settled: false, ..self }
    }

    /// The entity tag.
    pub fn etag(&self) -> Option<ETag<'_>> {
        ETag::parse(self.etag.as_ref()?.as_bytes())
    }

    /// Whether the validator is strong, which combining parts of a response requires (RFC 9110,
    /// Sec. 13.1.5): a strong `ETag`, or without any `ETag`, a `Last-Modified` that is earlier than
    /// `Date` (Sec. 8.8.2.2).
    pub fn is_strong(&self) -> bool {
        match self.etag() {
            Some(tag) => !tag.weak,
            None => self.settled,
        }
    }

    /// Whether two responses certainly have the same bytes, so that their parts may be combined
    /// (RFC 9111, Sec. 3.4).
    pub fn same_representation(&self, other: &Self) -> bool {
        match (self.etag(), other.etag()) {
            (Some(a), Some(b)) => a.strongly_equals(&b),
            (None, None) => {
                self.settled && other.settled && self.last_modified == other.last_modified
            }
            _ => false,
        }
    }

    /// Evaluates the conditions of a `GET` or `HEAD` for a stored 200 (RFC 9110, Sec. 13.2.2; RFC
    /// 9111, Sec. 4.3.2).
    pub fn evaluate(&self, request: &HeaderMap) -> Condition {
        if request.contains_key(header::IF_MATCH)
            || request.contains_key(header::IF_UNMODIFIED_SINCE)
        {
            return Condition::ForOrigin;
        }
        if self.is_held_by(request) { Condition::NotModified } else { Condition::Send }
    }

    /// Evaluates all conditions of a `GET` or `HEAD`, as the origin that has the representation (RFC 9110, Sec.
    /// 13.2.2).
    pub fn precondition(&self, request: &HeaderMap) -> Precondition {
        let holds = if request.contains_key(header::IF_MATCH) {
            self.strongly_matches_any(request)
        } else {
            self.unmodified_since(request)
        };
        match holds {
            false => Precondition::Failed,
            true if self.is_held_by(request) => Precondition::NotModified,
            true => Precondition::Holds,
        }
    }

    /// Whether the client has this representation already. With `If-None-Match`, `If-Modified-Since` is ignored.
    fn is_held_by(&self, request: &HeaderMap) -> bool {
        if request.contains_key(header::IF_NONE_MATCH) {
            self.matches_any(request)
        } else {
            self.not_modified_since(request)
        }
    }

    /// Whether `If-Match` lists this representation, by strong comparison (Sec. 13.1.1).
    fn strongly_matches_any(&self, request: &HeaderMap) -> bool {
        let ours = self.etag();
        request.get_all(header::IF_MATCH).iter().any(|line| {
            let line = line.as_bytes().trim_ascii();
            line == b"*"
                || ours.is_some_and(|ours| Tags::of(line).any(|t| t.strongly_equals(&ours)))
        })
    }

    /// False if the representation is newer than `If-Unmodified-Since`; a field that is no date is ignored.
    fn unmodified_since(&self, request: &HeaderMap) -> bool {
        let mut lines = request.get_all(header::IF_UNMODIFIED_SINCE).iter();
        let (Some(only), None) = (lines.next(), lines.next()) else { return true };
        parse_date(only.as_bytes()).is_none_or(|since| self.changed <= since)
    }

    /// Whether `If-None-Match` lists this response, by weak comparison (Sec. 13.1.2).
    fn matches_any(&self, request: &HeaderMap) -> bool {
        let ours = self.etag();
        request.get_all(header::IF_NONE_MATCH).iter().any(|line| {
            let line = line.as_bytes().trim_ascii();
            line == b"*" || ours.is_some_and(|ours| Tags::of(line).any(|t| t.weakly_equals(&ours)))
        })
    }

    fn not_modified_since(&self, request: &HeaderMap) -> bool {
        let mut lines = request.get_all(header::IF_MODIFIED_SINCE).iter();
        let (Some(only), None) = (lines.next(), lines.next()) else {
            return false;
        };
        parse_date(only.as_bytes()).is_some_and(|since| self.changed <= since)
    }

    /// Whether to apply `Range`: always without `If-Range`, else only if `If-Range` matches this
    /// representation (RFC 9110, Sec. 13.1.5). A client that has another version gets the whole
    /// representation.
    pub fn if_range(&self, request: &HeaderMap) -> bool {
        let mut lines = request.get_all(header::IF_RANGE).iter();
        let Some(only) = lines.next() else {
            return true;
        };
        if lines.next().is_some() {
            return false;
        }
        match ETag::parse(only.as_bytes()) {
            Some(theirs) => self.etag().is_some_and(|ours| ours.strongly_equals(&theirs)),
            None => self.settled && parse_date(only.as_bytes()) == self.last_modified,
        }
    }

    /// Whether a 304 with these header fields selects the stored response (RFC 9111, Sec. 4.3.4).
    ///
    /// A strong tag selects all stored responses that have it; a weak tag or a date selects the
    /// most recent one. A 304 without validators selects the only stored response if it has no
    /// validator; `alone` says that there is no other stored response.
    pub fn selected_by(&self, not_modified: &HeaderMap, alone: bool) -> bool {
        let tag = not_modified.get(header::ETAG).and_then(|v| ETag::parse(v.as_bytes()));
        if let Some(theirs) = tag {
            return self.etag().is_some_and(|ours| {
                if theirs.weak {
                    ours.weakly_equals(&theirs)
                } else {
                    ours.strongly_equals(&theirs)
                }
            });
        }
        if let Some(theirs) = not_modified.get(header::LAST_MODIFIED) {
            return self.last_modified == parse_date(theirs.as_bytes())
                && self.last_modified.is_some();
        }
        // The response to a request with this response's validator need not repeat the validator.
        alone
    }
}

/// The result of evaluating the conditions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Send the stored response.
    Send,
    /// Send 304 with [`not_modified_fields`].
    NotModified,
    /// `If-Match` or `If-Unmodified-Since`: only the origin can evaluate them (RFC 9111, Sec.
    /// 4.3.2), so the request is forwarded.
    ForOrigin,
}

/// The result of evaluating the conditions of a request at the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Send the representation.
    Holds,
    /// Send 304 with [`not_modified_fields`].
    NotModified,
    /// Send 412.
    Failed,
}

/// The entity tags of one line. An invalid member ends the list, because the rest could be inside
/// quotes.
struct Tags<'a> {
    rest: &'a [u8],
}

impl<'a> Tags<'a> {
    fn of(line: &'a [u8]) -> Self {
        Self { rest: line }
    }
}

impl<'a> Iterator for Tags<'a> {
    type Item = ETag<'a>;

    fn next(&mut self) -> Option<ETag<'a>> {
        let junk = self.rest.iter().position(|&b| !matches!(b, b' ' | b'\t' | b','))?;
        let (tag, rest) = ETag::take(&self.rest[junk..])?;
        self.rest = rest;
        Some(tag)
    }
}

/// The fields that make a request conditional or partial.
pub const CONDITIONAL: [HeaderName; 6] = [
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_MATCH,
    header::IF_UNMODIFIED_SINCE,
    header::IF_RANGE,
    header::RANGE,
];

/// Whether a request is conditional or partial.
pub fn has_condition(request: &HeaderMap) -> bool {
    CONDITIONAL.iter().any(|name| request.contains_key(name))
}

/// Turns a client's request into one that validates a stored response (RFC 9111, Sec. 4.3.1): the
/// stored validators, as received, replace the client's own conditions.
///
/// Returns false if the stored response has no validator; then the request is unconditional.
pub fn make_conditional(request: &mut HeaderMap, stored: &HeaderMap) -> bool {
    for name in &CONDITIONAL {
        request.remove(name);
    }
    let pairs =
        [(header::ETAG, header::IF_NONE_MATCH), (header::LAST_MODIFIED, header::IF_MODIFIED_SINCE)];
    let mut conditional = false;
    for (validator, condition) in pairs {
        if let Some(value) = stored.get(validator) {
            request.insert(condition, value.clone());
            conditional = true;
        }
    }
    conditional
}

/// Updates stored header fields from a 304, or from a `HEAD` that confirmed the stored response
/// (RFC 9111, Sec. 3.2): every field of the answer replaces the stored field of that name.
///
/// Fields that describe the stored bytes and hop-by-hop fields are not updated. Compute
/// new [`crate::Freshness`] and [`Validators`] from the result.
pub fn update_stored(stored: &mut HeaderMap, answer: &HeaderMap) {
    let nominated: Vec<HeaderName> = nominated(answer).collect();
    for name in answer.keys() {
        if describes_content(name) || is_hop_by_hop(name) || nominated.contains(name) {
            continue;
        }
        stored.remove(name);
        for value in answer.get_all(name) {
            stored.append(name.clone(), value.clone());
        }
    }
    // The age is computed from this answer, so the times of an earlier answer are invalid. A caller
    // that forwards the response adds the `Date` of arrival (RFC 9110, Sec. 6.6.1).
    for name in [header::AGE, header::DATE] {
        if !answer.contains_key(&name) {
            stored.remove(name);
        }
    }
}

/// Fields of a 304 that do not describe the stored bytes (Sec. 3.2): they describe its own content,
/// not the stored content.
fn describes_content(name: &HeaderName) -> bool {
    [header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::CONTENT_RANGE].contains(name)
}

/// Whether a 200 to a `HEAD` confirms the stored response to `GET`. If not, the stored response is
/// outdated: see [`crate::Freshness::expired`] (RFC 9111, Sec. 4.3.5).
pub fn head_confirms(stored: &HeaderMap, head: &HeaderMap) -> bool {
    [header::ETAG, header::LAST_MODIFIED, header::CONTENT_LENGTH]
        .iter()
        .all(|name| head.get(name).is_none_or(|value| stored.get(name) == Some(value)))
}

/// The stored fields for a 304 to the client (RFC 9110, Sec. 15.4.5): fields with which it updates
/// its copy, but none that describe the content.
pub fn not_modified_fields(stored: &HeaderMap) -> HeaderMap {
    stored
        .iter()
        .filter(|(name, _)| belongs_in_304(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Whether a stored field is sent in a 304. `Last-Modified` is sent even with an `ETag`: it does no
/// harm and helps caches that support only dates.
pub fn belongs_in_304(name: &HeaderName) -> bool {
    const DESCRIBE_CONTENT: [HeaderName; 6] = [
        header::CONTENT_TYPE,
        header::CONTENT_LENGTH,
        header::CONTENT_ENCODING,
        header::CONTENT_LANGUAGE,
        header::CONTENT_RANGE,
        HeaderName::from_static("content-md5"),
    ];
    !DESCRIBE_CONTENT.contains(name) && !is_hop_by_hop(name)
}

/// Whether stored responses can answer requests of this method (RFC 9111, Sec. 4).
pub fn is_cache_method(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, headers, http_date, time};
    use proptest::prelude::*;

    fn validators(lines: &[(&'static str, &str)]) -> Validators {
        Validators::of(&headers(lines), time(NOW))
    }

    fn condition(stored: &[(&'static str, &str)], asked: &[(&'static str, &str)]) -> Condition {
        validators(stored).evaluate(&headers(asked))
    }

    #[test]
    fn origin_evaluates_all_conditions() {
        let response = headers(&[("etag", "\"v1\""), ("last-modified", &http_date(NOW - 100))]);
        let validators = Validators::of(&response, time(NOW));
        let of = |fields: &[(&'static str, &str)]| validators.precondition(&headers(fields));
        let (before, after) = (http_date(NOW - 200), http_date(NOW - 50));
        assert_eq!(of(&[]), Precondition::Holds);
        assert_eq!(of(&[("if-match", "\"v0\", \"v1\"")]), Precondition::Holds);
        assert_eq!(of(&[("if-match", "*")]), Precondition::Holds);
        assert_eq!(of(&[("if-match", "W/\"v1\"")]), Precondition::Failed);
        assert_eq!(
            of(&[("if-match", "\"v2\""), ("if-none-match", "\"v1\"")]),
            Precondition::Failed
        );
        assert_eq!(
            of(&[("if-match", "\"v1\""), ("if-none-match", "\"v1\"")]),
            Precondition::NotModified
        );
        assert_eq!(of(&[("if-unmodified-since", &before)]), Precondition::Failed);
        assert_eq!(of(&[("if-unmodified-since", &after)]), Precondition::Holds);
        assert_eq!(of(&[("if-unmodified-since", "never")]), Precondition::Holds);
        assert_eq!(
            of(&[("if-match", "\"v1\""), ("if-unmodified-since", &before)]),
            Precondition::Holds
        );
        assert_eq!(of(&[("if-modified-since", &after)]), Precondition::NotModified);
    }

    #[test]
    fn listed_tag_gives_304_by_weak_comparison() {
        use Condition::{NotModified, Send};
        for (ours, theirs, expected) in [
            ("\"a\"", "\"a\"", NotModified),
            ("\"a\"", "W/\"a\"", NotModified),
            ("W/\"a\"", "\"a\"", NotModified),
            ("\"a\"", "\"x,y\", \"a\" ,\"z\"", NotModified),
            ("\"x,y\"", "\"x,y\"", NotModified),
            ("\"a\"", "*", NotModified),
            ("\"a\"", "\"b\"", Send),
            ("\"a\"", "a", Send),
            ("\"a\"", "\"A\"", Send),
            ("\"a\"", "", Send),
            ("\"a\"", "w/\"a\"", Send),
            ("a", "\"a\"", Send),
        ] {
            let asked = condition(&[("etag", ours)], &[("if-none-match", theirs)]);
            assert_eq!(asked, expected, "{ours} against {theirs}");
        }
    }

    #[test]
    fn tags_count_before_dates() {
        let stored = [("etag", "\"a\""), ("last-modified", &http_date(NOW - 100))];
        let later = http_date(NOW);
        let earlier = http_date(NOW - 1000);
        let both = |tag, date: &str| {
            condition(&stored, &[("if-none-match", tag), ("if-modified-since", date)])
        };
        assert_eq!(both("\"b\"", &later), Condition::Send);
        assert_eq!(both("\"a\"", &earlier), Condition::NotModified);
    }

    #[test]
    fn date_is_compared_with_last_modified_else_date_else_arrival() {
        let (earlier, later) = (http_date(NOW - 100), http_date(NOW + 100));
        let since = |stored: &[(&'static str, &str)], date: &str| {
            condition(stored, &[("if-modified-since", date)]) == Condition::NotModified
        };
        let rfc850 = "Sunday, 06-Nov-94 08:49:37 GMT";
        assert!(since(&[("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")], rfc850));
        assert!(!since(&[("last-modified", &later)], &earlier));
        assert!(since(&[("date", &earlier)], &earlier) && !since(&[("date", &later)], &earlier));
        assert!(since(&[], &later) && !since(&[], &earlier));
        assert!(!since(&[("last-modified", &earlier)], "yesterday"));
    }

    #[test]
    fn conditions_on_the_current_state_go_to_the_origin() {
        for name in ["if-match", "if-unmodified-since"] {
            assert_eq!(condition(&[("etag", "\"a\"")], &[(name, "\"a\"")]), Condition::ForOrigin);
        }
    }

    #[test]
    fn if_range_needs_a_strong_match() {
        let old = http_date(NOW - 100);
        let now = http_date(NOW);
        let honoured = |stored: &[(&'static str, &str)], value: &str| {
            validators(stored).if_range(&headers(&[("if-range", value)]))
        };
        assert!(validators(&[]).if_range(&HeaderMap::new()));
        assert!(honoured(&[("etag", "\"a\"")], "\"a\""));
        assert!(!honoured(&[("etag", "\"a\"")], "\"b\""));
        assert!(!honoured(&[("etag", "W/\"a\"")], "W/\"a\""));
        assert!(honoured(&[("last-modified", &old), ("date", &now)], &old));
        assert!(!honoured(&[("last-modified", &now), ("date", &now)], &now));
        assert!(!honoured(&[("last-modified", &old), ("date", &now)], &now));
        assert!(!honoured(&[], "junk"));
    }

    #[test]
    fn parts_join_only_under_one_strong_validator() {
        let (old, now) = (http_date(NOW - 100), http_date(NOW));
        let same = |a: &[(&'static str, &str)], b: &[(&'static str, &str)]| {
            validators(a).same_representation(&validators(b))
        };
        assert!(same(&[("etag", "\"a\"")], &[("etag", "\"a\"")]));
        assert!(!same(&[("etag", "W/\"a\"")], &[("etag", "W/\"a\"")]));
        assert!(!same(&[("etag", "\"a\"")], &[]) && !same(&[], &[]));
        let dated = [("last-modified", &*old), ("date", &*now)];
        assert!(same(&dated, &dated));
        assert!(!same(&[("last-modified", &old)], &[("last-modified", &old)]));
    }

    #[test]
    fn validating_request_carries_stored_validators_only() {
        let mut request = headers(&[
            ("if-none-match", "\"client\""),
            ("if-modified-since", "x"),
            ("range", "bytes=0-1"),
            ("if-range", "\"client\""),
            ("accept", "*/*"),
        ]);
        assert!(make_conditional(&mut request, &headers(&[("etag", "\"ours\"")])));
        assert_eq!(request, headers(&[("accept", "*/*"), ("if-none-match", "\"ours\"")]));
        assert!(!make_conditional(&mut request, &HeaderMap::new()));
        assert_eq!(request, headers(&[("accept", "*/*")]));
    }

    #[test]
    fn answer_304_selects_what_has_its_validator() {
        let old = http_date(NOW - 100);
        let tagged = validators(&[("etag", "\"a\""), ("last-modified", &old)]);
        let selected = |lines: &[(&'static str, &str)]| tagged.selected_by(&headers(lines), true);
        assert!(selected(&[("etag", "\"a\"")]) && selected(&[("etag", "W/\"a\"")]));
        assert!(!selected(&[("etag", "\"b\""), ("last-modified", &old)]));
        assert!(selected(&[("last-modified", &old)]));
        assert!(!selected(&[("last-modified", &http_date(NOW))]));
        assert!(tagged.selected_by(&HeaderMap::new(), true));
        assert!(!tagged.selected_by(&HeaderMap::new(), false));
        let weak = validators(&[("etag", "W/\"a\"")]);
        assert!(!weak.selected_by(&headers(&[("etag", "\"a\"")]), true));
    }

    #[test]
    fn answer_304_replaces_fields_but_not_what_describes_the_stored_bytes() {
        let mut stored = headers(&[
            ("content-length", "10"),
            ("content-encoding", "br"),
            ("content-type", "a/b"),
            ("x-a", "1"),
            ("x-a", "2"),
            ("x-kept", "1"),
            ("age", "50"),
            ("date", "then"),
        ]);
        let answer = headers(&[
            ("content-length", "0"),
            ("content-encoding", "gzip"),
            ("content-range", "bytes 0-1/2"),
            ("content-type", "c/d"),
            ("x-a", "3"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("keep-alive", "5"),
        ]);
        update_stored(&mut stored, &answer);
        let expected = headers(&[
            ("content-length", "10"),
            ("content-encoding", "br"),
            ("content-type", "c/d"),
            ("x-a", "3"),
            ("x-kept", "1"),
        ]);
        assert_eq!(stored, expected);
    }

    #[test]
    fn head_confirms_only_what_has_not_changed() {
        let stored = headers(&[("etag", "\"a\""), ("content-length", "10")]);
        assert!(head_confirms(&stored, &headers(&[("content-length", "10"), ("x", "y")])));
        assert!(!head_confirms(&stored, &headers(&[("content-length", "11")])));
        assert!(!head_confirms(&stored, &headers(&[("etag", "\"b\"")])));
    }

    #[test]
    fn answer_304_to_a_client_does_not_describe_content() {
        let stored = headers(&[
            ("etag", "\"a\""),
            ("content-type", "a/b"),
            ("content-length", "5"),
            ("content-location", "/x"),
            ("vary", "foo"),
        ]);
        let sent = not_modified_fields(&stored);
        assert_eq!(
            sent,
            headers(&[("etag", "\"a\""), ("content-location", "/x"), ("vary", "foo")])
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(ours in field(), theirs in field()) {
            let validators = Validators::of(
                &[(header::ETAG, ours.clone()), (header::LAST_MODIFIED, ours)].into_iter().collect(),
                time(NOW),
            );
            for name in CONDITIONAL {
                let request = [(name, theirs.clone())].into_iter().collect();
                let _ = validators.evaluate(&request);
                let _ = validators.if_range(&request);
            }
        }
    }

    fn field() -> impl Strategy<Value = HeaderValue> {
        r#"[W/"a, *\x80-\xff]{0,12}"#
            .prop_filter_map("a field value", |text| HeaderValue::from_bytes(text.as_bytes()).ok())
    }
}
