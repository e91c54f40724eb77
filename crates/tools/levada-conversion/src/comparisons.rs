//! Comparisons of parts of requests with texts: the path, the host, the method, the scheme, a field, an argument.

use std::fmt::Write as _;

use crate::{
    matchers::{Condition, checked_regex, field_name, is_changed_on_the_way, quoted},
    table::{Table, Value},
};

/// How a part is compared with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// It is the text.
    Is,
    /// It begins with the text.
    Begins,
    /// It ends with the text.
    Ends,
    /// The text is in it.
    Contains,
    /// The regular expression is found in it.
    Matches,
}

impl Test {
    /// The regular expression that says the same.
    fn regex(self, text: &str) -> String {
        let escaped = regex::escape(text);
        match self {
            Self::Is => format!("^{escaped}$"),
            Self::Begins => format!("^{escaped}"),
            Self::Ends => format!("{escaped}$"),
            Self::Contains => escaped,
            Self::Matches => text.to_owned(),
        }
    }
}

/// Comparisons with texts, of which one must hold.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// How.
    pub test: Test,
    /// With these texts.
    pub texts: &'a [String],
    /// Whether the case of letters does not count.
    pub ignores_case: bool,
}

impl Comparison<'_> {
    /// One regular expression for all texts.
    pub fn regex(&self) -> Result<String, String> {
        let all: Vec<_> = self.texts.iter().map(|text| self.test.regex(text)).collect();
        let mut joined = if self.ignores_case { "(?i)".to_owned() } else { String::new() };
        match &all[..] {
            [one] => joined.push_str(one),
            _ => {
                let _ = write!(joined, "(?:{})", all.join("|"));
            }
        }
        checked_regex(&joined)
    }

    /// The comparison as an expression about `name`.
    fn expression(&self, name: &str) -> Result<String, String> {
        let call = match self.test {
            _ if self.ignores_case => None,
            Test::Is if self.texts.len() > 1 => {
                let all: Vec<_> = self.texts.iter().map(|text| quoted(text)).collect();
                return Ok(format!("{name} in [{}]", all.join(", ")));
            }
            Test::Is => return Ok(format!("{name} == {}", quoted(self.text()))),
            Test::Begins => Some("startsWith"),
            Test::Ends => Some("endsWith"),
            Test::Contains => Some("contains"),
            Test::Matches => None,
        };
        match call.filter(|_| self.texts.len() == 1) {
            Some(call) => Ok(format!("{name}.{call}({})", quoted(self.text()))),
            None => Ok(format!("{name}.matches({})", quoted(&self.regex()?))),
        }
    }

    fn text(&self) -> &str {
        self.texts.first().map_or("", String::as_str)
    }

    /// The texts as patterns with `*`, where `any` is any run of characters.
    fn patterns(&self, any: &str) -> Option<Vec<String>> {
        let pattern = |text: &String| match self.test {
            _ if self.ignores_case || text.contains(['*', '?', '%']) => None,
            Test::Is => Some(text.clone()),
            Test::Begins => Some(format!("{text}{any}")),
            Test::Ends => Some(format!("{any}{text}")),
            Test::Contains => Some(format!("{any}{text}{any}")),
            Test::Matches => None,
        };
        self.texts.iter().map(pattern).collect()
    }
}

const NO_MATCHER: &str = "there is no matcher for it";

fn condition(key: &str, value: Value, expression: Option<String>) -> Result<Condition, String> {
    let mut matchers = Table::default();
    matchers.set(key, value);
    Condition::of(Some(matchers), expression).ok_or_else(|| NO_MATCHER.to_owned())
}

/// The path of the request.
pub fn path(comparison: &Comparison<'_>) -> Result<Condition, String> {
    if comparison.test == Test::Begins && comparison.texts.iter().any(|text| text == "/") {
        return Ok(Condition::everything());
    }
    // A pattern whose `**` stands after `/` takes the path before it as well.
    let is_exact = |text: &String| match comparison.test {
        Test::Is => text.starts_with('/'),
        Test::Begins => text.starts_with('/') && !text.ends_with('/'),
        Test::Ends => !text.starts_with('/'),
        Test::Contains | Test::Matches => false,
    };
    let patterns = comparison.patterns("**").filter(|_| comparison.texts.iter().all(is_exact));
    let patterns = patterns.map(|all| match comparison.test {
        Test::Ends => all.into_iter().map(|pattern| format!("/{pattern}")).collect(),
        _ => all,
    });
    let expression = Some(comparison.expression("request.path")?);
    match patterns {
        Some(patterns) => condition("path", patterns.into(), expression),
        None => condition("path_regex", comparison.regex()?.into(), expression),
    }
}

/// The host of the request.
pub fn host(comparison: &Comparison<'_>) -> Result<Condition, String> {
    let lower: Vec<_> = match comparison.test {
        Test::Matches => comparison.texts.to_vec(),
        _ => comparison.texts.iter().map(|text| text.to_ascii_lowercase()).collect(),
    };
    // Hosts are in lower case.
    let own = Comparison {
        texts: &lower,
        ignores_case: comparison.ignores_case && comparison.test == Test::Matches,
        ..*comparison
    };
    let expression = own.expression("request.host")?;
    match own.patterns("*") {
        Some(patterns) => condition("host", patterns.into(), Some(expression)),
        None => Condition::of(None, Some(expression)).ok_or_else(|| NO_MATCHER.to_owned()),
    }
}

