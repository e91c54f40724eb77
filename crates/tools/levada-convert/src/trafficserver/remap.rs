//! `remap.config`: which origin stands for a URL of clients.

use std::sync::Arc;

use super::{Converter, Line, joined_lines};
use crate::{
    files::Includes,
    files::included,
    ledger::{Fate, Outcome, Place, TAKEN, differs, left},
    rows::{Row, find},
    table::Table,
    vocabulary,
};

/// One line with `map` or `redirect`.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub(super) place: Place,
    /// The host of clients' URLs, or `*`.
    pub(super) host: String,
    /// The scheme, if another line has the same host and path with another scheme.
    pub(super) scheme: Option<String>,
    pub(super) path: String,
    /// The keys that a site or a route has for it.
    pub(super) keys: Table,
    /// The host of the origin, if it is asked.
    pub(super) origin_host: Option<String>,
}

impl Mapping {
    /// The matchers of its route.
    pub(super) fn matchers(&self) -> Table {
        let mut table = Table::default();
        if let Some(scheme) = &self.scheme {
            table.set("scheme", scheme.as_str());
        }
        if self.path == "/" {
            // All of them.
        } else if !self.keys.has_any(&["rewrite", "redirect"]) {
            table.set("path", format!("{}**", self.path));
        } else {
            table.set("path_regex", format!("^{}(.*)$", regex::escape(&self.path)));
        }
        table
    }
}

impl Converter {
    pub(super) fn remap(
        &mut self,
        name: &Arc<str>,
        text: &str,
        includes: &dyn Includes,
        depth: usize,
    ) {
        for (number, text) in joined_lines(text) {
            let line = Line { place: Place { file: name.clone(), line: number }, text: &text };
            let words: Vec<_> = text.split_whitespace().collect();
            let outcome = match words.as_slice() {
                [".include", paths @ ..] => self.include(paths, includes, depth),
                words => self.mapping(&line, words),
            };
            self.enter(&line, outcome);
        }
    }

    fn include(&mut self, paths: &[&str], includes: &dyn Includes, depth: usize) -> Outcome {
        for path in paths {
            let files = included(includes, path, depth, self.files)?;
            self.files += files.len();
            for file in files {
                self.remap(&file.name.as_str().into(), &file.text, includes, depth + 1);
            }
        }
        TAKEN
    }

    fn mapping(&mut self, line: &Line<'_>, words: &[&str]) -> Outcome {
        let [kind, from, to, options @ ..] = words else {
            return left("a mapping has a kind and two URLs");
        };
        let row = find(KINDS, kind, "").ok_or("there is no such kind of mapping")?;
        row.outcome(|status| {
            let from = Url::read(from).ok_or("the first URL cannot be read")?;
            let to = Url::read(to).ok_or("the second URL cannot be read")?;
            if !matches!(to.scheme, "http" | "https") || to.host.is_empty() {
                return left("an origin has a URL with http or https");
            }
            let mut keys = Table::default();
            let outcome = access_options(options, &mut keys);
            leads(&from, &to, status, &mut keys);
            self.enter_mapping(line, &from, &to, status.is_some(), keys, outcome)
        })
    }

    /// Two mappings of one host and path are for the two schemes.
    fn enter_mapping(
        &mut self,
        line: &Line<'_>,
        from: &Url<'_>,
        to: &Url<'_>,
        redirects: bool,
        keys: Table,
        outcome: Outcome,
    ) -> Outcome {
        let host = if from.host.is_empty() { "*" } else { from.host }.to_ascii_lowercase();
        let same = self.mappings.iter().find(|own| own.host == host && own.path == from.path);
        let scheme = match same {
            Some(same) if same.keys == keys => return outcome,
            Some(_) => Some(from.scheme.to_owned()),
            None => None,
        };
        let holds_for_both = from.scheme == "http" && redirects && scheme.is_none();
        let origin_host = (!redirects).then(|| to.authority());
        let (place, path) = (line.place.clone(), from.path.to_owned());
        self.mappings.push(Mapping { place, host, scheme, path, keys, origin_host });
        match outcome {
            Ok(Fate::Taken) if holds_for_both => differs("it holds for http and https"),
            outcome => outcome,
        }
    }
}

/// The kinds of mappings, with the status of those that are redirects.
pub(crate) const KINDS: &[Row<Option<u64>>] = &[
    Row::writes("map", "origin, rewrite", None),
    Row::writes("redirect", "redirect", Some(301)),
    Row::writes("redirect_temporary", "redirect", Some(302)),
    Row::left("reverse_map", "`Location` of the origin passes as it is"),
    Row::left("map_with_recv_port", "a site is found by the host, not by the port"),
    Row::left("map_with_referer", "a site has `referers`: write the pages there"),
    Row::left(
        "regex_map regex_redirect",
        "hosts are names, or `*.` and a name: write a site for them",
    ),
];

/// The keys by which requests get from one URL to the other: the rest of the path follows, and the query.
fn leads(from: &Url<'_>, to: &Url<'_>, status: Option<u64>, keys: &mut Table) {
    let (start, rest, with_query) = match from.path {
        "/" => (to.path.trim_end_matches('/'), "{path}", "{uri}"),
        _ => (to.path, "{1}", "{1}{?query}"),
    };
    let server = format!("{}://{}", to.scheme, to.authority());
    if let Some(status) = status {
        return vocabulary::redirect(keys, status, format!("{server}{start}{with_query}"));
    }
    if to.path != from.path {
        keys.set("rewrite", format!("{start}{rest}"));
    }
    keys.set("origin", server);
}

/// `@action=`, `@src_ip=` as rules of access; plugins are left.
pub(crate) fn access_options(options: &[&str], keys: &mut Table) -> Outcome {
    let find = |name: &str| options.iter().find_map(|option| option.strip_prefix(name));
    if let Some(plugin) = find("@plugin=") {
        return left(format!("the mapping is there, its plugin {plugin} is not"));
    }
    if find("@method=").is_some() || find("@internal").is_some() {
        return left("the mapping is there, its filter by method is not");
    }
    let Some(action) = find("@action=") else { return TAKEN };
    let addresses: Vec<_> =
        options.iter().filter_map(|option| option.strip_prefix("@src_ip=")).collect();
    let verb = if action == "deny" { "deny" } else { "allow" };
    if addresses.iter().any(|address| address.contains(['-', '~'])) {
        return left("the mapping is there, its filter is not: an address or a prefix is needed");
    }
    for address in &addresses {
        keys.push("access", format!("{verb} {address}"));
    }
    if verb == "allow" {
        keys.push("access", "deny all");
    }
    TAKEN
}

/// A URL of a mapping.
struct Url<'a> {
    scheme: &'a str,
    host: &'a str,
    port: Option<&'a str>,
    path: &'a str,
}

impl<'a> Url<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let start = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(start);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|c| c.is_ascii_digit()) => (host, Some(port)),
            _ => (authority, None),
        };
        let is_host = |c: u8| c.is_ascii_alphanumeric() || b".-_[]:".contains(&c);
        if !host.bytes().all(is_host) || path.contains(['{', '}', '*', '?']) {
            return None;
        }
        Some(Self { scheme, host, port, path: if path.is_empty() { "/" } else { path } })
    }

    fn authority(&self) -> String {
        let usual = if self.scheme == "https" { "443" } else { "80" };
        match self.port {
            Some(port) if port != usual => format!("{}:{port}", self.host),
            _ => self.host.to_owned(),
        }
    }
}
