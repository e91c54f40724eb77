//! Comparisons of a request's parts as the matchers of a route. Parts have nginx's names: `uri`, `http_NAME`.

use crate::table::{Table, Value};

/// Bytes of an expression.
pub(crate) const LONGEST: usize = 4 << 10;

/// A condition on requests in the two forms that a route has for it: matchers, and an expression in CEL. An
/// expression holds what matchers cannot, such as a negation; not every comparison has both forms.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Condition {
    matchers: Option<Table>,
    expression: Option<String>,
}

impl Condition {
    /// The condition that holds for every request.
    pub(crate) fn everything() -> Self {
        Self { matchers: Some(Table::default()), expression: None }
    }

    /// Clients with these addresses or prefixes.
    pub(crate) fn clients(prefixes: &[String]) -> Self {
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
    pub(crate) fn comparison(variable: &str, operator: &str, value: &str) -> Result<Self, String> {
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
    pub(crate) fn table(&self) -> Option<Table> {
        let as_expression = || Some(Table::from_iter([("when", self.text()?.into())]));
        self.matchers.clone().or_else(as_expression)
    }

    /// The condition as an expression, if a configuration may have one of its length.
    pub(crate) fn text(&self) -> Option<&str> {
        self.expression.as_deref().filter(|text| text.len() <= LONGEST)
    }

    /// Requests for which both hold.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
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
        let joined = Self { matchers, expression };
        joined.table().is_some().then_some(joined)
    }

    /// Requests for which this does not hold.
    pub(crate) fn negated(&self) -> Option<Self> {
        let expression = format!("!({})", self.text()?);
        Some(Self { matchers: None, expression: Some(expression) })
    }

    /// Requests for which one of them holds.
    pub(crate) fn any(conditions: &[Self]) -> Option<Self> {
        let texts: Option<Vec<_>> = conditions.iter().map(|one| one.text().map(closed)).collect();
        match conditions {
            [one] => Some(one.clone()),
            _ => Some(Self { matchers: None, expression: Some(texts?.join(" || ")) }),
        }
    }

    pub(crate) fn holds_always(&self) -> bool {
        self.matchers.as_ref().is_some_and(Table::is_empty)
    }
}

fn closed(expression: &str) -> String {
    match expression.contains(" || ") || expression.contains(" && ") {
        true => format!("({expression})"),
        false => expression.to_owned(),
    }
}

/// The keys of a route for those of its requests for which the condition holds as well.
pub(crate) fn narrowed(route: &Table, condition: &Condition) -> Option<Table> {
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
    let mut table = Table::default();
    let pattern = || pattern(operator, value);
    match variable {
        "host" | "http_host" => table.set("host", pattern()?),
        "scheme" if operator == "=" => table.set("scheme", value),
        "scheme" if operator == "!=" && value == "https" => table.set("scheme", "http"),
        "https" if operator == "=" && value == "on" => table.set("scheme", "https"),
        "https" if operator == "!=" || value.is_empty() => table.set("scheme", "http"),
        "request_method" if operator == "=" => table.set("method", value),
        "request_method" if operator == "~" || operator == "~*" => {
            table.set("method", alternatives(value)?);
        }
        "remote_addr" if operator == "=" => table.set("client", value),
        "uri" | "request_uri" | "document_uri" => table.lay_over(path(operator, value)?),
        _ => {
            let (matcher, name) = part(variable)?;
            table.inline(matcher).set(&name, pattern()?);
        }
    }
    Some(table)
}

/// The part of a request that a variable with a name of its own stands for.
fn part(variable: &str) -> Option<(&'static str, String)> {
    let (kind, name) = variable.split_once('_')?;
    match kind {
        "http" => Some(("header", field_name(name))),
        "cookie" => Some(("cookie", name.to_owned())),
        "arg" => Some(("query", name.to_owned())),
        _ => None,
    }
}

/// The comparison as an expression in CEL, with the names that it has there.
fn expression(variable: &str, operator: &str, value: &str) -> Option<String> {
    let name = match variable {
        "host" => "request.host".to_owned(),
        "scheme" => "request.scheme".to_owned(),
        "request_method" => "request.method".to_owned(),
        "remote_addr" => "source.address".to_owned(),
        "uri" | "document_uri" => "request.path".to_owned(),
        "args" | "query_string" => "request.query".to_owned(),
        // Most expressions look at the path only.
        "request_uri" if !value.contains("\\?") && !value.contains(['&', '=']) => {
            "request.path".to_owned()
        }
        "request_uri" => {
            "(request.query == '' ? request.path : request.path + '?' + request.query)".to_owned()
        }
        _ => match part(variable)? {
            // Fields that change on the way are not there.
            ("header", name) if is_changed_on_the_way(&name) => return None,
            ("header", name) => format!("request.headers[{}]", quoted(&name.to_ascii_lowercase())),
            ("cookie", name) => format!("request.cookies[{}]", quoted(&name)),
            (_, name) => format!("request.query_params[{}]", quoted(&name)),
        },
    };
    let matches = |regex: String| {
        checked_regex(&regex).ok().map(|regex| format!("{name}.matches({})", quoted(&regex)))
    };
    match operator {
        "" => Some(format!("!({name} in ['', '0'])")),
        "=" => Some(format!("{name} == {}", quoted(value))),
        "!=" => Some(format!("{name} != {}", quoted(value))),
        "~" => matches(value.to_owned()),
        "~*" => matches(format!("(?i){value}")),
        "!~" => matches(value.to_owned()).map(|holds| format!("!{holds}")),
        "!~*" => matches(format!("(?i){value}")).map(|holds| format!("!{holds}")),
        _ => None,
    }
}

fn is_changed_on_the_way(field: &str) -> bool {
    let field = field.to_ascii_lowercase();
    let others =
        ["host", "via", "forwarded", "x-real-ip", "cdn-loop", "connection", "content-length"];
    others.contains(&field.as_str())
        || ["x-forwarded-", "levada-"].iter().any(|start| field.starts_with(start))
}

/// A text of CEL.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"))
}

