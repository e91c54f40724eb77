//! Patterns of paths and of other texts. All are matched in linear time by the crate regex.

use regex::{Regex, RegexBuilder};

use crate::lazy_regex::LazyRegex;

/// Why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// A path begins with `/`.
    #[error("does not begin with `/`, or with `**`")]
    NoSlash,
    /// A query is no part of a path.
    #[error("has a `?`: a query is no part of the path, `query` matches it")]
    Query,
    /// More than two stars.
    #[error(
        "has three stars in a row: `*` is any run of characters without `/`, `**` also with `/`"
    )]
    Stars,
    /// It is longer than 1,024 bytes.
    #[error("is longer than {LONGEST} bytes")]
    TooLong,
    /// It has more than 16 stars.
    #[error("has more than {MOST_STARS} stars")]
    TooManyStars,
    /// The compiled expression is larger than 256 KiB.
    #[error("needs more than {} KiB when it is compiled", LARGEST >> 10)]
    TooLarge,
    /// The expression is wrong.
    #[error("is no regular expression: {0}")]
    Syntax(String),
}

/// The longest pattern in bytes.
pub(crate) const LONGEST: usize = 1024;
/// The most stars in one pattern.
pub(crate) const MOST_STARS: usize = 16;
/// The most bytes of a compiled expression. Repetitions such as `(a{1000}){1000}` exceed any bound.
pub(crate) const LARGEST: usize = 256 << 10;

/// A pattern of paths: `*` is any run of characters without `/`, `**` any run, and `/**` at the end the
/// directory itself, too. Each star is a capture.
#[derive(Clone, Debug, PartialEq)]
pub struct PathPattern {
    text: String,
    /// The characters before the first star; the whole text if there is none.
    literal: String,
    kind: Kind,
    stars: usize,
}

/// How much of a path a pattern fixes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// The whole path.
    Exact,
    /// The beginning: `/img/**`, whose literal is `/img`, which a `/` or nothing follows.
    Below,
    /// Anything else.
    Regex(LazyRegex),
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// If it is not a pattern of paths, or too large.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.len() > LONGEST {
            return Err(PatternError::TooLong);
        }
        if !text.starts_with('/') && !text.starts_with("**") {
            return Err(PatternError::NoSlash);
        }
        if text.contains('?') {
            return Err(PatternError::Query);
        }
        let parts = stars(text)?;
        let stars = parts.iter().filter(|part| !matches!(part, Part::Text(_))).count();
        let literal = match parts.first() {
            Some(Part::Text(text)) => *text,
            _ => "",
        };
        let (literal, kind) = match &parts[..] {
            [] | [Part::Text(_)] => (literal, Kind::Exact),
            [Part::Text(text), Part::Any] if text.ends_with('/') => {
                (literal.trim_end_matches('/'), Kind::Below)
            }
            _ => (literal, Kind::Regex(LazyRegex::new(path_expression(&parts))?)),
        };
        Ok(Self { text: text.to_owned(), literal: literal.to_owned(), kind, stars })
    }

    /// As it stands in the configuration.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the path, in its normal form, matches.
    pub fn matches(&self, path: &str) -> bool {
        match &self.kind {
            Kind::Exact => path == self.literal,
            Kind::Below => path
                .strip_prefix(&*self.literal)
                .is_some_and(|rest| matches!(rest.as_bytes().first(), None | Some(b'/'))),
            Kind::Regex(regex) => regex.get().is_some_and(|regex| regex.is_match(path)),
        }
    }

    /// The number of captures: one for each star.
    pub fn captures(&self) -> usize {
        self.stars
    }

    /// The parts of the path that the stars stand for, if the path matches.
    pub fn capture<'p>(&self, path: &'p str) -> Option<Vec<&'p str>> {
        match &self.kind {
            Kind::Exact => self.matches(path).then(Vec::new),
            Kind::Below => {
                let rest = path.get(self.literal.len()..).filter(|_| self.matches(path))?;
                Some(vec![rest.strip_prefix('/').unwrap_or(rest)])
            }
            Kind::Regex(regex) => {
                let found = regex.get()?.captures(path)?;
                Some(
                    found
                        .iter()
                        .skip(1)
                        .map(|part| part.map_or("", |part| part.as_str()))
                        .collect(),
                )
            }
        }
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    pub(crate) fn literal(&self) -> &str {
        &self.literal
    }

    /// Whether every path that `other` matches is matched by this one, as far as that is easy to say.
    pub fn covers(&self, other: &Self) -> bool {
        let all = matches!(self.kind, Kind::Below) && self.literal.is_empty();
        all || self.text == other.text
            || match (&self.kind, &other.kind) {
                (_, Kind::Exact) => self.matches(&other.literal),
                (Kind::Below, _) => {
                    let rest = other.literal.strip_prefix(&*self.literal);
                    rest.is_some_and(|rest| match other.kind {
                        Kind::Below => rest.is_empty() || rest.starts_with('/'),
                        _ => rest.starts_with('/'),
                    })
                }
                _ => false,
            }
    }
}

