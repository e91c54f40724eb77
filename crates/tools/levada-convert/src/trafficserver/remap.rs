//! `remap.config`: which origin stands for a URL of clients.

use std::sync::Arc;

use super::{Converter, Line, joined_lines};
use crate::{
    files::DEEPEST, files::Includes, ledger::Fate, ledger::Place, table::Table, vocabulary,
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

    fn include(&mut self, paths: &[&str], includes: &dyn Includes, depth: usize) -> Fate {
        if depth >= DEEPEST {
            return Fate::left("files include each other too often");
        }
        for path in paths {
            match includes.matching(path) {
                Ok(files) if files.is_empty() => return Fate::left("there is no such file"),
                Ok(files) => {
                    for file in files {
                        self.remap(&file.name.as_str().into(), &file.text, includes, depth + 1);
                    }
                }
                Err(reason) => return Fate::Left(reason),
            }
        }
        Fate::Taken
    }

    fn mapping(&mut self, line: &Line<'_>, words: &[&str]) -> Fate {
        let (kind, from, to, options) = match words {
            [kind, from, to, options @ ..] => (*kind, *from, *to, options),
            _ => return Fate::left("a mapping has a kind and two URLs"),
        };
        let status = match kind {
            "map" => None,
            "redirect" => Some(301),
            "redirect_temporary" => Some(302),
            "reverse_map" => return Fate::left("`Location` of the origin passes as it is"),
            "map_with_recv_port" => {
                return Fate::left("a site is found by the host, not by the port");
            }
            "map_with_referer" => {
                return Fate::left("a site has `referers`: write the pages there");
            }
            "regex_map" | "regex_redirect" => {
                return Fate::left("hosts are names, or `*.` and a name: write a site for them");
            }
            _ => return Fate::left("there is no such kind of mapping"),
        };
        let Some(from) = Url::read(from) else { return Fate::left("the first URL cannot be read") };
        let Some(to) = Url::read(to) else { return Fate::left("the second URL cannot be read") };
        if !matches!(to.scheme, "http" | "https") || to.host.is_empty() {
            return Fate::left("an origin has a URL with http or https");
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
            None if to.path == from.path => Fate::Taken,
            None => vocabulary::rewrite(&mut keys, format!("{start}{rest}")),
        };
        if target != Fate::Taken {
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
            fate = differs(fate, "it holds for http and https");
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

fn differs(fate: Fate, reason: &str) -> Fate {
    if fate == Fate::Taken { Fate::differs(reason) } else { fate }
}

/// `@action=`, `@src_ip=` as rules of access; plugins are left.
fn options_of(options: &[&str], keys: &mut Table) -> Fate {
    let find = |name: &str| options.iter().find_map(|option| option.strip_prefix(name));
    if let Some(plugin) = find("@plugin=") {
        return Fate::left(format!("the mapping is there, its plugin {plugin} is not"));
    }
    if find("@method=").is_some() || find("@internal").is_some() {
        return Fate::left("the mapping is there, its filter by method is not");
    }
    let Some(action) = find("@action=") else { return Fate::Taken };
    let addresses: Vec<_> =
        options.iter().filter_map(|option| option.strip_prefix("@src_ip=")).collect();
    let verb = if action == "deny" { "deny" } else { "allow" };
    if addresses.iter().any(|address| address.contains(['-', '~'])) {
        return Fate::left(
            "the mapping is there, its filter is not: an address or a prefix is needed",
        );
    }
    let mut fate = Fate::Taken;
    for address in addresses {
        fate = vocabulary::push(keys, "access", format!("{verb} {address}"));
    }
    if verb == "allow" && fate == Fate::Taken {
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
