//! Maps of fields made from packed ones.
//!
//! Most stored responses have the same names as many others. A thread keeps, for the sets of names that
//! it met last, the map that a hit sends with empty values. A hit copies that map and fills the values
//! in: it reads no name, and computes no place in the map. The values of a hit are slices of one copy,
//! so that threads which serve the same object share no counter.

use std::{
    cell::RefCell,
    io::Write as _,
    ops::Range,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{AGE, CONTENT_LENGTH, DATE, VIA},
};
use levada_cache::{CACHE_STATUS, CacheName, CacheStatus, strip_own_target};
use levada_types::hash64;

use crate::{encoding::Decoder, packed::PackedFields};

/// The values that a hit sends in addition to the stored ones, or in place of some of them.
pub struct HitFields<'a> {
    /// `Age` in seconds; `None` if it is not sent.
    pub age: Option<u32>,
    /// This node's member of `Cache-Status`.
    pub status: &'a CacheStatus<'static>,
    /// The name of this node in it.
    pub node: &'a CacheName,
    /// The value that this node adds to `Via`.
    pub via: &'a HeaderValue,
}

/// A set of names, and the map that is made with them.
struct Template {
    /// As they are packed.
    packed: Box<[u8]>,
    names: Box<[HeaderName]>,
    /// The fields of a hit, with empty values.
    hit: HeaderMap,
    /// The source of each value in `hit`.
    sources: Box<[ValueSource]>,
    /// The name of each in a line of HTTP/1, up to its value.
    lines: Box<[Box<[u8]>]>,
    /// Bytes of these lines without values.
    size: usize,
    /// The members of `Cache-Status` that were received.
    earlier: Box<[usize]>,
    /// There was no `Date`.
    is_undated: bool,
}

/// Where a value of a hit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueSource {
    /// The stored value with this number.
    Stored(usize),
    Length,
    Via,
    Age,
    Status,
    /// The time of arrival: the `Date` of a response that came without one (RFC 9110 Sec. 6.6.1).
    Arrival,
}

/// The templates that a thread keeps.
const KEPT: usize = 256;
/// Larger ones are made for every hit: with both bounds a thread keeps two megabytes at most.
const MOST_FIELDS: usize = 64;
const MOST_BYTES: usize = 1024;

thread_local! {
    static TEMPLATES: RefCell<Vec<Option<Template>>> = const { RefCell::new(Vec::new()) };
}

/// The number of fields that these packed names are of; `None` if they are no names.
pub(crate) fn count(names: &[u8]) -> Option<usize> {
    with(names, |template| template.names.len())
}

/// Whether there is a field of this name.
pub(crate) fn contains(fields: PackedFields<'_>, name: &HeaderName) -> bool {
    with(fields.names, |template| template.names.contains(name)).unwrap_or_default()
}

/// The fields of a hit with a body of `length` bytes, of a response that arrived at `received`.
pub(crate) fn hit(
    fields: PackedFields<'_>,
    length: u64,
    received: SystemTime,
    sent: &HitFields<'_>,
) -> HeaderMap {
    let own = OwnValues { length, received, sent };
    let made = with(fields.names, |template| template.fill(fields, own));
    let mut headers = made.unwrap_or_default();
    if sent.age.is_none() {
        headers.remove(AGE);
    }
    headers
}

/// The same fields as lines, each with its end, in the order of the map.
pub(crate) fn hit_text(
    fields: PackedFields<'_>,
    length: u64,
    received: SystemTime,
    sent: &HitFields<'_>,
) -> Vec<u8> {
    let own = OwnValues { length, received, sent };
    let made = with(fields.names, |template| template.write(fields, own));
    made.unwrap_or_default()
}

/// The stored fields whose names pass.
pub(crate) fn stored(fields: PackedFields<'_>, passes: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let made = with(fields.names, |template| {
        let values = Bytes::copy_from_slice(fields.values);
        let mut headers = HeaderMap::new();
        for (name, place) in template.names.iter().zip(fields.places()) {
            if passes(name) {
                headers.append(name.clone(), value(&values, place));
            }
        }
        headers
    });
    made.unwrap_or_default()
}

fn with<T>(names: &[u8], work: impl FnOnce(&Template) -> T) -> Option<T> {
    TEMPLATES.with_borrow_mut(|kept| {
        if kept.is_empty() {
            kept.resize_with(KEPT, || None);
        }
        let slot = &mut kept[hash64(names) as usize % KEPT];
        if let Some(template) = slot.as_ref().filter(|template| *template.packed == *names) {
            return Some(work(template));
        }
        let template = Template::of(names)?;
        let result = work(&template);
        if names.len() <= MOST_BYTES && template.names.len() <= MOST_FIELDS {
            *slot = Some(template);
        }
        Some(result)
    })
}

