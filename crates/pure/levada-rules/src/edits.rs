//! Edits of header fields: of requests on their way to the origin, and of responses on theirs to clients.
//!
//! ```text
//! FieldEdits ── bind(request) ──► the same with values ── apply(fields) ──► the fields that are sent
//! ```

use std::sync::Arc;

use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{self, ACCEPT_ENCODING, AUTHORIZATION},
};

use crate::{
    Expression, PatternError, RequestFacts, ResponseFacts, Template, TemplateError, TemplateKind,
    TemplateScope, lazy_regex::LazyRegex, pattern::compile,
};

/// Edits of one kind of message, in the order in which they are made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldEdits {
    edits: Vec<(HeaderName, FieldChange)>,
    /// Fields that are changed in responses with usual statuses only.
    not_on_errors: Vec<HeaderName>,
    /// The edits as they were stated.
    text: String,
}

/// The change of one field.
#[derive(Clone, Debug, PartialEq)]
enum FieldChange {
    Remove,
    Set(FieldValue),
    Add(FieldValue),
    Replace(Replacement),
}

/// Another text in the place of all that an expression finds in the values of a field, with `$1` for a group.
#[derive(Clone, Debug, PartialEq)]
struct Replacement {
    pattern: LazyRegex,
    with: String,
}

#[derive(Clone, Debug, PartialEq)]
enum FieldValue {
    /// `None`: there is no field.
    Fixed(Option<HeaderValue>),
    Template(Template),
}

/// The kind of change that a configuration states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldEdit {
    /// The field has this value only.
    Set,
    /// The field has this value, too.
    Add,
}

/// Why a field cannot be edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// It cannot be the name of a field.
    #[error("cannot be the name of a header field")]
    Name,
    /// The message or its body could not be read any more.
    #[error("says where a message ends or what its body is, and cannot be changed")]
    Framing,
    /// The origin's host.
    #[error("has a key of its own")]
    Host,
    /// Loops are found by it.
    #[error("shows whether requests run in a loop, and cannot be changed")]
    Loops,
    /// The cache makes it itself.
    #[error("is made by the cache, and cannot be changed")]
    Cache,
    /// Nodes speak with each other by it.
    #[error("is for the nodes of a cluster")]
    Nodes,
    /// A request has no status.
    #[error("is a field of requests, which have no status")]
    OfRequest,
    /// It is listed as changed on some statuses only, and not changed.
    #[error("is changed by no other key here")]
    Unchanged,
    /// It is set twice, or set and removed.
    #[error("is set twice, or set and removed")]
    Twice,
    /// The text around the variables cannot stand in a field.
    #[error("cannot be the value of a header field")]
    Value,
    /// The value is no template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The expression cannot be used.
    #[error("has an expression that {0}")]
    Pattern(#[from] PatternError),
    /// The new text names a group that the expression does not have.
    #[error("has no group `{0}` in its expression")]
    Group(String),
}

