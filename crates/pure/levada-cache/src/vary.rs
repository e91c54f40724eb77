//! The selection among several stored responses by `Vary` (RFC 9111, Sec. 4.1).
//!
//! The request fields that `Vary` names are written into one key, normalised if this does not
//! change their meaning. Requests match if their keys are equal:
//!
//! ```text
//! Vary: Accept-Encoding, Foo      accept-encoding LF + "br,gzip" LF foo LF - LF
//!                                 (+ present, - absent; no field value contains LF)
//! ```
//!
//! The whole key is compared, not a hash of it: a client that can make two keys collide could
//! choose the response that others receive.

use http::{HeaderMap, HeaderName, header};

/// More names than any real `Vary` has. A response with more is not stored.
pub const MAX_VARY_FIELDS: usize = 32;

/// The request fields that a response depends on, sorted and without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vary {
    fields: Box<[HeaderName]>,
}

/// The reason why no request can match a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VaryError {
    /// `*`, alone or among names: the response depends on more than the request.
    Any,
    /// More than [`MAX_VARY_FIELDS`].
    Wide,
}

impl Vary {
    /// Reads all lines of `Vary`. A member that is not a valid name counts as `*`: the cache must
    /// not ignore a selection that it does not understand.
    ///
    /// # Errors
    /// When no other request can match.
    pub fn of(response: &HeaderMap) -> Result<Self, VaryError> {
        let mut fields = Vec::new();
        for line in response.get_all(header::VARY) {
            for name in list(line.as_bytes()) {
                if name == b"*" {
                    return Err(VaryError::Any);
                }
                let name = HeaderName::from_bytes(name).map_err(|_| VaryError::Any)?;
                if !fields.contains(&name) {
                    if fields.len() == MAX_VARY_FIELDS {
                        return Err(VaryError::Wide);
                    }
                    fields.push(name);
                }
            }
        }
        fields.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        Ok(Self { fields: fields.into() })
    }

    /// The fields of which [`Self::key`] made this key.
    pub fn of_key(key: &[u8]) -> Self {
        let names = key.split(|&b| b == b'\n').step_by(2).filter(|name| !name.is_empty());
        Self { fields: names.filter_map(|name| HeaderName::from_bytes(name).ok()).collect() }
    }

    /// Whether every request matches.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The names, sorted.
    pub fn fields(&self) -> &[HeaderName] {
        &self.fields
    }

    /// The same fields but one.
    pub fn without(self, field: &HeaderName) -> Self {
        if !self.fields.contains(field) {
            return self;
        }
        Self { fields: self.fields.into_iter().filter(|name| name != field).collect() }
    }

    /// Appends the key of `request` to `key`; the caller can reuse the buffer.
    pub fn write_key(&self, request: &HeaderMap, key: &mut Vec<u8>) {
        for field in &self.fields {
            key.extend_from_slice(field.as_str().as_bytes());
            key.push(b'\n');
            write_field(field, request, key);
            key.push(b'\n');
        }
    }

    /// The key of `request`, to store with the response.
    pub fn key(&self, request: &HeaderMap) -> Box<[u8]> {
        let mut key = Vec::new();
        self.write_key(request, &mut key);
        key.into()
    }

    /// Whether the key of `request` equals `key` from [`Vary::key`]. Overwrites `scratch`.
    pub fn matches(&self, request: &HeaderMap, key: &[u8], scratch: &mut Vec<u8>) -> bool {
        if self.is_empty() {
            return true;
        }
        scratch.clear();
        self.write_key(request, scratch);
        scratch == key
    }
}

/// Writes one field: its lines joined, without white space around commas outside quotes. Sec. 4.1
/// allows this for any field.
fn write_field(field: &HeaderName, request: &HeaderMap, key: &mut Vec<u8>) {
    let mut lines = request.get_all(field).iter();
    let Some(first) = lines.next() else {
        return key.push(b'-');
    };
    key.push(b'+');
    if is_preference_list(field) {
        return write_preferences(field, request, key);
    }
    write_line(first.as_bytes(), key);
    for line in lines {
        key.push(b',');
        write_line(line.as_bytes(), key);
    }
}

fn write_line(line: &[u8], key: &mut Vec<u8>) {
    for (at, member) in quoted_list(line).enumerate() {
        if at > 0 {
            key.push(b',');
        }
        key.extend_from_slice(member);
    }
}

