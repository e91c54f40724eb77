//! Texts with variables and expressions: `https://{host}/new/{1}`, `{= size(request.path)}`.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::{
    Conditions, CountryLookup, Expression, ExpressionError, Mapping, Mappings, Purpose,
    RequestFacts,
};

/// The field with the identifier of a request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A text with variables in braces. Two braces stand for one.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    parts: Vec<Part>,
    /// The route whose captures it has.
    route: Option<Arc<Conditions>>,
}

#[derive(Clone, Debug, PartialEq)]
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
    QueryPart,
    Uri,
    Method,
    Header(HeaderName),
    Cookie(String),
    Argument(String),
    Mapped(Arc<Mapping>),
    Status,
    Response(HeaderName),
    Country(Arc<dyn CountryLookup>),
    Cache,
    Capture(usize),
    Expression(Expression),
}

impl PartialEq for Variable {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Header(one), Self::Header(other)) => one == other,
            (Self::Cookie(one), Self::Cookie(other)) => one == other,
            (Self::Argument(one), Self::Argument(other)) => one == other,
            (Self::Mapped(one), Self::Mapped(other)) => one == other,
            (Self::Response(one), Self::Response(other)) => one == other,
            (Self::Country(one), Self::Country(other)) => one.version() == other.version(),
            (Self::Capture(one), Self::Capture(other)) => one == other,
            (Self::Expression(one), Self::Expression(other)) => one == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// The place of a template, which decides what it can name.
#[derive(Clone, Copy, Debug)]
pub struct TemplateScope<'a> {
    /// The matchers of its route.
    pub route: &'a Conditions,
    /// The text that it makes.
    pub kind: TemplateKind,
    /// The countries of addresses, where they are known.
    pub countries: Option<&'a Arc<dyn CountryLookup>>,
    /// The variables of the operator.
    pub mappings: &'a Mappings,
}

/// The facts of a response before its fields are edited.
#[derive(Clone, Copy, Debug)]
pub struct ResponseFacts<'a> {
    /// The result of the cache.
    pub cache: &'a str,
    /// Its status.
    pub status: StatusCode,
    /// Its fields.
    pub headers: &'a HeaderMap,
}

/// The kind of text that a template makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateKind {
    /// A URL.
    Url,
    /// A field of the request to the origin.
    RequestField,
    /// A field of the response to the client.
    ResponseField,
}