impl FieldEdits {
    /// Adds the change of a field.
    ///
    /// # Errors
    /// If the field cannot be changed, or the value is no template.
    pub fn push(
        &mut self,
        name: &str,
        (edit, text): (FieldEdit, &str),
        scope: &TemplateScope<'_>,
    ) -> Result<(), FieldError> {
        let name = editable_field(name, scope.kind)?;
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(FieldError::Value);
        }
        let template = Template::parse(text, scope)?;
        let value = match template.fixed() {
            Some(_) => FieldValue::Fixed(template.field(None)),
            None => FieldValue::Template(template),
        };
        let (change, word) = match edit {
            FieldEdit::Set => (FieldChange::Set(value), "set"),
            FieldEdit::Add => (FieldChange::Add(value), "add"),
        };
        self.text.push_str(&format!("{word} {name}: {text}\n"));
        self.edits.push((name, change));
        Ok(())
    }

    /// Adds the removal of a field.
    ///
    /// # Errors
    /// If the field cannot be changed.
    pub fn remove(&mut self, name: &str, kind: TemplateKind) -> Result<(), FieldError> {
        let name = editable_field(name, kind)?;
        self.text.push_str(&format!("remove {name}\n"));
        self.edits.push((name, FieldChange::Remove));
        Ok(())
    }

    /// Adds the replacement of what an expression finds in the values of a field.
    ///
    /// # Errors
    /// If the field cannot be changed, the expression cannot be used, or the new text cannot stand in a field or
    /// names a group that there is not.
    pub fn replace(
        &mut self,
        name: &str,
        (pattern, with): (&str, &str),
        kind: TemplateKind,
    ) -> Result<(), FieldError> {
        let name = editable_field(name, kind)?;
        if with.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(FieldError::Value);
        }
        let compiled = compile(pattern)?;
        let groups: Vec<_> = compiled.capture_names().flatten().collect();
        let is_group = |name: &str| match name.parse::<usize>() {
            Ok(number) => number < compiled.captures_len(),
            Err(_) => groups.contains(&name),
        };
        if let Some(unknown) = named_groups(with).find(|name| !is_group(name)) {
            return Err(FieldError::Group(unknown.to_owned()));
        }
        let replacement =
            Replacement { pattern: LazyRegex::new(pattern.to_owned())?, with: with.to_owned() };
        self.text.push_str(&format!("replace {name}: {pattern} by {with}\n"));
        self.edits.push((name, FieldChange::Replace(replacement)));
        Ok(())
    }

    /// Changes a field in responses with the statuses of `is_usual` only.
    ///
    /// # Errors
    /// If no edit changes the field, or it is one of requests.
    pub fn only_on_usual(&mut self, name: &str, kind: TemplateKind) -> Result<(), FieldError> {
        if kind != TemplateKind::ResponseField {
            return Err(FieldError::OfRequest);
        }
        let name = HeaderName::try_from(name).map_err(|_| FieldError::Name)?;
        if !self.edits.iter().any(|(own, _)| *own == name) {
            return Err(FieldError::Unchanged);
        }
        self.text.push_str(&format!("{name} not on errors\n"));
        self.not_on_errors.push(name);
        Ok(())
    }

    /// The edits as they were stated, a line for each; nothing for those that are bound to a request.
    pub fn as_text(&self) -> &str {
        &self.text
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Whether a value has the identifier of the request.
    pub fn uses_request_id(&self) -> bool {
        self.values().any(|value| match value {
            FieldValue::Template(template) => template.uses_request_id(),
            FieldValue::Fixed(_) => false,
        })
    }

    /// The edits with the values of a request.
    pub fn bind<'f>(self: &Arc<Self>, facts: impl FnOnce() -> RequestFacts<'f>) -> Arc<Self> {
        let is_bound = |value: &FieldValue| match value {
            FieldValue::Template(template) => template.is_bound(),
            FieldValue::Fixed(_) => true,
        };
        if self.values().all(is_bound) {
            return self.clone();
        }
        let facts = facts();
        let bound = |value: &FieldValue| match value {
            FieldValue::Template(template) => FieldValue::Template(template.bind(&facts)),
            fixed @ FieldValue::Fixed(_) => fixed.clone(),
        };
        let edits = self.edits.iter().map(|(name, change)| {
            let change = match change {
                FieldChange::Remove => FieldChange::Remove,
                FieldChange::Set(value) => FieldChange::Set(bound(value)),
                FieldChange::Add(value) => FieldChange::Add(bound(value)),
                replace @ FieldChange::Replace(_) => replace.clone(),
            };
            (name.clone(), change)
        });
        let (edits, not_on_errors) = (edits.collect(), self.not_on_errors.clone());
        Arc::new(Self { edits, not_on_errors, text: String::new() })
    }

    /// Makes the edits, which are bound, in the fields of a response with this status. `cache` is the result of the
    /// cache.
    pub fn apply(&self, headers: &mut HeaderMap, status: StatusCode, cache: &str) {
        let all = self.not_on_errors.is_empty() || is_usual(status);
        for (name, change) in &self.edits {
            if all || !self.not_on_errors.contains(name) {
                change.apply(name, headers, Some((status, cache)));
            }
        }
    }

    /// Makes those edits, which are bound, that decide which stored response answers a request.
    pub fn apply_to_received(&self, headers: &mut HeaderMap) {
        for (name, change) in self.edits.iter().filter(|(name, change)| !change.is_last(name)) {
            change.apply(name, headers, None);
        }
    }

    /// Makes the edits of these fields again, after the fields were removed.
    pub fn apply_again(&self, headers: &mut HeaderMap, removed: &[HeaderName]) {
        let lost = |name: &HeaderName, change: &FieldChange| {
            !change.is_last(name) && removed.contains(name)
        };
        for (name, change) in self.edits.iter().filter(|(name, change)| lost(name, change)) {
            change.apply(name, headers, None);
        }
    }

    /// Makes the other edits, in the fields that are sent to the origin.
    pub fn apply_to_sent(&self, headers: &mut HeaderMap) {
        for (name, change) in self.edits.iter().filter(|(name, change)| change.is_last(name)) {
            change.apply(name, headers, None);
        }
    }

    /// The edits, for operators: whether a field is set, added or removed.
    pub fn in_words(&self, of: &str) -> Vec<String> {
        let words = |(name, change): &(HeaderName, FieldChange)| match change {
            FieldChange::Remove => format!("{of} {name} removed"),
            FieldChange::Set(_) => format!("{of} {name} set"),
            FieldChange::Add(_) => format!("{of} {name} added"),
            FieldChange::Replace(_) => format!("{of} {name} rewritten"),
        };
        self.edits.iter().map(words).collect()
    }

    /// The expressions in the values.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let templates = self.values().filter_map(|value| match value {
            FieldValue::Template(template) => Some(template),
            FieldValue::Fixed(_) => None,
        });
        templates.flat_map(Template::expressions)
    }

    fn values(&self) -> impl Iterator<Item = &FieldValue> {
        self.edits.iter().filter_map(|(_, change)| match change {
            FieldChange::Remove | FieldChange::Replace(_) => None,
            FieldChange::Set(value) | FieldChange::Add(value) => Some(value),
        })
    }
}

