//! A site's servers, where the policy chooses among them instead of the nodes of the cluster.

use std::collections::BTreeMap;

use levada_redirector::{KeyFrom, SwitchServer, SwitchSettings};
use levada_types::document::Path;
use serde_json::Value as Json;

use super::{Check, levels::KeyLevels, parts::placed, site::origin};
use crate::{
    file::{self, KeyKind, OneOrMany},
    inherit,
    text::{Root, Upstream},
};

/// Keys that apply to servers only.
const OF_SERVERS: [&str; 3] = ["key", "slow_start", "admission"];

impl Check<'_, '_> {
    /// The outer `None` marks an error, the inner a site with an origin.
    pub(super) fn switch(
        &mut self,
        (site, of): (&file::Site, &file::SiteServers),
        levels: &KeyLevels,
    ) -> Option<Option<SwitchSettings>> {
        let has = |check: &Self, key: &'static str| levels.have(check.findings, key);
        let at = |check: &Self, key: &'static str| levels.key(check.findings, key);
        let given = ["servers", "server"].into_iter().find(|key| has(self, key));
        let Some(given) = given else {
            if !has(self, "origin") && routes_answer_all(site) {
                return Some(None);
            }
            if !has(self, "origin") {
                let help = "for example `origin = \"http://10.0.1.1:8000\"`, or `servers = [...]` that \
                            the policy chooses among, or `files = \"/srv/www\"`";
                return self.error(&at(self, "origin"), "is missing").help(help).none();
            }
            for key in OF_SERVERS.into_iter().filter(|key| has(self, key)).collect::<Vec<_>>() {
                self.warning(&at(self, key), "has no effect without `servers`");
            }
            return Some(None);
        };
        if has(self, "origin") {
            self.error(&at(self, given), "stands beside `origin`: a site has the one or the other");
        }
        if has(self, "misses") {
            self.warning(&at(self, "misses"), "has no effect beside servers")
                .help("`admission` says how many requests may be at them");
        }
        if site.delivery == file::Delivery::Redirect {
            self.error(&at(self, "delivery"), "clients cannot be sent to servers");
        }
        if has(self, "large") {
            let message = "pieces of large files go through a cluster, not to servers";
            self.error(&at(self, "large"), message);
        }
        let servers = self.servers(of, levels);
        let key = self.key_from(&of.key, &at(self, "key"));
        let (servers, key) = (servers?, key?);
        self.handing_over(site, &servers, &key, levels);
        Some(Some(SwitchSettings {
            servers,
            key,
            slow_start: of.slow_start.0,
            admission: of.admission,
        }))
    }

    /// Checks that no two servers have the same name or address.
    fn servers(&mut self, of: &file::SiteServers, levels: &KeyLevels) -> Option<Vec<SwitchServer>> {
        let short = of.servers.as_ref().map(OneOrMany::as_slice).unwrap_or_default();
        let list = levels.key(self.findings, "servers");
        let short = placed(short, &list, short.len() == 1).map(|(place, url)| {
            (place, file::Server { url: Some(url.clone()), ..file::Server::default() })
        });
        let tables = levels.key(self.findings, "server");
        let long = placed(&of.server, &tables, false).map(|(path, server)| (path, server.clone()));
        let all: Vec<(Path, file::Server)> = short.chain(long).collect();
        // If no valid server is left, the reason has been reported.
        if all.is_empty() {
            return None;
        }
        let mut good = true;
        let (mut names, mut urls) = (BTreeMap::new(), BTreeMap::new());
        for (place, server) in &all {
            let Some(url) = &server.url else {
                good = false;
                continue;
            };
            let name = name_of(server, url);
            for (taken, what, word) in
                [(&mut urls, url.to_string(), "address"), (&mut names, name, "name")]
            {
                if let Some(other) = taken.insert(what.clone(), place.clone()) {
                    self.error(place, format!("{what} is the {word} of {other} already"));
                    good = false;
                    break;
                }
            }
        }
        let most = self.file.limits.server_connections;
        let mut server = |(place, server): &(Path, file::Server)| {
            let handoff = self.control(server, place);
            let url = server.url.as_ref()?;
            if matches!(url, Upstream::Discovery { .. }) && server.handoff.is_some() {
                let message = "is one address, and cannot stand for all members of a source";
                self.error(&place.key("handoff"), message);
            }
            let long = place.key("url");
            self.socket(url, if self.findings.has(&long) { &long } else { place });
            Some(SwitchServer {
                name: name_of(server, url),
                origin: origin(url),
                weight: server.weight,
                max_conns: server.max_conns.unwrap_or(most as u32),
                handoff,
                found: None,
            })
        };
        all.iter().map(&mut server).collect::<Option<Vec<_>>>().filter(|_| good)
    }

