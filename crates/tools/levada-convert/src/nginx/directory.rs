//! Files that nginx serves itself: `root`, `alias`, `index`, `try_files`.

use super::{
    conditional::hides_file,
    content::Match,
    converter::{Converter, Scope},
    fields,
    parse::Directive,
    variables::{self, Constants},
};
use crate::{
    gate::{self, Concern},
    ledger::{Outcome, TAKEN, differs, left, needless},
    table::{Table, Value},
};

/// Ends of names of programs, which are never sent as files.
const PROGRAMS: [&str; 3] = [".php", ".cgi", ".pl"];

impl Converter {
    /// Serves files where nothing else answers (`found`) and a directory is stated. Returns whether it does.
    pub(super) fn directory(
        &mut self,
        scope: &Scope<'_>,
        at: &Match,
        table: &mut Table,
        found: bool,
    ) -> bool {
        let alias = scope.own("alias").next();
        let root = scope.nearest("root").first().copied();
        let (stated, directory) = match alias {
            Some(alias) => (Some(alias), root_of_alias(alias.arg(0), at, &self.constants, table)),
            None => (root, root.map(|root| root.arg(0).to_owned())),
        };
        let directory = directory.filter(|directory| !directory.contains('$') && !found);
        self.claim_roots(scope);
        if found {
            self.enter_own(scope, "alias", &needless("something else answers here"));
            self.enter_own(scope, "try_files", &left("no files are served here"));
            return false;
        }
        let Some(stated) = stated else {
            self.enter_own(scope, "try_files", &left("no files are served here"));
            return false;
        };
        let Some(directory) = directory else {
            self.enter(stated, not_a_root(stated));
            self.enter_own(scope, "try_files", &left("its directory was not converted"));
            return false;
        };
        self.enter(stated, fate_of_root(&directory));
        self.enter_own(scope, "root", &TAKEN);
        table.inline("files").set("root", directory);
        self.index(scope, table);
        for (name, coding) in [("brotli_static", "br"), ("gzip_static", "gzip")] {
            let nearest = scope.nearest(name);
            if let Some(directive) = nearest.first().filter(|one| one.arg(0) == "on") {
                table.inline("files").push("precompressed", coding);
                self.enter(directive, TAKEN);
            }
        }
        for directive in scope.own("try_files") {
            let outcome = self.try_files(scope, directive, table);
            self.enter(directive, outcome);
        }
        if scope.nearest_arg("autoindex") == Some("on") {
            table.inline("files").set("listing", true);
        }
        let files = table.get("files");
        let index = files.and_then(|own| own.inner("index")).map(Value::texts);
        let fallback = files.and_then(|own| own.inner("fallback")).map(Value::texts);
        let names = [index.unwrap_or_else(|| vec!["index.html"]), fallback.unwrap_or_default()];
        if names.concat().into_iter().any(|name| hides_file(scope, name)) {
            let outcome = left("another location keeps clients out of the file for a directory");
            let outcome = gate::pass(Concern::Access, stated, outcome, table);
            self.enter(stated, outcome);
        }
        true
    }

    /// The files that answer for a directory.
    fn index(&mut self, scope: &Scope<'_>, table: &mut Table) {
        let stated = scope.nearest("index");
        let mut names = Vec::new();
        for directive in &stated {
            let (good, others): (Vec<_>, Vec<_>) =
                directive.args.iter().cloned().partition(|name| is_name(name));
            names.extend(good);
            let outcome = match others.iter().find(|name| !is_program(name)) {
                Some(name) => left(format!("`{name}` is no name of a file")),
                None if others.is_empty() => TAKEN,
                None => differs("programs do not answer for a directory"),
            };
            self.enter(directive, outcome);
        }
        if !stated.is_empty() {
            table.inline("files").set("index", names);
        }
    }

    /// Statements of a level for the levels within it. They say more where they use it.
    pub(super) fn claim_roots(&mut self, scope: &Scope<'_>) {
        for directive in scope.directives {
            let outcome = match directive.name.as_str() {
                "root" | "index" => TAKEN,
                "autoindex" if directive.arg(0) != "off" => {
                    differs("the page of a listing has another form")
                }
                "autoindex" => needless("it is the default"),
                _ => continue,
            };
            self.enter(directive, outcome);
        }
    }

