//! From a configuration file to [`Settings`]: read it, substitute environment variables, compare
//! with the schema, check rules beyond the schema. Each step reports all problems and hands on the
//! rest, so that one run names all mistakes.

mod bounds;
pub mod changes;
mod check;
mod countries;
pub mod file;
mod host_table;
pub mod identity;
mod inherit;
mod routing;
pub mod schema;
mod settings;
mod shape;
pub mod text;
mod unusable;
mod way;

use std::path::Path as FilePath;

pub use countries::ClientCountries;
pub use host_table::HostTable;
pub use routing::{Redirects, RoutePlace, RoutedBy, TooManyRedirects};
pub use settings::*;
pub use unusable::UnusableSettings;
pub use way::{Way, server_bounds};

pub use levada_types::document::{Problem, Report, Severity, Source};

use levada_types::{
    AdminAddress,
    document::{Findings, Node, Path, read_source, substitute},
};

/// The environment of a file, on which its meaning may depend.
pub struct Surroundings<'a> {
    /// The directory of the file, where its relative paths begin.
    pub directory: &'a FilePath,
    /// The value of an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The reason why a node could not start by settings, if it could not: `levada_edge::check`.
    pub start_error: &'a dyn Fn(&Settings) -> Option<String>,
}

/// A configuration that was read: its settings, if they can be used, and all problems.
#[derive(Debug)]
pub struct Checked {
    /// `None` exactly when the report has an error.
    pub settings: Option<Settings>,
    /// Errors and warnings.
    pub report: Report,
    /// The address of its admin listener, also if there are errors elsewhere.
    pub admin: Option<AdminAddress>,
    /// The token for orders there, also if there are errors elsewhere.
    pub admin_token: Option<String>,
}

/// Reads and checks the file at `path`, in the environment of this process.
///
/// # Errors
/// If the file cannot be read at all.
pub fn load(
    path: &FilePath,
    start_error: &dyn Fn(&Settings) -> Option<String>,
) -> std::io::Result<Checked> {
    let source = read_source(path)?;
    let surroundings = Surroundings {
        directory: path.parent().unwrap_or(FilePath::new("")),
        variable: &|name| std::env::var(name).ok(),
        start_error,
    };
    Ok(check(&source, &surroundings))
}

/// Checks a configuration.
pub fn check(source: &Source, surroundings: &Surroundings<'_>) -> Checked {
    let (root, syntax_errors) = Node::parse(&source.text);
    if !syntax_errors.is_empty() {
        let mut findings = Findings::new(source, &root);
        for error in syntax_errors {
            findings.error_at(error.span, &Path::default(), error.message);
        }
        let report = findings.into_report();
        return Checked { settings: None, report, admin: None, admin_token: None };
    }
    check_tree(source, root, surroundings)
}

/// Checks a configuration whose tree was put together from several texts, which `source` has one after the other: the
/// spans of the tree are places in them.
pub fn check_tree(source: &Source, mut root: Node, surroundings: &Surroundings<'_>) -> Checked {
    let mut env_errors = Vec::new();
    substitute(&mut root, &Path::default(), surroundings.variable, &mut env_errors);
    let mut findings = Findings::new(source, &root);
    for error in env_errors {
        findings.error_at(error.span, &error.path, error.message).help(error.help);
    }
    let file = shape::read(&root, &schema::schema(), &Path::default(), &mut findings).and_then(
        |mut shaped| {
            inherit::complete(&mut shaped);
            deserialize(shaped, &mut findings)
        },
    );
    let settings = (file.as_ref())
        .and_then(|file| check::settings(file, surroundings.directory, &mut findings));
    if let Some(settings) = settings.as_ref().filter(|_| findings.is_usable()) {
        check::as_started(settings, surroundings.start_error, &mut findings);
    }
    let report = findings.into_report();
    let admin = file.as_ref().and_then(|file| file.admin.listen.clone().map(|listen| listen.0));
    let admin_token =
        file.as_ref().and_then(|file| check::admin_token(file, surroundings.directory));
    Checked { settings: settings.filter(|_| report.is_usable()), report, admin, admin_token }
}

fn deserialize(shaped: serde_json::Value, findings: &mut Findings<'_>) -> Option<file::File> {
    serde_json::from_value(shaped)
        .map_err(|error| {
            // The schema and the structures come from one declaration: only a bug leads here.
            let message = format!("cannot be read, although it fits the schema: {error}");
            findings.error(&Path::default(), message);
        })
        .ok()
}

#[cfg(test)]
mod tests;