/// A regular expression that is searched in a path.
#[derive(Clone, Debug)]
pub struct PathRegex {
    regex: Regex,
    /// What each path begins with that matches.
    literal: String,
}

impl PartialEq for PathRegex {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl PathRegex {
    /// Reads an expression.
    ///
    /// # Errors
    /// If it is wrong or too large.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        Ok(Self { regex: regex(text)?, literal: literal_beginning(text) })
    }

    /// As it stands in the configuration.
    pub fn as_str(&self) -> &str {
        self.regex.as_str()
    }

    /// Whether it is found in the path.
    pub fn matches(&self, path: &str) -> bool {
        self.regex.is_match(path)
    }

    /// The number of captures, without the whole match.
    pub fn captures(&self) -> usize {
        self.regex.captures_len() - 1
    }

    /// The number of the capture with this name.
    pub fn named(&self, name: &str) -> Option<usize> {
        self.regex.capture_names().position(|own| own == Some(name))
    }

    /// What each group captures, if the path matches; empty for a group that takes no part.
    pub fn capture<'p>(&self, path: &'p str) -> Option<Vec<&'p str>> {
        let found = self.regex.captures(path)?;
        Some(found.iter().skip(1).map(|part| part.map_or("", |part| part.as_str())).collect())
    }

    pub(crate) fn literal(&self) -> &str {
        &self.literal
    }
}

/// A pattern of other texts, in which `*` is any run of characters.
#[derive(Clone, Debug, PartialEq)]
pub struct TextPattern {
    text: String,
    /// `None` where the text has no star.
    regex: Option<LazyRegex>,
}

impl TextPattern {
    /// Reads a pattern. In one that ignores case, letters match both cases.
    ///
    /// # Errors
    /// If it is too large.
    pub fn parse(text: &str, ignore_case: bool) -> Result<Self, PatternError> {
        if text.len() > LONGEST {
            return Err(PatternError::TooLong);
        }
        if text.bytes().filter(|byte| *byte == b'*').count() > MOST_STARS {
            return Err(PatternError::TooManyStars);
        }
        let text = if ignore_case { text.to_ascii_lowercase() } else { text.to_owned() };
        let regex = match text.contains('*') {
            false => None,
            true => {
                let parts: Vec<String> = text.split('*').map(regex::escape).collect();
                let case = if ignore_case { "(?i)" } else { "" };
                Some(LazyRegex::new(format!("(?s){case}^{}$", parts.join(".*")))?)
            }
        };
        Ok(Self { text, regex })
    }

    /// As it stands in the configuration.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the value matches. Bytes that are no UTF-8 match a star only.
    pub fn matches(&self, value: &[u8]) -> bool {
        match &self.regex {
            None => value == self.text.as_bytes(),
            Some(regex) => {
                let value = String::from_utf8_lossy(value);
                regex.get().is_some_and(|regex| regex.is_match(&value))
            }
        }
    }
}

enum Part<'a> {
    Text(&'a str),
    /// `*`
    Segment,
    /// `**`
    Any,
}

fn stars(text: &str) -> Result<Vec<Part<'_>>, PatternError> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let at = rest.find('*').unwrap_or(rest.len());
        if at > 0 {
            parts.push(Part::Text(&rest[..at]));
        }
        let after = rest[at..].trim_start_matches('*');
        match rest.len() - at - after.len() {
            0 => {}
            1 => parts.push(Part::Segment),
            2 => parts.push(Part::Any),
            _ => return Err(PatternError::Stars),
        }
        rest = after;
    }
    let count = parts.iter().filter(|part| !matches!(part, Part::Text(_))).count();
    if count > MOST_STARS { Err(PatternError::TooManyStars) } else { Ok(parts) }
}

fn path_expression(parts: &[Part<'_>]) -> String {
    let mut expression = String::from("(?s)^");
    for (at, part) in parts.iter().enumerate() {
        let last = at + 1 == parts.len();
        match part {
            Part::Text(text)
                if at + 2 == parts.len()
                    && text.ends_with('/')
                    && matches!(parts[at + 1], Part::Any) =>
            {
                // `/**` at the end: the directory itself, too.
                expression += &regex::escape(text.trim_end_matches('/'));
                expression += "(?:/(.*))?$";
                return expression;
            }
            Part::Text(text) => expression += &regex::escape(text),
            Part::Segment => expression += "([^/]*)",
            Part::Any => expression += "(.*)",
        }
        if last {
            expression.push('$');
        }
    }
    expression
}

/// Compiles an expression of the configuration.
pub(crate) fn regex(text: &str) -> Result<Regex, PatternError> {
    if text.len() > LONGEST { Err(PatternError::TooLong) } else { compile(text) }
}

pub(crate) fn compile(expression: &str) -> Result<Regex, PatternError> {
    let built = RegexBuilder::new(expression).size_limit(LARGEST).nest_limit(50).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => PatternError::TooLarge,
        // The last line names the mistake; those before it draw where it is.
        other => {
            let text = other.to_string();
            let last = text.lines().last().unwrap_or_default().trim();
            PatternError::Syntax(last.trim_start_matches("error: ").to_owned())
        }
    })
}

