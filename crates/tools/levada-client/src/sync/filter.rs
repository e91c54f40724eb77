//! The filter of a tree's paths.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Patterns as in `.gitignore`: a pattern without a slash matches names anywhere, a pattern with a
/// slash matches paths from the root. `*` does not match a slash, `**` does. A directory that
/// matches includes its content.
#[derive(Clone, Debug, Default)]
pub struct PathFilter {
    include: Option<GlobSet>,
    exclude: Option<GlobSet>,
}

/// The reason why a pattern cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the pattern `{pattern}`: {why}")]
pub struct FilterError {
    pattern: String,
    why: globset::Error,
}

impl PathFilter {
    /// Includes paths that match one of `include`, or all paths if it is empty, except those that
    /// match one of `exclude`.
    ///
    /// # Errors
    /// When a pattern is invalid.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, FilterError> {
        Ok(Self { include: set(include)?, exclude: set(exclude)? })
    }

    /// Whether the file or link at `path` is included.
    pub fn takes(&self, path: &[u8]) -> bool {
        self.include.as_ref().is_none_or(|set| matches(set, path)) && !self.excludes(path)
    }

    /// Whether `path`, or one of its parent directories, is excluded.
    pub fn excludes(&self, path: &[u8]) -> bool {
        self.exclude.as_ref().is_some_and(|set| matches(set, path))
    }

    /// Whether all paths are included.
    pub fn is_all(&self) -> bool {
        self.include.is_none() && self.exclude.is_none()
    }
}

/// Whether the path, or one of its parent directories, matches.
fn matches(set: &GlobSet, path: &[u8]) -> bool {
    let path = Path::new(OsStr::from_bytes(path));
    path.ancestors().any(|part| !part.as_os_str().is_empty() && set.is_match(part))
}

fn set(patterns: &[String]) -> Result<Option<GlobSet>, FilterError> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut set = GlobSetBuilder::new();
    let wrong = |pattern: &str, why| FilterError { pattern: pattern.to_owned(), why };
    for pattern in patterns {
        let bare = pattern.trim_end_matches('/');
        let rooted = bare.trim_start_matches('/');
        let anywhere = !bare.contains('/');
        let glob = if anywhere { format!("**/{bare}") } else { rooted.to_owned() };
        let glob = GlobBuilder::new(&glob).literal_separator(true).build();
        set.add(glob.map_err(|why| wrong(pattern, why))?);
    }
    let why = |why| wrong(&patterns.join(" "), why);
    Ok(Some(set.build().map_err(why)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(include: &[&str], exclude: &[&str], path: &str) -> bool {
        let owned = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
        PathFilter::new(&owned(include), &owned(exclude)).unwrap().takes(path.as_bytes())
    }

    #[test]
    fn patterns_are_as_in_gitignore() {
        assert!(taken(&[], &[], "a/b"));
        assert!(!taken(&[], &["*.o"], "a/b.o"));
        assert!(taken(&[], &["/*.o"], "a/b.o"));
        assert!(!taken(&[], &["/*.o"], "b.o"));
        assert!(!taken(&[], &["target/"], "x/target/y/z"));
        assert!(taken(&["docs"], &["*.bak"], "docs/a/b"));
        assert!(!taken(&["docs"], &["*.bak"], "docs/a/b.bak"));
        assert!(!taken(&["docs/*.md"], &[], "docs/a/b.md"));
        assert!(taken(&["docs/**/*.md"], &[], "docs/a/b.md"));
        assert!(PathFilter::new(&["[".to_owned()], &[]).is_err());
    }
}
