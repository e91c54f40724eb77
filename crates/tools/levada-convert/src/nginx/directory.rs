//! Files that nginx serves itself: `root`, `alias`, `index`, `try_files`.

use super::{
    conditional::hides_file,
    content::Match,
    converter::{Converter, Scope},
    parse::Directive,
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
            Some(alias) => (Some(alias), root_of_alias(alias.arg(0), at)),
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
            let outcome = try_files(directive, table);
            self.enter(directive, outcome);
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
                "autoindex" if directive.arg(0) != "off" => left("directories are never listed"),
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

/// The directory below which paths of URLs lead to the files of an `alias`.
fn root_of_alias(alias: &str, at: &Match) -> Option<String> {
    let (Match::Prefix { path, .. } | Match::Exact(path)) = at else { return None };
    let root = alias.strip_suffix(path.as_str())?;
    Some(if root.is_empty() { "/".to_owned() } else { root.to_owned() })
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
        "names that begin with a dot are not served, nor links out of the directory (`outside_links`)",
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

fn try_files(directive: &Directive, table: &mut Table) -> Outcome {
    let Some((last, tried)) = directive.args.split_last() else {
        return left("has no files");
    };
    if !tried.iter().all(|file| file == "$uri" || file == "$uri/") {
        return left("only the path itself is looked for, and precompressed siblings");
    }
    let fallback = last.split('?').next().unwrap_or_default();
    let fallback = fallback.strip_suffix("$is_args$args").unwrap_or(fallback);
    let is_file = || fallback.strip_prefix('/').is_some_and(|path| path.split('/').all(is_name));
    match last.as_str() {
        "=404" if tried.iter().any(|file| file == "$uri/") => TAKEN,
        "=404" => differs("a directory is answered by its index"),
        "$uri" | "$uri/" => differs("a file that is not there is answered with 404"),
        _ if is_file() => {
            table.inline("files").set("fallback", fallback);
            TAKEN
        }
        _ => left(
            "where there is no file, a file or 404 stands for it, and no other server is asked",
        ),
    }
}
