//! A rule: which requests of a host it takes, and what becomes of them. It is what Ingress and HTTPRoute have in common.

use std::{cmp::Reverse, collections::BTreeSet};

use toml::{Table, Value};

use crate::resources::Owner;

/// A rule of one host.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) owner: Owner,
    /// In lower case: a name, `*.` and a name, or `*`.
    pub(crate) host: String,
    /// Whether `*.` of the host stands for one label only.
    pub(crate) one_label: bool,
    /// `http` or `https`; `None`: both.
    pub(crate) scheme: Option<&'static str>,
    pub(crate) condition: Condition,
    pub(crate) action: Action,
}

/// The requests that a rule takes: all of these must hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    pub(crate) path: Path,
    pub(crate) method: Option<String>,
    pub(crate) headers: Vec<(String, Text)>,
    pub(crate) query: Vec<(String, Text)>,
    /// After all others, whatever their paths.
    pub(crate) is_last: bool,
}

/// A condition of the path.
#[derive(Clone, Debug)]
pub(crate) enum Path {
    Exact(String),
    /// Whole segments.
    Prefix(String),
    Regex(String),
}

/// A condition of a text.
#[derive(Clone, Debug)]
pub(crate) enum Text {
    Exact(String),
    Regex(String),
}

/// The fate of the requests.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// The keys of a route, and the endpoints that its origin stands for.
    Does(Table, Option<Endpoints>),
    /// It cannot be carried out: a response with this status.
    Closed(u16),
    /// Not even the condition can be expressed: the same for all requests of the host.
    ClosesHost(u16),
}

/// The endpoints of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Endpoints {
    pub(crate) namespace: String,
    pub(crate) service: String,
    /// Empty: the only port.
    pub(crate) port: String,
}

impl Default for Path {
    fn default() -> Self {
        Self::Prefix("/".to_owned())
    }
}

impl Path {
    fn text(&self) -> &str {
        match self {
            Self::Exact(path) | Self::Prefix(path) | Self::Regex(path) => path,
        }
    }

    /// The key of a route and its value: a pattern, unless a star of the path would be one of the pattern.
    fn matcher(&self) -> (&'static str, String) {
        match self {
            Self::Exact(path) if !path.contains('*') => ("path", path.clone()),
            Self::Prefix(path) if !path.contains('*') => {
                ("path", format!("{}/**", path.trim_end_matches('/')))
            }
            _ => ("path_regex", self.regex()),
        }
    }

    /// The regular expression of the whole path. What follows a prefix, with its slash, is called `rest`.
    pub(crate) fn regex(&self) -> String {
        match self {
            Self::Exact(path) => format!("^{}$", regex::escape(path)),
            Self::Prefix(path) => {
                format!("^{}(?<rest>/.*)?$", regex::escape(path.trim_end_matches('/')))
            }
            Self::Regex(path) => format!("^(?:{path})$"),
        }
    }
}

impl Endpoints {
    /// The name of the source. It is no longer than names may be.
    pub(crate) fn name(&self) -> String {
        let name = format!("{}.{}.{}", self.namespace, self.service, self.port);
        let name = name.trim_end_matches('.').to_owned();
        if name.len() <= LONGEST_NAME {
            return name;
        }
        let hash = levada_types::hash64(name.as_bytes());
        format!("{}-{hash:016x}", &name[..LONGEST_NAME - 17])
    }

    /// The table of the source. `access` has the keys that say how the API server is reached.
    pub(crate) fn source(&self, access: &Table) -> Table {
        let mut kubernetes = access.clone();
        kubernetes.insert("service".into(), self.service.clone().into());
        kubernetes.insert("namespace".into(), self.namespace.clone().into());
        if !self.port.is_empty() {
            kubernetes.insert("port".into(), self.port.clone().into());
        }
        Table::from_iter([
            ("name".to_owned(), self.name().into()),
            ("kubernetes".to_owned(), kubernetes.into()),
        ])
    }
}