impl FieldChange {
    /// `response` are the status of a response, and the result of the cache.
    fn apply(
        &self,
        name: &HeaderName,
        headers: &mut HeaderMap,
        response: Option<(StatusCode, &str)>,
    ) {
        let field = |value: &FieldValue, headers: &HeaderMap| match response {
            Some((status, cache)) => value.field(Some(&ResponseFacts { cache, status, headers })),
            None => value.field(None),
        };
        match self {
            Self::Remove => drop(headers.remove(name)),
            Self::Set(value) => match field(value, headers) {
                Some(value) => drop(headers.insert(name, value)),
                None => drop(headers.remove(name)),
            },
            Self::Add(value) => {
                let value = field(value, headers);
                headers.extend(value.map(|value| (name.clone(), value)));
            }
            Self::Replace(replacement) => replacement.apply(name, headers),
        }
    }

    /// Whether the edit is made when the request is sent: of fields that this node adds itself, and of those
    /// that must not decide whether a response is stored. A fixed `Authorization` is the node's own, and
    /// identifies no client.
    fn is_last(&self, name: &HeaderName) -> bool {
        let is_fixed =
            matches!(self, Self::Set(FieldValue::Fixed(_)) | Self::Add(FieldValue::Fixed(_)));
        *name == ACCEPT_ENCODING
            || name.as_str().starts_with("x-forwarded-")
            || (*name == AUTHORIZATION && is_fixed)
    }
}

impl Replacement {
    /// Values that are no text, or would be no values of a field, stay as they are.
    fn apply(&self, name: &HeaderName, headers: &mut HeaderMap) {
        let Some(pattern) = self.pattern.get().filter(|_| headers.contains_key(name)) else {
            return;
        };
        let replaced = |value: &HeaderValue| {
            let text = pattern.replace_all(value.to_str().ok()?, &self.with);
            HeaderValue::try_from(&*text).ok()
        };
        let values = headers.get_all(name).iter();
        let values: Vec<_> =
            values.map(|value| replaced(value).unwrap_or_else(|| value.clone())).collect();
        headers.remove(name);
        headers.extend(values.into_iter().map(|value| (name.clone(), value)));
    }
}

