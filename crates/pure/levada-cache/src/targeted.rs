//! Targeted cache control: `CDN-Cache-Control` and Levada's own (RFC 9213).
//!
//! A targeted field that is present, valid and not empty replaces `Cache-Control` and `Expires` as
//! a whole (Sec. 2.2). It is a Dictionary of RFC 9651 and parsed strictly: if it has a syntax
//! error, a name in capitals or a lifetime in quotes, it is ignored.

use crate::{
    cache_control::{Argument, Directive, MAX_SECONDS, ResponseDirectives},
    hop::strip_fields,
    rules::CacheRules,
};
use http::{HeaderMap, HeaderName};

/// The target list, most specific first.
pub const TARGETS: [HeaderName; 2] = [OWN, HeaderName::from_static("cdn-cache-control")];
/// The field that targets Levada only.
const OWN: HeaderName = HeaderName::from_static("levada-cache-control");

/// The directives that apply to this cache, and their source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectiveDirectives {
    /// The directives.
    pub directives: ResponseDirectives,
    /// Whether a targeted field gave them. Then `Expires` is ignored.
    pub targeted: bool,
}

impl EffectiveDirectives {
    /// The directives that a site obeys.
    pub fn under(rules: &CacheRules, headers: &HeaderMap) -> Self {
        if rules.ignored.cache_control { Self::default() } else { Self::of(headers) }
    }

    /// Reads the first valid field of [`TARGETS`], else `Cache-Control`.
    pub fn of(headers: &HeaderMap) -> Self {
        TARGETS
            .iter()
            .find_map(|target| targeted(headers, target))
            .map(|directives| Self { directives, targeted: true })
            .unwrap_or_else(|| Self {
                directives: ResponseDirectives::of(headers),
                targeted: false,
            })
    }
}

/// Removes the field that targets Levada only. `CDN-Cache-Control` is forwarded, because another
/// content delivery network may be downstream.
pub fn strip_own_target<T>(headers: &mut HeaderMap<T>) {
    static NAMES: [HeaderName; 1] = [OWN];
    strip_fields(headers, &NAMES);
}

fn targeted(headers: &HeaderMap, target: &HeaderName) -> Option<ResponseDirectives> {
    let mut lines = headers.get_all(target).iter();
    let first = lines.next()?.as_bytes();
    if lines.next().is_none() {
        return parse_dictionary(first);
    }
    // Several lines are one dictionary, joined by commas (RFC 9651, Sec. 4.2).
    let all: Vec<&[u8]> = headers.get_all(target).iter().map(|line| line.as_bytes()).collect();
    parse_dictionary(&all.join(&b", "[..]))
}

/// Parses a Dictionary of cache directives; `None` if it is empty or invalid.
fn parse_dictionary(field: &[u8]) -> Option<ResponseDirectives> {
    let mut scan = Scan { rest: trim_spaces(field) };
    let mut read = ResponseDirectives::default();
    loop {
        let name = scan.key()?;
        let value = if scan.eat(b'=') { scan.value()? } else { Value::Boolean(true) };
        scan.parameters()?;
        take(&mut read, name, &value)?;
        scan.blanks();
        if scan.rest.is_empty() {
            return Some(read);
        }
        // A comma must be followed by a key: a trailing comma fails in `key`.
        scan.eat(b',').then_some(())?;
        scan.blanks();
    }
}

/// Adds one directive. The last of several is used (RFC 9651, Sec. 4.2.2). Returns `None` if the
/// value has the wrong type for the directive: then the field is ignored (Sec. 2.1).
fn take(read: &mut ResponseDirectives, name: &[u8], value: &Value<'_>) -> Option<()> {
    match name {
        b"max-age" => read.max_age = Some(value.seconds()?),
        b"s-maxage" => read.s_maxage = Some(value.seconds()?),
        b"stale-while-revalidate" => read.stale_while_revalidate = Some(value.seconds()?),
        b"stale-if-error" => read.stale_if_error = Some(value.seconds()?),
        b"no-cache" | b"private" => {
            let argument = match *value {
                Value::Boolean(true) => Argument::None,
                Value::String(fields) => Argument::Quoted(fields),
                _ => return None,
            };
            read.take(&Directive { name, value: argument });
        }
        b"no-store" | b"no-transform" | b"public" | b"must-revalidate" | b"proxy-revalidate"
        | b"must-understand" | b"immutable" => {
            matches!(value, Value::Boolean(true)).then_some(())?;
            read.take(&Directive { name, value: Argument::None });
        }
        _ => {}
    }
    Some(())
}

