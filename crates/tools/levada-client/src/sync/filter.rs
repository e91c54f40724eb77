//! The filter of a tree's paths, with the rules of rsync: in their order, the first one that matches
//! decides.

use std::fmt::Write as _;

use regex::bytes::{Regex, RegexBuilder};

/// An ordered list of rules. A path that no rule matches is taken; an excluded directory excludes its
/// content.
#[derive(Clone, Debug, Default)]
pub struct PathFilter {
    rules: Vec<CompiledRule>,
}

/// A rule as the user writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRule {
    /// Whether a path that matches is taken.
    pub include: bool,
    /// The pattern, as of rsync.
    pub pattern: String,
}

#[derive(Clone, Debug)]
struct CompiledRule {
    include: bool,
    directories_only: bool,
    pattern: Regex,
}

/// The reason why a pattern cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the pattern `{pattern}` {why}")]
pub struct FilterError {
    pattern: String,
    why: String,
}

impl FilterRule {
    /// The rules of a file: a pattern on each line, which is included or excluded as `include` says,
    /// unless `+ ` or `- ` is before it. A line `!` removes the rules before it; empty lines and those
    /// that begin with `#` or `;` are comments.
    pub fn of_file(text: &str, include: bool) -> Vec<Self> {
        let mut rules = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
            let (include, pattern) = match line.split_at_checked(2) {
                Some(("+ ", pattern)) => (true, pattern),
                Some(("- ", pattern)) => (false, pattern),
                _ => (include, line),
            };
            if line == "!" {
                rules.clear();
            } else {
                rules.push(Self { include, pattern: pattern.to_owned() });
            }
        }
        rules
    }
}

impl PathFilter {
    /// A filter with these rules.
    ///
    /// # Errors
    /// When a pattern is invalid.
    pub fn new(rules: &[FilterRule]) -> Result<Self, FilterError> {
        Ok(Self { rules: rules.iter().map(CompiledRule::new).collect::<Result<_, _>>()? })
    }

    /// Whether the entry at `path`, and all directories that it is in, are taken.
    pub fn takes(&self, path: &[u8], is_directory: bool) -> bool {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        self.rules.is_empty()
            || slashes.map(|at| (&path[..at], true)).chain([(path, is_directory)]).all(
                |(path, is_directory)| {
                    let rule = self.rules.iter().find(|rule| rule.matches(path, is_directory));
                    rule.is_none_or(|rule| rule.include)
                },
            )
    }
}

impl CompiledRule {
    fn new(rule: &FilterRule) -> Result<Self, FilterError> {
        let wrong = |why: String| FilterError { pattern: rule.pattern.clone(), why };
        let text = rule.pattern.as_str();
        let (text, anchor) = match (text.strip_prefix('/'), text.strip_prefix("**/")) {
            (Some(rest), _) => (rest, "^"),
            // The end of a path matches, from any of its names on.
            (_, Some(rest)) => (rest, "(?:^|/)"),
            (None, None) => (text, "(?:^|/)"),
        };
        let (text, below) = match text.strip_suffix("/***") {
            Some(directory) => (directory, "(?:/.*)?"),
            None => (text, ""),
        };
        let (text, directories_only) = match text.strip_suffix('/') {
            Some(directory) => (directory, true),
            None => (text, false),
        };
        if text.is_empty() {
            return Err(wrong("is empty".to_owned()));
        }
        let body = translated(text).map_err(|why| wrong(why.to_owned()))?;
        let pattern = RegexBuilder::new(&format!("{anchor}{body}{below}$"))
            .unicode(false)
            .dot_matches_new_line(true)
            .build()
            .map_err(|why| wrong(format!("cannot be read: {why}")))?;
        Ok(Self { include: rule.include, directories_only, pattern })
    }

    fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        (is_directory || !self.directories_only) && self.pattern.is_match(path)
    }
}

/// A pattern of rsync as a regular expression: `*` and `?` do not match a slash, `**` does.
fn translated(pattern: &str) -> Result<String, &'static str> {
    // Without wildcards a backslash is an ordinary character, as in rsync.
    if !pattern.contains(['*', '?', '[']) {
        return Ok(regex::escape(pattern));
    }
    let mut text = String::new();
    let mut rest = pattern;
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        match letter {
            '*' if rest.starts_with('*') => {
                rest = rest.trim_start_matches('*');
                text.push_str(".*");
            }
            '*' => text.push_str("[^/]*"),
            '?' => text.push_str("[^/]"),
            '[' => {
                let (class, after) = class(rest).ok_or("has a `[` without its `]`")?;
                text.push_str(&class);
                rest = after;
            }
            '\\' => {
                let escaped = rest.chars().next().ok_or("ends with a backslash")?;
                rest = &rest[escaped.len_utf8()..];
                text.push_str(&regex::escape(escaped.encode_utf8(&mut [0; 4])));
            }
            letter => text.push_str(&regex::escape(letter.encode_utf8(&mut [0; 4]))),
        }
    }
    Ok(text)
}

