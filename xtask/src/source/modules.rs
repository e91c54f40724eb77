//! The modules of a library or program, one a file, and which of them uses which.
//!
//! A module uses another when its production source names an item of the other by a path: in `use`,
//! or within the code. A parent that uses its child's items and a child that uses its parent's form a
//! cycle of two. Re-exports can be read in two ways, see [`Reading`].

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    path::{Path, PathBuf},
};

use super::{Source, Token};

/// All modules of one library or program.
pub(crate) struct Tree<'a> {
    pub(crate) modules: Vec<Module<'a>>,
    by_path: HashMap<Vec<&'a str>, usize>,
}

/// How re-exports are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// A path leads through any number of re-exports to the module that defines the item. A re-export
    /// is no use: a `mod.rs` that gathers its children's names does not depend on them.
    Definitions,
    /// A path leads to the last module that it names, and a re-export is a use like any other.
    Paths,
}

/// A file.
pub(crate) struct Module<'a> {
    /// Its names from the root of the tree, which has none.
    path: Vec<&'a str>,
    file: &'a Path,
    tokens: Vec<Token<'a>>,
    imports: Vec<Import<'a>>,
    paths: Vec<Named<'a>>,
    /// The names that are defined at its top level.
    defined: HashSet<&'a str>,
    /// The words that stand outside `use`.
    mentioned: HashSet<&'a str>,
}

/// A path as it is written, within the inline modules around it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named<'a> {
    inline: Vec<&'a str>,
    path: Vec<&'a str>,
}

/// One name of a `use`.
struct Import<'a> {
    named: Named<'a>,
    name: Bound<'a>,
    /// Whether it is passed on.
    public: bool,
}

/// The name by which an import is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound<'a> {
    Name(&'a str),
    /// Every name of a module.
    Glob,
}

/// The place where a path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Module(usize),
    /// An item that this module defines.
    Item(usize),
}

/// Re-exports in a circle end here.
const MOST_STEPS: usize = 32;

impl<'a> Tree<'a> {
    /// Follows the declarations of modules from the file `root` on.
    pub(crate) fn of(root: &'a Source, files: &HashMap<PathBuf, &'a Source>) -> Self {
        let mut tree = Self { modules: Vec::new(), by_path: HashMap::new() };
        tree.add(Vec::new(), root, files);
        tree
    }

    fn add(
        &mut self,
        path: Vec<&'a str>,
        source: &'a Source,
        files: &HashMap<PathBuf, &'a Source>,
    ) {
        let is_root = path.is_empty();
        let module = Module::read(path.clone(), source);
        let children = module.declared();
        self.by_path.insert(path.clone(), self.modules.len());
        self.modules.push(module);
        for (name, given) in children {
            let mut path = path.clone();
            path.push(name);
            let found = places(&source.path, is_root, name, given)
                .into_iter()
                .find_map(|place| files.get(&place).copied());
            if let Some(child) = found {
                self.add(path, child, files);
            }
        }
    }

    /// For each module, the modules that it uses.
    pub(crate) fn uses(&self, reading: Reading) -> Vec<BTreeSet<usize>> {
        (0..self.modules.len()).map(|module| self.uses_of(module, reading)).collect()
    }

    fn uses_of(&self, user: usize, reading: Reading) -> BTreeSet<usize> {
        let module = &self.modules[user];
        let imported = module.imports.iter().filter_map(|import| {
            let passed_on = match import.name {
                Bound::Name(name) => import.public && !module.mentioned.contains(name),
                Bound::Glob => import.public,
            };
            if passed_on && reading == Reading::Definitions {
                return None;
            }
            match self.lead(user, &import.named, reading, 0)? {
                Target::Item(found) => Some(found),
                Target::Module(found) => (!module.goes_through(import.name)).then_some(found),
            }
        });
        let written =
            module.paths.iter().filter_map(|named| match self.lead(user, named, reading, 0)? {
                Target::Module(found) | Target::Item(found) => Some(found),
            });
        imported.chain(written).filter(|&used| used != user).collect()
    }

