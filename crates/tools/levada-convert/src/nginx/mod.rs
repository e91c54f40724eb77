//! nginx's configuration.
//!
//! `http` becomes `[defaults]`, each host of the `server` blocks a `[[site]]`, each `location` a
//! `[[site.route]]`. The levels inherit alike: the nearest statement counts.

mod conditions;
mod content;
mod directory;
mod logs;
mod needless;
mod parse;
mod server;
mod settings;
mod sites;
mod tls;
mod upstream;
mod variables;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::{
    conversion::Conversion,
    conversion::Unreadable,
    files::Includes,
    files::InputFile,
    ledger::{Ledger, Outcome, Stated as _, TAKEN, differs, left, needless},
    plan::Plan,
    table::Table,
    tree::Parser,
    units,
};
use conditions::{Flags, Map};
use logs::LogFormats;
use parse::{Directive, GRAMMAR};
use upstream::Upstream;
use variables::Constants;

/// Converts the file and the files that it includes.
///
/// # Errors
/// When a file is not written in nginx's grammar.
pub fn convert(file: &InputFile, includes: &dyn Includes) -> Result<Conversion, Unreadable> {
    let mut ledger = Ledger::default();
    let statements =
        Parser::new(&GRAMMAR, includes, &mut ledger).file(&file.name, &file.text, 0)?;
    let directives: Vec<_> = statements.into_iter().map(Directive::from).collect();
    let mut converter = Converter { ledger, ..Converter::default() };
    converter.main(&directives);
    account_of_maps(&mut converter.ledger, &directives, &directives);
    tls::account(&mut converter.ledger, &directives);
    // The entries of a map belong to it.
    converter.ledger.enter_missed(&directives, |one| !MAPS.contains(&one.name.as_str()));
    Ok(Conversion::new(converter.plan, converter.ledger))
}

const MAPS: [&str; 2] = ["map", "geo"];

/// Enters maps: they are in the new file where a directive is that uses them.
fn account_of_maps(ledger: &mut Ledger, directives: &[Directive], all: &[Directive]) {
    for directive in directives {
        if !MAPS.contains(&directive.name.as_str()) {
            account_of_maps(ledger, directive.inner(), all);
            continue;
        }
        let mut users = Vec::new();
        fates_of_users(ledger, all, &Map::name(directive), &mut users);
        let fate = match users.as_slice() {
            [] => needless("nothing uses its variable"),
            users if users.contains(&true) => TAKEN,
            _ => left("no directive that uses its variable was converted"),
        };
        ledger.enter(directive, fate);
    }
}

/// Whether each directive that uses a variable was taken over.
fn fates_of_users(ledger: &Ledger, all: &[Directive], name: &str, users: &mut Vec<bool>) {
    let variable = format!("${name}");
    for directive in all.iter().filter(|directive| !MAPS.contains(&directive.name.as_str())) {
        if directive.args.iter().any(|arg| arg.contains(&variable)) {
            users.extend(ledger.has_taken(directive));
        }
        fates_of_users(ledger, directive.inner(), name, users);
    }
}

/// A block of directives within the blocks around it.
#[derive(Clone, Copy)]
struct Scope<'a> {
    directives: &'a [Directive],
    outer: Option<&'a Scope<'a>>,
}

impl<'a> Scope<'a> {
    /// The directives of this name at the nearest level that has any.
    fn nearest(&self, name: &str) -> Vec<&'a Directive> {
        let own: Vec<_> = self.own(name).collect();
        match self.outer {
            Some(outer) if own.is_empty() => outer.nearest(name),
            _ => own,
        }
    }

    fn own(&self, name: &str) -> impl Iterator<Item = &'a Directive> {
        self.directives.iter().filter(move |directive| directive.name == name)
    }

    /// The first argument of the nearest directive of this name.
    fn nearest_arg(&self, name: &str) -> Option<&'a str> {
        self.nearest(name).first().map(|directive| directive.arg(0))
    }
}

/// A rate of `limit_req_zone`, or a key of `limit_conn_zone`.
#[derive(Clone, Debug)]
struct Zone {
    key: Result<String, String>,
    rate: String,
}

/// The work so far.
#[derive(Default)]
struct Converter {
    plan: Plan,
    ledger: Ledger,
    upstreams: BTreeMap<String, Upstream>,
    maps: BTreeMap<String, Map>,
    request_zones: BTreeMap<String, Zone>,
    connection_zones: BTreeMap<String, Zone>,
    flags: Flags,
    /// How long each cache keeps what nobody asks for.
    caches: BTreeMap<String, String>,
    /// Variables with one value.
    constants: Constants,
    log_formats: LogFormats,
}

impl Converter {
    fn enter(&mut self, directive: &Directive, fate: Outcome) {
        self.ledger.enter(directive, fate);
    }