    fn enter_own(&mut self, scope: &Scope<'_>, name: &str, outcome: &Outcome) {
        for directive in scope.own(name) {
            self.enter(directive, outcome.clone());
        }
    }
}

/// The directory of an `alias`, and the keys that make a path below it of the path of a URL.
fn root_of_alias(
    alias: &str,
    at: &Match,
    constants: &Constants,
    table: &mut Table,
) -> Option<String> {
    let whole = |directory: &str| match directory {
        "" => "/".to_owned(),
        directory => directory.to_owned(),
    };
    match at {
        Match::Prefix { path, .. } | Match::Exact(path) if alias.ends_with(path.as_str()) => {
            alias.strip_suffix(path.as_str()).map(whole)
        }
        Match::Prefix { path, .. } if path.ends_with('/') && alias.ends_with('/') => {
            table.set("strip_prefix", path.trim_end_matches('/'));
            Some(whole(alias.trim_end_matches('/')))
        }
        Match::Exact(_) if !alias.contains('$') => {
            let (directory, file) = alias.rsplit_once('/').filter(|(_, file)| is_name(file))?;
            table.set("rewrite", format!("/{file}?"));
            Some(whole(directory))
        }
        Match::Regex(_) => {
            let (literal, _) = alias.split_once('$')?;
            let (directory, _) = literal.rsplit_once('/')?;
            let rest = variables::translate(&alias[directory.len()..], constants).ok()?;
            table.set("rewrite", format!("{rest}?"));
            Some(whole(directory))
        }
        _ => None,
    }
}

fn not_a_root(stated: &Directive) -> Outcome {
    if stated.args.iter().any(|arg| arg.contains('$')) {
        return left("a directory cannot come from a variable");
    }
    left("the path of a URL is taken below the directory: give the directory such a path")
}

fn fate_of_root(directory: &str) -> Outcome {
    if !directory.starts_with('/') {
        return differs(
            "the directory begins at that of the new file; nginx's begins at its prefix (nginx -V)",
        );
    }
    differs(
        "names that begin with a dot are not served, nor links out of the directory (`outside_links`); a directory \
         without an index is not there",
    )
}

fn is_program(name: &str) -> bool {
    PROGRAMS.iter().any(|end| name.ends_with(end))
}

/// Whether it names a file in a directory.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && !name.contains(['/', '\\', '$', '%', '?', '\0'])
        && !is_program(name)
}

impl Converter {
    fn try_files(&self, scope: &Scope<'_>, directive: &Directive, table: &mut Table) -> Outcome {
        let Some((last, tried)) = directive.args.split_last() else {
            return left("has no files");
        };
        if !tried.iter().all(|file| file == "$uri" || file == "$uri/") {
            return left("only the path itself is looked for, and precompressed siblings");
        }
        let has_directory = tried.iter().any(|file| file == "$uri/");
        let fallback = last.split('?').next().unwrap_or_default();
        let fallback = fallback.strip_suffix("$is_args$args").unwrap_or(fallback);
        let is_file = fallback.strip_prefix('/').is_some_and(|path| path.split('/').all(is_name));
        let outcome = match last.as_str() {
            "=404" => TAKEN,
            "$uri" | "$uri/" => differs("a file that is not there is answered with 404"),
            last if last.starts_with('@') => {
                table.inline("files").set("else", last);
                TAKEN
            }
            _ if is_file && !fields::has_location(scope, fallback) => {
                table.inline("files").set("fallback", fallback);
                TAKEN
            }
            last if last.starts_with('/') => {
                let to = variables::translate(last, &self.constants)?;
                // The query of the client stays only where the text has it.
                let to = if to.contains('?') { to } else { format!("{to}?") };
                table.inline("files").set("else", to);
                TAKEN
            }
            _ => left("where there is no file, a path, a named location or 404 stands for it"),
        };
        match outcome {
            TAKEN if !has_directory => differs("a directory is answered by its index"),
            outcome => outcome,
        }
    }
}