impl TemplateKind {
    /// Its variables, for errors.
    pub fn variables(self) -> &'static str {
        match self {
            Self::Url => {
                "client, host, scheme, path, query, ?query, uri, method, country, header.NAME, \
                 cookie.NAME, arg.NAME, vars.NAME, and captures such as {1}"
            }
            Self::RequestField => {
                "client, host, scheme, path, query, ?query, uri, method, country, request_id, \
                 header.NAME, cookie.NAME, arg.NAME, vars.NAME, and captures such as {1}"
            }
            Self::ResponseField => {
                "client, host, scheme, path, query, ?query, uri, method, country, request_id, cache, \
                 status, response.NAME, header.NAME, cookie.NAME, arg.NAME, vars.NAME, and captures \
                 such as {1}"
            }
        }
    }
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
    /// An expression in it is wrong.
    #[error("{{= ...}} {0}")]
    Expression(ExpressionError),
    /// The countries of addresses are not known.
    #[error("has {{country}}, and there is no `country_database`")]
    NoCountries,
    /// The route has no such capture.
    #[error("there is no capture {{{name}}}: the path of the route has {captures}")]
    NoCapture {
        /// The capture that is named.
        name: String,
        /// The number of captures that there are.
        captures: usize,
    },
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// If a brace or a variable is wrong.
    pub fn parse(text: &str, scope: &TemplateScope<'_>) -> Result<Self, TemplateError> {
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
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            let (variable, after) = match rest.strip_prefix('=').filter(|_| brace == "{") {
                Some(within) => {
                    let end = expression_end(within).ok_or(TemplateError::Brace)?;
                    (expression(&within[..end], scope)?, &within[end + 1..])
                }
                None => {
                    let (name, after) = rest
                        .split_once('}')
                        .filter(|(name, _)| brace == "{" && !name.contains('{'))
                        .ok_or(TemplateError::Brace)?;
                    (variable(name, scope)?, after)
                }
            };
            parts.push(Part::Variable(variable));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        let captures = |part: &Part| matches!(part, Part::Variable(Variable::Capture(_)));
        let route = parts.iter().any(captures).then(|| Arc::new(scope.route.clone()));
        Ok(Self { parts, route })
    }

    /// The expressions in it.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(Variable::Expression(expression)) => Some(expression),
            _ => None,
        })
    }

    /// The mappings in it.
    pub(crate) fn mappings(&self) -> impl Iterator<Item = &Arc<Mapping>> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(Variable::Mapped(mapping)) => Some(mapping),
            _ => None,
        })
    }

    /// Whether it has expressions.
    pub fn has_expressions(&self) -> bool {
        self.expressions().next().is_some()
    }

    /// The plain text for a request.
    pub fn text(&self, facts: &RequestFacts<'_>) -> String {
        self.text_with(facts, |value| value)
    }

    /// The same where each value is changed before it is put in.
    pub fn text_with(&self, facts: &RequestFacts<'_>, change: impl Fn(String) -> String) -> String {
        if let Some(text) = self.fixed() {
            return text.to_owned();
        }
        let captures = self.captures(facts);
        let texts = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Variable(variable) => {
                change(variable.value(facts, &captures).unwrap_or_default())
            }
        });
        texts.collect()
    }

    /// The text, if it has no variables.
    pub(crate) fn fixed(&self) -> Option<&str> {
        match &self.parts[..] {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text before the first variable and a query.
    pub(crate) fn beginning(&self) -> &str {
        match self.parts.first() {
            Some(Part::Text(text)) => text.split('?').next().unwrap_or_default(),
            _ => "",
        }
    }

    /// Whether it is the URI that the client asked for, and nothing else.
    pub(crate) fn is_same_uri(&self) -> bool {
        matches!(&self.parts[..], [Part::Variable(Variable::Uri)])
    }

    /// Whether it has the identifier of the request.
    pub(crate) fn uses_request_id(&self) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Variable(Variable::Header(name)) => *name == REQUEST_ID,
            _ => false,
        })
    }

    /// The text as a URL. Values are escaped where a URL does not allow them, so that none of them can
    /// begin another header field.
    pub fn url(&self, facts: &RequestFacts<'_>) -> String {
        let captures = self.captures(facts);
        let mut url = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => url.push_str(text),
                // The operator writes its values as parts of a URL.
                Part::Variable(Variable::Mapped(mapping)) if !url.contains('?') => {
                    url.push_str(&mapping.choose(facts).url(facts));
                }
                Part::Variable(variable) => {
                    let value = variable.value(facts, &captures);
                    let set = match variable.is_encoded() {
                        true if url.contains('?') => ENCODED,
                        true if matches!(variable, Variable::Argument(_)) => ARGUMENT_IN_PATH,
                        true => ENCODED,
                        false if url.contains('?') => ARGUMENT,
                        false => DECODED,
                    };
                    url.extend(utf8_percent_encode(&value.unwrap_or_default(), set));
                }
            }
        }
        url
    }

    /// The same text with the values of this request. Only those of the response are left, which are not known
    /// yet.
    pub(crate) fn bind(&self, facts: &RequestFacts<'_>) -> Self {
        let captures = self.captures(facts);
        let bound = self.parts.iter().map(|part| match part {
            Part::Variable(variable) => match variable.value(facts, &captures) {
                Some(value) => Part::Text(value),
                None => part.clone(),
            },
            Part::Text(_) => part.clone(),
        });
        Self { parts: bound.collect(), route: None }
    }

    /// A bound text as the value of a header field; `None` if it is empty. Control characters become spaces
    /// (RFC 9110 Sec. 5.5), so that a value cannot begin another field.
    pub(crate) fn field(&self, response: Option<&ResponseFacts<'_>>) -> Option<HeaderValue> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(own) => text.push_str(own),
                Part::Variable(variable) => {
                    text.extend(response.map(|response| variable.of_response(response)));
                }
            }
        }
        let text: String =
            text.chars().map(|c| if c.is_ascii_control() { ' ' } else { c }).collect();
        let text = text.trim();
        if text.is_empty() { None } else { HeaderValue::try_from(text).ok() }
    }

    /// Whether it has no variables but those of the response.
    pub(crate) fn is_bound(&self) -> bool {
        let bound = |part: &Part| match part {
            Part::Text(_) => true,
            Part::Variable(variable) => variable.is_of_response(),
        };
        self.parts.iter().all(bound)
    }

    fn captures<'f>(&self, facts: &'f RequestFacts<'_>) -> Vec<&'f str> {
        self.route.as_ref().map_or_else(Vec::new, |route| route.capture(facts))
    }
}

