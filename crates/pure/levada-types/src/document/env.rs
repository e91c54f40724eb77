//! `${NAME}` in texts: values from the environment.

use super::{Node, Path, Span, Value};

/// A text whose variables could not be substituted.
pub struct EnvError {
    /// Its place.
    pub span: Span,
    /// The key that has it.
    pub path: Path,
    /// The reason.
    pub message: String,
    /// The remedy.
    pub help: String,
}

/// Substitutes variables from `lookup` in every text of `node`. A text with an unknown variable
/// becomes [`Value::Reported`].
pub fn substitute(
    node: &mut Node,
    path: &Path,
    lookup: &dyn Fn(&str) -> Option<String>,
    errors: &mut Vec<EnvError>,
) {
    match &mut node.value {
        Value::Text(text) if text.contains('$') => match expand(text, lookup) {
            Ok(expanded) => *text = expanded,
            Err((message, help)) => {
                let span = node.span.clone();
                errors.push(EnvError { span, path: path.clone(), message, help });
                node.value = Value::Reported;
            }
        },
        Value::List(list) => {
            for (position, item) in list.iter_mut().enumerate() {
                substitute(item, &path.index(position), lookup, errors);
            }
        }
        Value::Table(table) => {
            for (key, entry) in table {
                substitute(&mut entry.node, &path.key(key.clone()), lookup, errors);
            }
        }
        _ => {}
    }
}

/// `text` with `${NAME}` replaced by its value and `$${` by `${`. Values are not searched for further
/// variables.
fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, (String, String)> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, from) = rest.split_at(start);
        if let Some(literal) = before.strip_suffix('$') {
            expanded.push_str(literal);
            expanded.push_str("${");
            rest = &from[2..];
            continue;
        }
        expanded.push_str(before);
        let Some((name, after)) = from[2..].split_once('}') else {
            return Err((
                "`${` without `}`".to_owned(),
                "write `$${` for the text `${`".to_owned(),
            ));
        };
        let name_is_possible = !name.is_empty() && !name.contains(['=', '\0']);
        let value = if name_is_possible { lookup(name) } else { None };
        expanded.push_str(&value.ok_or_else(|| unset(name))?);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn unset(name: &str) -> (String, String) {
    let name: String = name.chars().take(60).collect();
    (
        format!("the environment has no variable {name:?}"),
        format!("set {name}, or write `$${{{name}}}` for the text itself"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "NODE" => Some("a".to_owned()),
            "ODD" => Some("${NODE}".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_put_in_once() {
        for (text, expanded) in [
            ("plain $5", "plain $5"),
            ("${NODE}", "a"),
            ("x-${NODE}-${NODE}.pem", "x-a-a.pem"),
            ("$${NODE} costs $", "${NODE} costs $"),
            ("$$${NODE}", "$${NODE}"),
            ("${ODD}", "${NODE}"),
        ] {
            assert_eq!(expand(text, &lookup).as_deref(), Ok(expanded), "{text}");
        }
    }

    #[test]
    fn what_is_not_set_is_named() {
        assert!(expand("${NOWHERE}", &lookup).unwrap_err().0.contains("NOWHERE"));
        for text in ["${", "${NODE", "${}", "${A=B}"] {
            assert!(expand(text, &lookup).is_err(), "{text}");
        }
    }
}
