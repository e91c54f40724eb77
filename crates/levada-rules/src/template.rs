//! Texts with variables: `https://{host}/new/{1}`.

use http::HeaderName;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::{Conditions, RequestFacts};

/// A text with variables in braces. Two braces stand for one.
#[derive(Clone, Debug)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Variable(Variable),
}

#[derive(Clone, Debug)]
enum Variable {
    Client,
    Host,
    Scheme,
    Path,
    Query,
    Uri,
    Method,
    Header(HeaderName),
    Cookie(String),
    Capture(usize),
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A brace has no counterpart.
    #[error("has a brace without its counterpart")]
    Brace,
    /// There is no such variable.
    #[error("there is no variable {{{0}}}")]
    Unknown(String),
    /// The route has no such capture.
    #[error("there is no capture {{{name}}}: the path of the route has {captures}")]
    NoCapture {
        /// The capture that is named.
        name: String,
        /// The number of captures that there are.
        captures: usize,
    },
}

/// The variables, for errors.
pub const VARIABLES: &str = "client, host, scheme, path, query, uri, method, header.NAME, cookie.NAME, \
                             and captures such as {1}";

impl Template {
    /// Reads a template of the route with these matchers.
    ///
    /// # Errors
    /// If a brace or a variable is wrong.
    pub fn parse(text: &str, route: &Conditions) -> Result<Self, TemplateError> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            let (name, after) = rest
                .split_once('}')
                .filter(|(name, _)| brace == "{" && !name.contains('{'))
                .ok_or(TemplateError::Brace)?;
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(Part::Variable(variable(name, route)?));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self { parts })
    }

    /// The text, if it has no variables.
    pub(crate) fn fixed(&self) -> Option<&str> {
        match &self.parts[..] {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether it is the URI that the client asked for, and nothing else.
    pub(crate) fn is_same_uri(&self) -> bool {
        matches!(&self.parts[..], [Part::Variable(Variable::Uri)])
    }

    /// The text as a URL. Values are escaped where a URL does not allow them, so that none of them can
    /// begin another header field.
    pub fn url(&self, route: &Conditions, facts: &RequestFacts<'_>) -> String {
        let captures = route.capture(facts);
        let mut url = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => url.push_str(text),
                Part::Variable(variable) => {
                    let value = variable.value(facts, &captures);
                    let set = if variable.is_encoded() { ENCODED } else { DECODED };
                    url.extend(utf8_percent_encode(&value, set));
                }
            }
        }
        url
    }
}

fn variable(name: &str, route: &Conditions) -> Result<Variable, TemplateError> {
    let unknown = || TemplateError::Unknown(name.to_owned());
    if let Some(header) = name.strip_prefix("header.") {
        return HeaderName::try_from(header).map(Variable::Header).map_err(|_| unknown());
    }
    if let Some(cookie) = name.strip_prefix("cookie.").filter(|cookie| !cookie.is_empty()) {
        return Ok(Variable::Cookie(cookie.to_owned()));
    }
    Ok(match name {
        "client" => Variable::Client,
        "host" => Variable::Host,
        "scheme" => Variable::Scheme,
        "path" => Variable::Path,
        "query" => Variable::Query,
        "uri" => Variable::Uri,
        "method" => Variable::Method,
        _ => {
            let named = || route.path_regex.as_ref().and_then(|regex| regex.named(name));
            let captures = route.captures();
            match name.parse::<usize>().ok().or_else(named) {
                Some(number) if (1..=captures).contains(&number) => Variable::Capture(number - 1),
                Some(_) => {
                    return Err(TemplateError::NoCapture { name: name.to_owned(), captures });
                }
                None => return Err(unknown()),
            }
        }
    })
}