/// The statuses for which `add_header` of nginx holds without `always`.
fn is_usual(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 201 | 204 | 206 | 301..=304 | 307 | 308)
}

/// The groups that a new text names: `$1`, `${name}`; `$$` is a `$`.
fn named_groups(with: &str) -> impl Iterator<Item = &str> {
    let mut rest = with;
    std::iter::from_fn(move || {
        loop {
            rest = &rest[rest.find('$')? + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                rest = after;
                continue;
            }
            let braced = rest.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            return Some(match braced {
                Some((name, _)) => name,
                None => &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())],
            });
        }
    })
}

impl FieldValue {
    fn field(&self, response: Option<&ResponseFacts<'_>>) -> Option<HeaderValue> {
        match self {
            Self::Fixed(value) => value.clone(),
            Self::Template(template) => template.field(response),
        }
    }
}

/// Fields that frame messages, or say what a body is.
const FRAMING: [&str; 11] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields by which a cache asks an origin.
const ASKED_BY_CACHE: [HeaderName; 7] = [
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::EXPECT,
];

/// The name of a field that edits can change.
///
/// # Errors
/// If it is no name, or the node decides about the field.
pub fn editable_field(name: &str, kind: TemplateKind) -> Result<HeaderName, FieldError> {
    let name = HeaderName::try_from(name).map_err(|_| FieldError::Name)?;
    if FRAMING.contains(&name.as_str()) {
        return Err(FieldError::Framing);
    }
    if name.as_str().starts_with("levada-") {
        return Err(FieldError::Nodes);
    }
    if kind == TemplateKind::RequestField {
        if name == header::HOST {
            return Err(FieldError::Host);
        }
        if name == header::VIA || name == "cdn-loop" {
            return Err(FieldError::Loops);
        }
        if ASKED_BY_CACHE.contains(&name) {
            return Err(FieldError::Cache);
        }
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use http::Method;
    use proptest::prelude::*;

    use super::*;
    use crate::{Conditions, Scheme};

    fn edits(kind: TemplateKind, list: &[(&str, FieldEdit, &str)]) -> Arc<FieldEdits> {
        let route = Conditions::default();
        let mappings = &crate::Mappings::new();
        let scope = TemplateScope { route: &route, kind, countries: None, mappings };
        let mut edits = FieldEdits::default();
        for (name, edit, text) in list {
            edits.push(name, (*edit, text), &scope).unwrap();
        }
        Arc::new(edits)
    }

    #[test]
    fn replacements_change_what_they_find_in_each_value() {
        let mut edits = FieldEdits::default();
        let kind = TemplateKind::ResponseField;
        edits.replace("Location", (r"^http://10\.0\.1\.1(:\d+)?/(.*)$", "/x/$2"), kind).unwrap();
        edits.replace("set-cookie", ("(?i)(; *domain=)app", "${1}www"), kind).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("location", HeaderValue::from_static("http://10.0.1.1:80/a?b"));
        headers.append("set-cookie", HeaderValue::from_static("a=b; Domain=app.example"));
        headers.append("set-cookie", HeaderValue::from_static("c=d"));
        edits.apply(&mut headers, StatusCode::OK, "");
        assert_eq!(headers["location"], "/x/a?b");
        let cookies: Vec<_> = headers.get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["a=b; Domain=www.example", "c=d"]);
        for (pattern, with, part) in [
            ("(", "x", "is no regular expression"),
            ("a(b)", "$2", "no group `2`"),
            ("a(b)", "$1x", "no group `1x`"),
            ("a(b)", "\n", "cannot be the value"),
        ] {
            let error = edits.replace("x-a", (pattern, with), kind).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(edits.replace("content-length", ("1", "2"), kind).is_err());
    }

    #[test]
    fn some_fields_are_changed_in_usual_responses_only() {
        let mut edits = FieldEdits::default();
        let route = Conditions::default();
        let kind = TemplateKind::ResponseField;
        let scope = TemplateScope {
            route: &route,
            kind,
            countries: None,
            mappings: &crate::Mappings::new(),
        };
        for name in ["x-a", "x-b"] {
            edits.push(name, (FieldEdit::Add, "{method}"), &scope).unwrap();
        }
        edits.only_on_usual("X-A", kind).unwrap();
        assert_eq!(edits.only_on_usual("x-c", kind), Err(FieldError::Unchanged));
        let bound = bound(&Arc::new(edits), &HeaderMap::new());
        for (status, number) in [(200, 2), (308, 2), (404, 1), (202, 1)] {
            let mut headers = HeaderMap::new();
            bound.apply(&mut headers, StatusCode::from_u16(status).unwrap(), "");
            assert_eq!(headers.len(), number, "{status}");
        }
    }

    fn bound(edits: &Arc<FieldEdits>, sent: &HeaderMap) -> Arc<FieldEdits> {
        let client = "192.0.2.1".parse().unwrap();
        let place = (Scheme::Http, "a.test");
        edits.bind(|| RequestFacts::new(client, place, (&Method::GET, "/a?b"), sent))
    }

    #[test]
    fn fields_are_set_added_and_removed() {
        let mut edits = FieldEdits::clone(&edits(
            TemplateKind::ResponseField,
            &[
                ("X-Was", FieldEdit::Set, "{status} {response.x-cache} {arg.b}"),
                ("X-Cache", FieldEdit::Set, "{cache} for {client}"),
                ("Vary", FieldEdit::Add, "X-A"),
                ("X-Empty", FieldEdit::Set, "{header.x-none}"),
            ],
        ));
        edits.remove("Server", TemplateKind::ResponseField).unwrap();
        let mut fields = HeaderMap::new();
        for (name, value) in
            [("server", "x"), ("vary", "x-b"), ("x-cache", "old"), ("x-empty", "y")]
        {
            fields.append(name, HeaderValue::from_static(value));
        }
        bound(&Arc::new(edits), &HeaderMap::new()).apply(&mut fields, StatusCode::OK, "hit");
        assert_eq!(fields["x-cache"], "hit for 192.0.2.1");
        assert_eq!(fields["x-was"], "200 old", "the argument has no value");
        assert_eq!(fields.get_all("vary").iter().count(), 2);
        assert!(!fields.contains_key("server") && !fields.contains_key("x-empty"));
    }

    #[test]
    fn fields_of_the_framing_cannot_be_changed() {
        let error = |name, kind| editable_field(name, kind).unwrap_err();
        for kind in [TemplateKind::RequestField, TemplateKind::ResponseField] {
            for name in ["Content-Length", "transfer-encoding", "Connection", "content-range"] {
                assert_eq!(error(name, kind), FieldError::Framing, "{name}");
            }
            assert_eq!(error("Levada-Piece", kind), FieldError::Nodes);
            assert_eq!(error("a b", kind), FieldError::Name);
        }
        assert_eq!(error("Host", TemplateKind::RequestField), FieldError::Host);
        assert_eq!(error("Via", TemplateKind::RequestField), FieldError::Loops);
        assert_eq!(error("If-None-Match", TemplateKind::RequestField), FieldError::Cache);
        assert!(editable_field("Via", TemplateKind::ResponseField).is_ok());
    }

    #[test]
    fn own_fixed_credentials_are_not_those_of_the_client() {
        let sent = HeaderMap::new();
        let late = |text| {
            let mut received = HeaderMap::new();
            let list = [("Authorization", FieldEdit::Set, text)];
            let edits = bound(&edits(TemplateKind::RequestField, &list), &sent);
            edits.apply_to_received(&mut received);
            received.is_empty()
        };
        assert!(late("Basic x"));
        assert!(!late("Bearer {uri}"));
    }

    proptest! {
        #[test]
        fn no_value_begins_another_field(bytes: Vec<u8>) {
            let mut sent = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                sent.insert("x-a", value);
            }
            let list = [("X-B", FieldEdit::Set, "a{header.x-a}b")];
            let mut fields = HeaderMap::new();
            bound(&edits(TemplateKind::RequestField, &list), &sent).apply(&mut fields, StatusCode::OK, "");
            let value = fields["x-b"].as_bytes();
            prop_assert!(!value.iter().any(u8::is_ascii_control));
        }
    }
}