/// Fields that list a client's preferences, where case and order have no meaning: the client orders
/// them by `q` (RFC 9110, Sec. 12.4.2 and 12.5.4: a server need not keep to the order of
/// equal weights).
fn is_preference_list(field: &HeaderName) -> bool {
    *field == header::ACCEPT_ENCODING
        || *field == header::ACCEPT_LANGUAGE
        || *field == header::ACCEPT_CHARSET
}

/// The most members and the most bytes that are sorted. A longer list keeps its order and matches
/// fewer requests.
const MAX_SORTED: usize = 16;
const MAX_SORTED_BYTES: usize = 256;

/// Writes the members in the order of their bytes, with a comma after each.
fn write_preferences(field: &HeaderName, request: &HeaderMap, key: &mut Vec<u8>) {
    let start = key.len();
    let mut ends = [0; MAX_SORTED];
    let mut count = 0;
    for member in request.get_all(field).iter().flat_map(|line| list(line.as_bytes())) {
        // In lower case and without white space, because equal preferences may differ in both.
        let folded = without_full_weight(member).iter().filter(|b| !b.is_ascii_whitespace());
        key.extend(folded.map(u8::to_ascii_lowercase));
        key.push(b',');
        if let Some(end) = ends.get_mut(count) {
            *end = key.len() - start;
        }
        count += 1;
    }
    if let Some(ends) = ends.get(..count) {
        sort_members(&mut key[start..], ends);
    }
}

/// Sorts the members, which end at `ends`, with a copy on the stack.
fn sort_members(text: &mut [u8], ends: &[usize]) {
    let mut copy = [0; MAX_SORTED_BYTES];
    let Some(copy) = copy.get_mut(..text.len()) else {
        return;
    };
    copy.copy_from_slice(text);
    let mut members = [&b""[..]; MAX_SORTED];
    let mut begun = 0;
    for (member, &end) in members.iter_mut().zip(ends) {
        *member = &copy[begun..end];
        begun = end;
    }
    let members = &mut members[..ends.len()];
    members.sort_unstable();
    let mut rest = text;
    for member in members {
        let (place, after) = rest.split_at_mut(member.len());
        place.copy_from_slice(member);
        rest = after;
    }
}

/// The member without `;q=1`, which is the default weight.
fn without_full_weight(member: &[u8]) -> &[u8] {
    let Some(at) = member.iter().position(|&b| b == b';') else {
        return member;
    };
    let weight = member[at + 1..].trim_ascii();
    let full = match weight {
        [b'q' | b'Q', b'=', b'1'] => true,
        [b'q' | b'Q', b'=', b'1', b'.', zeros @ ..] => zeros.iter().all(|&b| b == b'0'),
        _ => false,
    };
    if full { member[..at].trim_ascii() } else { member }
}

