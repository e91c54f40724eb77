//! The file that a URL names: its path below the root, or the reason why there cannot be one.
//!
//! Every path that is accepted here is the normal form that routes compare (`levada_rules::normal_path`), so
//! that no spelling leads past the rules of a route to its files.

use std::{borrow::Cow, fmt};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// A path below the root: segments with `/` between them, none of which is empty, hidden, or `..`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FilePath {
    relative: String,
    is_directory: bool,
}

/// Why a URL names no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// A segment cannot be the name of a file.
    Malformed,
    /// A segment begins with a dot, or leads upwards.
    Hidden,
}

/// The only name with a dot that is served, and only directly below the root (RFC 8615).
const WELL_KNOWN: &str = ".well-known";

impl FilePath {
    /// Reads the path of a request's target. It is split before it is decoded, so that an encoded `/` is part of
    /// a name, which no file has.
    ///
    /// # Errors
    /// When it cannot name a file that is served.
    pub fn of(target: &str) -> Result<Self, PathError> {
        let path = target.split('?').next().unwrap_or_default();
        let mut relative = String::with_capacity(path.len());
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            let name = percent_decode_str(segment).decode_utf8();
            let name = name.map_err(|_| PathError::Malformed)?;
            if name.contains(['/', '\\', '\0']) {
                return Err(PathError::Malformed);
            }
            if name.starts_with('.') && !(relative.is_empty() && name == WELL_KNOWN) {
                return Err(PathError::Hidden);
            }
            if !relative.is_empty() {
                relative.push('/');
            }
            relative.push_str(&name);
        }
        let is_directory = relative.is_empty() || path.ends_with('/');
        Ok(Self { relative, is_directory })
    }

    /// Whether the URL names a directory, by a `/` at its end.
    pub fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// The same with a `/` at its end.
    pub(crate) fn as_directory(&self) -> Self {
        Self { relative: self.relative.clone(), is_directory: true }
    }

    /// The path below the root; empty for the root itself.
    pub fn relative(&self) -> &str {
        &self.relative
    }

    /// The path below the root; `.` for the root itself.
    pub(crate) fn or_dot(&self) -> &str {
        if self.relative.is_empty() { "." } else { &self.relative }
    }

    /// The path of a file in this directory.
    pub(crate) fn child(&self, name: &str) -> String {
        match &*self.relative {
            "" => name.to_owned(),
            directory => format!("{directory}/{name}"),
        }
    }

    /// The URL of the directory with this path, relative to the URL that lacks the `/`. So it is right even if
    /// a proxy or a rewrite changed what comes before. `./` keeps a `:` from being read as the end of a scheme.
    pub(crate) fn with_slash(&self, target: &str) -> String {
        let name = self.relative.rsplit('/').next().unwrap_or_default();
        let name = escaped(name);
        let query = target.split_once('?').map(|(_, query)| query);
        let (mark, query) = query.map_or(("", ""), |query| ("?", query));
        format!("./{name}/{mark}{query}")
    }
}

/// A name as a segment of a URL.
pub(crate) fn escaped(name: &str) -> Cow<'_, str> {
    utf8_percent_encode(name, ESCAPED).into()
}

/// All but the unreserved characters (RFC 3986 Sec. 2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.relative)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn relative(target: &str) -> Result<String, PathError> {
        FilePath::of(target).map(|path| path.relative)
    }

    #[test]
    fn paths_are_decoded_once_and_taken_below_the_root() {
        for (target, path) in [
            ("/", ""),
            ("/a/b.css", "a/b.css"),
            ("/a?b=/../c", "a"),
            ("//a///b", "a/b"),
            ("/caf%C3%A9", "café"),
            ("/%61", "a"),
            ("/a%252fb", "a%2fb"),
            ("/..a%20b", "x"),
            ("/.well-known/acme/x", ".well-known/acme/x"),
            ("/a..b/c.", "a..b/c."),
        ] {
            match path {
                "x" => assert_eq!(relative(target), Err(PathError::Hidden), "{target}"),
                path => assert_eq!(relative(target).as_deref(), Ok(path), "{target}"),
            }
        }
        assert!(FilePath::of("/a/").unwrap().is_directory);
        assert!(FilePath::of("/").unwrap().is_directory);
        assert!(!FilePath::of("/a").unwrap().is_directory);
    }

    #[test]
    fn no_spelling_leads_upwards_or_to_hidden_files() {
        for target in [
            "/..",
            "/../etc/passwd",
            "/a/../../b",
            "/%2e%2e/b",
            "/.%2e/b",
            "/a/%2E%2E",
            "/.",
            "/a/./b",
            "/.git/config",
            "/a/.htaccess",
            "/%2egit",
            "/a/.well-known/x",
            "/.well-known/.x",
        ] {
            assert_eq!(relative(target), Err(PathError::Hidden), "{target}");
        }
        for target in ["/a%2fb", "/..%2f..%2fetc", "/a%5cb", "/a\\b", "/a%00", "/%ff", "/a%2Fb"] {
            assert_eq!(relative(target), Err(PathError::Malformed), "{target}");
        }
    }

    #[test]
    fn directories_url_is_relative_and_escaped() {
        let url = |target: &str| FilePath::of(target).unwrap().with_slash(target);
        assert_eq!(url("/a/b?c=1"), "./b/?c=1");
        assert_eq!(url("//evil.test"), "./evil.test/");
        assert_eq!(url("/http:x"), "./http%3Ax/");
        assert_eq!(url("/a%0d%0ab"), "./a%0D%0Ab/");
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_stays_below_the_root(target in "/[./%2eEfF5cC0\\\\a?]{0,24}") {
            if let Ok(path) = FilePath::of(&target) {
                for name in path.relative.split('/').filter(|_| !path.relative.is_empty()) {
                    prop_assert!(!name.is_empty());
                    prop_assert!(!name.starts_with('.'));
                    prop_assert!(!name.contains(['\\', '\0']));
                }
            }
        }
    }
}
