//! Comparisons of a request's parts as the matchers of a route. Parts have nginx's names: `uri`, `http_NAME`.

use crate::{
    table::{Table, Value},
    variables,
};

/// Bytes of an expression.
pub const LONGEST: usize = 4 << 10;

/// A condition on requests in the two forms that a route has for it: matchers, and an expression in CEL. An
/// expression holds what matchers cannot, such as a negation; not every comparison has both forms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Condition {
    matchers: Option<Table>,
    expression: Option<String>,
}

impl Condition {
    /// A condition in one of the two forms, or in both.
    pub fn of(matchers: Option<Table>, expression: Option<String>) -> Option<Self> {
        let own = Self { matchers, expression };
        own.table().is_some().then_some(own)
    }

    /// The condition that holds for every request.
    pub fn everything() -> Self {
        Self { matchers: Some(Table::default()), expression: None }
    }

    /// Clients with these addresses or prefixes.
    pub fn clients(prefixes: &[String]) -> Self {
        let one = |prefix: &String| {
            // A network in CEL has its length.
            let full = match (prefix.contains('/'), prefix.contains(':')) {
                (true, _) => prefix.clone(),
                (false, false) => format!("{prefix}/32"),
                (false, true) => format!("{prefix}/128"),
            };
            format!("cidr({}).containsIP(source.address)", quoted(&full))
        };
        let list = Value::from(prefixes.to_vec());
        Self {
            matchers: Some(Table::from_iter([("client", list)])),
            expression: Some(prefixes.iter().map(one).collect::<Vec<_>>().join(" || ")),
        }
    }

    /// The comparison of a variable with a value, by nginx's operators.
    pub fn comparison(variable: &str, operator: &str, value: &str) -> Result<Self, String> {
        let both = Self {
            matchers: matchers(variable, operator, value),
            expression: expression(variable, operator, value),
        };
        if both.table().is_none() {
            return Err(format!("there is no matcher for `${variable} {operator} {value}`"));
        }
        Ok(both)
    }

    /// The keys of a route that takes these requests.
    pub fn table(&self) -> Option<Table> {
        let as_expression = || Some(Table::from_iter([("when", self.text()?.into())]));
        self.matchers.clone().or_else(as_expression)
    }

    /// The condition as an expression, if a configuration may have one of its length.
    pub fn text(&self) -> Option<&str> {
        self.expression.as_deref().filter(|text| text.len() <= LONGEST)
    }

    /// Requests for which both hold.
    pub fn and(&self, other: &Self) -> Option<Self> {
        let expression = match (&self.expression, &other.expression) {
            (Some(one), Some(other)) => Some(format!("{} && {}", closed(one), closed(other))),
            // Of a condition without an expression, only one that holds always is known to be redundant.
            (None, expression) if self.holds_always() => expression.clone(),
            (expression, None) if other.holds_always() => expression.clone(),
            _ => None,
        };
        let matchers = match (self.table(), other.table()) {
            (Some(one), Some(other)) => joined(&one, &other),
            _ => None,
        };
        let needs_matchers = expression.is_none() || self.has_groups() || other.has_groups();
        let apart = || self.beside(other).or_else(|| other.beside(self));
        let matchers = matchers.or_else(|| needs_matchers.then(apart).flatten());
        let joined = Self { matchers, expression };
        joined.table().is_some().then_some(joined)
    }

    /// Whether texts of the route use groups of its expression.
    fn has_groups(&self) -> bool {
        self.matchers.as_ref().is_some_and(|own| own.to_string().contains("(?<g"))
    }

    /// The matchers of the other with this as an expression, where both look at one part. Groups stay in a matcher.
    fn beside(&self, other: &Self) -> Option<Table> {
        let when = Table::from_iter([("when", self.text()?.into())]);
        let matchers = other.matchers.as_ref().filter(|_| !self.has_groups())?;
        joined(matchers, &when)
    }

    /// Requests for which this does not hold.
    pub fn negated(&self) -> Option<Self> {
        let expression = format!("!({})", self.text()?);
        Some(Self { matchers: None, expression: Some(expression) })
    }

    /// Requests for which one of them holds.
    pub fn any(conditions: &[Self]) -> Option<Self> {
        let texts: Option<Vec<_>> = conditions.iter().map(|one| one.text().map(closed)).collect();
        match conditions {
            [one] => Some(one.clone()),
            _ => Some(Self { matchers: None, expression: Some(texts?.join(" || ")) }),
        }
    }