/// The method of the request.
pub fn method(methods: &[String]) -> Result<Condition, String> {
    let is_token = |text: &String| !text.is_empty() && text.bytes().all(|c| c.is_ascii_graphic());
    if !methods.iter().all(is_token) {
        return Err(format!("{}: is no method", methods.join(" ")));
    }
    let comparison = Comparison { test: Test::Is, texts: methods, ignores_case: false };
    let expression = comparison.expression("request.method")?;
    condition("method", methods.to_vec().into(), Some(expression))
}

/// The scheme of the client.
pub fn scheme(scheme: &str) -> Condition {
    Condition::of(
        Some(Table::from_iter([("scheme", scheme.into())])),
        Some(format!("request.scheme == {}", quoted(scheme))),
    )
    .unwrap_or_else(Condition::everything)
}

/// A part of a request with a name of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A header field.
    Header,
    /// A cookie.
    Cookie,
    /// An argument of the query.
    Query,
}

impl Named {
    fn key(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Cookie => "cookie",
            Self::Query => "query",
        }
    }

    /// The map that expressions have for it.
    fn map(self) -> &'static str {
        match self {
            Self::Header => "request.headers",
            Self::Cookie => "request.cookies",
            Self::Query => "request.query_params",
        }
    }

    /// The name that expressions have for one of these.
    pub fn in_expression(self, name: &str) -> Result<String, String> {
        if self == Self::Header && is_changed_on_the_way(name) {
            return Err(format!("no rule looks at `{name}`: nodes and proxies change it"));
        }
        Ok(format!("{}[{}]", self.map(), quoted(&self.name(name))))
    }

    fn name(self, name: &str) -> String {
        if self == Self::Header { name.to_ascii_lowercase() } else { name.to_owned() }
    }
}

/// Whether the request has the part.
pub fn exists(kind: Named, name: &str) -> Result<Condition, String> {
    kind.in_expression(name)?;
    let mut inner = Table::default();
    inner.set(&shown(kind, name), true);
    let expression = format!("{} in {}", quoted(&kind.name(name)), kind.map());
    condition(kind.key(), inner.into(), Some(expression))
}

/// The value of the part, as a whole.
pub fn named(kind: Named, name: &str, comparison: &Comparison<'_>) -> Result<Condition, String> {
    let expression = comparison.expression(&kind.in_expression(name)?)?;
    // Of a field with several lines a matcher looks at each, an expression at all together.
    let pattern = comparison.patterns("*").filter(|all| all.len() == 1 && !all[0].is_empty());
    match pattern.filter(|_| !comparison.text().is_empty()) {
        Some(patterns) => {
            let mut inner = Table::default();
            inner.set(&shown(kind, name), patterns);
            condition(kind.key(), inner.into(), Some(expression))
        }
        None => Condition::of(None, Some(expression)).ok_or_else(|| NO_MATCHER.to_owned()),
    }
}

/// An expression whose groups have the names `g1`, `g2` and so on, and their number. Patterns of a route have numbers.
pub fn named_groups(regex: &str) -> (String, usize) {
    let (mut named, mut number, mut is_class) = (String::new(), 0, false);
    let mut rest = regex.chars().peekable();
    while let Some(c) = rest.next() {
        named.push(c);
        match c {
            '\\' => named.extend(rest.next()),
            '[' => is_class = true,
            ']' => is_class = false,
            '(' if !is_class && rest.peek() != Some(&'?') => {
                number += 1;
                named.push_str(&format!("?<g{number}>"));
            }
            _ => {}
        }
    }
    (named, number)
}

/// A field by an expression alone, which sees all of its lines joined with commas.
pub fn joined_field(name: &str, regex: &str) -> Result<Condition, String> {
    let name = Named::Header.in_expression(name)?;
    let expression = format!("{name}.matches({})", quoted(&checked_regex(regex)?));
    Condition::of(None, Some(expression)).ok_or_else(|| NO_MATCHER.to_owned())
}

fn shown(kind: Named, name: &str) -> String {
    if kind == Named::Header { field_name(name) } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{Comparison, Test, host, path};

    fn table(test: Test, texts: &[&str], ignores_case: bool) -> String {
        let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
        let condition = path(&Comparison { test, texts: &texts, ignores_case }).unwrap();
        condition.table().unwrap().to_string()
    }

    #[test]
    fn a_path_is_a_pattern_where_a_pattern_takes_the_same_paths() {
        assert_eq!(table(Test::Begins, &["/api"], false), "path = \"/api**\"\n");
        assert_eq!(table(Test::Begins, &["/api/"], false), "path_regex = \"^/api/\"\n");
        assert_eq!(
            table(Test::Ends, &[".jpg", ".png"], false),
            "path = [\"/**.jpg\", \"/**.png\"]\n"
        );
        assert_eq!(table(Test::Is, &["/A"], true), "path_regex = \"(?i)^/A$\"\n");
        assert_eq!(table(Test::Begins, &["/"], false), "");
    }

    #[test]
    fn either_of_two_paths_is_one_list() {
        let is = |text: &str| {
            path(&Comparison { test: Test::Is, texts: &[text.to_owned()], ignores_case: false })
                .unwrap()
        };
        let both = is("/a").or(&is("/b")).unwrap();
        assert_eq!(both.table().unwrap().to_string(), "path = [\"/a\", \"/b\"]\n");
        assert_eq!(both.text(), Some("request.path == '/a' || request.path == '/b'"));
    }

    #[test]
    fn hosts_are_compared_in_lower_case() {
        let texts = ["WWW.".to_owned()];
        let begins = host(&Comparison { test: Test::Begins, texts: &texts, ignores_case: true });
        assert_eq!(begins.unwrap().table().unwrap().to_string(), "host = \"www.*\"\n");
    }
}
