//! nginx's configuration.
//!
//! `http` becomes `[defaults]`, each host of the `server` blocks a `[[site]]`, each `location` a
//! `[[site.route]]`. The levels inherit alike: the nearest statement counts.

mod access;
mod aside;
mod caching;
mod compression;
mod conditional;
mod conditions;
mod content;
mod converter;
mod directives;
mod directory;
mod fields;
mod limits;
mod locations;
mod log_format;
mod logs;
mod needless;
mod parse;
mod server;
mod setting;
mod sites;
mod tls;
mod upstream;
mod variables;

#[cfg(test)]
mod tests;

use crate::{
    conversion::Conversion,
    conversion::Unreadable,
    files::Includes,
    files::InputFile,
    gate,
    ledger::{Ledger, MISSED, Stated as _, TAKEN, left, needless},
    rows::{self, Described},
    table::{Table, Value},
    tree::Parser,
};
use conditions::{MAPS, Map};
use converter::{Converter, Scope};
use directives::TABLES;
use parse::{Directive, GRAMMAR};

pub use aside::{Aside, aside};

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
    directives::enter_unused(&mut converter.ledger, &directives);
    // The entries of a map belong to it.
    let Converter { ledger, plan, .. } = &mut converter;
    let mut missed = |one: &Directive| {
        gate::pass(directives::concern(one), one, left(MISSED), &mut plan.defaults)
    };
    ledger.enter_missed(&directives, |one| !MAPS.contains(&one.name.as_str()), &mut missed);
    Ok(Conversion::new(converter.plan, converter.ledger))
}

/// The fates of directives, for the documentation.
pub fn described() -> Vec<Described> {
    let everywhere = TABLES.iter().flat_map(|table| rows::described("", table));
    let upstream = rows::described("upstream", upstream::WITHIN);
    let origin = rows::described("proxy_ssl_, grpc_ssl_", tls::ORIGIN);
    everywhere.chain(upstream).chain(origin).collect()
}

/// Enters maps: they are in the new file where a directive is that uses them.
fn account_of_maps(ledger: &mut Ledger, directives: &[Directive], all: &[Directive]) {
    for directive in directives {
        if !MAPS.contains(&directive.name.as_str()) {
            account_of_maps(ledger, directive.inner(), all);
            continue;
        }
        let mut users = Vec::new();
        fates_of_users(ledger, all, &Map::name(directive), &mut users);
        let outcome = match users.as_slice() {
            [] => needless("nothing uses its variable"),
            users if users.contains(&true) => TAKEN,
            _ => left("no directive that uses its variable was converted"),
        };
        ledger.enter(directive, outcome);
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

impl Converter {
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
                "stream" | "mail" => self.enter_whole(directive, &left("only HTTP is served")),
                _ => main.push(directive),
            }
        }
        // A file of `conf.d` has the directives of `http` without that block.
        if http.is_empty() {
            http = main.into_iter().cloned().collect();
        } else {
            for directive in main {
                self.enter_whole(directive, &directives::without_keys(directive));
            }
        }
        self.http(&http);
    }

    fn http(&mut self, directives: &[Directive]) {
        let scope = Scope { directives, outer: None };
        let maps = directives.iter().filter(|one| MAPS.contains(&one.name.as_str()));
        self.maps = maps.map(|one| (Map::name(one), Map::read(one))).collect();
        access::proxies(directives, &mut self.proxies);
        for (name, map) in &self.maps {
            if let Some(value) = map.only_value() {
                self.constants.insert(name.clone(), value.to_owned());
            }
        }
        let mut defaults = Table::default();
        self.declarations(&scope, &mut defaults);
        self.settings(&scope, &mut defaults);
        // nginx stores nothing by itself, knows no heuristic freshness, gives no stale response by itself, and
        // takes no larger body than this.
        for (key, value) in [
            ("cache", Value::from(false)),
            ("stale_if_unreachable", "0s".into()),
            ("max_body", "1MiB".into()),
        ] {
            if !defaults.has_any(&[key]) {
                defaults.set(key, value);
            }
        }
        defaults.set("heuristic_percent", 0);
        fields::hide(directives, &mut defaults);
        self.plan.defaults = defaults;
        self.claim_roots(&scope);
        self.sites(&scope);
        self.plan.trusted.retain(|trusted| trusted.has_any(&["addresses"]));
    }
}