    /// Requests for which one of two holds, as one route where a list of values says it.
    pub fn or(&self, other: &Self) -> Option<Self> {
        if self.holds_always() || other.holds_always() {
            return Some(Self::everything());
        }
        let matchers = match (&self.matchers, &other.matchers) {
            (Some(one), Some(other)) => united(one, other),
            _ => None,
        };
        let expression = match (&self.expression, &other.expression) {
            (Some(one), Some(other)) => Some(format!("{} || {}", closed(one), closed(other))),
            _ => None,
        };
        Self::of(matchers, expression)
    }

    /// Whether it looks at the client's address.
    pub fn is_about_clients(&self) -> bool {
        let by_matcher = self.matchers.as_ref().is_some_and(|own| own.has_any(&["client"]));
        by_matcher || self.expression.as_ref().is_some_and(|own| own.contains("source.address"))
    }

    /// Whether it takes every request.
    pub fn holds_always(&self) -> bool {
        self.matchers.as_ref().is_some_and(Table::is_empty)
    }
}

fn closed(expression: &str) -> String {
    match expression.contains(" || ") || expression.contains(" && ") {
        true => format!("({expression})"),
        false => expression.to_owned(),
    }
}

/// The matchers of requests that one of two takes, if both look at the same part by a list of values.
fn united(one: &Table, other: &Table) -> Option<Table> {
    let ([(key, value)], [(other_key, other_value)]) =
        (&one.iter().collect::<Vec<_>>()[..], &other.iter().collect::<Vec<_>>()[..])
    else {
        return None;
    };
    let mut united = one.clone();
    match *key {
        _ if key != other_key => return None,
        "path" | "host" | "method" | "client" => {
            let both = value.texts().into_iter().chain(other_value.texts());
            united.set(key, Value::from(both.map(str::to_owned).collect::<Vec<_>>()));
        }
        "path_regex" => {
            let (Value::Text(own), Value::Text(text)) = (value, other_value) else { return None };
            united.set(key, format!("(?:{own})|(?:{text})"));
        }
        _ => return None,
    }
    Some(united)
}

/// The keys of a route for those of its requests for which the condition holds as well.
pub fn narrowed(route: &Table, condition: &Condition) -> Option<Table> {
    let by_matchers = condition.matchers.as_ref().and_then(|matchers| joined(route, matchers));
    by_matchers.or_else(|| {
        let when = Table::from_iter([("when", condition.text()?.into())]);
        joined(route, &when)
    })
}

/// Matchers that must hold together, if no part of a request is looked at twice.
fn joined(one: &Table, other: &Table) -> Option<Table> {
    let mut joined = one.clone();
    for (key, value) in other.iter() {
        match (joined.get(key), value) {
            (None, _) => joined.set(key, value.clone()),
            (Some(Value::Text(own)), Value::Text(text)) if key == "when" => {
                let both = format!("{} && {}", closed(own), closed(text));
                if both.len() > LONGEST {
                    return None;
                }
                joined.set(key, both);
            }
            (Some(Value::Inline(own)), Value::Inline(table))
                if table.iter().all(|(name, _)| own.get(name).is_none()) =>
            {
                joined.inline(key).lay_over(table.clone());
            }
            _ => return None,
        }
    }
    Some(joined)
}

/// The matchers for one comparison of a variable.
fn matchers(variable: &str, operator: &str, value: &str) -> Option<Table> {
    let (key, value) = match variable {
        "host" | "http_host" => ("host", pattern(operator, value)?),
        "scheme" | "https" => ("scheme", scheme(variable, operator, value)?.into()),
        "request_method" => ("method", methods(operator, value)?),
        "remote_addr" if operator == "=" => ("client", value.into()),
        "uri" | "document_uri" => path(operator, value)?,
        // Anything but a beginning may be in the query.
        "request_uri" if !is_beginning(operator, value) => return None,
        "request_uri" => path(operator, value)?,
        _ => {
            let (key, name) = match part(variable)? {
                Part::Field(name) => ("header", field_name(&name)),
                Part::Cookie(name) => ("cookie", name),
                Part::Argument(name) => ("query", name),
            };
            let mut inner = Table::default();
            inner.set(&name, pattern(operator, value)?);
            (key, inner.into())
        }
    };
    Some(Table::from_iter([(key, value)]))
}

