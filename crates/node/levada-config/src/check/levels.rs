//! The levels of a file at which a key can be stated: a route, its site, and `[defaults]`.

use levada_types::document::{Findings, Path};

/// Tables that can state a key, the nearest first. A problem is reported where the key was stated.
#[derive(Clone)]
pub(super) struct KeyLevels(Vec<Path>);

impl KeyLevels {
    pub(super) fn of_site(site: &Path, root: &Path) -> Self {
        Self(vec![site.clone(), root.key("defaults")])
    }

    pub(super) fn of_route(route: &Path, site: &Path, root: &Path) -> Self {
        Self(vec![route.clone(), site.clone(), root.key("defaults")])
    }

    /// The nearest table only.
    pub(super) fn nearest(&self) -> Self {
        Self(self.0[..1].to_vec())
    }

    /// The levels of a table that every level can have.
    pub(super) fn inside(&self, table: &'static str) -> Self {
        Self(self.0.iter().map(|level| level.key(table)).collect())
    }

    /// Whether the key is stated, right or wrong.
    pub(super) fn have(&self, findings: &Findings<'_>, key: &'static str) -> bool {
        self.0.iter().any(|level| findings.has(&level.key(key)))
    }

    /// The place where a key within the table `key` is stated, by the names on the way to it.
    pub(super) fn below(&self, findings: &Findings<'_>, key: &'static str, names: &[&str]) -> Path {
        let at = |level: &Path| {
            names.iter().fold(level.key(key), |path, name| path.key((*name).to_owned()))
        };
        let stated = self.0.iter().map(at).find(|path| findings.has(path));
        stated.unwrap_or_else(|| self.key(findings, key))
    }

    /// The place where the key is stated; the nearest table if it is stated nowhere.
    pub(super) fn key(&self, findings: &Findings<'_>, key: &'static str) -> Path {
        let states = |level: &&Path| findings.has(&level.key(key));
        self.0.iter().find(states).unwrap_or(&self.0[0]).key(key)
    }
}
