//! `remap.config`: which origin stands for a URL of clients.

use std::sync::Arc;

use super::{Converter, Line, joined_lines};
use crate::{
    files::Includes,
    files::included,
    ledger::{Outcome, Place, TAKEN, differs, left},
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
        let changes = |key: &str| self.keys.get(key).is_some();
        if self.path == "/" {
            // All of them.
        } else if !["rewrite", "redirect"].iter().any(|key| changes(key)) {
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
            let fate = match words.as_slice() {
                [".include", paths @ ..] => self.include(paths, includes, depth),
                words => self.mapping(&line, words),
            };
            self.enter(&line, fate);
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
        let (kind, from, to, options) = match words {
            [kind, from, to, options @ ..] => (*kind, *from, *to, options),
            _ => return left("a mapping has a kind and two URLs"),
        };
        let status = match kind {
            "map" => None,
            "redirect" => Some(301),
            "redirect_temporary" => Some(302),
            "reverse_map" => return left("`Location` of the origin passes as it is"),
            "map_with_recv_port" => {
                return left("a site is found by the host, not by the port");
            }
            "map_with_referer" => {
                return left("a site has `referers`: write the pages there");
            }
            "regex_map" | "regex_redirect" => {
                return left("hosts are names, or `*.` and a name: write a site for them");
            }
            _ => return left("there is no such kind of mapping"),
        };
        let Some(from) = Url::read(from) else { return left("the first URL cannot be read") };
        let Some(to) = Url::read(to) else { return left("the second URL cannot be read") };
        if !matches!(to.scheme, "http" | "https") || to.host.is_empty() {
            return left("an origin has a URL with http or https");
        }
        let mut keys = Table::default();
        let mut fate = options_of(options, &mut keys);
        // The rest of the path follows, and the query.
        let (rest, with_query) = match from.path {
            "/" => ("{path}", "{uri}"),
            _ => ("{1}", "{1}{?query}"),
        };
        let start = if from.path == "/" { to.path.trim_end_matches('/') } else { to.path };
        let target = match status {
            Some(status) => {
                let to = format!("{}://{}{start}{with_query}", to.scheme, to.authority());
                vocabulary::redirect(&mut keys, status, to)
            }
            None if to.path == from.path => TAKEN,
            None => vocabulary::rewrite(&mut keys, format!("{start}{rest}")),
        };
        if target != TAKEN {
            return target;
        }
        if status.is_none() {
            keys.set("origin", format!("{}://{}", to.scheme, to.authority()));
        }
        let host =
            if from.host.is_empty() { "*".to_owned() } else { from.host.to_ascii_lowercase() };
        let same = self.mappings.iter().find(|own| own.host == host && own.path == from.path);
        let scheme = match same {
            Some(same) if same.keys == keys => return fate,
            Some(_) => Some(from.scheme.to_owned()),
            None => None,
        };
        if from.scheme == "http" && status.is_some() && scheme.is_none() {
            fate = differing(fate, "it holds for http and https");
        }
        let origin_host = status.is_none().then(|| to.authority());
        let place = line.place.clone();
        self.mappings.push(Mapping {
            place,
            host,
            scheme,
            path: from.path.to_owned(),
            keys,
            origin_host,
        });
        fate
    }
}

fn differing(fate: Outcome, reason: &str) -> Outcome {
    if fate == TAKEN { differs(reason) } else { fate }
}

/// `@action=`, `@src_ip=` as rules of access; plugins are left.
fn options_of(options: &[&str], keys: &mut Table) -> Outcome {
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
    let mut fate = TAKEN;
    for address in addresses {
        fate = vocabulary::push(keys, "access", format!("{verb} {address}"));
    }
    if verb == "allow" && fate == TAKEN {
        fate = vocabulary::push(keys, "access", "deny all");
    }
    fate
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
