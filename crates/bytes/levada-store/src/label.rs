//! The facts of a stored response that purges go by: its site, the purge it was born after, and its
//! tags.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime},
};

use http::{HeaderMap, HeaderName, HeaderValue};
use levada_cache::Freshness;
use levada_types::{Key, hash64, weigh};

use crate::identity::url_of;

/// Tags separated by spaces, as Fastly has it.
pub const SURROGATE_KEY: HeaderName = HeaderName::from_static("surrogate-key");
/// Tags separated by commas, as Cloudflare and Akamai have it.
pub const CACHE_TAG: HeaderName = HeaderName::from_static("cache-tag");
/// RFC 9875 Sec. 2.
const CACHE_GROUPS: HeaderName = HeaderName::from_static("cache-groups");

/// From a node of the shield: the hashes of all tags, in hexadecimal digits; `*` if it has more than are remembered.
pub const TAGS: HeaderName = HeaderName::from_static("levada-tags");

/// More tags than this count as all tags there are.
const MAX_TAGS: usize = 1000;
/// Keeps the groups of an origin apart from plain tags.
const GROUP: u64 = 0x67_72_6f_75_70;

/// The facts of a stored response that purges go by.
#[derive(Debug)]
pub struct Label {
    /// The site that it is of.
    site: u64,
    /// The newest purge when its fetch began: later ones are not for what that fetch brought.
    born: u64,
    /// Hashes, sorted; `None` if it has more tags than are remembered.
    tags: Option<Box<[u64]>>,
    /// The newest purge it was held against.
    checked: AtomicU64,
    /// Since when it is stale by a soft purge, in milliseconds of Unix time; 0 if it is not.
    stale_since: AtomicU64,
}

impl Label {
    /// A label without tags: of a fetch whose head has not arrived yet.
    pub fn new(site: u64, born: u64) -> Self {
        Self {
            site,
            born,
            tags: Some(Box::default()),
            checked: AtomicU64::new(born),
            stale_since: AtomicU64::new(0),
        }
    }

    /// The label of a response with these fields.
    pub fn of(headers: &HeaderMap, identity: &str, site: u64, born: u64) -> Self {
        Self::new(site, born).with(tags(headers, identity))
    }

    /// After a 304 whose fetch began at `born`. `headers` are the updated ones; tags of which the 304
    /// said nothing stay.
    pub fn renewed(&self, headers: &HeaderMap, identity: &str, born: u64) -> Self {
        let mut all = tags(headers, identity);
        if ![SURROGATE_KEY, CACHE_TAG, TAGS].iter().any(|name| headers.contains_key(name)) {
            all.extend_from_slice(self.tags());
        }
        let label = Self::new(self.site, born).with(all);
        Self { tags: label.tags.filter(|_| !self.has_any_tag()), ..label }
    }

    /// When it was born, in purges.
    pub fn born(&self) -> u64 {
        self.born
    }

    /// `freshness`, ended by a soft purge if there was one.
    pub fn freshness(&self, freshness: Freshness) -> Freshness {
        match self.stale_since.load(Relaxed) {
            0 => freshness,
            millis => freshness.expired(SystemTime::UNIX_EPOCH + Duration::from_millis(millis)),
        }
    }

    /// The site that it is of.
    pub fn site(&self) -> u64 {
        self.site
    }

    /// The field [`TAGS`] for a node of another region that stores the response too, if it has tags.
    pub fn for_other_region(&self) -> Option<HeaderValue> {
        let text = match &self.tags {
            None => return Some(HeaderValue::from_static("*")),
            Some(tags) if tags.is_empty() => return None,
            Some(tags) => tags.iter().map(|tag| format!("{tag:x}")).collect::<Vec<_>>().join(","),
        };
        HeaderValue::try_from(text).ok()
    }

    /// Hashes of its tags, sorted.
    pub fn tags(&self) -> &[u64] {
        self.tags.as_deref().unwrap_or_default()
    }

    /// Whether it has more tags than are remembered, and counts as having all.
    pub fn has_any_tag(&self) -> bool {
        self.tags.is_none()
    }

    /// The newest purge it was held against.
    pub fn checked(&self) -> u64 {
        self.checked.load(Relaxed)
    }

    /// It was held against all purges up to this one.
    pub fn set_checked(&self, newest: u64) {
        self.checked.store(newest, Relaxed);
    }