/// The class that `text` begins with, after its `[`, as a regular expression, and the text after it.
fn class(text: &str) -> Option<(String, &str)> {
    let (negated, text) = match text.strip_prefix(['!', '^']) {
        Some(rest) => ("^", rest),
        None => ("", text),
    };
    let mut members = String::new();
    let mut rest = text;
    loop {
        if rest.starts_with(']') && rest.len() < text.len() {
            return Some((format!("[[{negated}{members}]&&[^/]]"), &rest[1..]));
        }
        if let Some((name, after)) = rest.strip_prefix("[:").and_then(|rest| rest.split_once(":]"))
        {
            let _ = write!(members, "[:{name}:]");
            rest = after;
            continue;
        }
        let (first, after) = member(rest)?;
        rest = after;
        let _ = write!(members, "\\x{{{:x}}}", u32::from(first));
        // A minus before the end of the class is a member.
        if let Some(after) = rest.strip_prefix('-').filter(|after| !after.starts_with(']')) {
            let (last, after) = member(after)?;
            rest = after;
            let _ = write!(members, "-\\x{{{:x}}}", u32::from(last));
        }
    }
}

/// The character that `text` begins with, which may be escaped, and the text after it.
fn member(text: &str) -> Option<(char, &str)> {
    let mut letters = text.chars();
    match letters.next()? {
        '\\' => Some((letters.next()?, letters.as_str())),
        letter => Some((letter, letters.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules of a text, as in a file of exclusions.
    fn takes(rules: &str, path: &str) -> bool {
        let is_directory = path.ends_with('/');
        let filter = PathFilter::new(&FilterRule::of_file(rules, false)).unwrap();
        filter.takes(path.trim_end_matches('/').as_bytes(), is_directory)
    }

    #[test]
    fn first_rule_that_matches_decides() {
        assert!(takes("", "a/b"));
        assert!(takes("+ keep.o\n*.o", "a/keep.o"));
        assert!(!takes("*.o\n+ keep.o", "a/keep.o"));
        assert!(!takes("+ keep.o\n*.o", "a/b.o"));
        // An excluded directory excludes its content, whatever other rules say of that.
        assert!(!takes("target/\n+ target/x", "target/x"));
        assert!(takes("+ docs/\n+ docs/**\n*", "docs/a/b"));
        assert!(!takes("+ docs/\n+ docs/**\n*", "a"));
        assert!(takes("# comment\n; comment\n\na\n!\n", "a"));
    }

    #[test]
    fn patterns_are_those_of_rsync() {
        for (pattern, matching, other) in [
            ("*.o", "a/b.o", "a/b.oo"),
            ("/*.o", "b.o", "a/b.o"),
            ("target/", "x/target/y", "x/target"),
            ("a/b", "x/a/b", "xa/b"),
            ("/a/b", "a/b", "x/a/b"),
            ("a/*/c", "a/b/c", "a/b/b/c"),
            ("a/**/c", "a/b/b/c", "a/c"),
            ("docs/***", "docs/", "doc/"),
            ("docs/***", "docs/a/b", "docsa"),
            ("a?c", "abc", "ac"),
            ("[a-c]x", "bx", "dx"),
            ("[!a-c]x", "dx", "ax"),
            ("x[[:digit:]]", "x7", "xa"),
            ("[]]", "]", "["),
            ("[^&]", "~", "&"),
            ("[]a-]x", "-x", "bx"),
            ("[--A]", "5", "a"),
            ("[a-e-n]", "-", "j"),
            ("[,-.]", "-", "+"),
            ("[A-\\\\]", "G", "a"),
            ("x[!b]y", "xay", "x/y"),
            ("[^[:alnum:]_]", "~", "_"),
            ("**/foo", "foo", "a/xfoo"),
            ("**/foo", "a/b/foo", "a/foo.x"),
            ("foo**too", "a/foo/x/too", "a/xfoo/too"),
            ("foo/s?b/", "a/foo/sub/x", "foo/sub"),
            ("a\\*[b]", "a*b", "axb"),
            ("a\\b", "a\\b", "ab"),
            ("a.b", "a.b", "axb"),
            ("é*", "éa", "e"),
        ] {
            assert!(!takes(pattern, matching), "{pattern} matches {matching}");
            assert!(takes(pattern, other), "{pattern} does not match {other}");
        }
        let wrong = |pattern: &str| {
            PathFilter::new(&FilterRule::of_file(pattern, false)).unwrap_err().to_string()
        };
        assert_eq!(wrong("[a"), "the pattern `[a` has a `[` without its `]`");
        assert_eq!(wrong("/"), "the pattern `/` is empty");
        assert!(wrong("[z-a]").starts_with("the pattern `[z-a]` cannot be read"));
    }
}
