//! The cache key of a request: which parts of the URL count, and what else counts.
//!
//! ```text
//! https://www.example.com/A?utm_source=x&b=1&a=2
//!   query_without = ["utm_*"], sort_query, ignore_path_case ──► https://www.example.com/a?a=2&b=1
//!   headers = ["x-lang"], device ──► "device=mobile&header.x-lang=de " before it
//! ```
//!
//! The URL of a key with a variant stands behind the last space, and a variant has neither spaces nor
//! `://`, so that purges of the URL find all its variants.

use std::{borrow::Cow, sync::Arc};

use http::{HeaderMap, HeaderName, header::COOKIE};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::{DeviceClass, Expression, RequestFacts, TextPattern};

/// The arguments of a query that count.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum QueryRule {
    /// All.
    #[default]
    All,
    /// None.
    None,
    /// Those of these names.
    Only(Vec<TextPattern>),
    /// All but those of these names.
    Without(Vec<TextPattern>),
}

/// The rules by which a request's key is made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyRules {
    /// The arguments that count.
    pub query: QueryRule,
    /// The order of arguments with different names does not count.
    pub sort_query: bool,
    /// Upper and lower case are the same in the path.
    pub ignore_path_case: bool,
    /// A host in the place of the client's.
    pub host: Option<Arc<str>>,
    /// Fields that count.
    pub headers: Vec<HeaderName>,
    /// Cookies that count.
    pub cookies: Vec<String>,
    /// Whether the [`DeviceClass`] counts.
    pub device: bool,
    /// An expression whose value counts.
    pub expression: Option<Expression>,
    /// Routes of a site with the same word share what is stored, whatever they ask.
    pub share: Option<Arc<str>>,
}

/// Characters that separate something in a key.
const RESERVED: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'&').add(b'=').add(b':').add(b'/');

impl KeyRules {
    /// The part of a path and query that counts.
    pub fn target<'a>(&self, target: &'a str) -> Cow<'a, str> {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let changes_path = self.ignore_path_case && path.bytes().any(|b| b.is_ascii_uppercase());
        let keeps_query = matches!(self.query, QueryRule::All) && !self.sort_query;
        if !changes_path && (query.is_none() || keeps_query) {
            return Cow::Borrowed(target);
        }
        let mut text = path.to_owned();
        if self.ignore_path_case {
            text.make_ascii_lowercase();
        }
        match query {
            Some(query) if keeps_query => {
                text.push('?');
                text.push_str(query);
            }
            Some(query) => self.push_query(query, &mut text),
            None => {}
        }
        Cow::Owned(text)
    }

    fn push_query(&self, query: &str, text: &mut String) {
        let named = |list: &[TextPattern], argument: &&str| {
            list.iter().any(|pattern| pattern.matches(argument_name(argument).as_bytes()))
        };
        let counts = |argument: &&str| match &self.query {
            QueryRule::All => true,
            QueryRule::None => false,
            QueryRule::Only(list) => named(list, argument),
            QueryRule::Without(list) => !named(list, argument),
        };
        let arguments = query.split('&').filter(|argument| !argument.is_empty());
        let mut arguments: Vec<&str> = arguments.filter(counts).collect();
        if self.sort_query {
            // Arguments of one name keep their order, which may mean something.
            arguments.sort_by(|one, other| argument_name(one).cmp(argument_name(other)));
        }
        for (at, argument) in arguments.into_iter().enumerate() {
            text.push(if at == 0 { '?' } else { '&' });
            text.push_str(argument);
        }
    }

    /// Whether a field is in the key, or its expression names the field.
    pub fn has_field(&self, name: &HeaderName) -> bool {
        let named = |expression: &Expression| {
            expression.source().to_ascii_lowercase().contains(name.as_str())
        };
        self.headers.contains(name) || self.expression.as_ref().is_some_and(named)
    }

    /// The rules about the URL alone.
    pub fn of_url(&self) -> Self {
        let Self { query, sort_query, ignore_path_case, host, .. } = self.clone();
        Self { query, sort_query, ignore_path_case, host, ..Self::default() }
    }

    /// The word of [`share`](Self::share) as it stands in a key.
    pub fn share_word(&self) -> Option<String> {
        let word = self.share.as_ref()?;
        Some(percent_encode(word.as_bytes(), RESERVED).to_string())
    }

    /// Whether something other than the URL counts.
    pub fn has_variants(&self) -> bool {
        self.device
            || !self.headers.is_empty()
            || !self.cookies.is_empty()
            || self.expression.is_some()
    }

    /// The part of the key that is not of the URL; empty if there is none. A field that is absent and one
    /// that is empty differ. `facts` are those of the request that has these fields.
    pub fn variant<'f>(
        &self,
        headers: &HeaderMap,
        facts: impl FnOnce() -> RequestFacts<'f>,
    ) -> String {
        let mut text = String::new();
        if self.device {
            text = format!("device={}", DeviceClass::of(headers).as_str());
        }
        for name in &self.headers {
            let values: Vec<&[u8]> =
                headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
            let value = (!values.is_empty()).then(|| values.join(&b","[..]));
            push(&mut text, "header", name.as_str(), value.as_deref());
        }
        for name in &self.cookies {
            push(&mut text, "cookie", name, cookie(headers, name));
        }
        if let Some(expression) = &self.expression {
            let value = expression.text(&facts());
            text.push_str(if text.is_empty() { "expression=" } else { "&expression=" });
            text.extend(percent_encode(value.as_bytes(), RESERVED));
        }
        text
    }

    /// Removes the cookies that are not part of the key.
    pub fn strip_cookies(rules: Option<&Self>, headers: &mut HeaderMap) {
        let kept = rules.map_or(&[][..], |rules| &rules.cookies);
        let pairs = kept.iter().filter_map(|name| Some((name, cookie(headers, name)?)));
        let text: Vec<Vec<u8>> =
            pairs.map(|(name, value)| [name.as_bytes(), b"=", value].concat()).collect();
        headers.remove(COOKIE);
        if let Some(value) = (!text.is_empty()).then(|| text.join(&b"; "[..]))
            && let Ok(value) = value.try_into()
        {
            let value: http::HeaderValue = value;
            headers.insert(COOKIE, value);
        }
    }
}

