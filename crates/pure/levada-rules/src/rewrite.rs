//! Rewrites: the path and query that the origin is asked with, in place of those of the client.
//!
//! A request is rewritten once, after its route is known, and no route looks at the result: rewrites
//! cannot run in a loop. Dot segments never come from a client: without them, no request leaves the
//! directory that a rewrite names.

use std::borrow::Cow;

use percent_encoding::{percent_decode_str, utf8_percent_encode};

use crate::{RequestFacts, Template, normal_path, template::DECODED};

/// The path and query that the origin is asked with.
#[derive(Clone, Debug, PartialEq)]
pub enum Rewrite {
    /// The client's, with another beginning of the path.
    Prefix {
        /// The beginning that is removed, without a `/` at its end; empty for none.
        strip: String,
        /// The beginning that it gets, in the same form.
        add: String,
    },
    /// A text with variables. Without a `?` it gets the client's query.
    Template(Template),
}

impl Rewrite {
    /// The path and query for a request.
    pub fn target(&self, facts: &RequestFacts<'_>) -> String {
        let (path, query) = facts.target.split_once('?').unwrap_or((facts.target, ""));
        let path = without_dots(path);
        let (path, query) = match self {
            Self::Prefix { strip, add } => {
                (format!("{add}{}", stripped(&path, strip)), Cow::Borrowed(query))
            }
            Self::Template(template) => {
                let target = format!("{path}?{query}");
                let target = if query.is_empty() { &*path } else { &target };
                let url = template.url(&RequestFacts { target, ..facts.clone() });
                let (path, query) = match url.split_once('?') {
                    Some((path, own)) => (path.to_owned(), Cow::Owned(own.to_owned())),
                    None => (url, Cow::Borrowed(query)),
                };
                // A value with dot segments could lead out of the directory that the template names.
                let beginning = format!("/{}", template.beginning().trim_matches('/'));
                let path = without_dots(&path);
                let is_inside = path.starts_with('/') && normal_path(&path).starts_with(&beginning);
                (if is_inside { path.into_owned() } else { beginning }, query)
            }
        };
        // `//` at the beginning would be an authority (RFC 3986 Sec. 4.2).
        let path = format!("/{}", path.trim_start_matches('/'));
        if query.is_empty() { path } else { format!("{path}?{query}") }
    }

    /// The rewrite, for operators.
    pub fn in_words(&self) -> Vec<String> {
        let prefix = |verb: &str, text: &String| {
            (!text.is_empty()).then(|| format!("{text} {verb} the path that the origin gets"))
        };
        match self {
            Self::Prefix { strip, add } => {
                let words = [prefix("stripped from", strip), prefix("added to", add)];
                words.into_iter().flatten().collect()
            }
            Self::Template(_) => vec!["the path rewritten".to_owned()],
        }
    }
}

/// The path as the client wrote it, or in normal form if it has dot segments or empty ones.
fn without_dots(path: &str) -> Cow<'_, str> {
    if has_no_dots(path) {
        return Cow::Borrowed(path);
    }
    Cow::Owned(utf8_percent_encode(&normal_path(path), DECODED).to_string())
}

/// Whether no segment is empty or begins with a dot, escaped ones included: then there are no dot segments.
fn has_no_dots(path: &str) -> bool {
    let decoded: Cow<'_, [u8]> = percent_decode_str(path).into();
    !decoded.windows(2).any(|pair| matches!(pair, b"/." | b"//"))
}