/// Whether an expression looks at the beginning of a URL, and at nothing that may stand in its query.
fn is_beginning(operator: &str, value: &str) -> bool {
    let Some(rest) = value.strip_prefix('^').filter(|_| operator.contains('~')) else {
        return false;
    };
    let mut rest = rest.chars();
    while let Some(c) = rest.next() {
        let stays = match c {
            '\\' => rest
                .next()
                .is_some_and(|c| c != '?' && (c.is_ascii_punctuation() || "dw".contains(c))),
            // A class has letters and digits: it cannot reach from before `?` to after it.
            c => c.is_alphanumeric() || "/-_()|[]+*?{},:@;".contains(c),
        };
        if !stays {
            return false;
        }
    }
    true
}

fn scheme<'a>(variable: &str, operator: &str, value: &'a str) -> Option<&'a str> {
    match (variable, operator, value) {
        ("scheme", "=", _) => Some(value),
        ("https", "=", "on") => Some("https"),
        ("scheme", "!=", "https") | ("https", "!=", _) | ("https", _, "") => Some("http"),
        _ => None,
    }
}

fn methods(operator: &str, value: &str) -> Option<Value> {
    match operator {
        "=" => Some(value.into()),
        "~" | "~*" => alternatives(value).map(Value::from),
        _ => None,
    }
}

/// A part of a request that has a name of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A header field, in the letters of the variable.
    Field(String),
    /// A cookie.
    Cookie(String),
    /// An argument of the query.
    Argument(String),
}

/// The part that a variable of nginx stands for: `http_NAME`, `cookie_NAME`, `arg_NAME`.
pub fn part(variable: &str) -> Option<Part> {
    let (kind, name) = variable.split_once('_')?;
    if !name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_') {
        return None;
    }
    match kind {
        "http" => Some(Part::Field(name.replace('_', "-"))),
        "cookie" => Some(Part::Cookie(name.to_owned())),
        "arg" => Some(Part::Argument(name.to_owned())),
        _ => None,
    }
}

/// The comparison as an expression in CEL, with the names that it has there.
fn expression(variable: &str, operator: &str, value: &str) -> Option<String> {
    let name = named(variable, operator, value)?;
    let matches = |regex: String| {
        checked_regex(&regex).ok().map(|regex| format!("{name}.matches({})", quoted(&regex)))
    };
    let not = |holds: String| format!("!{holds}");
    match operator {
        "" => Some(format!("!({name} in ['', '0'])")),
        "=" => Some(format!("{name} == {}", quoted(value))),
        "!=" => Some(format!("{name} != {}", quoted(value))),
        "~" => matches(value.to_owned()),
        "~*" => matches(format!("(?i){value}")),
        "!~" => matches(value.to_owned()).map(not),
        "!~*" => matches(format!("(?i){value}")).map(not),
        _ => None,
    }
}

/// The name of a variable in CEL, where it is compared with this value.
fn named(variable: &str, operator: &str, value: &str) -> Option<String> {
    const WITH_QUERY: &str =
        "(request.query == '' ? request.path : request.path + '?' + request.query)";
    if variable == "request_uri" {
        // The normal form of a path has none of these.
        let is_odd = value.contains('%') || value.contains("//") || value.contains(r"\.\.");
        let name = if is_beginning(operator, value) { "request.path" } else { WITH_QUERY };
        return (!is_odd).then(|| name.to_owned());
    }
    if let Some(name) = variables::in_expression(variable) {
        return Some(name.to_owned());
    }
    match part(variable)? {
        // Fields that change on the way are not there.
        Part::Field(name) if is_changed_on_the_way(&name) => None,
        Part::Field(name) => {
            Some(format!("request.headers[{}]", quoted(&name.to_ascii_lowercase())))
        }
        Part::Cookie(name) => Some(format!("request.cookies[{}]", quoted(&name))),
        Part::Argument(name) => Some(format!("request.query_params[{}]", quoted(&name))),
    }
}

/// Whether nodes and proxies change the field, so that no expression has it.
pub fn is_changed_on_the_way(field: &str) -> bool {
    let field = field.to_ascii_lowercase();
    let others =
        ["host", "via", "forwarded", "x-real-ip", "cdn-loop", "connection", "content-length"];
    others.contains(&field.as_str())
        || ["x-forwarded-", "levada-"].iter().any(|start| field.starts_with(start))
}