/// The members of a list without quotes; empty members are skipped (RFC 9110, Sec. 5.6.1).
pub(crate) fn list(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// The members of a list in which quotes protect commas. Empty members are kept, because a field
/// that is not a list must not lose its commas.
fn quoted_list(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    line.split(move |&b| {
        if quoted && b == b'\\' && !escaped {
            escaped = true;
            return false;
        }
        quoted ^= b == b'"' && !escaped;
        escaped = false;
        b == b',' && !quoted
    })
    .map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(n, v)| {
                (HeaderName::from_static(n), HeaderValue::from_bytes(v.as_bytes()).unwrap())
            })
            .collect()
    }

    fn vary(lines: &[&str]) -> Result<Vary, VaryError> {
        Vary::of(&lines.iter().map(|l| (header::VARY, HeaderValue::from_str(l).unwrap())).collect())
    }

    /// Whether a response to `stored` with this `Vary` answers `asked`.
    fn selects(
        names: &str,
        stored: &[(&'static str, &str)],
        asked: &[(&'static str, &str)],
    ) -> bool {
        let vary = vary(&[names]).unwrap();
        let key = vary.key(&headers(stored));
        vary.matches(&headers(asked), &key, &mut Vec::new())
    }

    #[test]
    fn star_anywhere_matches_nothing() {
        for lines in [
            &["*"][..],
            &["*, *"],
            &["*", "*"],
            &[", *"],
            &["", "*"],
            &["*, Foo"],
            &["Foo, *"],
            &["a b"],
            &["Foo;q=1"],
        ] {
            assert_eq!(vary(lines), Err(VaryError::Any), "{lines:?}");
        }
    }

    #[test]
    fn names_are_a_set_without_case() {
        let read = vary(&["Foo, accept-encoding,,", "FOO"]).unwrap();
        assert_eq!(read.fields(), ["accept-encoding", "foo"]);
        assert!(vary(&[]).unwrap().is_empty() && vary(&[" , "]).unwrap().is_empty());
    }

    #[test]
    fn key_names_its_fields() {
        for names in ["", "foo", "foo, accept-encoding, bar"] {
            let vary = vary(&[names]).unwrap();
            assert_eq!(Vary::of_key(&vary.key(&headers(&[("foo", "1,, 2")]))), vary);
        }
    }

    #[test]
    fn too_many_names_are_refused() {
        let names: Vec<String> = (0..=MAX_VARY_FIELDS).map(|n| format!("x-{n}")).collect();
        assert_eq!(vary(&[&names.join(",")]), Err(VaryError::Wide));
        assert!(vary(&[&names[1..].join(",")]).is_ok());
    }

    #[test]
    fn only_named_fields_select() {
        assert!(selects("foo", &[("foo", "1"), ("other", "2")], &[("foo", "1"), ("other", "3")]));
        assert!(!selects("foo", &[("foo", "1")], &[("foo", "2")]));
        assert!(!selects("foo, bar", &[("foo", "1"), ("bar", "x")], &[("foo", "1"), ("bar", "y")]));
    }

    #[test]
    fn absent_field_matches_only_absence() {
        assert!(selects("foo", &[], &[]));
        assert!(!selects("foo", &[], &[("foo", "1")]));
        assert!(!selects("foo", &[("foo", "1")], &[]));
        assert!(!selects("foo", &[], &[("foo", "")]));
        assert!(!selects("foo", &[], &[("foo", "-")]));
    }

    #[test]
    fn spacing_and_lines_do_not_matter() {
        assert!(selects("foo", &[("foo", "1, 2")], &[("foo", "1"), ("foo", "2")]));
        assert!(selects("foo", &[("foo", "1,2")], &[("foo", " 1 ,\t2 ")]));
        assert!(!selects("foo", &[("foo", "1,2")], &[("foo", "2,1")]));
        assert!(!selects("foo", &[("foo", "a")], &[("foo", "A")]));
        assert!(!selects("foo", &[("foo", "\"1,2\"")], &[("foo", "\"1, 2\"")]));
    }

    #[test]
    fn order_case_and_full_weight_of_preferences_do_not_matter() {
        let same =
            |field: &'static str, a: &str, b: &str| selects(field, &[(field, a)], &[(field, b)]);
        assert!(same("accept-encoding", "gzip, br", "BR;q=1.0,gzip; q=1"));
        assert!(same("accept-language", "en;q=0.5, de", "de , EN; q=0.5"));
        assert!(!same("accept-encoding", "gzip, br", "gzip"));
        assert!(!same("accept-encoding", "gzip;q=0", "gzip"));
        assert!(!same("accept", "text/html, image/png", "image/png, text/html"));
    }

    #[test]
    fn neighbouring_fields_do_not_run_into_each_other() {
        assert!(!selects("a, b", &[("a", "1"), ("b", "")], &[("a", ""), ("b", "1")]));
        assert!(!selects("a, b", &[("a", "1")], &[("b", "1")]));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            names in prop::collection::vec(0x20u8..=0xff, 0..40),
            value in prop::collection::vec(0x20u8..=0xff, 0..80),
        ) {
            let Ok(names) = HeaderValue::from_bytes(&names) else { return Ok(()) };
            let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
            let response: HeaderMap = [(header::VARY, names)].into_iter().collect();
            let request: HeaderMap = [(header::ACCEPT_ENCODING, value.clone()),
                (header::ACCEPT, value.clone()), (header::VARY, value)].into_iter().collect();
            let _ = Vary::of(&response);
            let all = vary(&["accept-encoding, accept, vary"]).unwrap();
            let key = all.key(&request);
            prop_assert!(all.matches(&request, &key, &mut Vec::new()));
        }
    }
}