    /// Since when it is stale by a soft purge, in milliseconds of Unix time; 0 if it is not.
    pub fn stale_since(&self) -> u64 {
        self.stale_since.load(Relaxed)
    }

    /// Whether a soft purge has ended its freshness.
    pub fn is_stale(&self) -> bool {
        self.stale_since() != 0
    }

    /// Stale since `millis`, or since earlier if it was so before.
    pub fn expire(&self, millis: u64) {
        let earlier = |was: u64| (was == 0 || was > millis).then_some(millis);
        let _ = self.stale_since.fetch_update(Relaxed, Relaxed, earlier);
    }

    /// Bytes on the heap.
    pub fn weight(&self) -> usize {
        size_of_val(self.tags())
    }

    /// As bytes for a disk record: site, born, stale since, number of tags, tags, each as 8 bytes,
    /// little-endian. All bits of the number set: any tag.
    pub fn to_bytes(&self) -> Vec<u8> {
        let count = self.tags.as_ref().map_or(u64::MAX, |tags| tags.len() as u64);
        let head = [self.site, self.born, self.stale_since.load(Relaxed), count];
        head.iter().chain(self.tags()).flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Reads the bytes that [`to_bytes`](Self::to_bytes) wrote. It has to be checked before its
    /// first use.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let ([site, born, stale_since, count], tags) = words.split_first_chunk::<4>()?;
        let any_tag = *count == u64::MAX;
        if tags.len() > MAX_TAGS || (!any_tag && *count != tags.len() as u64) {
            return None;
        }
        let mut label = Self::new(*site, *born).with(tags.to_vec());
        if any_tag {
            label.tags = None;
        }
        let (checked, stale_since) = (AtomicU64::new(0), AtomicU64::new(*stale_since));
        Some(Self { checked, stale_since, ..label })
    }

    fn with(self, mut tags: Vec<u64>) -> Self {
        tags.sort_unstable();
        tags.dedup();
        let tags = (tags.len() <= MAX_TAGS).then(|| tags.into());
        Self { tags, ..self }
    }
}

impl Clone for Label {
    fn clone(&self) -> Self {
        Self {
            site: self.site,
            born: self.born,
            tags: self.tags.clone(),
            checked: AtomicU64::new(self.checked.load(Relaxed)),
            stale_since: AtomicU64::new(self.stale_since.load(Relaxed)),
        }
    }
}

/// The hash of a tag as operators name it.
pub fn tag(text: &[u8]) -> u64 {
    hash64(text)
}

/// The hash of a group of one origin (RFC 9875 Sec. 2.1): `identity` is any URL of it.
pub fn group(identity: &str, text: &str) -> u64 {
    weigh(Key(hash64(text.as_bytes())), GROUP ^ hash64(origin_of(identity).as_bytes()))
}

/// Scheme, host and port of an absolute URL.
fn origin_of(identity: &str) -> &str {
    // A piece of a file is of the file's origin.
    let identity = url_of(identity);
    let host = identity.find("://").map_or(0, |at| at + 3);
    let end = identity[host..].find(['/', '?']).map_or(identity.len(), |at| host + at);
    &identity[..end]
}

/// Takes out of a response what was said to this cache alone.
pub fn strip(headers: &mut HeaderMap) {
    static NAMES: [HeaderName; 2] = [SURROGATE_KEY, CACHE_TAG];
    levada_cache::strip_fields(headers, &NAMES);
}

/// The words of every field of this name.
fn words(
    headers: &HeaderMap,
    name: HeaderName,
    separates: fn(&u8) -> bool,
) -> impl Iterator<Item = &[u8]> {
    headers
        .get_all(name)
        .iter()
        .flat_map(move |value| value.as_bytes().split(separates))
        .map(<[u8]>::trim_ascii)
        .filter(|word| !word.is_empty())
}

/// The words of `Surrogate-Key` and `Cache-Tag`.
pub fn plain_tags(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let keys = words(headers, SURROGATE_KEY, |byte| matches!(byte, b' ' | b'\t'));
    keys.chain(words(headers, CACHE_TAG, |byte| *byte == b','))
}