/// The longest name of a source or a route.
const LONGEST_NAME: usize = 64;

impl Rule {
    /// The order of rules: the first one that holds counts.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        let Condition { path, method, headers, query, is_last } = &self.condition;
        let is_exact = matches!(path, Path::Exact(_));
        (
            *is_last,
            Reverse((is_exact, path.text().trim_end_matches('/').len())),
            Reverse((method.is_some(), headers.len(), query.len())),
            self.owner.clone(),
        )
    }

    /// The route of a site, with its number there.
    pub(crate) fn route(&self, number: usize) -> Table {
        let mut route = match &self.action {
            Action::Does(keys, endpoints) => {
                let origin =
                    endpoints.as_ref().map(|one| format!("http://discovery:{}", one.name()));
                let origin = origin.map(|url| ("origin".to_owned(), url.into()));
                keys.clone().into_iter().chain(origin).collect()
            }
            Action::Closed(status) | Action::ClosesHost(status) => {
                responds(*status, "this rule cannot be carried out")
            }
        };
        let name = format!("{number} {}/{}", self.owner.namespace, self.owner.name);
        route.insert("name".into(), name.chars().take(LONGEST_NAME).collect::<String>().into());
        // An action that needs the rest of the path has the expression already.
        if !route.contains_key("path_regex") {
            let (key, value) = self.condition.path.matcher();
            route.insert(key.into(), value.into());
        }
        if let Some(method) = &self.condition.method {
            route.insert("method".into(), method.clone().into());
        }
        if let Some(scheme) = self.scheme {
            route.insert("scheme".into(), scheme.into());
        }
        if let Some(when) = self.when() {
            route.insert("when".into(), when.into());
        }
        route
    }

    /// The conditions that are an expression.
    fn when(&self) -> Option<String> {
        let one_label = self.host.strip_prefix("*.").filter(|_| self.one_label).map(|rest| {
            let host = format!("[^.]+\\.{}", regex::escape(rest));
            compared("request.host", &Text::Regex(host))
        });
        let Condition { headers, query, .. } = &self.condition;
        let header = |(name, text): &(String, Text)| {
            let name = literal(&name.to_ascii_lowercase());
            // An absent field has the empty text, which a pattern may match.
            let value = compared(&format!("request.headers[{name}]"), text);
            format!("{name} in request.headers && {value}")
        };
        let argument = |(name, text): &(String, Text)| {
            let name = literal(name);
            let value = compared(&format!("request.query_params[{name}]"), text);
            format!("{name} in request.query_params && {value}")
        };
        let all: Vec<_> = one_label
            .into_iter()
            .chain(headers.iter().map(header))
            .chain(query.iter().map(argument))
            .collect();
        (!all.is_empty()).then(|| all.join(" && "))
    }
}

fn compared(fact: &str, text: &Text) -> String {
    match text {
        Text::Exact(text) => format!("{fact} == {}", literal(text)),
        Text::Regex(text) => format!("{fact}.matches({})", literal(&format!("^(?:{text})$"))),
    }
}

/// A text of an expression.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A text of a template: braces stand for themselves.
pub(crate) fn plain(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

/// The keys of a route with a fixed response.
pub(crate) fn responds(status: u16, body: &str) -> Table {
    let mut respond = Table::new();
    respond.insert("status".into(), i64::from(status).into());
    respond.insert("body".into(), format!("{body}\n").into());
    Table::from_iter([("respond".to_owned(), Value::Table(respond))])
}

/// The sources of these rules.
pub(crate) fn sources<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> BTreeSet<&'a Endpoints> {
    let of = |rule: &'a Rule| match &rule.action {
        Action::Does(_, endpoints) => endpoints.as_ref(),
        Action::Closed(_) | Action::ClosesHost(_) => None,
    };
    rules.into_iter().filter_map(of).collect()
}