impl Template {
    /// `None` if these are no names, or not those of a map in its order.
    fn of(packed: &[u8]) -> Option<Self> {
        let mut read = Decoder { bytes: packed };
        let mut names = Vec::new();
        let mut hit = HeaderMap::<ValueSource>::default();
        while !read.bytes.is_empty() {
            let length = read.short()?;
            let name = HeaderName::from_bytes(read.next(length)?).ok()?;
            hit.try_append(name.clone(), ValueSource::Stored(names.len())).ok()?;
            names.push(name);
        }
        // A map has the values of a name side by side.
        if !hit.values().enumerate().all(|(at, source)| *source == ValueSource::Stored(at)) {
            return None;
        }
        let number = |name: &HeaderName| names.iter().position(|other| other == name);
        let earlier = number(&CACHE_STATUS)
            .map(|first| (first..first + hit.get_all(CACHE_STATUS).iter().count()).collect());
        hit.try_insert(CONTENT_LENGTH, ValueSource::Length).ok()?;
        hit.try_append(VIA, ValueSource::Via).ok()?;
        hit.try_insert(AGE, ValueSource::Age).ok()?;
        hit.try_insert(CACHE_STATUS, ValueSource::Status).ok()?;
        let is_undated = number(&DATE).is_none();
        if is_undated {
            hit.try_insert(DATE, ValueSource::Arrival).ok()?;
        }
        strip_own_target(&mut hit);
        let sources = hit.values().copied().collect();
        let line = |name: &HeaderName| format!("{name}: ").into_bytes().into_boxed_slice();
        let lines: Box<[_]> = hit.iter().map(|(name, _)| line(name)).collect();
        let size = lines.iter().map(|line| line.len() + b"\r\n".len()).sum();
        let empty = || HeaderValue::from_static("");
        let hit: HeaderMap = hit.iter().map(|(name, _)| (name.clone(), empty())).collect();
        Some(Self {
            packed: packed.into(),
            names: names.into(),
            hit,
            sources,
            lines,
            size,
            earlier: earlier.unwrap_or_default(),
            is_undated,
        })
    }

    fn fill(&self, fields: PackedFields<'_>, own: OwnValues<'_>) -> HeaderMap {
        let mut text = Vec::with_capacity(fields.values.len() + OWN_VALUES);
        text.extend(fields.values);
        let mut appended = |source| {
            let begin = text.len();
            own.write(source, self, fields, &mut text);
            begin..text.len()
        };
        let [length, age, status, arrival] =
            [ValueSource::Length, ValueSource::Age, ValueSource::Status, ValueSource::Arrival]
                .map(&mut appended);
        let text = Bytes::from(text);
        let mut headers = self.hit.clone();
        let mut places = fields.places().enumerate();
        for (slot, source) in headers.values_mut().zip(&self.sources) {
            let place = match source {
                ValueSource::Stored(number) => {
                    let found = places.find(|(at, _)| at == number);
                    found.map_or(0..0, |(_, place)| place)
                }
                ValueSource::Length => length.clone(),
                ValueSource::Age => age.clone(),
                ValueSource::Status => status.clone(),
                ValueSource::Arrival => arrival.clone(),
                ValueSource::Via => {
                    *slot = own.sent.via.clone();
                    continue;
                }
            };
            *slot = value(&text, place);
        }
        headers
    }

    fn write(&self, fields: PackedFields<'_>, own: OwnValues<'_>) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.size + fields.values.len() + OWN_VALUES);
        let mut places = fields.places().enumerate();
        for (line, source) in self.lines.iter().zip(&self.sources) {
            if *source == ValueSource::Age && own.sent.age.is_none() {
                continue;
            }
            text.extend_from_slice(line);
            match source {
                ValueSource::Stored(number) => {
                    if let Some((_, place)) = places.find(|(at, _)| at == number) {
                        text.extend_from_slice(&fields.values[place]);
                    }
                }
                _ => own.write(*source, self, fields, &mut text),
            }
            text.extend_from_slice(b"\r\n");
        }
        text
    }
}

/// The values of a hit that are not stored.
struct OwnValues<'a> {
    length: u64,
    received: SystemTime,
    sent: &'a HitFields<'a>,
}

impl OwnValues<'_> {
    fn write(
        &self,
        source: ValueSource,
        template: &Template,
        fields: PackedFields<'_>,
        text: &mut Vec<u8>,
    ) {
        match source {
            ValueSource::Stored(_) => {}
            ValueSource::Length => number(text, self.length),
            ValueSource::Via => text.extend_from_slice(self.sent.via.as_bytes()),
            ValueSource::Age => number(text, self.sent.age.unwrap_or(0).into()),
            ValueSource::Status => {
                let earlier = template.earlier.iter();
                for place in earlier.filter_map(|number| fields.places().nth(*number)) {
                    text.extend_from_slice(&fields.values[place]);
                    text.extend_from_slice(b", ");
                }
                self.sent.status.write(self.sent.node, text);
            }
            ValueSource::Arrival => {
                if template.is_undated {
                    let arrived = self.received.min(last_date());
                    let _ = write!(text, "{}", httpdate::HttpDate::from(arrived));
                }
            }
        }
    }
}