/// The literal text that an expression begins with, if it is bound to the beginning of the path.
fn literal_beginning(expression: &str) -> String {
    let Some(rest) = expression.strip_prefix('^') else { return String::new() };
    // Alternatives have beginnings of their own.
    if rest.contains('|') {
        return String::new();
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-');
    let end = rest.find(|c| !plain(c)).unwrap_or(rest.len());
    let literal = &rest[..end];
    let optional = rest[end..].starts_with(['*', '?', '{']);
    // A repetition that may be empty takes the last character along.
    let end = if optional { literal.len().saturating_sub(1) } else { literal.len() };
    literal[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_runs_with_and_without_slashes() {
        for (pattern, matching, others) in [
            ("/about", &["/about"][..], &["/about/", "/About", "/abou"][..]),
            ("/img/*", &["/img/a", "/img/"], &["/img", "/img/a/b", "/imga"]),
            ("/img/**", &["/img", "/img/", "/img/a/b"], &["/images", "/im"]),
            ("/**.jpg", &["/a.jpg", "/a/b.jpg"], &["/a.jpg/", "/ajpg"]),
            ("**.jpg", &["/a.jpg"], &["/a.png"]),
            ("/*/edit", &["/a/edit"], &["/a/b/edit", "/edit"]),
            ("/a/*/c/**", &["/a/b/c", "/a/b/c/", "/a/b/c/d"], &["/a/c", "/a/b/cd"]),
            ("/**", &["/", "/a/b"], &[]),
            ("/a.b", &["/a.b"], &["/aXb"]),
        ] {
            let pattern = PathPattern::parse(pattern).unwrap();
            for path in matching {
                assert!(pattern.matches(path), "{} {path}", pattern.as_str());
                assert_eq!(pattern.capture(path).unwrap().len(), pattern.captures());
            }
            for path in others {
                assert!(!pattern.matches(path), "{} {path}", pattern.as_str());
                assert_eq!(pattern.capture(path), None);
            }
        }
    }

    #[test]
    fn stars_capture_what_they_stand_for() {
        let captured = |pattern: &str, path| {
            let pattern = PathPattern::parse(pattern).unwrap();
            pattern.capture(path).unwrap().join("|")
        };
        assert_eq!(captured("/old/**", "/old/a/b"), "a/b");
        assert_eq!(captured("/old/**", "/old"), "");
        assert_eq!(captured("/*/x/*.jpg", "/a/x/b.jpg"), "a|b");
        assert_eq!(captured("/*/x/**", "/a/x"), "a|");
    }

    #[test]
    fn bombs_are_refused() {
        assert_eq!(PathPattern::parse("a").unwrap_err(), PatternError::NoSlash);
        assert_eq!(PathPattern::parse("/a?b").unwrap_err(), PatternError::Query);
        assert_eq!(PathPattern::parse("/***").unwrap_err(), PatternError::Stars);
        let stars = "/*a".repeat(17);
        assert_eq!(PathPattern::parse(&stars).unwrap_err(), PatternError::TooManyStars);
        assert_eq!(PathPattern::parse(&"/a".repeat(600)).unwrap_err(), PatternError::TooLong);
        assert_eq!(PathRegex::parse("(a{1000}){1000}").unwrap_err(), PatternError::TooLarge);
        assert!(matches!(PathRegex::parse("(a"), Err(PatternError::Syntax(_))));
        assert!(matches!(PathRegex::parse(&"(".repeat(500)), Err(PatternError::Syntax(_))));
    }

    #[test]
    fn literal_beginning_is_one_of_every_path_that_matches() {
        for (expression, literal) in [
            ("^/api/v(\\d+)", "/api/v"),
            ("^/api/v*", "/api/"),
            ("^/api/v+", "/api/v"),
            ("^/a|b", ""),
            ("/a", ""),
            ("^/a$", "/a"),
            ("(?i)^/a", ""),
        ] {
            assert_eq!(literal_beginning(expression), literal, "{expression}");
        }
    }

    #[test]
    fn text_patterns_ignore_case_where_the_field_does() {
        let pattern = TextPattern::parse("*.Example.com", true).unwrap();
        assert!(pattern.matches(b"www.example.com"));
        assert!(!pattern.matches(b"example.com"));
        let pattern = TextPattern::parse("a*b", false).unwrap();
        assert!(pattern.matches(b"a\xff\nb") && !pattern.matches(b"A b"));
    }
}
