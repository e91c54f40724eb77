//! Conditions of clients that hold a coded response: the origin knows the tag of its original only.

use http::{
    HeaderMap, HeaderValue,
    header::{ETAG, IF_NONE_MATCH},
};
use levada_cache::ETag;

use crate::compress::{accepts::Accepts, head::vary};

/// The most tags that are added to a request. Real clients hold one or two responses of a URL.
const MAX_TAGS: usize = 8;

impl Accepts {
    /// Adds the tags of the originals to `If-None-Match` of a request that the origin is going to judge. Both
    /// forms of each: the tag of a coded response is weak, whatever that of its original is.
    pub fn ask_for_originals(&self, request: &mut HeaderMap) {
        let originals = ETag::held(request).filter_map(|tag| self.original(tag)).take(MAX_TAGS);
        let mut list = Vec::new();
        for opaque in originals {
            for part in [b", \"", opaque, b"\", W/\"", opaque, b"\""] {
                list.extend_from_slice(part);
            }
        }
        if list.is_empty() {
            return;
        }
        let lines: Vec<&[u8]> =
            request.get_all(IF_NONE_MATCH).iter().map(HeaderValue::as_bytes).collect();
        let list = [lines.join(&b", "[..]), list].concat();
        if let Ok(value) = HeaderValue::from_bytes(&list) {
            request.insert(IF_NONE_MATCH, value);
        }
    }

    /// Gives the origin's 304 the tag that the client knows, if it holds a coded response. `request` is as it
    /// was sent.
    pub fn name_as_held(&self, request: &HeaderMap, not_modified: &mut HeaderMap) {
        if self.is_empty() {
            return;
        }
        let confirmed = not_modified.get(ETAG).and_then(|value| ETag::parse(value.as_bytes()));
        let Some(confirmed) = confirmed else { return };
        let mut held = ETag::held(request);
        let coded = held.find(|tag| self.original(*tag) == Some(confirmed.opaque));
        let own = coded.and_then(|ETag { opaque, .. }| {
            HeaderValue::from_bytes(&[b"W/\"", opaque, b"\""].concat()).ok()
        });
        if let Some(own) = own {
            not_modified.insert(ETAG, own);
            vary(not_modified);
        }
    }

    /// The tag's text of the original, if this may be the tag of a response in one of these codings.
    fn original<'a>(&self, tag: ETag<'a>) -> Option<&'a [u8]> {
        let stem = |name: &str| tag.opaque.strip_suffix(name.as_bytes())?.strip_suffix(b"-");
        self.codings().filter(|_| tag.weak).find_map(|coding| stem(coding.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT_ENCODING;

    use super::*;
    use crate::compress::coding::Coding;

    fn accepts(codings: &'static str) -> Accepts {
        let value = HeaderValue::from_static(codings);
        Accepts::of(&[(ACCEPT_ENCODING, value)].into_iter().collect(), &Coding::ALL)
    }

    fn asked(codings: &'static str, lines: &[&'static str]) -> HeaderMap {
        let value = |line: &&'static str| (IF_NONE_MATCH, HeaderValue::from_static(line));
        let mut request = lines.iter().map(value).collect();
        accepts(codings).ask_for_originals(&mut request);
        request
    }

    #[test]
    fn original_is_asked_for_in_both_forms() {
        let request = asked("gzip", &["W/\"a-gzip\"", "\"b\""]);
        let lines: Vec<_> = request.get_all(IF_NONE_MATCH).iter().collect();
        assert_eq!(lines, ["W/\"a-gzip\", \"b\", \"a\", W/\"a\""]);
    }

    #[test]
    fn other_tags_stay_alone() {
        for line in ["\"a-gzip\"", "W/\"a-br\"", "W/\"a\"", "*", "W/\"gzip\"", "W/\"a-gzip"] {
            let request = asked("gzip", &[line]);
            let lines: Vec<_> = request.get_all(IF_NONE_MATCH).iter().collect();
            assert_eq!(lines, [line]);
        }
    }

    #[test]
    fn many_tags_do_not_grow_the_request_without_bound() {
        let line: String = (0..500).map(|n| format!("W/\"{n}-gzip\",")).collect();
        let mut request = HeaderMap::new();
        request.insert(IF_NONE_MATCH, HeaderValue::from_str(&line).unwrap());
        accepts("gzip").ask_for_originals(&mut request);
        assert!(request[IF_NONE_MATCH].len() < line.len() + 200);
    }

    #[test]
    fn confirmation_has_the_tag_that_the_client_holds() {
        let request = asked("gzip, br", &["W/\"b-br\", W/\"a-gzip\""]);
        for (told, own) in
            [("\"a\"", "W/\"a-gzip\""), ("W/\"b\"", "W/\"b-br\""), ("\"c\"", "\"c\"")]
        {
            let fields = [(ETAG, HeaderValue::from_static(told))];
            let mut answer: HeaderMap = fields.into_iter().collect();
            accepts("gzip, br").name_as_held(&request, &mut answer);
            assert_eq!(answer[ETAG], own);
        }
    }
}