    fn enter_whole(&mut self, directive: &Directive, fate: &Outcome) {
        self.ledger.enter_whole(directive, fate);
    }

    fn main(&mut self, directives: &[Directive]) {
        self.plan.top.set("name", "edge");
        let (mut http, mut main) = (Vec::new(), Vec::new());
        for directive in directives {
            match directive.name.as_str() {
                "http" => {
                    self.enter(directive, TAKEN);
                    http.extend(directive.inner().iter().cloned());
                }
                "events" => {
                    self.enter(directive, needless("a node has no such block"));
                    main.extend(directive.inner());
                }
                "stream" | "mail" => {
                    self.enter_whole(directive, &left("only HTTP is served"));
                }
                _ => main.push(directive),
            }
        }
        // A file of `conf.d` has the directives of `http` without that block.
        if http.is_empty() {
            http = main.into_iter().cloned().collect();
        } else {
            for directive in main {
                let fate = needless::fate(&directive.name)
                    .unwrap_or_else(|| left("Levada has nothing for this directive"));
                self.enter_whole(directive, &fate);
            }
        }
        self.http(&http);
    }

    fn http(&mut self, directives: &[Directive]) {
        let scope = Scope { directives, outer: None };
        for directive in directives {
            if let Some(fate) = self.declaration(directive) {
                self.enter(directive, fate);
            }
        }
        let mut defaults = Table::default();
        self.settings(&scope, &mut defaults);
        // nginx stores nothing unless it is told to, and knows no heuristic freshness.
        if defaults.get("cache").is_none() {
            defaults.set("cache", false);
        }
        defaults.set("heuristic_percent", 0);
        self.plan.defaults = defaults;
        self.claim_roots(&scope);
        self.sites(&scope);
    }

    /// Reads a directive that names something for others to use.
    fn declaration(&mut self, directive: &Directive) -> Option<Outcome> {
        Some(match directive.name.as_str() {
            "upstream" => {
                let (upstream, fates) = Upstream::read(directive);
                for (inner, fate) in directive.inner().iter().zip(fates) {
                    self.enter(inner, fate);
                }
                self.upstreams.insert(directive.arg(0).to_owned(), upstream);
                TAKEN
            }
            "map" | "geo" => {
                let map = Map::read(directive);
                let name = Map::name(directive);
                if let Some(value) = map.only_value() {
                    self.constants.insert(name.clone(), value.to_owned());
                }
                self.maps.insert(name, map);
                return None;
            }
            "limit_req_zone" => zone(&mut self.request_zones, directive),
            "limit_conn_zone" => zone(&mut self.connection_zones, directive),
            "proxy_cache_path" => self.cache_path(directive),
            _ => return None,
        })
    }

    /// All caches of nginx are one in a node.
    fn cache_path(&mut self, directive: &Directive) -> Outcome {
        let inactive =
            directive.parameter("inactive").and_then(units::nginx_time).unwrap_or(600_000);
        let zone = directive.parameter("keys_zone").and_then(|zone| zone.split(':').next());
        let is_first = self.caches.is_empty();
        if let Some(zone) = zone {
            self.caches.insert(zone.to_owned(), units::duration(inactive));
        }
        if !is_first {
            return differs("a node has one cache: the first path counts for all");
        }
        const LEAST: u64 = 16 << 20;
        let size = directive.parameter("max_size").and_then(units::byte_size);
        let bytes = size.unwrap_or(10 << 30).max(LEAST);
        let disk = self.plan.cache.inline("disk");
        disk.set("path", directive.arg(0));
        disk.set("size", units::size(bytes));
        match size {
            Some(_) => TAKEN,
            None => differs("nginx's cache without max_size fills the disk; here it has 10GiB"),
        }
    }
}

/// Reads `limit_req_zone` and `limit_conn_zone`.
fn zone(zones: &mut BTreeMap<String, Zone>, directive: &Directive) -> Outcome {
    let Some(name) = directive.parameter("zone").and_then(|zone| zone.split(':').next()) else {
        return left("has no zone");
    };
    let key = match directive.arg(0).trim_start_matches('$') {
        "binary_remote_addr" | "remote_addr" | "realip_remote_addr" => Ok("client".to_owned()),
        "server_name" | "host" | "http_host" => Ok("site".to_owned()),
        "uri" | "document_uri" => Ok("path".to_owned()),
        other => match (other.strip_prefix("http_"), other.strip_prefix("cookie_")) {
            (Some(field), _) => Ok(format!("header:{}", field.replace('_', "-"))),
            (_, Some(cookie)) => Ok(format!("cookie:{cookie}")),
            _ => Err(format!("a limit cannot count by `{}`", directive.arg(0))),
        },
    };
    let fate = key.as_ref().map_or_else(left, |_| TAKEN);
    let rate = directive.parameter("rate").unwrap_or_default().to_owned();
    zones.insert(name.to_owned(), Zone { key, rate });
    fate
}
