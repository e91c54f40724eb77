//! `Cache-Control` (RFC 9111, Sec. 5.2) of requests and responses.
//!
//! ```text
//! max-age=3600, private="set-cookie, x-user" ,EXT="a, max-age=1", no-cache
//! ------------  ----------------------------  -------------------  --------
//! ```
//!
//! The parser is lenient in syntax and strict in meaning: it skips empty members, unusual spacing
//! and unknown directives, but an invalid lifetime makes a response stale (Sec. 4.2.1). It
//! allocates only if `no-cache` or `private` names fields.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The largest number of seconds that a cache represents (RFC 9111, Sec. 1.2.2).
pub const MAX_SECONDS: u32 = 1 << 31;

/// The cache directives of a request (RFC 9111, Sec. 5.2.1).
///
/// They are advisory: a site that must protect its origin passes [`RequestDirectives::NONE`]
/// instead of the client's directives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// `no-cache`: do not use a stored response without validation.
    pub no_cache: bool,
    /// `no-store`: do not keep the response.
    pub no_store: bool,
    /// `no-transform`: do not change the content.
    pub no_transform: bool,
    /// `only-if-cached`: answer from the cache or with 504.
    pub only_if_cached: bool,
    /// `max-age`: accept no response of a greater age.
    pub max_age: Option<u32>,
    /// `min-fresh`: accept no response that becomes stale sooner.
    pub min_fresh: Option<u32>,
    /// `max-stale`: accept a response that has been stale for at most this long; without a number,
    /// for any time.
    pub max_stale: Option<u32>,
    /// `stale-if-error` (RFC 5861, Sec. 4).
    pub stale_if_error: Option<u32>,
}

impl RequestDirectives {
    /// The directives of a request without `Cache-Control` and `Pragma`.
    pub const NONE: Self = Self {
        no_cache: false,
        no_store: false,
        no_transform: false,
        only_if_cached: false,
        max_age: None,
        min_fresh: None,
        max_stale: None,
        stale_if_error: None,
    };

    /// Reads `Cache-Control`; if it is absent, `Pragma: no-cache` counts as `no-cache` (Sec. 5.4).
    pub fn of(headers: &HeaderMap) -> Self {
        let mut read = Self::NONE;
        let mut present = false;
        for line in headers.get_all(header::CACHE_CONTROL) {
            present = true;
            Directives::of(line.as_bytes()).for_each(|member| read.take(&member));
        }
        if !present {
            read.no_cache = headers
                .get_all(header::PRAGMA)
                .iter()
                .any(|line| Directives::of(line.as_bytes()).any(|m| m.is("no-cache")));
        }
        read
    }

    fn take(&mut self, member: &Directive<'_>) {
        // The length is compared first, so that most directives cost one comparison.
        match member.name.len() {
            7 if member.is("max-age") => first(&mut self.max_age, member.lifetime()),
            8 if member.is("no-cache") => self.no_cache = true,
            8 if member.is("no-store") => self.no_store = true,
            9 if member.is("min-fresh") => keep(&mut self.min_fresh, member.seconds()),
            9 if member.is("max-stale") => {
                let any_amount = matches!(member.value, Argument::None).then_some(MAX_SECONDS);
                keep(&mut self.max_stale, any_amount.or_else(|| member.seconds()));
            }
            12 if member.is("no-transform") => self.no_transform = true,
            14 if member.is("only-if-cached") => self.only_if_cached = true,
            14 if member.is("stale-if-error") => {
                keep(&mut self.stale_if_error, member.seconds());
            }
            _ => {}
        }
    }
}

/// Whether a directive is present, and whether it applies to the whole response or to named fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DirectiveScope {
    /// The directive is absent.
    #[default]
    Absent,
    /// `name="field, field"`: it applies to the named fields only.
    Fields,
    /// It applies to the whole response.
    Whole,
}

