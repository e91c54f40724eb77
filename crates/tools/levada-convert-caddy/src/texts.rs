//! Placeholders in texts, as the variables of Levada.

/// A text with placeholders, as Levada writes it.
pub(crate) fn template(text: &str) -> Result<String, String> {
    let mut made = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        made.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        match after.find('}').map(|end| (&after[..end], &after[end + 1..])) {
            Some((name, behind)) if is_placeholder(name) => {
                made.push_str(&variable(name)?);
                rest = behind;
            }
            _ => {
                made.push_str("{{");
                rest = after;
            }
        }
    }
    made.push_str(rest);
    Ok(made)
}

/// Whether a text has a placeholder.
pub(crate) fn has_placeholder(text: &str) -> bool {
    text.split('{')
        .skip(1)
        .any(|rest| rest.split_once('}').is_some_and(|(name, _)| is_placeholder(name)))
}

fn is_placeholder(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-$?*[]:".contains(c);
    !name.is_empty() && name.chars().all(is_part)
}

fn variable(name: &str) -> Result<String, String> {
    let name = name.strip_prefix("http.request.").unwrap_or(name);
    let named = |prefix: &str| name.strip_prefix(prefix);
    Ok(match name {
        "path" | "uri.path" => "{path}".to_owned(),
        "uri" => "{uri}".to_owned(),
        "query" | "uri.query" => "{query}".to_owned(),
        "?query" => "{?query}".to_owned(),
        "host" | "hostport" => "{host}".to_owned(),
        "scheme" => "{scheme}".to_owned(),
        "method" => "{method}".to_owned(),
        "remote_host" | "client_ip" | "remote.host" => "{client}".to_owned(),
        "uuid" | "http.request.uuid" => "{request_id}".to_owned(),
        _ => match (named("header."), named("cookie."), named("re.").or(named("http.regexp."))) {
            (Some(field), ..) => format!("{{header.{}}}", field.to_ascii_lowercase()),
            (_, Some(cookie), _) => format!("{{cookie.{cookie}}}"),
            (_, _, Some(group)) => {
                let number = group.rsplit('.').next().unwrap_or_default();
                number.parse::<u8>().map_err(|_| "a group has a number")?;
                format!("{{g{number}}}")
            }
            _ if name.starts_with('$') || name.starts_with("env.") => {
                return Err("a variable of the environment: write its value".to_owned());
            }
            _ => return Err(format!("Levada has no variable for `{{{name}}}`")),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::template;

    #[test]
    fn placeholders_become_variables() {
        assert_eq!(template("https://{host}{uri}").unwrap(), "https://{host}{uri}");
        assert_eq!(template("{header.X-A} {re.x.1}").unwrap(), "{header.x-a} {g1}");
        assert_eq!(template("{ \"a\": {} }").unwrap(), "{{ \"a\": {{} }");
        assert!(template("{env.HOME}").is_err());
        assert!(template("{http.vars.x}").is_err());
    }
}
