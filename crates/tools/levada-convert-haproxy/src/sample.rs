//! Samples, the parts of requests that rules look at, and the texts that they are put into.

use levada_conversion::comparisons::Test;

/// The part of a request that a condition looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Path,
    /// Path and query.
    Url,
    Query,
    Host,
    /// Host and path.
    Base,
    Method,
    Client,
    IsTls,
    /// A field, whose values between commas count one by one.
    Field(String),
    /// A field as a whole.
    WholeField(String),
    Argument(String),
    Cookie(String),
    /// A counter of a stick table: its name, and the arguments.
    Counter(String, String),
    /// A user of a list.
    User(String),
    Always(bool),
}

/// A part with the converters after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) part: Part,
    /// The comparison that the name of the sample says.
    pub(crate) test: Option<SampleTest>,
    pub(crate) is_lower: bool,
    /// The converter that looks the value up: its kind, and its arguments.
    pub(crate) map: Option<(String, Vec<String>)>,
    /// A replacement: the expression, and the text in its place.
    pub(crate) replacement: Option<(String, String)>,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleTest {
    Text(Test),
    /// Labels of a name.
    Domain,
    /// Directories of a path.
    Directory,
    Found,
    Address,
    /// `gt 10`.
    Number,
    Bool,
}

/// The comparison that `-m` names, or the end of the name of a sample.
pub(crate) fn test_named(name: &str) -> Option<SampleTest> {
    Some(match name {
        "str" | "eq" => SampleTest::Text(Test::Is),
        "beg" => SampleTest::Text(Test::Begins),
        "end" => SampleTest::Text(Test::Ends),
        "sub" => SampleTest::Text(Test::Contains),
        "reg" => SampleTest::Text(Test::Matches),
        "dom" => SampleTest::Domain,
        "dir" => SampleTest::Directory,
        "found" => SampleTest::Found,
        "ip" => SampleTest::Address,
        "int" => SampleTest::Number,
        "bool" => SampleTest::Bool,
        _ => return None,
    })
}

/// Splits at commas outside of parentheses.
fn pieces(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0_usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&text[start..]);
    found
}

/// `name(arguments)`.
fn call(text: &str) -> (&str, &str) {
    match text.split_once('(') {
        Some((name, rest)) => (name, rest.strip_suffix(')').unwrap_or(rest)),
        None => (text, ""),
    }
}

/// Reads `fetch(arguments),converter,converter(arguments)`.
pub(crate) fn read(text: &str) -> Result<Sample, String> {
    let all = pieces(text);
    let (name, argument) = call(all.first().copied().unwrap_or_default());
    let (part, test) = fetch(name, argument).ok_or_else(|| format!("no rule looks at `{name}`"))?;
    let mut sample = Sample { part, test, is_lower: false, map: None, replacement: None };
    for converter in &all[1..] {
        let (name, arguments) = call(converter);
        let arguments: Vec<_> = arguments.split(',').map(str::to_owned).collect();
        match (name, &sample.part) {
            ("lower", _) => sample.is_lower = true,
            // Paths are compared in a decoded form, and hosts without the port.
            ("url_dec", Part::Path) | ("host_only", Part::Host) => {}
            ("field" | "word", Part::Host) if arguments == ["1", ":"] => {}
            (map, _) if map == "map" || map.starts_with("map_") => {
                sample.map = Some((map.to_owned(), arguments));
            }
            ("regsub", Part::Path) if arguments.len() >= 2 => {
                let unquoted = |text: &String| text.trim_matches(['\'', '"']).to_owned();
                if arguments.get(2).is_some_and(|flags| !flags.is_empty()) {
                    return Err(
                        "a replacement is done once, and the case of letters counts".to_owned()
                    );
                }
                sample.replacement = Some((unquoted(&arguments[0]), unquoted(&arguments[1])));
            }
            (name, _) => return Err(format!("there is nothing for the converter `{name}`")),
        }
    }
    Ok(sample)
}

