//! The changes that a site or a route makes to its requests and responses.

use std::{collections::BTreeSet, io::Read, sync::Arc};

use http::{HeaderValue, StatusCode};

use crate::countries::ClientCountries;
use levada_rules::{
    Adjustments, Conditions, CountryLookup, ErrorPage, ErrorPages, ErrorRoute, ErrorRouteStatus,
    ErrorStatus, FieldEdit, FieldEdits, FieldError, Maintenance, Page, Rewrite, TemplateError,
    TemplateKind, TemplateScope,
};
use levada_types::document::Path;

use super::{Check, levels::KeyLevels};
use crate::file::{self, ErrorPageStatus, StatusOf};

/// The largest page in bytes.
const LARGEST_PAGE: u64 = 1 << 20;

/// Whether a URL can have all characters of the text.
pub(super) fn is_url_text(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"#<>\\^`|".contains(&byte))
}

impl Check<'_, '_> {
    /// The changes of a route with these matchers. The outer `None` marks an error, the inner one that there
    /// are none.
    pub(super) fn adjustments(
        &mut self,
        of: &file::Handling,
        route: &Conditions,
        levels: &KeyLevels,
    ) -> Option<Option<Arc<Adjustments>>> {
        let (kind, mappings) = (TemplateKind::RequestField, &*self.mappings.clone());
        let request = TemplateScope { route, kind, countries: None, mappings };
        let response = TemplateScope { kind: TemplateKind::ResponseField, ..request };
        let request = self.edits(&of.request_headers, "request_headers", &request, levels);
        let response = self.edits(&of.response_headers, "response_headers", &response, levels);
        let rewrite = self.rewrite(of, route, levels);
        let maintenance = self.maintenance(of, levels);
        let pages = self.error_pages(of, route, levels);
        let adjustments = Adjustments {
            request: Arc::new(request?),
            response: Arc::new(response?),
            rewrite: rewrite?,
            maintenance: maintenance?,
            pages: pages?,
            request_id: of.request_id,
            // It follows from the servers.
            without_file: None,
        };
        Some(adjustments.change_something().then(|| Arc::new(adjustments)))
    }

    fn rewrite(
        &mut self,
        of: &file::Handling,
        route: &Conditions,
        levels: &KeyLevels,
    ) -> Option<Option<Rewrite>> {
        if let Some(text) = &of.rewrite {
            let path = levels.key(self.findings, "rewrite");
            if of.strip_prefix.is_some() || of.add_prefix.is_some() {
                self.error(&path, "stands beside `strip_prefix` or `add_prefix`")
                    .help("write the whole path here, or leave this out");
                return None;
            }
            if !text.starts_with('/') || text.starts_with("//") || !is_url_text(text) {
                self.error(&path, "must be a path, with a query or without, that begins with `/`")
                    .help("for example `/new/{1}`");
                return None;
            }
            return self.url(text, route, &path).map(|to| Some(Rewrite::Template(to)));
        }
        let mut prefix = |key, text: &Option<String>| {
            let Some(text) = text else { return Some(String::new()) };
            let path = levels.key(self.findings, key);
            let is_one = text.starts_with('/')
                && !text.contains(['?', '{', '}'])
                && !text.contains("//")
                && !text.contains("/.")
                && is_url_text(text)
                && text != "/";
            if !is_one {
                let message = "must be the beginning of a path, without dot segments and a query";
                self.error(&path, message).help("for example `/api`");
            }
            is_one.then(|| text.trim_end_matches('/').to_owned())
        };
        let strip = prefix("strip_prefix", &of.strip_prefix);
        let add = prefix("add_prefix", &of.add_prefix);
        let (strip, add) = (strip?, add?);
        let is_none = strip.is_empty() && add.is_empty();
        Some((!is_none).then_some(Rewrite::Prefix { strip, add }))
    }

    fn maintenance(
        &mut self,
        of: &file::Handling,
        levels: &KeyLevels,
    ) -> Option<Option<Maintenance>> {
        let table = match &of.maintenance {
            None | Some(file::Maintenance::Switch(false)) => return Some(None),
            Some(file::Maintenance::Switch(true)) => file::MaintenanceTable::default(),
            Some(file::Maintenance::Table(table)) => table.clone(),
        };
        let path = levels.below(self.findings, "maintenance", &["file"]);
        let page = match &table.file {
            Some(file) => Some(self.page(file, &path)?),
            None => None,
        };
        let status = StatusCode::from_u16(table.status).ok()?;
        let allow = table.allow.iter().map(|prefix| prefix.0).collect();
        let maintenance =
            Maintenance { status, retry_after: table.retry_after.0.as_secs(), page, allow };
        Some(table.enabled.then_some(maintenance))
    }

