//! The matchers of one route.

use http::{HeaderName, Method};
use levada_types::AddressPrefix;

use crate::{Expression, PathPattern, PathRegex, RequestFacts, Scheme, TextPattern};

/// The matchers of one route. All must hold; of a list, one value must hold. An empty list holds always.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Patterns of the path.
    pub paths: Vec<PathPattern>,
    /// An expression that is found in the path.
    pub path_regex: Option<PathRegex>,
    /// Patterns of the host.
    pub hosts: Vec<TextPattern>,
    /// The scheme of the client's connection.
    pub scheme: Option<Scheme>,
    /// Methods.
    pub methods: Vec<Method>,
    /// Header fields.
    pub headers: Vec<(HeaderName, FieldPattern)>,
    /// Arguments of the query.
    pub query: Vec<(String, FieldPattern)>,
    /// Cookies.
    pub cookies: Vec<(String, FieldPattern)>,
    /// Prefixes of the client's address.
    pub clients: Vec<AddressPrefix>,
    /// An expression.
    pub when: Option<Expression>,
    /// Only internal redirects lead to it.
    pub internal: bool,
}

/// The value that a field, an argument or a cookie must have.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldPattern {
    /// Any.
    Present,
    /// There must be none.
    Absent,
    /// One that matches.
    Value(TextPattern),
}

impl FieldPattern {
    fn holds(&self, value: Option<&[u8]>) -> bool {
        match (self, value) {
            (Self::Present, value) => value.is_some(),
            (Self::Absent, value) => value.is_none(),
            (Self::Value(pattern), Some(value)) => pattern.matches(value),
            (Self::Value(_), None) => false,
        }
    }
}

/// A matcher, by its key in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `path`
    Path,
    /// `path_regex`
    PathRegex,
    /// `host`
    Host,
    /// `scheme`
    Scheme,
    /// `method`
    Method,
    /// `header`
    Header,
    /// `query`
    Query,
    /// `cookie`
    Cookie,
    /// `client`
    Client,
    /// `when`
    When,
    /// `internal`
    Internal,
}

impl Condition {
    /// As it stands in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::PathRegex => "path_regex",
            Self::Host => "host",
            Self::Scheme => "scheme",
            Self::Method => "method",
            Self::Header => "header",
            Self::Query => "query",
            Self::Cookie => "cookie",
            Self::Client => "client",
            Self::When => "when",
            Self::Internal => "internal",
        }
    }
}

impl Conditions {
    /// Whether all of them hold.
    pub fn hold(&self, facts: &RequestFacts<'_>) -> bool {
        self.first_that_fails(facts).is_none()
    }

    /// The first matcher that does not hold; the cheap ones first.
    pub fn first_that_fails(&self, facts: &RequestFacts<'_>) -> Option<Condition> {
        let of_list = |empty: bool, any: bool| empty || any;
        let checks: [(Condition, &dyn Fn() -> bool); 11] = [
            (Condition::Internal, &|| !self.internal || (facts.internal && self.are_some())),
            (Condition::Method, &|| {
                of_list(self.methods.is_empty(), self.methods.contains(facts.method))
            }),
            (Condition::Scheme, &|| self.scheme.is_none_or(|scheme| scheme == facts.scheme)),
            (Condition::Host, &|| {
                let host = facts.host_name().as_bytes();
                of_list(self.hosts.is_empty(), self.hosts.iter().any(|own| own.matches(host)))
            }),
            (Condition::Path, &|| {
                let matches = |own: &PathPattern| own.matches(&facts.path);
                of_list(self.paths.is_empty(), self.paths.iter().any(matches))
            }),
            (Condition::Client, &|| {
                let contains = |own: &AddressPrefix| own.contains(facts.client);
                of_list(self.clients.is_empty(), self.clients.iter().any(contains))
            }),
            (Condition::Header, &|| {
                self.headers.iter().all(|(name, wanted)| {
                    let mut values = facts.headers.get_all(name).iter().map(|v| v.as_bytes());
                    match wanted {
                        FieldPattern::Value(pattern) => values.any(|v| pattern.matches(v)),
                        other => other.holds(values.next()),
                    }
                })
            }),
            (Condition::Query, &|| {
                let holds = |(name, wanted): &(String, FieldPattern)| {
                    wanted.holds(facts.argument(name).map(str::as_bytes))
                };
                self.query.iter().all(holds)
            }),
            (Condition::Cookie, &|| {
                self.cookies.iter().all(|(name, wanted)| wanted.holds(facts.cookie(name)))
            }),
            (Condition::PathRegex, &|| {
                self.path_regex.as_ref().is_none_or(|own| own.matches(&facts.path))
            }),
            (Condition::When, &|| self.when.as_ref().is_none_or(|own| own.holds(facts))),
        ];
        checks.iter().find(|(_, holds)| !holds()).map(|(condition, _)| *condition)
    }

    /// The number of captures that every request has: those of the expression, or else one for each star.
    pub fn captures(&self) -> usize {
        match &self.path_regex {
            Some(regex) => regex.captures(),
            None => self.paths.iter().map(PathPattern::captures).min().unwrap_or(0),
        }
    }

    /// The parts of the path that are captured.
    pub(crate) fn capture<'f>(&self, facts: &'f RequestFacts<'_>) -> Vec<&'f str> {
        let captured = match &self.path_regex {
            Some(regex) => regex.capture(&facts.path),
            None => self.paths.iter().find_map(|path| path.capture(&facts.path)),
        };
        captured.unwrap_or_default()
    }

    /// Whether there are matchers. An internal route without any is reached by its name alone.
    fn are_some(&self) -> bool {
        *self != Self { internal: self.internal, ..Self::default() }
    }

    /// Whether a request's path alone decides.
    fn is_about_path_only(&self) -> bool {
        self.path_regex.is_none()
            && self.hosts.is_empty()
            && self.scheme.is_none()
            && self.methods.is_empty()
            && self.headers.is_empty()
            && self.query.is_empty()
            && self.cookies.is_empty()
            && self.clients.is_empty()
            && self.when.is_none()
            && !self.internal
    }

    /// Whether every request that `other` takes is taken by this one first, as far as that is easy to say.
    pub fn covers(&self, other: &Self) -> bool {
        if !self.is_about_path_only() {
            return false;
        }
        let covered = |path: &PathPattern| self.paths.iter().any(|own| own.covers(path));
        self.paths.is_empty() || (!other.paths.is_empty() && other.paths.iter().all(covered))
    }
}