/// The path without its beginning, if it has this beginning.
fn stripped<'p>(path: &'p str, prefix: &str) -> Cow<'p, str> {
    let below = |path: &str| match path.strip_prefix(prefix) {
        Some("") => Some("/".to_owned()),
        Some(rest) if rest.starts_with('/') => Some(rest.to_owned()),
        _ => None,
    };
    // Rules compare the normal form, in which escapes are decoded.
    let decoded = || {
        let rest = below(&normal_path(path))?;
        Some(utf8_percent_encode(&rest, DECODED).to_string())
    };
    below(path).or_else(decoded).map_or(Cow::Borrowed(path), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method};
    use proptest::prelude::*;

    use super::*;
    use crate::{Conditions, PathPattern, Scheme, TemplateKind, TemplateScope};

    fn target(rewrite: &Rewrite, asked: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert("x-a", HeaderValue::from_static("../../x"));
        let client = "192.0.2.1".parse().unwrap();
        rewrite.target(&RequestFacts::new(
            client,
            (Scheme::Http, "a.test"),
            (&Method::GET, asked),
            &headers,
        ))
    }

    fn prefix(strip: &str, add: &str) -> Rewrite {
        Rewrite::Prefix { strip: strip.to_owned(), add: add.to_owned() }
    }

    fn template(path: &str, text: &str) -> Rewrite {
        let route =
            Conditions { paths: vec![PathPattern::parse(path).unwrap()], ..Conditions::default() };
        let (kind, mappings) = (TemplateKind::Url, &crate::Mappings::new());
        let scope = TemplateScope { route: &route, kind, countries: None, mappings };
        Rewrite::Template(Template::parse(text, &scope).unwrap())
    }

    #[test]
    fn prefixes_are_stripped_and_added() {
        let api = prefix("/api", "");
        for (asked, sent) in [
            ("/api/x?q=%20", "/x?q=%20"),
            ("/api", "/"),
            ("/api?q", "/?q"),
            ("/apix", "/apix"),
            ("/%61pi/x", "/x"),
            ("/api/group%2Fproject/%ff", "/group%2Fproject/%ff"),
            ("/api//x", "/x"),
            ("/other", "/other"),
        ] {
            assert_eq!(target(&api, asked), sent, "{asked}");
        }
        assert_eq!(target(&prefix("/api", "/v2"), "/api/x"), "/v2/x");
        assert_eq!(target(&prefix("", "/public"), "/a/../../etc?x"), "/public/etc?x");
        assert_eq!(target(&prefix("", "/public"), "/%2e%2e/etc"), "/public/etc");
    }

    #[test]
    fn templates_keep_the_query_unless_they_have_one() {
        let new = template("/old/**", "/new/{1}");
        assert_eq!(target(&new, "/old/a/b?q=1"), "/new/a/b?q=1");
        assert_eq!(target(&new, "/old"), "/new/");
        assert_eq!(target(&template("/old/**", "/new?id={1}"), "/old/a?q=1"), "/new?id=a");
        assert_eq!(target(&template("/old/**", "/new?"), "/old/a?q=1"), "/new");
    }

    #[test]
    fn values_begin_no_argument_and_lead_out_of_no_directory() {
        let id = template("/old/*", "/new?id={1}&x=1");
        assert_eq!(target(&id, "/old/a%26x=2+%23"), "/new?id=a%26x%3D2%2B%23&x=1");
        let public = template("/**", "/public{path}");
        assert_eq!(target(&public, "/../secret"), "/public/secret");
        assert_eq!(target(&public, "/%2e%2e/secret"), "/public/secret");
        assert_eq!(target(&template("/**", "/public/{header.x-a}"), "/"), "/public");
        assert_eq!(target(&template("/**", "/{1}"), "/%2Fevil.test/x"), "/evil.test/x");
    }

    #[test]
    fn a_name_may_begin_with_a_dot() {
        assert_eq!(
            target(&template("/**", "/public{path}"), "/.well-known/x"),
            "/public/.well-known/x"
        );
        assert_eq!(target(&template("/a**", "/{1}"), "/a.html"), "/.html");
        assert_eq!(target(&template("/a**", "/{1}"), "/a/b"), "/b");
    }

    proptest! {
        #[test]
        fn every_target_is_a_path_below_the_fixed_beginning(asked in "/[a%2eEfF./?]{0,16}") {
            for rewrite in [prefix("/a", "/public"), template("/**", "/public/{1}")] {
                let target = target(&rewrite, &asked);
                let path = target.split('?').next().unwrap();
                prop_assert!(target.parse::<http::Uri>().is_ok(), "{target}");
                prop_assert!(normal_path(path).starts_with("/public"), "{target}");
                prop_assert!(!target.starts_with("//"));
            }
        }
    }
}