    fn error_pages(
        &mut self,
        of: &file::Handling,
        route: &Conditions,
        levels: &KeyLevels,
    ) -> Option<ErrorPages> {
        let mut pages = Vec::new();
        for (status, given) in &of.error_pages {
            let at =
                |check: &Self, names: &[&str]| levels.below(check.findings, "error_pages", names);
            let path = at(self, &[status]);
            let read = status.parse::<ErrorStatus>();
            if let Err(error) = &read {
                let place = self.findings.key_place(&path);
                let help = Some("for example \"404\" or \"5xx\"".to_owned());
                self.findings
                    .error_at(place, &path, format!("{status:?} {error}"))
                    .maybe_help(help);
            }
            if given.status.is_some() && given.to.is_none() {
                let path = at(self, &[status, "status"]);
                self.error(&path, "is that of the answer of `to`, which is not there")
                    .help("a page from a file or a path has the status of the error");
            }
            let page = match (&given.file, &given.path, &given.to) {
                (Some(file), None, None) => {
                    let path = at(self, &[status, "file"]);
                    self.page(file, &path).map(ErrorPage::File)
                }
                (None, Some(target), None) if target.starts_with('/') && is_url_text(target) => {
                    Some(ErrorPage::Path(target.clone()))
                }
                (None, None, Some(to)) => {
                    let path = at(self, &[status, "to"]);
                    let to = self.destination((to, false), route, &path);
                    let status = match given.status {
                        None | Some(ErrorPageStatus::Of(StatusOf::Error)) => {
                            Some(ErrorRouteStatus::Error)
                        }
                        Some(ErrorPageStatus::Of(StatusOf::Answer)) => {
                            Some(ErrorRouteStatus::Answer)
                        }
                        Some(ErrorPageStatus::Fixed(code)) => {
                            StatusCode::from_u16(code).ok().map(ErrorRouteStatus::Fixed)
                        }
                    };
                    let route = to.zip(status).map(|(to, status)| ErrorRoute { to, status });
                    route.map(ErrorPage::Route)
                }
                (None, Some(_), None) => {
                    let path = at(self, &[status, "path"]);
                    let message = "must be a path at the origin that begins with `/`";
                    let help = Some("for example `/errors/404.html`".to_owned());
                    self.error(&path, message).maybe_help(help).none()
                }
                _ => {
                    let help = Some("for example `{ path = \"/errors/404.html\" }`".to_owned());
                    self.error(&path, "needs one of `file`, `path` and `to`")
                        .maybe_help(help)
                        .none()
                }
            };
            pages.push(read.ok().zip(page));
        }
        Some(ErrorPages::new(pages.into_iter().collect::<Option<_>>()?))
    }

    /// A page in a file.
    fn page(&mut self, given: &str, path: &Path) -> Option<Page> {
        let file = self.directory.join(given);
        let mut body = Vec::new();
        let read = std::fs::File::open(&file)
            .and_then(|open| open.take(LARGEST_PAGE + 1).read_to_end(&mut body));
        if let Err(error) = read {
            self.error(path, format!("cannot read {}: {error}", file.display()))
                .help("relative paths begin at the configuration file's directory");
            return None;
        }
        if body.len() as u64 > LARGEST_PAGE {
            return self.error(path, format!("{} is larger than 1 MiB", file.display())).none();
        }
        let extension = file.extension().and_then(|text| text.to_str()).unwrap_or_default();
        let content_type = match extension.to_ascii_lowercase().as_str() {
            "html" | "htm" => "text/html; charset=utf-8",
            "json" => "application/json",
            "xml" => "application/xml",
            "svg" => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        };
        Some(Page { content_type: HeaderValue::from_static(content_type), body: body.into() })
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
        for (name, replacements) in &of.replace {
            let at = levels.below(self.findings, key, &["replace", name]);
            for one in replacements.as_slice() {
                let change = (one.pattern.as_str(), one.with.as_str());
                results.push((at.clone(), name, edits.replace(name, change, scope.kind)));
            }
        }
        for name in &of.not_on_errors {
            let at = levels.below(self.findings, key, &["not_on_errors"]);
            results.push((at, name, edits.only_on_usual(name, scope.kind)));
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
            FieldError::Group(_) => {
                Some("write `${1}x` for a group before letters, `$$` for a `$`")
            }
            FieldError::Unchanged => Some("name it under `set`, `add`, `replace` or `remove`, too"),
            FieldError::Name | FieldError::Pattern(_) | FieldError::OfRequest => None,
        };
        self.error(path, format!("{name:?} {error}")).maybe_help(help.map(str::to_owned));
    }

    pub(super) fn template_error(
        &mut self,
        error: &TemplateError,
        kind: TemplateKind,
        path: &Path,
    ) {
        let help = match error {
            TemplateError::Brace => "write `{{` for a brace".to_owned(),
            TemplateError::Expression(error) => return self.expression_error(error, path),
            _ => format!("there are {}", kind.variables()),
        };
        self.error(path, error.to_string()).help(help);
    }
}