fn tags(headers: &HeaderMap, identity: &str) -> Vec<u64> {
    let mut tags: Vec<u64> = plain_tags(headers).take(MAX_TAGS + 1).map(tag).collect();
    for text in levada_cache::strings(headers, &CACHE_GROUPS) {
        tags.push(tag(text.as_bytes()));
        tags.push(group(identity, &text));
    }
    for text in words(headers, TAGS, |byte| *byte == b',') {
        let hash = str::from_utf8(text).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
        match hash {
            Some(hash) => tags.push(hash),
            // The mark of too many tags, or no list of tags: it counts as having all.
            None => tags.extend(0..=MAX_TAGS as u64),
        }
    }
    tags
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const URL: &str = "http://a.test/x";

    fn label(fields: &[(&'static str, &str)]) -> Label {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        Label::of(&headers, URL, 1, 2)
    }

    fn sorted(mut tags: Vec<u64>) -> Vec<u64> {
        tags.sort_unstable();
        tags
    }

    #[test]
    fn tags_are_read_from_all_three_fields() {
        let of = |fields| label(fields).tags().to_vec();
        let two = sorted(vec![tag(b"a"), tag(b"b")]);
        assert_eq!(of(&[("surrogate-key", " a  b a ")]), two);
        assert_eq!(of(&[("cache-tag", "a,,b , ")]), two);
        assert_eq!(of(&[("surrogate-key", "a"), ("surrogate-key", "b")]), two);
        assert_eq!(of(&[("cache-tag", "a b")]), [tag(b"a b")]);
        assert_eq!(of(&[("cache-groups", "\"a\"")]), sorted(vec![tag(b"a"), group(URL, "a")]));
        assert_eq!(of(&[("cache-groups", "a, b")]), [] as [u64; 0], "tokens are no strings");
    }

    #[test]
    fn tags_are_the_same_in_another_region() {
        let many: Vec<String> = (0..=MAX_TAGS).map(|n| format!("t{n}")).collect();
        for fields in [
            vec![("surrogate-key", "a b"), ("cache-groups", "\"g\"")],
            vec![("surrogate-key", &*many.join(" "))],
        ] {
            let here = label(&fields);
            let told = here.for_other_region().unwrap();
            let there = label(&[("levada-tags", told.to_str().unwrap())]);
            assert_eq!(there.tags(), here.tags());
            assert_eq!(there.has_any_tag(), here.has_any_tag());
        }
        assert_eq!(label(&[]).for_other_region(), None);
        assert!(label(&[("levada-tags", "no number")]).has_any_tag());
    }

    #[test]
    fn groups_belong_to_one_origin() {
        assert_eq!(group("http://a.test/x?y", "g"), group("http://a.test", "g"));
        assert_ne!(group("https://a.test/x", "g"), group("http://a.test/x", "g"));
        assert_ne!(group("http://a.test:81/x", "g"), group("http://a.test/x", "g"));
        assert_ne!(group("http://a.test/x", "g"), tag(b"g"));
    }

    #[test]
    fn too_many_tags_count_as_all() {
        let many: Vec<String> = (0..=MAX_TAGS).map(|n| format!("t{n}")).collect();
        let label = label(&[("surrogate-key", &many.join(" "))]);
        assert!(label.has_any_tag() && label.tags().is_empty());
    }

    #[test]
    fn validation_keeps_tags_of_which_it_says_nothing() {
        let old = label(&[("surrogate-key", "a b")]);
        let renewed = |fields: &[(&'static str, &'static str)]| {
            let headers = fields.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap()));
            old.renewed(&headers.collect(), URL, 9).tags().to_vec()
        };
        assert_eq!(renewed(&[]), old.tags().to_vec());
        assert_eq!(renewed(&[("surrogate-key", "c")]), [tag(b"c")]);
    }

    proptest! {
        #[test]
        fn labels_survive_as_bytes(site: u64, born: u64, tags: Vec<u64>) {
            let label = Label::new(site, born).with(tags);
            let read = Label::from_bytes(&label.to_bytes()).unwrap();
            prop_assert_eq!(
                (read.site, read.born, &read.tags),
                (label.site, label.born, &label.tags)
            );
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, value: Vec<u8>) {
            let _ = Label::from_bytes(&bytes);
            if let Ok(value) = http::HeaderValue::from_bytes(&value) {
                let fields = [SURROGATE_KEY, CACHE_TAG, CACHE_GROUPS];
                let headers = fields.into_iter().map(|name| (name, value.clone())).collect();
                let _ = Label::of(&headers, URL, 0, 0);
            }
        }
    }
}