    fn key_from(&mut self, key: &file::KeyFrom, path: &Path) -> Option<KeyFrom> {
        let named = matches!(key.from, KeyKind::Header | KeyKind::Cookie | KeyKind::Query);
        if named && key.name.is_none() {
            if !self.findings.has(&path.key("name")) {
                let help = "for example `key = { from = \"header\", name = \"X-Session\" }`";
                self.error(path, "needs the `name` of what the key is taken from").help(help);
            }
            return None;
        }
        let without_effect = [
            ("name", !named),
            ("bytes", key.from != KeyKind::Body),
            ("wait", key.from != KeyKind::Body),
        ];
        for (word, idle) in without_effect {
            if idle && self.findings.has(&path.key(word)) {
                self.warning(&path.key(word), "has no effect for this kind of key");
            }
        }
        let name = key.name.clone().unwrap_or_default();
        let wrong = |byte: u8| !byte.is_ascii_graphic() || b"=;&,\"".contains(&byte);
        let bad = match key.from {
            KeyKind::Header => http::HeaderName::try_from(&name).is_err(),
            KeyKind::Cookie | KeyKind::Query => name.bytes().any(wrong),
            KeyKind::Url | KeyKind::Host | KeyKind::Body => false,
        };
        if bad {
            return self
                .error(&path.key("name"), format!("{name:?} cannot be the name of one"))
                .none();
        }
        Some(match key.from {
            KeyKind::Url => KeyFrom::Url,
            KeyKind::Host => KeyFrom::Host,
            KeyKind::Header => KeyFrom::Header(name.to_ascii_lowercase()),
            KeyKind::Cookie => KeyFrom::Cookie(name),
            KeyKind::Query => KeyFrom::Query(name),
            KeyKind::Body => KeyFrom::Body { bytes: key.bytes as usize, wait: key.wait },
        })
    }
}

/// The server's own name, or its address without the scheme.
fn name_of(server: &file::Server, url: &Upstream) -> String {
    let Some(name) = &server.name else {
        return match url {
            Upstream::Root(Root { host, port, .. }) if host.contains(':') => {
                format!("[{host}]:{port}")
            }
            Upstream::Root(Root { host, port, .. }) => format!("{host}:{port}"),
            Upstream::Unix(_) => url.to_string(),
            Upstream::Discovery { source, .. } => source.clone(),
        };
    };
    name.to_string()
}

/// Whether no request of the site comes to servers of its own: a route takes the rest, and all routes up to it
/// answer themselves or have servers.
fn routes_answer_all(site: &file::Site) -> bool {
    let is_matcher = |key: &String| {
        let of_answers = ["name", "redirect", "reroute", "respond"].contains(&key.as_str());
        !of_answers && !inherit::HANDLING_KEYS.contains(key) && !inherit::SERVERS_KEYS.contains(key)
    };
    for route in &site.route {
        let Ok(Json::Object(route)) = serde_json::to_value(route) else { return false };
        let is_stated = |value: &Json| match value {
            Json::Null | Json::Bool(false) => false,
            Json::Array(list) => !list.is_empty(),
            Json::Object(table) => !table.is_empty(),
            _ => true,
        };
        let has = |key: &str| route.get(key).is_some_and(is_stated);
        if !["redirect", "reroute", "respond", "origin", "servers", "server", "files"]
            .into_iter()
            .any(has)
        {
            return false;
        }
        if !route.iter().any(|(key, value)| is_matcher(key) && is_stated(value)) {
            return true;
        }
    }
    false
}