/// The cache directives of a response (RFC 9111, Sec. 5.2.2; RFC 5861; RFC 8246).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    /// `no-cache`: validate before every reuse.
    pub no_cache: DirectiveScope,
    /// `private`: shared caches must not store it.
    pub private: DirectiveScope,
    /// The fields that a qualified `no-cache` or `private` names; they are not stored.
    pub fields: Vec<HeaderName>,
    /// `no-store`.
    pub no_store: bool,
    /// `no-transform`.
    pub no_transform: bool,
    /// `public`.
    pub public: bool,
    /// `must-revalidate`.
    pub must_revalidate: bool,
    /// `proxy-revalidate`.
    pub proxy_revalidate: bool,
    /// `must-understand`.
    pub must_understand: bool,
    /// `immutable` (RFC 8246).
    pub immutable: bool,
    /// `max-age`: the first one; an invalid one counts as 0.
    pub max_age: Option<u32>,
    /// `s-maxage`, with the same rules.
    pub s_maxage: Option<u32>,
    /// `stale-while-revalidate` (RFC 5861, Sec. 3).
    pub stale_while_revalidate: Option<u32>,
    /// `stale-if-error` (RFC 5861, Sec. 4).
    pub stale_if_error: Option<u32>,
}

impl ResponseDirectives {
    /// Reads all lines of `Cache-Control`.
    pub fn of(headers: &HeaderMap) -> Self {
        Self::of_lines(headers.get_all(header::CACHE_CONTROL))
    }

    /// Reads lines of any field with the syntax of `Cache-Control`.
    pub fn of_lines<'a>(lines: impl IntoIterator<Item = &'a HeaderValue>) -> Self {
        let mut read = Self::default();
        for line in lines {
            Directives::of(line.as_bytes()).for_each(|member| read.take(&member));
        }
        read
    }

    /// The lifetime that the directives give a shared cache: `s-maxage` has precedence over
    /// `max-age` (Sec. 4.2.1).
    pub fn lifetime(&self) -> Option<u32> {
        self.s_maxage.or(self.max_age)
    }

    pub(crate) fn take(&mut self, member: &Directive<'_>) {
        match member.name.len() {
            6 if member.is("public") => self.public = true,
            7 if member.is("max-age") => first(&mut self.max_age, member.lifetime()),
            7 if member.is("private") => {
                self.private = self.private.max(self.scope(member));
            }
            8 if member.is("s-maxage") => first(&mut self.s_maxage, member.lifetime()),
            8 if member.is("no-store") => self.no_store = true,
            8 if member.is("no-cache") => {
                self.no_cache = self.no_cache.max(self.scope(member));
            }
            9 if member.is("immutable") => self.immutable = true,
            12 if member.is("no-transform") => self.no_transform = true,
            14 if member.is("stale-if-error") => keep(&mut self.stale_if_error, member.seconds()),
            15 if member.is("must-revalidate") => self.must_revalidate = true,
            15 if member.is("must-understand") => self.must_understand = true,
            16 if member.is("proxy-revalidate") => self.proxy_revalidate = true,
            22 if member.is("stale-while-revalidate") => {
                keep(&mut self.stale_while_revalidate, member.seconds());
            }
            _ => {}
        }
    }

    /// Records the fields that a directive names. An invalid list applies to the whole response,
    /// which is the safe interpretation that Sec. 5.2.2.4 foresees.
    fn scope(&mut self, member: &Directive<'_>) -> DirectiveScope {
        let (Argument::Token(list) | Argument::Quoted(list)) = member.value else {
            return DirectiveScope::Whole;
        };
        let before = self.fields.len();
        for name in list.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|n| !n.is_empty()) {
            match HeaderName::from_bytes(name) {
                Ok(name) if self.fields.len() < MAX_FIELDS => self.fields.push(name),
                _ => return DirectiveScope::Whole,
            }
        }
        if self.fields.len() > before { DirectiveScope::Fields } else { DirectiveScope::Whole }
    }
}

/// The most field names that are recorded; with more, the directive applies to the whole response.
const MAX_FIELDS: usize = 64;

/// The first of several values is used (RFC 9111, Sec. 4.2.1).
fn first(place: &mut Option<u32>, seconds: u32) {
    place.get_or_insert(seconds);
}

fn keep(place: &mut Option<u32>, seconds: Option<u32>) {
    if let Some(seconds) = seconds {
        first(place, seconds);
    }
}

/// `delta-seconds` (RFC 9111, Sec. 1.2.2): digits only; a number that is too large becomes
/// [`MAX_SECONDS`].
pub fn parse_seconds(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u32, |n, &b| {
        let digit = b.is_ascii_digit().then(|| u32::from(b - b'0'))?;
        Some(n.saturating_mul(10).saturating_add(digit).min(MAX_SECONDS))
    })
}

