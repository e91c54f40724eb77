//! Access logs: `access_log` becomes `[log]` or the log of a site, `log_format` the format strings, whose notation
//! Levada has from nginx.

use std::collections::BTreeMap;

use super::{Converter, Scope, parse::Directive};
use crate::{
    ledger::{Outcome, TAKEN, differs, left},
    table::Table,
};

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
pub(super) struct LogFormat {
    text: String,
    /// Variables that Levada does not have.
    unknown: Vec<String>,
}

/// The formats of a configuration by their names.
pub(super) type LogFormats = BTreeMap<String, LogFormat>;

impl LogFormat {
    /// Reads the arguments of `log_format` after the name.
    fn read(args: &[String]) -> Self {
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

    fn fate(&self) -> Outcome {
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

impl Converter {
    pub(super) fn log_format(&mut self, directive: &Directive) -> Outcome {
        let (name, args) = directive.args.split_first().map_or(("", &[][..]), |(n, a)| (n, a));
        let format = LogFormat::read(args);
        let fate = format.fate();
        if fate.is_ok() {
            self.log_formats.insert(name.to_owned(), format);
        }
        fate
    }

    /// Converts `access_log`: that of `http` into `[log]`, that of a server into the table of its site.
    pub(super) fn access_log(
        &mut self,
        scope: &Scope<'_>,
        directive: &Directive,
        table: &mut Table,
    ) -> Outcome {
        let is_route = scope.outer.is_some_and(|outer| outer.outer.is_some());
        if is_route {
            return left("routes have no access logs of their own; `[site.log]` is their site's");
        }
        let Some(target) = target(directive.arg(0)) else {
            return left("the access log is a file, standard output or syslog");
        };
        let log = match scope.outer {
            None => &mut self.plan.log,
            Some(_) => table.inline("log"),
        };
        if log.get("access").is_some() {
            return left("a site has one access log: the first one");
        }
        log.set("access", target.as_str());
        if target == "off" {
            return TAKEN;
        }
        let format = directive.args.get(1).filter(|name| !name.contains('='));
        let format = match format.map(String::as_str) {
            None | Some("combined") => None,
            Some(name) => self.log_formats.get(name),
        };
        // A site inherits the format of the node, which may be another one.
        log.set("format", format.map_or("combined", |format| &format.text));
        let fate = match format {
            Some(_) => TAKEN,
            None => differs("lines of the combined format have more at their end"),
        };
        match directive.args.iter().any(|arg| arg.starts_with("if=")) {
            true => differs("all requests are logged; `sample` in `[log]` writes a part of them"),
            false => fate,
        }
    }
}

/// The place of lines.
fn target(path: &str) -> Option<String> {
    if let Some(options) = path.strip_prefix("syslog:") {
        let server = options.split(',').find_map(|option| option.strip_prefix("server="))?;
        return Some(match server.strip_prefix("unix:") {
            Some(socket) => format!("syslog:unix:{socket}"),
            None if server.contains(':') => format!("syslog:udp://{server}"),
            None => format!("syslog:udp://{server}:514"),
        });
    }
    match path {
        "/dev/stdout" => Some("stdout".to_owned()),
        path if path.contains('$') => None,
        path => Some(path.to_owned()),
    }
}
