//! Access logs: `access_log` becomes `[log]` or the log of a site.

use super::{
    log_format::LogFormat,
    setting::{Reader, Setting, Turn, at},
};
use crate::{
    ledger::{Outcome, TAKEN, differs, left},
    rows::Row,
};

pub(super) const TABLE: &[Row<Reader>] = &[
    at(Turn::First, "log_format", "log.format", log_format),
    at(Turn::Last, "access_log", "log.access, log.format", access_log),
];

fn log_format(s: &mut Setting<'_>) -> Outcome {
    let (name, args) = s.directive.args.split_first().map_or(("", &[][..]), |(n, a)| (n, a));
    let format = LogFormat::read(args);
    let outcome = format.fate()?;
    s.converter.log_formats.insert(name.to_owned(), format);
    Ok(outcome)
}

/// Converts `access_log`: that of `http` into `[log]`, that of a server into the table of its site.
fn access_log(s: &mut Setting<'_>) -> Outcome {
    if s.scope.outer.is_some_and(|outer| outer.outer.is_some()) {
        return left("routes have no access logs of their own; `[site.log]` is their site's");
    }
    let target = target(s.arg(0)).ok_or("the access log is a file, standard output or syslog")?;
    let log = match s.scope.outer {
        None => &mut s.converter.plan.log,
        Some(_) => s.table.inline("log"),
    };
    if log.has_any(&["access"]) {
        return left("a site has one access log: the first one");
    }
    log.set("access", target.as_str());
    if target == "off" {
        return TAKEN;
    }
    let name = s.directive.args.get(1).filter(|name| !name.contains('=') && *name != "combined");
    let format = name.and_then(|name| s.converter.log_formats.get(name));
    // A site inherits the format of the node, which may be another one.
    log.set("format", format.map_or("combined", |format| &format.text));
    if s.directive.args.iter().any(|arg| arg.starts_with("if=")) {
        return differs("all requests are logged; `sample` in `[log]` writes a part of them");
    }
    match format {
        Some(_) => TAKEN,
        None => differs("lines of the combined format have more at their end"),
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