fn argument_name(argument: &str) -> &str {
    argument.split_once('=').map_or(argument, |(name, _)| name)
}

fn push(text: &mut String, kind: &str, name: &str, value: Option<&[u8]>) {
    if !text.is_empty() {
        text.push('&');
    }
    text.push_str(kind);
    text.push('.');
    text.extend(percent_encode(name.as_bytes(), RESERVED));
    if let Some(value) = value {
        text.push('=');
        text.extend(percent_encode(value, RESERVED));
    }
}

/// The value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let lines = headers.get_all(COOKIE).into_iter();
    let mut pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.find_map(|pair| pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patterns(list: &[&str]) -> Vec<TextPattern> {
        list.iter().map(|text| TextPattern::parse(text, false).unwrap()).collect()
    }

    fn no_facts() -> RequestFacts<'static> {
        unreachable!("no rule has an expression")
    }

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn arguments_count_as_the_rule_says() {
        let target = |query, target: &str| {
            KeyRules { query, ..KeyRules::default() }.target(target).into_owned()
        };
        let asked = "/a?utm_source=x&b=1&&a=2&utm=3";
        assert_eq!(target(QueryRule::All, asked), asked);
        assert_eq!(target(QueryRule::None, asked), "/a");
        assert_eq!(target(QueryRule::Only(patterns(&["a", "c"])), asked), "/a?a=2");
        assert_eq!(target(QueryRule::Without(patterns(&["utm_*"])), asked), "/a?b=1&a=2&utm=3");
        assert_eq!(target(QueryRule::Without(patterns(&["*"])), "/a?b"), "/a");
        assert_eq!(target(QueryRule::None, "/a?"), "/a");
    }

    #[test]
    fn sorted_arguments_of_one_name_keep_their_order() {
        let rules = KeyRules { sort_query: true, ..KeyRules::default() };
        assert_eq!(rules.target("/a?b=2&a=9&b=1&a"), "/a?a=9&a&b=2&b=1");
    }

    #[test]
    fn case_of_the_path_is_ignored_where_asked_and_that_of_the_query_never() {
        let rules = KeyRules { ignore_path_case: true, ..KeyRules::default() };
        assert_eq!(rules.target("/A/b?C=D"), "/a/b?C=D");
        assert_eq!(KeyRules::default().target("/A"), "/A");
    }

    #[test]
    fn fields_cookies_and_devices_make_variants() {
        let rules = KeyRules {
            headers: vec!["x-lang".parse().unwrap()],
            cookies: vec!["ab".to_owned()],
            device: true,
            ..KeyRules::default()
        };
        assert_eq!(
            rules.variant(&HeaderMap::new(), no_facts),
            "device=desktop&header.x-lang&cookie.ab"
        );
        let fields = [("x-lang", "de &=:/"), ("cookie", "c=1; ab=2; d=3"), ("user-agent", "Mobi")];
        let variant = rules.variant(&headers(&fields), no_facts);
        assert_eq!(variant, "device=mobile&header.x-lang=de%20%26%3D%3A%2F&cookie.ab=2");
        assert_ne!(
            rules.variant(&headers(&[("x-lang", "")]), no_facts),
            rules.variant(&HeaderMap::new(), no_facts)
        );
    }

    #[test]
    fn cookies_of_the_key_are_all_that_stays() {
        let rules = KeyRules { cookies: vec!["ab".to_owned()], ..KeyRules::default() };
        let mut fields = headers(&[("cookie", "c=1; ab=2; d=3")]);
        KeyRules::strip_cookies(Some(&rules), &mut fields);
        assert_eq!(fields[COOKIE], "ab=2");
        KeyRules::strip_cookies(None, &mut fields);
        assert!(fields.is_empty());
    }

    proptest! {
        #[test]
        fn different_values_make_different_variants(one: Vec<u8>, other: Vec<u8>) {
            let rules = KeyRules {
                headers: vec!["a".parse().unwrap(), "b".parse().unwrap()],
                ..KeyRules::default()
            };
            let variant = |values: [&[u8]; 2]| {
                let mut headers = HeaderMap::new();
                for (name, value) in ["a", "b"].into_iter().zip(values) {
                    if let Ok(value) = http::HeaderValue::from_bytes(value) {
                        headers.insert(name, value);
                    }
                }
                (rules.variant(&headers, no_facts), headers)
            };
            let (first, second) = (variant([&one, &other]), variant([&other, &one]));
            prop_assert_eq!(first.0 == second.0, first.1 == second.1);
            prop_assert!(!first.0.contains(' ') && !first.0.contains("://"));
        }
    }
}