/// The argument of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument<'a> {
    None,
    Token(&'a [u8]),
    /// Without the quotes. Escapes are kept, because no known directive needs them.
    Quoted(&'a [u8]),
    /// A syntax error, such as a space before the `=`.
    Malformed,
}

/// One directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Directive<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: Argument<'a>,
}

impl Directive<'_> {
    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// The argument as seconds, as a token or quoted: Sec. 5.2 asks recipients to accept both
    /// forms.
    fn seconds(&self) -> Option<u32> {
        match self.value {
            Argument::Token(digits) | Argument::Quoted(digits) => parse_seconds(digits),
            Argument::None | Argument::Malformed => None,
        }
    }

    /// The argument as a lifetime; an invalid one counts as stale (Sec. 4.2.1).
    fn lifetime(&self) -> u32 {
        self.seconds().unwrap_or(0)
    }
}

/// Splits one line into its directives at the commas outside quotes.
pub(crate) struct Directives<'a> {
    rest: &'a [u8],
}

impl<'a> Directives<'a> {
    pub(crate) fn of(line: &'a [u8]) -> Self {
        Self { rest: line }
    }

    /// Takes the argument from the front of `rest`, which begins after the `=`.
    fn argument(&mut self) -> Argument<'a> {
        if let Some(quoted) = self.rest.strip_prefix(b"\"")
            && let Some(end) = closing_quote(quoted)
        {
            let (value, after) = (&quoted[..end], &quoted[end + 1..]);
            let junk;
            (junk, self.rest) = split_comma(after);
            let clean = junk.trim_ascii().is_empty();
            return if clean { Argument::Quoted(value) } else { Argument::Malformed };
        }
        // An unclosed quote is not a quote: the directives after the next comma still apply, so
        // that a stray quote cannot hide a `no-store`.
        let value;
        (value, self.rest) = split_comma(self.rest);
        let value = value.trim_ascii_end();
        let malformed = value.is_empty() || value[0].is_ascii_whitespace() || value.contains(&b'"');
        if malformed { Argument::Malformed } else { Argument::Token(value) }
    }
}

impl<'a> Iterator for Directives<'a> {
    type Item = Directive<'a>;

    fn next(&mut self) -> Option<Directive<'a>> {
        loop {
            self.rest = self.rest.trim_ascii_start();
            if self.rest.is_empty() {
                return None;
            }
            let end = self.rest.iter().position(|&b| b == b'=' || b == b',');
            let (raw, after) = self.rest.split_at(end.unwrap_or(self.rest.len()));
            let name = raw.trim_ascii_end();
            let value = if after.first() == Some(&b'=') {
                self.rest = &after[1..];
                let value = self.argument();
                if name.len() == raw.len() { value } else { Argument::Malformed }
            } else {
                self.rest = after.get(1..).unwrap_or_default();
                Argument::None
            };
            if !name.is_empty() {
                return Some(Directive { name, value });
            }
        }
    }
}

fn split_comma(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|&b| b == b',') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[]),
    }
}