/// The part that a name stands for, with the comparison in the name.
fn fetch(name: &str, argument: &str) -> Option<(Part, Option<SampleTest>)> {
    if let Some((base, end)) = name.rsplit_once('_') {
        let is_base = |base: &str| {
            [
                "path",
                "url",
                "hdr",
                "req.hdr",
                "req.fhdr",
                "base",
                "url_param",
                "urlp",
                "cook",
                "req.cook",
            ]
            .contains(&base)
        };
        if let (true, Some(test)) = (is_base(base), test_named(end)) {
            return Some((fetch(base, argument)?.0, Some(test)));
        }
    }
    let field = argument.split(',').next().unwrap_or_default().to_ascii_lowercase();
    let part = match name {
        "path" => Part::Path,
        "url" | "capture.req.uri" | "pathq" => Part::Url,
        "query" => Part::Query,
        "base" => Part::Base,
        "method" | "capture.req.method" => Part::Method,
        "src" => Part::Client,
        "ssl_fc" => Part::IsTls,
        "hdr" | "req.hdr" | "req.fhdr" if field == "host" => Part::Host,
        "hdr" | "req.hdr" if !field.is_empty() => Part::Field(field),
        "req.fhdr" if !field.is_empty() => Part::WholeField(field),
        "urlp" | "url_param" if !argument.is_empty() => Part::Argument(argument.to_owned()),
        "cook" | "req.cook" if !argument.is_empty() => Part::Cookie(argument.to_owned()),
        "http_auth" | "http_auth_group" => Part::User(argument.to_owned()),
        "always_true" => Part::Always(true),
        "always_false" => Part::Always(false),
        counter if counter.starts_with("sc") || counter.starts_with("src_") => {
            Part::Counter(counter.to_owned(), argument.to_owned())
        }
        _ => return None,
    };
    Some((part, None))
}

/// A text with `%[...]` and `%ci`, as Levada writes it.
pub(crate) fn template(text: &str) -> Result<String, String> {
    let mut made = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['%', '{']) {
        made.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if !rest[at..].starts_with('%') {
            made.push_str("{{");
            rest = after;
        } else if let Some(inner) = after.strip_prefix('[') {
            let end = inner.find(']').ok_or("a `%[` without `]`")?;
            made.push_str(&variable(&inner[..end])?);
            rest = &inner[end + 1..];
        } else if let Some(after) = after.strip_prefix('%') {
            made.push('%');
            rest = after;
        } else {
            let length = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
            made.push_str(match &after[..length] {
                "ci" => "{client}",
                "HM" => "{method}",
                "HU" => "{uri}",
                "HP" => "{path}",
                "ID" => "{request_id}",
                other => return Err(format!("Levada has no variable for `%{other}`")),
            });
            rest = &after[length..];
        }
    }
    made.push_str(rest);
    Ok(made)
}

/// A sample as a variable of Levada's texts.
fn variable(text: &str) -> Result<String, String> {
    if text == "unique-id" {
        return Ok("{request_id}".to_owned());
    }
    let sample = read(text)?;
    if sample.map.is_some() || sample.replacement.is_some() {
        return Err("the value of a converter is no variable".to_owned());
    }
    let wants_lower = sample.is_lower && sample.part != Part::Host;
    Ok(match &sample.part {
        _ if wants_lower => return Err("a variable is not changed to lower case".to_owned()),
        Part::Path => "{path}".to_owned(),
        Part::Url => "{uri}".to_owned(),
        Part::Query => "{query}".to_owned(),
        Part::Host => "{host}".to_owned(),
        Part::Base => "{host}{path}".to_owned(),
        Part::Method => "{method}".to_owned(),
        Part::Client => "{client}".to_owned(),
        Part::Field(name) | Part::WholeField(name) => format!("{{header.{name}}}"),
        Part::Cookie(name) => format!("{{cookie.{name}}}"),
        _ => return Err(format!("Levada has no variable for `{text}`")),
    })
}

#[cfg(test)]
mod tests {
    use super::{Part, read, template};

    #[test]
    fn texts_have_the_variables_of_levada() {
        let made = template("https://%[hdr(host)]%[capture.req.uri]?a=%[req.hdr(X-A)]");
        assert_eq!(made.unwrap(), "https://{host}{uri}?a={header.x-a}");
        assert_eq!(template("100%%").unwrap(), "100%");
        assert!(template("%[lua.f]").is_err());
        assert!(template("%[path").is_err());
    }

    #[test]
    fn samples_have_converters() {
        assert_eq!(read("req.hdr(Host),lower,field(1,:)").unwrap().part, Part::Host);
        assert!(read("path,map_beg(/a.map,b)").unwrap().map.is_some());
        assert!(read("path,crc32").is_err());
        assert!(read("nbsrv(a)").is_err());
    }
}
