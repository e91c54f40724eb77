//! Where the answer comes from: `proxy_pass`, `root`, `return`, `rewrite`.

use super::{
    access, compression,
    converter::{Converter, Scope},
    directives, fields,
    parse::Directive,
    upstream,
    variables::{self, Constants},
};
use crate::{
    ledger::{Outcome, Stated as _, TAKEN, differs, left, needless},
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
    /// `location @NAME`
    Named(String),
}

impl Match {
    /// All requests.
    pub(super) fn everything() -> Self {
        Self::Prefix { path: "/".to_owned(), before_regexes: false }
    }

    /// Reads the arguments of `location`.
    pub(super) fn read(args: &[String]) -> Result<Self, String> {
        let path = |index: usize| args.get(index).cloned().unwrap_or_default();
        Ok(match args.first().map(String::as_str) {
            Some("=") => Self::Exact(path(1)),
            Some("^~") => Self::Prefix { path: path(1), before_regexes: true },
            Some("~") => Self::Regex(checked_regex(&path(1))?),
            Some("~*") => Self::Regex(checked_regex(&format!("(?i){}", path(1)))?),
            Some(name) if name.starts_with('@') => Self::Named(name[1..].to_owned()),
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
            Self::Named(name) => {
                table.set("name", name.as_str());
                table.set("internal", true);
            }
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
            let outcome = self.answer(scope, directive, at, table);
            found = outcome.is_ok();
            let outcome = access::comes_first(scope, outcome);
            self.enter(directive, outcome);
        }
        for directive in scope.own("proxy_pass").chain(scope.own("grpc_pass")) {
            let outcome = match found {
                true => needless("`return` stands before it"),
                false => self.proxy_pass(scope, directive, at, table),
            };
            found |= outcome.is_ok();
            self.enter(directive, outcome);
        }
        if !found && directives::has_handler(scope.directives) {
            vocabulary::respond(table, 501, None);
            found = true;
        }
        let asks = ANSWERING.iter().any(|name| scope.own(name).next().is_some());
        found | self.directory(scope, at, table, found || asks)
    }

    /// `return` as a redirect or a fixed response.
    fn answer(
        &mut self,
        scope: &Scope<'_>,
        directive: &Directive,
        at: &Match,
        table: &mut Table,
    ) -> Outcome {
        let (status, text) = match directive.arg(0).parse::<u64>() {
            Ok(status) => (status, directive.args.get(1)),
            Err(_) => (302, directive.args.first()),
        };
        let constants = &self.constants;
        match (status, text) {
            (301 | 302 | 303 | 307 | 308, Some(to)) => {
                let to = variables::translate(to, constants)?;
                if !to.starts_with(['/', '{']) && !to.contains("://") {
                    return left("a redirect leads to a URL, or to a path that begins with `/`");
                }
                vocabulary::redirect(table, status, to);
                TAKEN
            }
            (444, _) => {
                vocabulary::respond(table, 403, None);
                differs("the answer is 403: a connection is not closed without a response")
            }
            (200..=599, None) => {
                vocabulary::respond(table, status, None);
                TAKEN
            }
            (200..=599, Some(body)) => match variables::fixed(body, constants) {
                Ok(body) => {
                    vocabulary::respond(table, status, Some(body));
                    match content_type(scope, at, table) {
                        TAKEN if compression::is_on(scope) => {
                            differs("a fixed response is not compressed")
                        }
                        outcome => outcome,
                    }
                }
                Err(_) => match variables::translate(body, constants) {
                    Ok(template) => {
                        vocabulary::respond(table, status, None);
                        table.inline("respond").set("template", template);
                        let outcome = content_type(scope, at, table);
                        let kind = table.get("respond").and_then(|own| own.inner("content_type"));
                        match kind.is_some_and(|kind| kind.texts().concat().contains("ml")) {
                            true => differs("values of variables are escaped in HTML and XML"),
                            false => outcome,
                        }
                    }
                    // A refusal stays one.
                    Err(reason) if status >= 400 => {
                        vocabulary::respond(table, status, None);
                        differs(format!("{reason}: it has no body"))
                    }
                    Err(reason) => left(reason),
                },
            },
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
        let is_grpc = directive.name == "grpc_pass";
        let module = if is_grpc { "grpc" } else { "proxy" };
        let Target { scheme, address, path } =
            Target::read(&expanded(directive.arg(0), &self.constants)?, is_grpc)?;
        replace_path(&path, at, table)?;
        let doubles = match at {
            Match::Prefix { path: own, .. } => path.ends_with('/') && !own.ends_with('/'),
            _ => false,
        };
        let upstream = self.upstreams.get(&address);
        match upstream {
            Some(upstream) => table.lay_over(upstream.keys(scheme)),
            None => table.set("origin", upstream::url(scheme, &address)),
        }
        let name = upstream.map(|_| address.as_str());
        self.host_field(scope, module, &address, table);
        if is_grpc || scope.nearest_arg("proxy_http_version") == Some("2") {
            table.set("protocol", "h2");
        }
        if table.has_any(&["origin_host"]) && !is_grpc {
            let (from, to) = match (path.as_str(), at) {
                ("", _) => (format!("{scheme}://{address}/"), "/"),
                (path, Match::Exact(own) | Match::Prefix { path: own, .. }) => {
                    (format!("{scheme}://{address}{path}"), own.as_str())
                }
                (_, Match::Regex(_) | Match::Named(_)) => {
                    return left("the location has no path to redirect to");
                }
            };
            fields::default_redirect(scope, &from, to, table);
        }
        match scheme {
            _ if doubles => differs("a path that becomes `//x` is asked for as `/x`"),
            "http" => TAKEN,
            _ => self.origin_tls(scope, module, name, table),
        }
    }

    /// nginx sends the name in `proxy_pass` as `Host` unless a directive says otherwise, Levada the client's.
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

/// The media type of a fixed response: nginx goes by the end of the path, and by `default_type`.
fn content_type(scope: &Scope<'_>, at: &Match, table: &mut Table) -> Outcome {
    const ENDS: [(&str, &str); 8] = [
        (".html", "text/html"),
        (".txt", "text/plain"),
        (".xml", "text/xml"),
        (".css", "text/css"),
        (".json", "application/json"),
        (".js", "application/javascript"),
        (".svg", "image/svg+xml"),
        (".ico", "image/x-icon"),
    ];
    let end = match at {
        Match::Exact(path) => ENDS.iter().find(|(end, _)| path.ends_with(end)),
        _ => None,
    };
    let types = types(scope);
    let knows = |end: &str| types == Types::Listed || types == Types::Usual && end == ".html";
    let own = end.filter(|(end, _)| knows(end)).map(|(_, own)| *own);
    let own = own.or(scope.nearest_arg("default_type")).unwrap_or("text/plain");
    table.inline("respond").set("content_type", own);
    match at {
        Match::Exact(_) => TAKEN,
        _ if types == Types::None => TAKEN,
        _ => differs("its media type is `default_type`, whatever the end of the path"),
    }
}

/// The types that nginx knows at a level.
#[derive(PartialEq)]
enum Types {
    /// The types of `mime.types`.
    Listed,
    /// HTML and two kinds of images.
    Usual,
    None,
}

fn types(scope: &Scope<'_>) -> Types {
    let is_list = |include: &Directive| include.arg(0).ends_with("mime.types");
    match (scope.own("types").next(), scope.outer) {
        _ if scope.own("include").any(is_list) => Types::Listed,
        (Some(types), _) if types.inner().is_empty() => Types::None,
        (Some(_), _) => Types::Listed,
        (None, Some(outer)) => types(outer),
        (None, None) => Types::Usual,
    }
}

/// Directives that say where answers come from.
pub(super) const ANSWERING: [&str; 3] = ["return", "proxy_pass", "grpc_pass"];

/// The server and the path that `proxy_pass` or `grpc_pass` names.
struct Target {
    scheme: &'static str,
    address: String,
    path: String,
}

impl Target {
    fn read(target: &str, is_grpc: bool) -> Result<Self, String> {
        let (scheme, rest) = target.split_once("://").unwrap_or(("grpc", target));
        let scheme = match (is_grpc, scheme) {
            (false, "http") | (true, "grpc") => "http",
            (false, "https") | (true, "grpcs") => "https",
            (true, _) => return Err("is no URL with grpc or grpcs".to_owned()),
            (false, _) => return Err("is no URL with http or https".to_owned()),
        };
        if rest.contains('$') {
            return Err("the server that is asked cannot come from a variable".to_owned());
        }
        let (address, path) = match rest.strip_prefix("unix:") {
            Some(socket) => {
                let (socket, path) = socket.split_once(':').unwrap_or((socket, ""));
                (format!("unix:{socket}"), path)
            }
            None => {
                let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (address.to_owned(), path)
            }
        };
        Ok(Self { scheme, address, path: path.to_owned() })
    }
}

/// The URL with the values of constants, and without the path of the request at its end.
fn expanded(url: &str, constants: &Constants) -> Result<String, String> {
    const LONGEST: usize = 4 << 10;
    let mut url = url.to_owned();
    for (name, value) in constants {
        if url.len() > LONGEST {
            return Err("the URL is too long".to_owned());
        }
        url = url.replace(&format!("${{{name}}}"), value);
        let whole = format!("://${name}");
        if url.ends_with(&whole)
            || url.contains(&format!("{whole}/"))
            || url.contains(&format!("{whole}$"))
        {
            url = url.replace(&whole, &format!("://{value}"));
        }
        if url == format!("${name}") {
            url.clone_from(value);
        }
    }
    for same in ["$request_uri", "$uri$is_args$args", "$uri"] {
        url = url.strip_suffix(same).unwrap_or(&url).to_owned();
    }
    Ok(url)
}

/// `proxy_pass` with a path puts it in the place of the location's.
fn replace_path(path: &str, at: &Match, table: &mut Table) -> Result<(), String> {
    match at {
        _ if path.is_empty() => {}
        Match::Prefix { path: own, .. } if own == "/" && !path.ends_with('/') => {
            return Err(format!("nginx makes `{path}a` of `/a`: write `{path}/`"));
        }
        Match::Prefix { path: own, .. } if own == "/" => {
            table.set("rewrite", format!("{}{{path}}", path.trim_end_matches('/')));
        }
        Match::Prefix { path: own, .. } | Match::Exact(own) if own == path => {}
        Match::Prefix { path: own, .. } => {
            table.set("rewrite", format!("{path}{{1}}"));
            table.remove("path");
            table.set("path_regex", format!("^{}(.*)$", regex::escape(own)));
        }
        Match::Exact(_) => table.set("rewrite", path),
        Match::Regex(_) | Match::Named(_) => {
            return Err("the location has no path that could be replaced".to_owned());
        }
    }
    Ok(())
}