fn closing_quote(bytes: &[u8]) -> Option<usize> {
    let mut escaped = false;
    bytes.iter().position(|&b| {
        let closes = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        closes
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(name: HeaderName, lines: &[&str]) -> HeaderMap {
        lines
            .iter()
            .map(|l| (name.clone(), HeaderValue::from_bytes(l.as_bytes()).unwrap()))
            .collect()
    }

    fn response(lines: &[&str]) -> ResponseDirectives {
        ResponseDirectives::of(&headers(header::CACHE_CONTROL, lines))
    }

    fn request(lines: &[&str]) -> RequestDirectives {
        RequestDirectives::of(&headers(header::CACHE_CONTROL, lines))
    }

    #[test]
    fn directives_are_found_whatever_their_case_and_spacing() {
        let read = response(&[" ,, MAX-Age=60 ,\tPublic,foo=bar", "S-MaxAge=\"90\" , immutable"]);
        assert_eq!((read.max_age, read.s_maxage), (Some(60), Some(90)));
        assert!(read.public && read.immutable && !read.no_store);
    }

    #[test]
    fn what_stands_in_quotes_is_no_directive() {
        assert_eq!(response(&[r#"ext="max-age=3600", max-age=1"#]).max_age, Some(1));
        assert_eq!(response(&[r#"ext="a\", max-age=3600", max-age=1"#]).max_age, Some(1));
        assert!(!response(&[r#"ext="no-store""#]).no_store);
    }

    #[test]
    fn stray_quote_hides_nothing() {
        assert!(response(&[r#"ext="oops, no-store"#]).no_store);
        assert!(response(&[r#"a"b, no-store, c"d"#]).no_store);
        assert_eq!(response(&[r#"private="oops, no-cache"#]).private, DirectiveScope::Whole);
    }

    #[test]
    fn first_of_several_values_counts() {
        assert_eq!(response(&["max-age=1, max-age=1800"]).max_age, Some(1));
        assert_eq!(response(&["max-age=1800", "max-age=1"]).max_age, Some(1800));
        assert_eq!(response(&["max-age=x, max-age=1800"]).max_age, Some(0));
    }

    #[test]
    fn lifetime_that_cannot_be_read_is_none_at_all() {
        for text in [
            "max-age",
            "max-age=",
            "max-age=-1",
            "max-age=1.5",
            "max-age='9'",
            "max-age=9a",
            "max-age= 9",
            "max-age =9",
            "max-age=\"9\"x",
            "max-age=\"9",
        ] {
            assert_eq!(response(&[text]).max_age, Some(0), "{text}");
        }
        assert_eq!(response(&["stale-while-revalidate=x"]).stale_while_revalidate, None);
    }

    #[test]
    fn large_numbers_are_bounded() {
        for text in ["2147483648", "2147483649", "99999999999", "340282366920938463463374607431768"]
        {
            assert_eq!(parse_seconds(text.as_bytes()), Some(MAX_SECONDS), "{text}");
        }
        assert_eq!(parse_seconds(b"2147483647"), Some(MAX_SECONDS - 1));
        assert_eq!(parse_seconds(b"003600"), Some(3600));
        assert_eq!(parse_seconds(b""), None);
    }

    #[test]
    fn qualified_directives_name_fields() {
        let read = response(&[r#"no-cache="a, B", private=set-cookie"#]);
        assert_eq!((read.no_cache, read.private), (DirectiveScope::Fields, DirectiveScope::Fields));
        assert_eq!(read.fields, ["a", "b", "set-cookie"]);
        for whole in ["no-cache=\"\"", "no-cache=\"a b\"", "no-cache=\"a\", no-cache", "no-cache="]
        {
            assert_eq!(response(&[whole]).no_cache, DirectiveScope::Whole, "{whole}");
        }
    }

    #[test]
    fn request_directives_are_read() {
        let read = request(&["max-age=0, min-fresh=5, max-stale=7, only-if-cached, no-store"]);
        assert_eq!((read.max_age, read.min_fresh, read.max_stale), (Some(0), Some(5), Some(7)));
        assert!(read.only_if_cached && read.no_store && !read.no_cache);
        assert_eq!(request(&["max-stale"]).max_stale, Some(MAX_SECONDS));
        assert_eq!(request(&["max-stale=soon"]).max_stale, None);
    }

    #[test]
    fn pragma_speaks_only_where_cache_control_is_silent() {
        let mut headers = headers(header::PRAGMA, &["x, No-Cache"]);
        assert!(RequestDirectives::of(&headers).no_cache);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=9"));
        assert!(!RequestDirectives::of(&headers).no_cache);
        assert_eq!(RequestDirectives::of(&HeaderMap::new()), RequestDirectives::NONE);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(Directives::of(&bytes).count() <= bytes.len());
        }

        #[test]
        fn pieces_in_any_order_never_panic(text in r#"((max-age|no-cache|private|x)?[=", \\0-9a]{0,4}){0,8}"#) {
            if let Ok(value) = HeaderValue::from_str(&text) {
                let _ = ResponseDirectives::of_lines([&value]);
            }
        }

        #[test]
        fn restriction_is_heard_behind_any_token(prefix in "[!-+.-~]{0,20}") {
            // The prefix has no comma and no space, so the next directive is separate, unless the
            // prefix opens a quote that is closed later, which does not happen here.
            let line = format!("{prefix}, no-store");
            prop_assert!(response(&[&line]).no_store);
        }
    }
}