fn variable(name: &str, scope: &TemplateScope<'_>) -> Result<Variable, TemplateError> {
    let (route, kind) = (scope.route, scope.kind);
    let unknown = || TemplateError::Unknown(name.to_owned());
    if let Some(header) = name.strip_prefix("header.") {
        return HeaderName::try_from(header).map(Variable::Header).map_err(|_| unknown());
    }
    if let Some(cookie) = name.strip_prefix("cookie.").filter(|cookie| !cookie.is_empty()) {
        return Ok(Variable::Cookie(cookie.to_owned()));
    }
    if let Some(argument) = name.strip_prefix("arg.").filter(|argument| !argument.is_empty()) {
        return Ok(Variable::Argument(argument.to_owned()));
    }
    if let Some(mapping) = name.strip_prefix("vars.") {
        return scope.mappings.get(mapping).cloned().map(Variable::Mapped).ok_or_else(unknown);
    }
    if let Some(header) = name.strip_prefix("response.") {
        let header =
            HeaderName::try_from(header).ok().filter(|_| kind == TemplateKind::ResponseField);
        return header.map(Variable::Response).ok_or_else(unknown);
    }
    Ok(match name {
        "client" => Variable::Client,
        "host" => Variable::Host,
        "scheme" => Variable::Scheme,
        "path" => Variable::Path,
        "query" => Variable::Query,
        "?query" => Variable::QueryPart,
        "uri" => Variable::Uri,
        "method" => Variable::Method,
        "country" => Variable::Country(scope.countries.ok_or(TemplateError::NoCountries)?.clone()),
        "request_id" if kind != TemplateKind::Url => Variable::Header(REQUEST_ID),
        "cache" if kind == TemplateKind::ResponseField => Variable::Cache,
        "status" if kind == TemplateKind::ResponseField => Variable::Status,
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

/// The place of the brace that ends an expression: outside of its texts and maps.
fn expression_end(text: &str) -> Option<usize> {
    let (mut depth, mut quote, mut escaped) = (0, None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '{') => depth += 1,
            (None, '}') if depth == 0 => return Some(at),
            (None, '}') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

fn expression(source: &str, scope: &TemplateScope<'_>) -> Result<Variable, TemplateError> {
    let (source, countries) = (source.trim(), scope.countries.cloned());
    let place = "{= ...}".to_owned();
    let parsed = Expression::parse(source, Purpose::Value, place, countries, scope.mappings);
    parsed.map(Variable::Expression).map_err(|error| match error {
        ExpressionError::NoCountries => TemplateError::NoCountries,
        error => TemplateError::Expression(error),
    })
}

impl Variable {
    /// Its value, unless that is known only with the response.
    fn value(&self, facts: &RequestFacts<'_>, captures: &[&str]) -> Option<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(match self {
            Self::Client => facts.client.to_string(),
            Self::Host => facts.host.to_owned(),
            Self::Scheme => facts.scheme.as_str().to_owned(),
            Self::Path => facts.target.split('?').next().unwrap_or_default().to_owned(),
            Self::Query => facts.query().to_owned(),
            Self::QueryPart => match facts.query() {
                "" => String::new(),
                query => format!("?{query}"),
            },
            Self::Uri => facts.target.to_owned(),
            Self::Method => facts.method.to_string(),
            Self::Header(name) => {
                text(facts.headers.get(name).map_or(b"", |value| value.as_bytes()))
            }
            Self::Cookie(name) => text(facts.cookie(name).unwrap_or_default()),
            Self::Country(countries) => countries.country(facts.client).unwrap_or_default(),
            Self::Capture(number) => captures.get(*number).copied().unwrap_or_default().to_owned(),
            Self::Expression(expression) => expression.text(facts),
            Self::Argument(name) => facts.argument(name).unwrap_or_default().to_owned(),
            Self::Mapped(mapping) => mapping.value(facts),
            Self::Cache | Self::Status | Self::Response(_) => return None,
        })
    }

    /// Whether its value is known only with the response.
    fn is_of_response(&self) -> bool {
        matches!(self, Self::Cache | Self::Status | Self::Response(_))
    }

    /// Its value, if it is known only with the response.
    fn of_response(&self, response: &ResponseFacts<'_>) -> String {
        match self {
            Self::Cache => response.cache.to_owned(),
            Self::Status => response.status.as_str().to_owned(),
            Self::Response(name) => {
                let value = response.headers.get(name).map_or(&b""[..], |value| value.as_bytes());
                String::from_utf8_lossy(value).into_owned()
            }
            _ => String::new(),
        }
    }

    /// Whether the value is a part of a URL already.
    fn is_encoded(&self) -> bool {
        matches!(
            self,
            Self::Host
                | Self::Scheme
                | Self::Path
                | Self::Query
                | Self::QueryPart
                | Self::Uri
                | Self::Argument(_)
        )
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

/// The same, and bytes that would begin a query in the path that an argument is put into as the client wrote it.
const ARGUMENT_IN_PATH: &AsciiSet = &ENCODED.add(b'?').add(b'#');

/// Those, and what would end the path that a decoded value is put into.
pub(crate) const DECODED: &AsciiSet = &ENCODED.add(b'%').add(b'?').add(b'#').add(b'[').add(b']');

/// Those, and what would end the argument that it is put into.
const ARGUMENT: &AsciiSet = &DECODED.add(b'&').add(b'=').add(b'+');

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
        parse(template, route, TemplateKind::Url).unwrap().url(&facts)
    }

    fn parse(
        text: &str,
        route: &Conditions,
        kind: TemplateKind,
    ) -> Result<Template, TemplateError> {
        Template::parse(
            text,
            &TemplateScope { route, kind, countries: None, mappings: &Mappings::new() },
        )
    }

    #[test]
    fn variables_are_those_of_the_request() {
        let old = route("/old/**");
        let https = "https://www.example.com/old/a?b=%20";
        assert_eq!(url(&old, "https://{host}{uri}", "/old/a?b=%20"), https);
        assert_eq!(url(&old, "/new/{1}?{query}", "/old/a/b?c"), "/new/a/b?c");
        assert_eq!(url(&old, "/new{?query}", "/old/a?c=%20"), "/new?c=%20");
        assert_eq!(url(&old, "/new{?query}", "/old/a"), "/new");
        assert_eq!(url(&old, "/new{?query}", "/old/a?"), "/new");
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
    fn expressions_end_at_their_own_brace() {
        let old = route("/old/**");
        let device =
            "/{= {'a b': 'm}', 'x': 'd'}[request.headers['x-a'].matches('b') ? 'a b' : 'x']}/{1}";
        assert_eq!(url(&old, device, "/old/z"), "/m%7D/z");
        assert_eq!(url(&old, "/{= size(request.path) > 3 ? \"l\" : 's'}", "/old"), "/l");
        assert_eq!(url(&old, "/a{= request.cookies['none']}", "/old"), "/a");
        let error = |text| parse(text, &old, TemplateKind::Url).unwrap_err();
        assert_eq!(error("{= 'a"), TemplateError::Brace);
        assert!(matches!(error("{= request.pth}"), TemplateError::Expression(_)));
        assert!(matches!(error("{= ['a']}"), TemplateError::Expression(_)));
        assert_eq!(error("{= source.country}"), TemplateError::NoCountries);
    }

    #[test]
    fn unknown_variables_and_captures_are_errors() {
        let old = route("/old/**");
        let error = |text| parse(text, &old, TemplateKind::Url).unwrap_err();
        assert_eq!(error("{hots}"), TemplateError::Unknown("hots".to_owned()));
        assert_eq!(error("{2}"), TemplateError::NoCapture { name: "2".to_owned(), captures: 1 });
        assert_eq!(error("{0}"), TemplateError::NoCapture { name: "0".to_owned(), captures: 1 });
        assert_eq!(error("{header.a b}"), TemplateError::Unknown("header.a b".to_owned()));
        assert_eq!(error("{cache}"), TemplateError::Unknown("cache".to_owned()));
        assert_eq!(error("{country}"), TemplateError::NoCountries);
        for text in ["{host", "host}", "{a{b}}"] {
            assert_eq!(error(text), TemplateError::Brace, "{text}");
        }
    }
}