/// A text of CEL.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"))
}

/// A pattern with `*` in the place of a comparison.
fn pattern(operator: &str, value: &str) -> Option<Value> {
    match (operator, value) {
        // nginx tells a part that is empty from none in no comparison, a matcher does.
        ("=", value) if !value.is_empty() && !value.contains('*') => Some(value.into()),
        ("~", regex) => {
            let (begins, rest) = strip(regex, |text| text.strip_prefix('^'));
            let (ends, rest) = strip(rest, |text| text.strip_suffix('$'));
            let plain = plain(rest).filter(|plain| !plain.is_empty())?;
            let (before, after) = (if begins { "" } else { "*" }, if ends { "" } else { "*" });
            Some(format!("{before}{plain}{after}").into())
        }
        _ => None,
    }
}

fn strip(text: &str, by: impl Fn(&str) -> Option<&str>) -> (bool, &str) {
    by(text).map_or((false, text), |rest| (true, rest))
}

/// The text that an expression without operators stands for.
fn plain(regex: &str) -> Option<String> {
    let mut text = String::new();
    let mut rest = regex.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next()? {
                escaped if escaped.is_ascii_alphanumeric() => return None,
                escaped => text.push(escaped),
            },
            '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '^' | '$' => {
                return None;
            }
            c => text.push(c),
        }
    }
    (!text.contains('*')).then_some(text)
}

/// The alternatives of `^(GET|HEAD)$`.
fn alternatives(regex: &str) -> Option<Vec<String>> {
    let inner = regex.strip_prefix('^')?.strip_suffix('$')?;
    let inner = inner.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(inner);
    inner.split('|').map(plain).collect()
}

fn path(operator: &str, value: &str) -> Option<(&'static str, Value)> {
    // Expressions of others may look at the query too; a route's looks at the path.
    let is_pattern = operator == "=" && value.contains(['?', '*']);
    if is_pattern || value.contains(['=', '&']) || value.contains("\\?") {
        return None;
    }
    match operator {
        "=" => Some(("path", value.into())),
        "~" => Some(("path_regex", checked_regex(value).ok()?.into())),
        "~*" => Some(("path_regex", checked_regex(&format!("(?i){value}")).ok()?.into())),
        _ => None,
    }
}

/// An expression of PCRE that Levada reads alike.
pub fn checked_regex(regex: &str) -> Result<String, String> {
    match regex::Regex::new(regex) {
        Ok(_) => Ok(regex.to_owned()),
        Err(_) => Err("Levada's expressions have no look-around and no back-references".to_owned()),
    }
}

/// `user-agent` as `User-Agent`.
pub fn field_name(name: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|c| c.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    name.split('-').map(capital).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::Condition;

    fn table(condition: &Condition) -> String {
        condition.table().map_or_else(String::new, |table| table.to_string())
    }

    #[test]
    fn comparisons_have_matchers_where_a_route_has_them() {
        let of = |variable, operator, value| {
            Condition::comparison(variable, operator, value).map(|one| table(&one))
        };
        assert_eq!(
            of("request_method", "~", "^(GET|HEAD)$").unwrap(),
            "method = [\"GET\", \"HEAD\"]\n"
        );
        assert_eq!(
            of("cookie_a", "", "").unwrap(),
            "when = \"!(request.cookies['a'] in ['', '0'])\"\n"
        );
        assert_eq!(
            of("http_user_agent", "~", "Bot").unwrap(),
            "header = { User-Agent = \"*Bot*\" }\n"
        );
        assert_eq!(of("cookie_a", "=", "").unwrap(), "when = \"request.cookies['a'] == ''\"\n");
        assert!(of("msec", "=", "1").is_err());
    }

    #[test]
    fn parts_that_are_looked_at_twice_are_joined_by_expressions() {
        let one = Condition::comparison("uri", "~", "^/a").unwrap();
        let other = Condition::comparison("uri", "~", "b$").unwrap();
        let both = one.and(&other).map(|both| table(&both));
        let expected = "when = \"request.path.matches('^/a') && request.path.matches('b$')\"\n";
        assert_eq!(both.as_deref(), Some(expected));
        let long = Condition::comparison("uri", "!=", &"a".repeat(4_000)).unwrap();
        assert!(long.and(&long).is_none(), "a longer one is refused");
    }
}