/// A value of one of the types that cache directives have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Integer(i64),
    Boolean(bool),
    /// The bytes between the quotes. Escapes are kept: no field name contains one.
    String(&'a [u8]),
    /// A value of a type that no directive has.
    Other,
}

impl Value<'_> {
    fn seconds(&self) -> Option<u32> {
        match *self {
            // A negative lifetime counts as zero.
            Self::Integer(n) => Some(n.clamp(0, i64::from(MAX_SECONDS)) as u32),
            _ => None,
        }
    }
}

/// The parsing algorithms of RFC 9651, Sec. 4.2; each consumes its input from `rest`.
pub(crate) struct Scan<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Scan<'a> {
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        let there = self.rest.first() == Some(&byte);
        if there {
            self.rest = &self.rest[1..];
        }
        there
    }

    fn while_of(&mut self, class: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|&b| !class(b)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    pub(crate) fn blanks(&mut self) {
        self.while_of(|b| b == b' ' || b == b'\t');
    }

    /// Sec. 4.2.3.3.
    fn key(&mut self) -> Option<&'a [u8]> {
        self.rest.first().filter(|b| b.is_ascii_lowercase() || **b == b'*')?;
        Some(
            self.while_of(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(&b)),
        )
    }

    /// An item or an inner list (Sec. 4.2.1.1), without its parameters.
    pub(crate) fn value(&mut self) -> Option<Value<'a>> {
        if !self.eat(b'(') {
            return self.bare_item();
        }
        loop {
            self.while_of(|b| b == b' ');
            if self.eat(b')') {
                return Some(Value::Other);
            }
            self.bare_item()?;
            self.parameters()?;
            matches!(self.rest.first(), Some(b' ' | b')')).then_some(())?;
        }
    }

    /// Sec. 4.2.3.2: parsed, because they must be valid, and ignored (RFC 9213, Sec. 2.1).
    pub(crate) fn parameters(&mut self) -> Option<()> {
        while self.eat(b';') {
            self.while_of(|b| b == b' ');
            self.key()?;
            if self.eat(b'=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    /// Sec. 4.2.3.1.
    fn bare_item(&mut self) -> Option<Value<'a>> {
        match *self.rest.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'?' => self.boolean(),
            b'*' | b'A'..=b'Z' | b'a'..=b'z' => {
                self.while_of(|b| is_tchar(b) || b == b':' || b == b'/');
                Some(Value::Other)
            }
            b':' => self.byte_sequence(),
            b'@' => {
                self.eat(b'@');
                matches!(self.number()?, Value::Integer(_)).then_some(Value::Other)
            }
            b'%' => self.display_string(),
            _ => None,
        }
    }

    /// Sec. 4.2.4: at most 15 digits, or 12 and a fraction of 1 to 3.
    fn number(&mut self) -> Option<Value<'a>> {
        let negative = self.eat(b'-');
        let whole = self.while_of(|b| b.is_ascii_digit());
        if whole.is_empty() || whole.len() > 15 {
            return None;
        }
        if self.eat(b'.') {
            let fraction = self.while_of(|b| b.is_ascii_digit());
            let fits = whole.len() <= 12 && (1..=3).contains(&fraction.len());
            return fits.then_some(Value::Other);
        }
        let n = whole.iter().fold(0i64, |n, &b| n * 10 + i64::from(b - b'0'));
        Some(Value::Integer(if negative { -n } else { n }))
    }

    /// Sec. 4.2.5.
    fn string(&mut self) -> Option<Value<'a>> {
        let body = &self.rest[1..];
        let mut escaped = false;
        for (at, &b) in body.iter().enumerate() {
            match b {
                b'"' | b'\\' if escaped => escaped = false,
                _ if escaped => return None,
                b'\\' => escaped = true,
                b'"' => {
                    self.rest = &body[at + 1..];
                    return Some(Value::String(&body[..at]));
                }
                b' '..=b'~' => {}
                _ => return None,
            }
        }
        None
    }

    /// Sec. 4.2.8.
    fn boolean(&mut self) -> Option<Value<'a>> {
        let value = match self.rest.get(1)? {
            b'1' => true,
            b'0' => false,
            _ => return None,
        };
        self.rest = &self.rest[2..];
        Some(Value::Boolean(value))
    }

    /// Sec. 4.2.7.
    fn byte_sequence(&mut self) -> Option<Value<'a>> {
        self.eat(b':');
        self.while_of(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
        self.eat(b':').then_some(Value::Other)
    }

    /// Sec. 4.2.10, without decoding, because no directive uses it.
    fn display_string(&mut self) -> Option<Value<'a>> {
        self.eat(b'%');
        self.eat(b'"').then_some(())?;
        self.while_of(|b| matches!(b, b' '..=b'~') && b != b'"');
        self.eat(b'"').then_some(Value::Other)
    }
}

