//! nginx's variables in texts, as Levada's `{name}`.

use std::collections::BTreeMap;

use crate::{
    matchers::{Part, field_name, part},
    variables,
};

/// The values of variables that are known when the file is read.
pub(super) type Constants = BTreeMap<String, String>;

/// Why a text cannot be said in Levada.
pub(super) type Reason = String;

/// Translates the variables of a text.
pub(super) fn translate(text: &str, constants: &Constants) -> Result<String, Reason> {
    translate_nested(text, constants, &mut 1_000)
}

/// A text whose variables are all known when the file is read.
pub(super) fn fixed(text: &str, constants: &Constants) -> Result<String, Reason> {
    let translated = translate(text, constants)?;
    let without_braces = translated.replace("{{", "").replace("}}", "");
    match without_braces.contains('{') {
        true => Err("a fixed response has no variables".to_owned()),
        false => Ok(translated.replace("{{", "{").replace("}}", "}")),
    }
}

/// Variables that stand for each other would never end: `budget` is how many may still be replaced.
fn translate_nested(
    text: &str,
    constants: &Constants,
    budget: &mut usize,
) -> Result<String, Reason> {
    const LONGEST: usize = 64 << 10;
    if *budget == 0 {
        return Err("variables refer to each other".to_owned());
    }
    *budget -= 1;
    // Path and query together have one name.
    let text = text
        .replace("$uri$is_args$args", "$request_uri")
        .replace("$document_uri$is_args$args", "$request_uri");
    let text =
        text.replace("$is_args$args", "{?query}").replace("$is_args$query_string", "{?query}");
    let mut translated = String::new();
    let mut rest = text.as_str();
    while let Some(start) = rest.find('$') {
        translated.push_str(&literal(&rest[..start]));
        rest = &rest[start + 1..];
        let (name, after) = variable_name(rest);
        rest = after;
        if name.is_empty() {
            translated.push('$');
            continue;
        }
        match constants.get(name) {
            Some(value) => translated.push_str(&translate_nested(value, constants, budget)?),
            None => translated.push_str(&levada_name(name)?),
        }
        if translated.len() > LONGEST {
            return Err("the text is too long".to_owned());
        }
    }
    translated.push_str(&literal(rest));
    Ok(translated)
}

/// Splits the name of a variable from what follows it.
fn variable_name(text: &str) -> (&str, &str) {
    if let Some((name, after)) = text.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
        return (name, after);
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    // A capture is one digit.
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return text.split_at(1);
    }
    text.split_at(text.find(|c| !is_name(c)).unwrap_or(text.len()))
}

/// Two braces stand for one.
fn literal(text: &str) -> String {
    let parts: Vec<_> =
        text.split("{?query}").map(|part| part.replace('{', "{{").replace('}', "}}")).collect();
    parts.join("{?query}")
}

fn levada_name(name: &str) -> Result<String, Reason> {
    // `{path}` is the path as the client wrote it.
    if ["uri", "document_uri"].contains(&name) {
        return Ok("{= request.path}".to_owned());
    }
    let is_capture = name.len() == 1 && name.starts_with(|c: char| c.is_ascii_digit());
    if let Some(own) = variables::in_text(name).or(Some(name).filter(|_| is_capture)) {
        return Ok(format!("{{{own}}}"));
    }
    match part(name) {
        Some(Part::Field(field)) => Ok(format!("{{header.{}}}", field_name(&field))),
        Some(Part::Cookie(cookie)) => Ok(format!("{{cookie.{cookie}}}")),
        _ => Err(format!("Levada has no variable for `${name}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Constants, translate};

    #[test]
    fn variables_get_the_names_that_levada_has() {
        let constants = Constants::from([("base".to_owned(), "https://$host".to_owned())]);
        let of = |text| translate(text, &constants);
        assert_eq!(of("https://$host$request_uri").as_deref(), Ok("https://{host}{uri}"));
        assert_eq!(of("${base}/x-$1").as_deref(), Ok("https://{host}/x-{1}"));
        assert_eq!(of("$uri$is_args$args").as_deref(), Ok("{uri}"));
        assert_eq!(of("/x$uri").as_deref(), Ok("/x{= request.path}"));
        assert_eq!(of("$http_user_agent").as_deref(), Ok("{header.User-Agent}"));
        assert_eq!(of("5 $ and more").as_deref(), Ok("5 $ and more"));
        assert!(of("$msec").is_err_and(|reason| reason.contains("$msec")));
        assert_eq!(of("a {brace}").as_deref(), Ok("a {{brace}}"));
        assert_eq!(of("/x$is_args$args").as_deref(), Ok("/x{?query}"));
        let circle = Constants::from([("a".to_owned(), "$a".to_owned())]);
        assert!(translate("$a", &circle).is_err());
        let names = "abcdefghij".chars().zip("bcdefghijk".chars());
        let bomb: Constants =
            names.map(|(name, next)| (name.to_string(), format!("${next}").repeat(100))).collect();
        assert!(translate("$a", &bomb).is_err());
    }
}