/// Room for this node's own values.
const OWN_VALUES: usize = 192;

fn value(text: &Bytes, place: Range<usize>) -> HeaderValue {
    // Bytes were checked when they were packed or read.
    HeaderValue::from_maybe_shared(text.slice(place)).unwrap_or(HeaderValue::from_static(""))
}

fn number(text: &mut Vec<u8>, number: u64) {
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// The last moment that a date in HTTP can name, the end of the year 9999.
fn last_date() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::StatusCode;
    use levada_cache::{Freshness, Validators, Vary};

    use super::*;
    use crate::{Label, StoredHead, packed::PackedHead};

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        fields.iter().map(field).collect()
    }

    fn packed(received: &HeaderMap) -> PackedHead {
        let now = SystemTime::UNIX_EPOCH;
        let head = StoredHead {
            status: StatusCode::OK,
            headers: received.clone(),
            freshness: Freshness::from_bytes(&[0; Freshness::BYTES]).unwrap(),
            validators: Validators::of(received, now),
            vary: Vary::default(),
            variant: Box::default(),
            label: Label::new(0, 0),
            copies: 0,
        };
        PackedHead::new("http://a.test/", &head, None)
    }

    fn hit_of(received: &HeaderMap, age: Option<u32>) -> HeaderMap {
        sent(received, age, hit)
    }

    fn text_of(received: &HeaderMap, age: Option<u32>) -> Vec<u8> {
        sent(received, age, hit_text)
    }

    fn sent<T>(
        received: &HeaderMap,
        age: Option<u32>,
        hit: impl FnOnce(PackedFields<'_>, u64, SystemTime, &HitFields<'_>) -> T,
    ) -> T {
        let head = packed(received);
        let (status, node) = (CacheStatus::default(), CacheName::new("n0"));
        let via = HeaderValue::from_static("1.1 n0");
        let arrived = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        hit(
            head.fields(),
            1200,
            arrived,
            &HitFields { age, status: &status, node: &node, via: &via },
        )
    }

    #[test]
    fn hit_has_the_stored_fields_and_those_of_the_node() {
        let received = headers(&[
            ("content-type", "text/plain"),
            ("content-length", "7"),
            ("via", "1.1 a"),
            ("via", "1.1 b"),
            ("link", "<a>"),
            ("cache-status", "far; hit"),
            ("cache-status", "near; hit"),
            ("link", "<b>"),
            ("levada-cache-control", "max-age=1"),
            ("x-empty", ""),
        ]);
        let expected = headers(&[
            ("content-type", "text/plain"),
            ("content-length", "1200"),
            ("via", "1.1 a"),
            ("via", "1.1 b"),
            ("via", "1.1 n0"),
            ("link", "<a>"),
            ("link", "<b>"),
            ("cache-status", "far; hit, near; hit, n0; hit"),
            ("x-empty", ""),
            ("age", "3"),
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ]);
        // The second hit uses the template of the first.
        for _ in 0..2 {
            assert_eq!(hit_of(&received, Some(3)), expected);
        }
        assert!(!hit_of(&received, None).contains_key(AGE));
        for age in [Some(3), None] {
            let mut lines = String::new();
            for (name, value) in &hit_of(&received, age) {
                lines += &format!("{name}: {}\r\n", value.to_str().unwrap());
            }
            assert_eq!(String::from_utf8(text_of(&received, age)).unwrap(), lines);
        }
    }

    #[test]
    fn hit_has_the_date_that_was_received_if_there_was_one() {
        let received = headers(&[("date", "yesterday")]);
        assert_eq!(hit_of(&received, None)[DATE], "yesterday");
    }

    #[test]
    fn sets_of_names_do_not_meet_in_their_templates() {
        for round in 0..3 {
            for n in 0..2 * KEPT {
                let name = HeaderName::try_from(format!("x-{n}")).unwrap();
                let value = HeaderValue::from(n as u64 + round);
                let received: HeaderMap = [(name.clone(), value.clone())].into_iter().collect();
                assert_eq!(hit_of(&received, None)[name], value);
            }
        }
    }

    #[test]
    fn stored_fields_come_back_as_they_were() {
        let received = headers(&[("etag", "\"a\""), ("link", "<a>"), ("link", "<b>")]);
        let head = packed(&received);
        assert_eq!(stored(head.fields(), |_| true), received);
        let links = stored(head.fields(), |name| name == "link");
        assert_eq!(links, headers(&[("link", "<a>"), ("link", "<b>")]));
    }

    #[test]
    fn names_that_make_no_map_are_refused() {
        for names in [&b"\x01 "[..], b"\x05a", b"\x80", b"\x01a\x01b\x01a", b"\x00"] {
            assert_eq!(count(names), None, "{names:?}");
        }
        assert_eq!(count(b""), Some(0));
        assert_eq!(count(b"\x01a\x01a\x01b"), Some(3));
    }
}
