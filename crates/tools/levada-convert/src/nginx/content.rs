//! Where the answer comes from: `proxy_pass`, `root`, `return`, `rewrite`.

use super::{Converter, Scope, directory, parse::Directive, upstream, variables};
use crate::{
    ledger::{Outcome, TAKEN, left, needless},
    matchers::checked_regex,
    table::Table,
    vocabulary,
};

/// The requests of a `location`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Match {
    /// `location = PATH`
    Exact(String),
    /// `location PATH`, `location ^~ PATH`
    Prefix { path: String, before_regexes: bool },
    /// `location ~ REGEX`
    Regex(String),
}

impl Match {
    /// Reads the arguments of `location`.
    pub(super) fn read(args: &[String]) -> Result<Self, String> {
        let path = |index: usize| args.get(index).cloned().unwrap_or_default();
        Ok(match args.first().map(String::as_str) {
            Some("=") => Self::Exact(path(1)),
            Some("^~") => Self::Prefix { path: path(1), before_regexes: true },
            Some("~") => Self::Regex(checked_regex(&path(1))?),
            Some("~*") => Self::Regex(checked_regex(&format!("(?i){}", path(1)))?),
            Some(name) if name.starts_with('@') => {
                return Err("a location with a name has no path of its own".to_owned());
            }
            // The operator may stand before the path without a space.
            Some(glued) if glued.starts_with('=') => Self::Exact(glued[1..].to_owned()),
            Some(_) => Self::Prefix { path: path(0), before_regexes: false },
            None => return Err("the location has no path".to_owned()),
        })
    }

    pub(super) fn is_root(&self) -> bool {
        matches!(self, Self::Prefix { path, .. } if path == "/")
    }

    /// The matchers of its route.
    pub(super) fn matchers(&self) -> Table {
        let mut table = Table::default();
        match self {
            Self::Exact(path) if !path.contains('*') => table.set("path", path.as_str()),
            Self::Exact(path) => table.set("path_regex", format!("^{}$", regex::escape(path))),
            Self::Prefix { path, .. } if path == "/" => {}
            Self::Prefix { path, .. } if path.contains('*') => {
                table.set("path_regex", format!("^{}", regex::escape(path)));
            }
            Self::Prefix { path, .. } => table.set("path", format!("{path}**")),
            Self::Regex(regex) => table.set("path_regex", regex.as_str()),
        }
        table
    }

    /// Whether every request of `other` would also be one of this.
    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Prefix { path, .. },
                Self::Prefix { path: longer, .. } | Self::Exact(longer),
            ) => longer.starts_with(path),
            _ => self == other,
        }
    }
}

impl Converter {
    /// Fills `table` with the keys that say where the answers of a location come from. Returns whether there
    /// are such keys.
    pub(super) fn content(&mut self, scope: &Scope<'_>, at: &Match, table: &mut Table) -> bool {
        let mut found = false;
        if let Some(directive) = scope.own("return").next() {
            let fate = self.answer(directive, table);
            found = fate.is_ok();
            self.enter(directive, fate);
        }
        for directive in scope.own("proxy_pass").chain(scope.own("grpc_pass")) {
            let fate =
                if found { unreached() } else { self.proxy_pass(scope, directive, at, table) };
            found |= fate.is_ok();
            self.enter(directive, fate);
        }
        if !found && directory::has_handler(scope.directives) {
            let _ = vocabulary::respond(table, 501, None);
            found = true;
        }
        let asks = ["return", "proxy_pass", "grpc_pass"]
            .iter()
            .any(|name| scope.own(name).next().is_some());
        found | self.directory(scope, at, table, found || asks)
    }

    /// `return` as a redirect or a fixed response.
    pub(super) fn answer(&mut self, directive: &Directive, table: &mut Table) -> Outcome {
        let (status, text) = match directive.arg(0).parse::<u64>() {
            Ok(status) => (status, directive.args.get(1)),
            Err(_) => (302, directive.args.first()),
        };
        let text = text.map(|text| variables::translate(text, &self.constants)).transpose();
        match (status, text) {
            (_, Err(reason)) => Err(reason),
            (301 | 302 | 303 | 307 | 308, Ok(Some(to))) => vocabulary::redirect(table, status, to),
            (444, _) => left("a connection is not closed without a response"),
            (200..=599, Ok(body)) => vocabulary::respond(table, status, body),
            _ => left("is no status of a response"),
        }
    }