/// A pattern with `*` in the place of a comparison.
fn pattern(operator: &str, value: &str) -> Option<Value> {
    match (operator, value) {
        ("", _) | ("!=", "") => Some(true.into()),
        ("=", "") => Some(false.into()),
        ("=", value) if !value.contains('*') => Some(value.into()),
        ("~", regex) => {
            let (begins, rest) = strip(regex, |text| text.strip_prefix('^'));
            let (ends, rest) = strip(rest, |text| text.strip_suffix('$'));
            let plain = plain(rest)?;
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

fn path(operator: &str, value: &str) -> Option<Table> {
    // Expressions of others may look at the query too; a route's looks at the path.
    if value.contains(['?', '*']) && operator == "="
        || value.contains(['=', '&'])
        || value.contains("\\?")
    {
        return None;
    }
    Some(match operator {
        "=" => Table::from_iter([("path", value.into())]),
        "~" => Table::from_iter([("path_regex", checked_regex(value).ok()?.into())]),
        "~*" => {
            Table::from_iter([("path_regex", checked_regex(&format!("(?i){value}")).ok()?.into())])
        }
        _ => return None,
    })
}

/// An expression of PCRE that Levada reads alike.
pub(crate) fn checked_regex(regex: &str) -> Result<String, String> {
    match regex::Regex::new(regex) {
        Ok(_) => Ok(regex.to_owned()),
        Err(_) => Err("Levada's expressions have no look-around and no back-references".to_owned()),
    }
}

/// `user_agent` as `User-Agent`.
pub(crate) fn field_name(variable: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|c| c.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    variable.split('_').map(capital).collect::<Vec<_>>().join("-")
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
            of("http_user_agent", "~", "Bot").unwrap(),
            "header = { User-Agent = \"*Bot*\" }\n"
        );
        assert_eq!(of("cookie_a", "=", "").unwrap(), "cookie = { a = false }\n");
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
