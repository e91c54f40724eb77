//! `remap.config`: which origin stands for a URL of clients.

use std::{net::IpAddr, sync::Arc};

use super::{Converter, Line, joined_lines};
use crate::{
    files::Includes,
    files::included,
    gate::{self, Concern},
    ledger::{Outcome, Place, TAKEN, differs, left, needless},
    matchers::Condition,
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
    /// The scheme of its line.
    of: String,
    pub(super) path: String,
    /// The keys that a site or a route has for it.
    pub(super) keys: Table,
    /// The host of the origin, if it is asked.
    pub(super) origin_host: Option<String>,
    /// Requests that are refused by their methods.
    pub(super) refused: Vec<Condition>,
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
                [directive, words @ ..] if directive.starts_with('.') => {
                    self.named_filter(directive, words)
                }
                words => self.mapping(&line, words),
            };
            // If a line that restricts is no mapping here, another mapping may answer its requests.
            let restricts = words[0].starts_with('.')
                || !self.active.is_empty()
                || words.iter().any(|word| restricts(word));
            let known = words.first().and_then(|kind| find(KINDS, kind, ""));
            let concern = known.map_or(Concern::Other, Row::concern);
            let concern = if restricts { Concern::Access } else { concern };
            self.close(&line, concern, outcome);
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

    /// `.definefilter NAME @action=...`, `.activatefilter NAME`, and their ends.
    fn named_filter(&mut self, directive: &str, words: &[&str]) -> Outcome {
        let (name, options) = words.split_first().ok_or("a filter has a name")?;
        let owned = |options: &[&str]| options.iter().map(|one| (*one).to_owned()).collect();
        match directive {
            ".definefilter" | ".deffilter" => {
                self.filters.insert((*name).to_owned(), owned(options));
            }
            ".activatefilter" | ".useflt" if self.filters.contains_key(*name) => {
                self.active.push((*name).to_owned());
            }
            ".deactivatefilter" | ".deletefilter" if *name == "ip_allow" => {
                return needless("the rules of ip_allow hold for all mappings");
            }
            ".activatefilter" if *name == "ip_allow" => {}
            ".deactivatefilter" | ".deletefilter" => self.active.retain(|own| own != name),
            _ => return left("there is no such filter"),
        }
        TAKEN
    }

    /// The filters and plugins of a mapping. A filter that cannot be converted closes it.
    fn guard(
        &mut self,
        line: &Line<'_>,
        options: &[&str],
        keys: &mut Table,
    ) -> (Vec<Condition>, Outcome) {
        let mut refused = Vec::new();
        let mut outcome = TAKEN;
        let mut pass = |concern, one: Outcome, keys: &mut Table| {
            let one = gate::pass_line(concern, &line.place, line.text, one, keys);
            if one.is_err() && (outcome.is_ok() || concern == Concern::Access) {
                outcome = one;
            }
        };
        for plugin in options.iter().filter_map(|option| option.strip_prefix("@plugin=")) {
            let reason = format!("the mapping is there, its plugin {plugin} is not");
            pass(plugin_concern(plugin), left(reason), keys);
        }
        let is_filter = |option: &&&str| {
            !["@plugin=", "@pparam="].iter().any(|start| option.starts_with(start))
        };
        let own: Vec<_> = options.iter().filter(is_filter).map(|one| (*one).to_owned()).collect();
        let active = self.active.iter().filter_map(|name| self.filters.get(name));
        let all: Vec<_> =
            std::iter::once(&own).chain(active).filter(|one| !one.is_empty()).collect();
        for filter in all {
            let options: Vec<_> = filter.iter().map(String::as_str).collect();
            let one = filter_of(&options, keys, &mut refused);
            pass(Concern::Access, one, keys);
        }
        (refused, outcome)
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
            let (refused, outcome) = self.guard(line, options, &mut keys);
            leads(&from, &to, status, &mut keys);
            let known = self.enter_mapping(line, &from, &to, status.is_some(), keys, refused);
            outcome.and(known)
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
        refused: Vec<Condition>,
    ) -> Outcome {
        let host = if from.host.is_empty() { "*" } else { from.host }.to_ascii_lowercase();
        let is_same = |own: &&mut Mapping| own.host == host && own.path == from.path;
        let scheme = match self.mappings.iter_mut().find(is_same) {
            Some(same) if same.keys == keys && same.refused == refused => return TAKEN,
            Some(same) => {
                same.scheme.get_or_insert_with(|| same.of.clone());
                Some(from.scheme.to_owned())
            }
            None => None,
        };
        let holds_for_both = from.scheme == "http" && redirects && scheme.is_none();
        let origin_host = (!redirects).then(|| to.authority());
        let (place, path, of) = (line.place.clone(), from.path.to_owned(), from.scheme.to_owned());
        self.mappings.push(Mapping { place, host, scheme, of, path, keys, origin_host, refused });
        match holds_for_both {
            true => differs("it holds for http and https"),
            false => TAKEN,
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
    Row::left("map_with_referer", "a site has `referers`: write the pages there")
        .about(Concern::Access),
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

/// Plugins that refuse no request.
pub(crate) const HARMLESS: &[&str] = &[
    "background_fetch.so",
    "cache_promote.so",
    "cache_range_requests.so",
    "collapsed_forwarding.so",
    "compress.so",
    "escalate.so",
    "fq_pacing.so",
    "gzip.so",
    "inliner.so",
    "slice.so",
    "stale_while_revalidate.so",
    "stats_over_http.so",
    "xdebug.so",
];

/// Plugins that change the cache key, or the rules of the cache.
pub(crate) const OF_THE_CACHE: &[&str] =
    &["cachekey.so", "cacheurl.so", "conf_remap.so", "regex_revalidate.so"];

/// The subject of a plugin. One that is not known may refuse requests.
pub(super) fn plugin_concern(plugin: &str) -> Concern {
    let name = plugin.rsplit('/').next().unwrap_or_default();
    match (HARMLESS.contains(&name), OF_THE_CACHE.contains(&name)) {
        (true, _) => Concern::Other,
        (_, true) => Concern::Storing,
        _ => Concern::Access,
    }
}

/// Whether an option of a mapping may keep clients out.
fn restricts(option: &str) -> bool {
    match option.strip_prefix("@plugin=") {
        Some(plugin) => plugin_concern(plugin) == Concern::Access,
        None => option.starts_with('@') && !option.starts_with("@pparam="),
    }
}

/// One filter: by methods, or by addresses.
fn filter_of(options: &[&str], keys: &mut Table, refused: &mut Vec<Condition>) -> Outcome {
    let methods: Vec<_> = options.iter().filter_map(|one| one.strip_prefix("@method=")).collect();
    if methods.is_empty() {
        return access_options(options, keys);
    }
    let action = options.iter().find_map(|one| one.strip_prefix("@action="));
    let is_token = |method: &&str| method.bytes().all(|c| c.is_ascii_alphabetic());
    if action.is_none() || options.len() > methods.len() + 1 || !methods.iter().all(is_token) {
        return left("its filter is not there: a filter is by methods, or by addresses");
    }
    let sign = if action == Some("deny") { "~" } else { "!~" };
    let pattern = format!("^({})$", methods.join("|").to_ascii_uppercase());
    refused.push(Condition::comparison("request_method", sign, &pattern)?);
    TAKEN
}

/// `@action=` with `@src_ip=` as rules of access.
pub(crate) fn access_options(options: &[&str], keys: &mut Table) -> Outcome {
    if options.is_empty() {
        return TAKEN;
    }
    let find = |name: &str| options.iter().find_map(|option| option.strip_prefix(name));
    let is_known = |one: &&str| one.starts_with("@action=") || one.starts_with("@src_ip=");
    if let Some(other) = options.iter().find(|one| !is_known(one)) {
        return left(format!("its filter is not there: there is nothing for `{other}`"));
    }
    let action = find("@action=").ok_or("its filter is not there: it has no action")?;
    let verb = match action {
        "deny" | "add_deny" | "set_deny" => "deny",
        "allow" | "add_allow" | "set_allow" => "allow",
        _ => return left("its filter is not there: its action is unknown"),
    };
    let addresses: Vec<_> = options.iter().filter_map(|one| one.strip_prefix("@src_ip=")).collect();
    if addresses.iter().any(|address| !is_address(address)) {
        return left("its filter is not there: an address or a prefix is needed");
    }
    if keys.has_any(&["access"]) {
        return left("several filters by address are one list: write it");
    }
    let addresses = if addresses.is_empty() { vec!["all"] } else { addresses };
    for address in &addresses {
        keys.push("access", format!("{verb} {address}"));
    }
    if verb == "allow" && addresses != ["all"] {
        keys.push("access", "deny all");
    }
    TAKEN
}

/// Whether it is an address, a prefix or all.
pub(super) fn is_address(text: &str) -> bool {
    let (address, bits) = text.split_once('/').unwrap_or((text, "0"));
    text == "all" || address.parse::<IpAddr>().is_ok() && bits.parse::<u8>().is_ok()
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