fn trim_spaces(field: &[u8]) -> &[u8] {
    let start = field.iter().position(|&b| b != b' ').unwrap_or(field.len());
    let end = field.iter().rposition(|&b| b != b' ').map_or(start, |at| at + 1);
    &field[start..end]
}

/// `tchar` of RFC 9110, Sec. 5.6.2.
pub(crate) fn is_tchar(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, header};
    use proptest::prelude::*;

    fn effective(lines: &[(&'static str, &str)]) -> EffectiveDirectives {
        let headers: HeaderMap = lines
            .iter()
            .map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_str(v).unwrap()))
            .collect();
        EffectiveDirectives::of(&headers)
    }

    fn cdn(value: &str) -> Option<ResponseDirectives> {
        let effective = effective(&[("cdn-cache-control", value), ("cache-control", "no-store")]);
        assert!(effective.targeted || effective.directives.no_store);
        effective.targeted.then_some(effective.directives)
    }

    #[test]
    fn most_specific_target_counts() {
        let all = [
            ("cache-control", "max-age=1"),
            ("cdn-cache-control", "max-age=2"),
            ("levada-cache-control", "max-age=3"),
        ];
        for (given, lifetime) in [(1, 1), (2, 2), (3, 3)] {
            let read = effective(&all[..given]);
            assert_eq!(read.directives.max_age, Some(lifetime));
            assert_eq!(read.targeted, given > 1);
        }
    }

    #[test]
    fn targeted_field_replaces_all_of_cache_control() {
        assert_eq!(cdn("max-age=10000").unwrap().max_age, Some(10_000));
        assert!(!cdn("foo").unwrap().no_store);
        assert!(cdn("no-store").unwrap().no_store);
    }

    #[test]
    fn field_that_is_no_dictionary_is_ignored() {
        for broken in [
            "",
            " ",
            "max-age=10000, &&&&&",
            "max-age=10000,",
            "max-age =1",
            "max-age= 1",
            "Max-Age=1",
            "max-age=1;",
            "a=(1 2",
            "a=\"x",
            "a=?2",
            "max-age=1 public",
            "max-age=1234567890123456",
            "a=1.",
            "a=:b",
            "a=@1.5",
            "a=%\"x",
        ] {
            assert_eq!(cdn(broken), None, "{broken}");
        }
    }

    #[test]
    fn directive_of_the_wrong_type_spoils_the_field() {
        for wrong in [
            "max-age=\"10000\"",
            "max-age",
            "max-age=1.5",
            "no-store=?0",
            "public=1",
            "private=set-cookie",
            "max-age=(1)",
        ] {
            assert_eq!(cdn(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_type_passes_as_an_extension() {
        let read = cdn("a=1, b=-1.5, c=\"x\\\"y\", d=t/k, e=:AAA=:, f=?0, g=(1 2;p \"z\");q=1, \
                        h=@1, i=%\"x\", *j, max-age=7;x=\"y\"; z");
        assert_eq!(read.unwrap().max_age, Some(7));
    }

    #[test]
    fn last_of_several_counts_and_lifetimes_are_bounded() {
        assert_eq!(cdn("max-age=1, max-age=5").unwrap().max_age, Some(5));
        assert_eq!(cdn("max-age=99999999999").unwrap().max_age, Some(MAX_SECONDS));
        assert_eq!(cdn("max-age=-5").unwrap().max_age, Some(0));
    }

    #[test]
    fn lines_are_one_dictionary() {
        let lines =
            [("cdn-cache-control", "max-age=5"), ("cdn-cache-control", "public,\tno-cache=\"a\"")];
        let read = effective(&lines).directives;
        assert!(read.public && read.max_age == Some(5));
        assert_eq!(read.fields, ["a"]);
    }

    #[test]
    fn own_target_is_taken_out_and_the_shared_one_stays() {
        let mut headers = HeaderMap::new();
        for name in TARGETS {
            headers.insert(name, HeaderValue::from_static("max-age=1"));
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=1"));
        strip_own_target(&mut headers);
        assert_eq!(headers.len(), 2);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse_dictionary(&bytes);
        }

        #[test]
        fn pieces_in_any_order_never_panic(text in r#"((max-age|no-cache|a)?[=",;:@%?()\\0-9a. -]{0,4}){0,8}"#) {
            let _ = parse_dictionary(text.as_bytes());
        }
    }
}
