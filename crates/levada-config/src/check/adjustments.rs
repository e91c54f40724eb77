//! The changes that a site or a route makes to its requests and responses.

use std::{collections::BTreeSet, sync::Arc};

use levada_edge::settings::{Adjustments, ClientCountries};
use levada_rules::{
    Conditions, CountryLookup, FieldEdit, FieldEdits, FieldError, TemplateError, TemplateKind,
    TemplateScope,
};

use super::{Check, levels::KeyLevels};
use crate::{file, tree::Path};

impl Check<'_, '_> {
    /// The changes of a route with these matchers. The outer `None` marks an error, the inner one that there
    /// are none.
    pub(super) fn adjustments(
        &mut self,
        of: &file::Handling,
        route: &Conditions,
        levels: &KeyLevels,
    ) -> Option<Option<Arc<Adjustments>>> {
        let request = TemplateScope { route, kind: TemplateKind::RequestField, countries: None };
        let response = TemplateScope { kind: TemplateKind::ResponseField, ..request };
        let request = self.edits(&of.request_headers, "request_headers", &request, levels);
        let response = self.edits(&of.response_headers, "response_headers", &response, levels);
        let adjustments =
            Adjustments { request: Arc::new(request?), response: Arc::new(response?) };
        Some(adjustments.change_something().then(|| Arc::new(adjustments)))
    }

    fn edits(
        &mut self,
        of: &file::HeaderEdits,
        key: &'static str,
        scope: &TemplateScope<'_>,
        levels: &KeyLevels,
    ) -> Option<FieldEdits> {
        let mut edits = FieldEdits::default();
        let mut results = Vec::new();
        for name in &of.remove {
            let at = levels.below(self.findings, key, &["remove"]);
            results.push((at, name, edits.remove(name, scope.kind)));
        }
        let mut named: BTreeSet<_> = of.remove.iter().map(|n| n.to_ascii_lowercase()).collect();
        for (name, text) in &of.set {
            let at = levels.below(self.findings, key, &["set", name]);
            let result = match named.insert(name.to_ascii_lowercase()) {
                true => self.edit(&mut edits, name, (FieldEdit::Set, text), scope, &at),
                false => Err(FieldError::Twice),
            };
            results.push((at, name, result));
        }
        for (name, texts) in &of.add {
            let at = levels.below(self.findings, key, &["add", name]);
            for text in texts.as_slice() {
                let edit = (FieldEdit::Add, text.as_str());
                let result = self.edit(&mut edits, name, edit, scope, &at);
                results.push((at.clone(), name, result));
            }
        }
        let is_right = results.iter().all(|(.., result)| result.is_ok());
        for (at, name, result) in results {
            if let Err(error) = result {
                self.field_error(name, &error, scope.kind, &at);
            }
        }
        is_right.then_some(edits)
    }

    fn edit(
        &mut self,
        edits: &mut FieldEdits,
        name: &str,
        edit: (FieldEdit, &str),
        scope: &TemplateScope<'_>,
        path: &Path,
    ) -> Result<(), FieldError> {
        match edits.push(name, edit, scope) {
            Err(FieldError::Template(TemplateError::NoCountries)) => {
                let Some(countries) = self.client_countries(path) else { return Ok(()) };
                edits.push(name, edit, &TemplateScope { countries: Some(&countries), ..*scope })
            }
            done => done,
        }
    }

    /// The countries of clients, for a template. `None`: there are none, which has been reported.
    pub(super) fn client_countries(&mut self, path: &Path) -> Option<Arc<dyn CountryLookup>> {
        let countries = self.country_database(path)?;
        Some(Arc::new(ClientCountries(countries)))
    }

    fn field_error(&mut self, name: &str, error: &FieldError, kind: TemplateKind, path: &Path) {
        let help = match error {
            FieldError::Template(error) => return self.template_error(error, kind, path),
            FieldError::Host => Some("`origin_host` is the `Host` that the origin gets"),
            FieldError::Framing | FieldError::Loops | FieldError::Cache | FieldError::Nodes => {
                Some("leave it out; docs/operate/headers.md lists such fields")
            }
            FieldError::Twice => Some("leave one of them out"),
            FieldError::Value => Some("control characters, such as the end of a line, cannot"),
            FieldError::Name => None,
        };
        let message = format!("{name:?} {error}");
        self.findings.error(path, message, help.map(str::to_owned));
    }

    pub(super) fn template_error(
        &mut self,
        error: &TemplateError,
        kind: TemplateKind,
        path: &Path,
    ) {
        let help = match error {
            TemplateError::Brace => "write `{{` for a brace".to_owned(),
            _ => format!("there are {}", kind.variables()),
        };
        self.findings.error(path, error.to_string(), Some(help));
    }
}
