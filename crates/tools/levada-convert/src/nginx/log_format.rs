//! `log_format` as the format strings of Levada, which has their notation from nginx.

use std::collections::BTreeMap;

use crate::ledger::{Outcome, TAKEN, differs, left};

/// Variables of the same name and meaning.
const SAME: [&str; 20] = [
    "remote_addr",
    "remote_user",
    "time_local",
    "time_iso8601",
    "msec",
    "request",
    "request_method",
    "scheme",
    "host",
    "request_uri",
    "uri",
    "args",
    "server_protocol",
    "status",
    "body_bytes_sent",
    "request_time",
    "upstream_addr",
    "upstream_cache_status",
    "request_id",
    "hostname",
];
/// Variables with another name here.
const OTHERS: [(&str, &str); 2] = [("query_string", "args"), ("document_uri", "uri")];

/// A format in Levada's notation.
#[derive(Clone, Default)]
pub(crate) struct LogFormat {
    pub(super) text: String,
    /// Variables that Levada does not have.
    unknown: Vec<String>,
}

/// The formats of a configuration by their names.
pub(super) type LogFormats = BTreeMap<String, LogFormat>;

impl LogFormat {
    /// Reads the arguments of `log_format` after the name.
    pub(super) fn read(args: &[String]) -> Self {
        let parts = args.iter().filter(|part| !part.starts_with("escape="));
        let source: String = parts.map(String::as_str).collect();
        let is_json = source.trim_start().starts_with('{');
        let (mut format, mut rest) = (Self::default(), source.as_str());
        while let Some((before, after)) = rest.split_once('$') {
            format.text += before;
            let in_quotes = format.text.matches('"').count() % 2 == 1;
            let (name, after) = name(after);
            rest = after;
            match known(name) {
                // The name would go on with what follows it.
                Some(known) if !goes_on(rest) => format.text += &format!("${known}"),
                _ => {
                    format.text += match (is_json, in_quotes) {
                        (true, true) => "",
                        (true, false) => "null",
                        (false, _) => "-",
                    };
                    format.unknown.push(format!("${name}"));
                }
            }
        }
        format.text += rest;
        format
    }

    pub(super) fn fate(&self) -> Outcome {
        match &self.unknown[..] {
            _ if !self.text.contains('$') => left("has no variable that Levada knows"),
            [] => TAKEN,
            unknown => differs(format!("{} stay empty", unknown.join(", "))),
        }
    }
}

/// The name of a variable after its dollar sign, and the rest.
fn name(text: &str) -> (&str, &str) {
    if let Some(braced) = text.strip_prefix('{')
        && let Some(parts) = braced.split_once('}')
    {
        return parts;
    }
    text.split_at(text.find(|c: char| !is_of_name(c)).unwrap_or(text.len()))
}

fn goes_on(rest: &str) -> bool {
    rest.starts_with(is_of_name)
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn known(name: &str) -> Option<&str> {
    if let Some((_, other)) = OTHERS.iter().find(|(own, _)| *own == name) {
        return Some(other);
    }
    let is_field = ["http_", "sent_http_"]
        .iter()
        .any(|prefix| name.strip_prefix(prefix).is_some_and(|field| !field.is_empty()));
    (is_field || SAME.contains(&name)).then_some(name)
}