    /// Where a path leads that is written in the module `from`; `None` when out of the tree.
    fn lead(
        &self,
        from: usize,
        named: &Named<'a>,
        reading: Reading,
        steps: usize,
    ) -> Option<Target> {
        if steps > MOST_STEPS {
            return None;
        }
        let mut at: Vec<&str> = self.modules[from].path.clone();
        at.extend(&named.inline);
        let mut rest = &named.path[..];
        match rest[0] {
            "crate" => {
                at.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first() == Some(&"super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
            }
            first if !self.knows(from, first) => return None,
            _ => {}
        }
        at.extend(rest);
        self.resolve(&at, reading, steps)
    }

    /// Whether a path that begins with `name` in the module `from` can lead into the tree.
    fn knows(&self, from: usize, name: &'a str) -> bool {
        let module = &self.modules[from];
        self.child(from, name).is_some()
            || module.imports.iter().any(|import| import.name == Bound::Name(name))
    }

    fn child(&self, parent: usize, name: &'a str) -> Option<usize> {
        let mut path = self.modules[parent].path.clone();
        path.push(name);
        self.by_path.get(&path).copied()
    }

    /// Where a path from the root of the tree leads.
    fn resolve(&self, path: &[&'a str], reading: Reading, steps: usize) -> Option<Target> {
        let mut at = 0;
        for (taken, &name) in path.iter().enumerate() {
            if let Some(child) = self.child(at, name) {
                at = child;
                continue;
            }
            let module = &self.modules[at];
            if module.defined.contains(name) {
                return Some(Target::Item(at));
            }
            let rest = &path[taken..];
            let import = module.imports.iter().find(|import| import.name == Bound::Name(name));
            let found = match import {
                Some(import) => self.through(at, import, &rest[1..], steps)?,
                None => self.through_globs(at, rest, steps).unwrap_or(Target::Item(at)),
            };
            return Some(if reading == Reading::Paths { Target::Item(at) } else { found });
        }
        Some(Target::Module(at))
    }

    /// Where `rest` leads from the thing that is imported.
    fn through(
        &self,
        at: usize,
        import: &Import<'a>,
        rest: &[&'a str],
        steps: usize,
    ) -> Option<Target> {
        let mut named = import.named.clone();
        // `use node;` next to `mod node;` would lead to itself.
        let is_itself = named.path.len() == 1 && import.name == Bound::Name(named.path[0]);
        if is_itself && self.child(at, named.path[0]).is_none() {
            return None;
        }
        named.path.extend(rest);
        self.lead(at, &named, Reading::Definitions, steps + 1)
    }

    fn through_globs(&self, at: usize, rest: &[&'a str], steps: usize) -> Option<Target> {
        let globs = self.modules[at].imports.iter().filter(|import| import.name == Bound::Glob);
        globs.into_iter().find_map(|import| {
            let Target::Module(found) =
                self.lead(at, &import.named, Reading::Definitions, steps + 1)?
            else {
                return None;
            };
            let module = &self.modules[found];
            let has = module.defined.contains(rest[0])
                || module.imports.iter().any(|import| import.name == Bound::Name(rest[0]));
            if has && found != at { self.through(at, import, rest, steps) } else { None }
        })
    }
}

/// The files in which a module may be that `file` declares.
fn places(file: &Path, is_root: bool, name: &str, given: Option<&str>) -> Vec<PathBuf> {
    let directory = file.parent().unwrap_or(Path::new(""));
    if let Some(given) = given {
        return vec![without_steps_up(&directory.join(given))];
    }
    let inner = if is_root || file.ends_with("mod.rs") {
        directory.to_owned()
    } else {
        file.with_extension("")
    };
    vec![inner.join(format!("{name}.rs")), inner.join(name).join("mod.rs")]
}

/// `a/c` of `a/b/../c`.
fn without_steps_up(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path {
        if part == ".." {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

impl<'a> Module<'a> {
    fn read(path: Vec<&'a str>, source: &'a Source) -> Self {
        let mut module = Self {
            path,
            file: &source.path,
            tokens: source.production(),
            imports: Vec::new(),
            paths: Vec::new(),
            defined: HashSet::new(),
            mentioned: HashSet::new(),
        };
        module.scan();
        module
    }

    /// Its path as it is written in code.
    pub(crate) fn name(&self) -> String {
        if self.path.is_empty() { "crate".to_owned() } else { self.path.join("::") }
    }

    /// The file that it is.
    pub(crate) fn file(&self) -> &Path {
        self.file
    }

    /// The modules that it declares, with the file where it names one.
    fn declared(&self) -> Vec<(&'a str, Option<&'a str>)> {
        let tokens = &self.tokens;
        let mut declared = Vec::new();
        for at in 0..tokens.len().saturating_sub(2) {
            if !tokens[at].is("mod") || !tokens[at + 2].is(";") {
                continue;
            }
            let public = before_visibility(tokens, at);
            let given = match tokens[..public] {
                [.., path, equals, file, end]
                    if path.is("path") && equals.is("=") && end.is("]") =>
                {
                    Some(file.text.trim_matches('"'))
                }
                _ => None,
            };
            declared.push((tokens[at + 1].text, given));
        }
        declared
    }

    /// Whether a path in the code begins with the imported name.
    fn goes_through(&self, bound: Bound<'a>) -> bool {
        self.paths.iter().any(|named| bound == Bound::Name(named.path[0]))
    }

    /// Collects imports, paths and definitions.
    fn scan(&mut self) {
        let tokens = std::mem::take(&mut self.tokens);
        let mut inline: Vec<(usize, &str)> = Vec::new();
        let (mut at, mut depth) = (0, 0);
        while at < tokens.len() {
            let token = tokens[at];
            // `impl Trait + use<'a>` captures, and imports nothing.
            if token.is("use") && !tokens.get(at + 1).is_some_and(|next| next.is("<")) {
                let end = at + tokens[at..].iter().take_while(|token| !token.is(";")).count();
                let public = before_visibility(&tokens, at) < at;
                let scope: Vec<_> = inline.iter().map(|(_, name)| *name).collect();
                self.import(&mut Cursor { tokens: &tokens[at + 1..end], at: 0 }, &scope, public);
                at = end;
            } else if token.is_word() {
                let inner = tokens.get(at + 2).is_some_and(|token| token.is("{"));
                if token.is("mod") && inner {
                    inline.push((depth, tokens[at + 1].text));
                }
                self.define(&tokens[at..], depth);
                self.mentioned.insert(token.text);
                at += self.path_at(&tokens, at, &inline);
            } else if token.is("{") {
                depth += 1;
            } else if token.is("}") {
                depth = usize::saturating_sub(depth, 1);
                if inline.last().is_some_and(|(outer, _)| *outer == depth) {
                    inline.pop();
                }
            }
            at += 1;
        }
        self.tokens = tokens;
    }

    /// Notes the name that a word of the language defines at the top level.
    fn define(&mut self, tokens: &[Token<'a>], depth: usize) {
        const DEFINE: &[&str] =
            &["const", "enum", "fn", "macro_rules", "static", "struct", "trait", "type", "union"];
        if depth > 0 || !DEFINE.iter().any(|word| tokens[0].is(word)) {
            return;
        }
        let name = tokens[1..].iter().find(|token| !token.is("!") && !token.is("mut"));
        if let Some(name) = name.filter(|name| name.is_word()) {
            self.defined.insert(name.text);
        }
    }

    /// Notes the path that begins at `at`; returns how many tokens follow its first.
    fn path_at(&mut self, tokens: &[Token<'a>], at: usize, inline: &[(usize, &'a str)]) -> usize {
        let continues = at > 0 && (tokens[at - 1].is("::") || tokens[at - 1].is("."));
        let mut path = vec![tokens[at].text];
        let mut end = at;
        while let [separator, name, ..] = &tokens[end + 1..] {
            if !separator.is("::") || !name.is_word() {
                break;
            }
            path.push(name.text);
            self.mentioned.insert(name.text);
            end += 2;
        }
        let is_visibility = at > 1 && tokens[at - 1].is("in") && tokens[at - 2].is("(");
        if path.len() > 1 && !continues && !is_visibility {
            let inline = inline.iter().map(|(_, name)| *name).collect();
            self.paths.push(Named { inline, path });
        }
        end - at
    }

    /// Notes every name of a `use`.
    fn import(&mut self, cursor: &mut Cursor<'_, 'a>, scope: &[&'a str], public: bool) {
        for (path, name) in cursor.tree(&[]) {
            let named = Named { inline: scope.to_vec(), path };
            self.imports.push(Import { named, name, public });
        }
    }
}

/// Where the visibility of the item at `at` begins: `at` itself when it has none.
fn before_visibility(tokens: &[Token<'_>], at: usize) -> usize {
    let before = &tokens[..at];
    if before.last().is_some_and(|token| token.is(")")) {
        let open = before.iter().rposition(|token| token.is("(")).unwrap_or(0);
        if open > 0 && tokens[open - 1].is("pub") {
            return open - 1;
        }
    }
    at - usize::from(before.last().is_some_and(|token| token.is("pub")))
}

/// Reads the tree of names of a `use`.
struct Cursor<'t, 'a> {
    tokens: &'t [Token<'a>],
    at: usize,
}

impl<'a> Cursor<'_, 'a> {
    fn take(&mut self) -> Option<Token<'a>> {
        self.at += 1;
        self.tokens.get(self.at - 1).copied()
    }

    fn takes(&mut self, text: &str) -> bool {
        let found = self.tokens.get(self.at).is_some_and(|token| token.is(text));
        self.at += usize::from(found);
        found
    }

    /// The paths from here to the end of the group, each with its name.
    fn tree(&mut self, prefix: &[&'a str]) -> Vec<(Vec<&'a str>, Bound<'a>)> {
        let mut path = prefix.to_vec();
        self.takes("::");
        loop {
            if self.takes("{") {
                let mut all = Vec::new();
                while self.at < self.tokens.len() && !self.takes("}") {
                    all.extend(self.tree(&path));
                    self.takes(",");
                }
                return all;
            }
            if self.takes("*") {
                return vec![(path, Bound::Glob)];
            }
            let Some(token) = self.take() else { return Vec::new() };
            if !token.is("self") || path.is_empty() {
                path.push(token.text);
            }
            if !self.takes("::") {
                break;
            }
        }
        let renamed = self.takes("as").then(|| self.take()).flatten();
        let last = renamed.map_or(*path.last().unwrap_or(&"_"), |token| token.text);
        vec![(path, Bound::Name(last))]
    }
}

#[cfg(test)]
mod tests;
