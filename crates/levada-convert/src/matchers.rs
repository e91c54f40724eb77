//! Comparisons of a request's parts as the matchers of a route. Parts have nginx's names: `uri`, `http_NAME`.

use crate::table::{Table, Value};

/// The matchers for one comparison of a variable.
pub(crate) fn matchers(variable: &str, operator: &str, value: &str) -> Result<Table, String> {
    let unknown = || format!("there is no matcher for `${variable} {operator} {value}`");
    let mut table = Table::default();
    let pattern = || pattern(operator, value).ok_or_else(unknown);
    match variable {
        "host" | "http_host" => table.set("host", pattern()?),
        "scheme" if operator == "=" => table.set("scheme", value),
        "scheme" if operator == "!=" && value == "https" => table.set("scheme", "http"),
        "https" if operator == "=" && value == "on" => table.set("scheme", "https"),
        "https" if operator == "!=" || value.is_empty() => table.set("scheme", "http"),
        "request_method" if operator == "=" => table.set("method", value),
        "request_method" if operator == "~" || operator == "~*" => {
            table.set("method", alternatives(value).ok_or_else(unknown)?);
        }
        "remote_addr" if operator == "=" => table.set("client", value),
        "uri" | "request_uri" | "document_uri" => {
            table.lay_over(path(operator, value).ok_or_else(unknown)?)
        }
        _ => {
            let (matcher, name) = if let Some(field) = variable.strip_prefix("http_") {
                ("header", field_name(field))
            } else if let Some(name) = variable.strip_prefix("cookie_") {
                ("cookie", name.to_owned())
            } else if let Some(name) = variable.strip_prefix("arg_") {
                ("query", name.to_owned())
            } else {
                return Err(unknown());
            };
            table.inline(matcher).set(&name, pattern()?);
        }
    }
    Ok(table)
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
    // Expressions of nginx may look at the query too; a route's looks at the path.
    if value.contains(['?', '*']) && operator == "=" || value.contains("\\?") {
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