    fn proxy_pass(
        &mut self,
        scope: &Scope<'_>,
        directive: &Directive,
        at: &Match,
        table: &mut Table,
    ) -> Outcome {
        let mut target = directive.arg(0).to_owned();
        for (name, value) in &self.constants {
            const LONGEST: usize = 4 << 10;
            if target.len() > LONGEST {
                return left("the URL is too long");
            }
            target = target.replace(&format!("${{{name}}}"), value);
            let whole = format!("://${name}");
            if target.ends_with(&whole)
                || target.contains(&format!("{whole}/"))
                || target.contains(&format!("{whole}$"))
            {
                target = target.replace(&whole, &format!("://{value}"));
            }
            if target == format!("${name}") {
                target.clone_from(value);
            }
        }
        for same in ["$request_uri", "$uri$is_args$args", "$uri"] {
            target = target.strip_suffix(same).unwrap_or(&target).to_owned();
        }
        let is_grpc = directive.name == "grpc_pass";
        let scheme = match target.split_once("://") {
            Some(("http", _)) if !is_grpc => "http",
            Some(("https", _)) if !is_grpc => "https",
            Some(("grpc", _)) | None if is_grpc => "http",
            Some(("grpcs", _)) if is_grpc => "https",
            _ if is_grpc => return left("is no URL with grpc or grpcs"),
            _ => return left("is no URL with http or https"),
        };
        let rest = target.split_once("://").map_or(target.as_str(), |(_, rest)| rest);
        if rest.contains('$') {
            return left("the server that is asked cannot come from a variable");
        }
        let (address, path) = match rest.strip_prefix("unix:") {
            Some(socket) => match socket.split_once(':') {
                Some((socket, path)) => (format!("unix:{socket}"), path),
                None => (format!("unix:{socket}"), ""),
            },
            None => {
                let end = rest.find('/').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        if let Some(fate) = replaced_path(path, at, table) {
            return fate;
        }
        match self.upstreams.get(&address) {
            Some(upstream) => table.lay_over(upstream.keys(scheme)),
            None => table.set("origin", upstream::url(scheme, &address)),
        }
        let module = if is_grpc { "grpc" } else { "proxy" };
        self.host_field(scope, module, &address, table);
        if is_grpc || scope.nearest_arg("proxy_http_version") == Some("2") {
            table.set("protocol", "h2");
        }
        if scheme == "http" {
            return TAKEN;
        }
        let name = self.upstreams.contains_key(&address).then_some(address.as_str());
        self.origin_tls(scope, module, name, table)
    }

    /// nginx sends the name in `proxy_pass` as `Host` unless it is told otherwise, Levada the client's.
    fn host_field(&self, scope: &Scope<'_>, module: &str, address: &str, table: &mut Table) {
        let edits = scope.nearest(&format!("{module}_set_header"));
        let host = edits.iter().find(|edit| edit.arg(0).eq_ignore_ascii_case("host"));
        let host = match host.map(|edit| edit.arg(1)) {
            Some("$host" | "$http_host" | "$host:$server_port" | "$server_name") => return,
            Some(literal) if !literal.contains('$') && !literal.is_empty() => literal,
            _ if address.starts_with("unix:") => "localhost",
            _ => address,
        };
        // Names of an `upstream` may have characters that a host must not have.
        if host.bytes().all(|c| c.is_ascii_alphanumeric() || b".-:[]".contains(&c)) {
            table.set("origin_host", host);
        }
    }
}

fn unreached() -> Outcome {
    needless("`return` stands before it")
}

/// `proxy_pass` with a path puts it in the place of the location's.
fn replaced_path(path: &str, at: &Match, table: &mut Table) -> Option<Outcome> {
    let fate = match at {
        _ if path.is_empty() => return None,
        Match::Prefix { path: own, .. } if own == "/" => {
            vocabulary::rewrite(table, format!("{}{{path}}", path.trim_end_matches('/')))
        }
        Match::Prefix { path: own, .. } if own == path => return None,
        Match::Exact(own) if own == path => return None,
        Match::Prefix { path: own, .. } => {
            let fate = vocabulary::rewrite(table, format!("{path}{{1}}"));
            if fate == TAKEN {
                table.remove("path");
                table.set("path_regex", format!("^{}(.*)$", regex::escape(own)));
            }
            fate
        }
        Match::Exact(_) => vocabulary::rewrite(table, path.to_owned()),
        Match::Regex(_) => left("an expression has no path that could be replaced"),
    };
    (fate != TAKEN).then_some(fate)
}