impl Variable {
    fn value(&self, facts: &RequestFacts<'_>, captures: &[&str]) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            Self::Client => facts.client.to_string(),
            Self::Host => facts.host.to_owned(),
            Self::Scheme => facts.scheme.as_str().to_owned(),
            Self::Path => facts.target.split('?').next().unwrap_or_default().to_owned(),
            Self::Query => facts.query().to_owned(),
            Self::Uri => facts.target.to_owned(),
            Self::Method => facts.method.to_string(),
            Self::Header(name) => {
                text(facts.headers.get(name).map_or(b"", |value| value.as_bytes()))
            }
            Self::Cookie(name) => text(facts.cookie(name).unwrap_or_default()),
            Self::Capture(number) => captures.get(*number).copied().unwrap_or_default().to_owned(),
        }
    }

    /// Whether the value is a part of a URL already.
    fn is_encoded(&self) -> bool {
        matches!(self, Self::Host | Self::Scheme | Self::Path | Self::Query | Self::Uri)
    }
}

/// Bytes that no URL has (RFC 3986 Sec. 2).
const ENCODED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Those, and what would end the path that a decoded value is put into.
const DECODED: &AsciiSet = &ENCODED.add(b'%').add(b'?').add(b'#').add(b'[').add(b']');

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method};

    use super::*;
    use crate::{PathPattern, PathRegex, Scheme};

    fn route(path: &str) -> Conditions {
        Conditions { paths: vec![PathPattern::parse(path).unwrap()], ..Conditions::default() }
    }

    fn url(route: &Conditions, template: &str, target: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert("x-a", HeaderValue::from_bytes(b"a\tb %0d?").unwrap());
        headers.insert("cookie", HeaderValue::from_static("c=1; d=2"));
        let client = "192.0.2.1".parse().unwrap();
        let place = (Scheme::Http, "www.example.com");
        let facts = RequestFacts::new(client, place, (&Method::GET, target), &headers);
        Template::parse(template, route).unwrap().url(route, &facts)
    }

    #[test]
    fn variables_are_those_of_the_request() {
        let old = route("/old/**");
        let https = "https://www.example.com/old/a?b=%20";
        assert_eq!(url(&old, "https://{host}{uri}", "/old/a?b=%20"), https);
        assert_eq!(url(&old, "/new/{1}?{query}", "/old/a/b?c"), "/new/a/b?c");
        assert_eq!(url(&old, "/{client}/{method}/{cookie.d}", "/old"), "/192.0.2.1/GET/2");
        assert_eq!(url(&old, "/{{x}}", "/old"), "/{x}");
        let regex = PathRegex::parse("^/u/(?<id>[0-9]+)/(.*)$").unwrap();
        let named = Conditions { path_regex: Some(regex), ..Conditions::default() };
        assert_eq!(url(&named, "/user/{id}/{2}", "/u/7/x"), "/user/7/x");
    }

    #[test]
    fn values_cannot_begin_another_header_field_or_name_another_host() {
        let old = route("/old/**");
        assert_eq!(url(&old, "/{1}", "/old/a%0d%0aSet-Cookie:x"), "/a%0D%0ASet-Cookie:x");
        assert_eq!(url(&old, "/{1}", "/old/%2F%2Fevil.example"), "/evil.example");
        assert_eq!(url(&old, "/{1}", "/old/%5Cevil%3Fa%23b"), "/%5Cevil%3Fa%23b");
        assert_eq!(url(&old, "/{header.X-A}", "/old"), "/a%09b%20%250d%3F");
    }

    #[test]
    fn unknown_variables_and_captures_are_errors() {
        let old = route("/old/**");
        let error = |text| Template::parse(text, &old).unwrap_err();
        assert_eq!(error("{hots}"), TemplateError::Unknown("hots".to_owned()));
        assert_eq!(error("{2}"), TemplateError::NoCapture { name: "2".to_owned(), captures: 1 });
        assert_eq!(error("{0}"), TemplateError::NoCapture { name: "0".to_owned(), captures: 1 });
        assert_eq!(error("{header.a b}"), TemplateError::Unknown("header.a b".to_owned()));
        for text in ["{host", "host}", "{a{b}}"] {
            assert_eq!(error(text), TemplateError::Brace, "{text}");
        }
    }
}
