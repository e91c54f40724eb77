//! The tables of directives that mean the same at every level, and how they are read: each becomes keys of
//! `[defaults]`, a site or a route.

use super::{
    access, caching, compression, conditional,
    conditions::MAPS,
    converter::{Converter, Scope},
    fields, limits, logs, needless,
    parse::Directive,
    setting::{NOTHING, Reader, Setting, Turn, at, elsewhere, key, rule},
    tls,
    upstream::Upstream,
};
use crate::{
    gate::{self, Concern},
    ledger::{self, Fate, Ledger, Outcome, Stated as _, TAKEN, left},
    rows::{self, Row},
    table::Table,
};

/// Levels, and directives that are read with them.
const BLOCKS: &[Row<Reader>] = &[
    elsewhere("http", "[defaults]"),
    elsewhere("server", "[[site]]"),
    elsewhere("location if limit_except", "[[site.route]]"),
    rule("include", "the statements of the file", |s| match s.arg(0).ends_with("mime.types") {
        true => ledger::needless("a node has this list of types itself"),
        false => left("the file could not be read"),
    }),
    elsewhere("map geo", "the routes and texts that use their variables"),
    at(Turn::Last, "set", "the routes and texts that use its variable", set),
    at(Turn::Http, "upstream", "servers, server, policy, key, health_check", upstream),
    elsewhere("listen", "[[listen]]"),
    elsewhere("server_name", "hosts"),
    elsewhere("ssl ssl_certificate ssl_certificate_key", "listen.tls"),
    elsewhere("proxy_pass grpc_pass", "origin, servers, origin_host, protocol"),
    elsewhere("root alias index try_files", "files"),
    key("default_type", "respond.content_type", |s| match s.arg(0) {
        "application/octet-stream" => ledger::needless("it is the type of files without another"),
        _ if s.scope.own("return").next().is_some() => TAKEN,
        _ => left("files of an unknown type are application/octet-stream"),
    }),
    key("types", "files.types", |s| match s.directive.inner().is_empty() {
        true => ledger::needless("a node has a list of types itself"),
        false => left("write `types` of `files`: docs/operate/static-files.md"),
    }),
    elsewhere("autoindex", "directories are never listed"),
    elsewhere("return", "redirect, respond"),
    elsewhere("rewrite", "rewrite, redirect"),
];

/// `set`: a constant, or the value of a flag where no condition holds.
fn set(s: &mut Setting<'_>) -> Outcome {
    const SEVERAL: &str = "the variable has several values";
    let (name, value) = (s.arg(0).trim_start_matches('$'), s.arg(1));
    if s.converter.unknown.contains(name) {
        return left("the requests that the variable is set for are not known");
    }
    if s.converter.flags.contains_key(name) {
        return if ["", "0"].contains(&value) { TAKEN } else { left(SEVERAL) };
    }
    let constants = &mut s.converter.constants;
    if constants.get(name).is_some_and(|own| own != value) {
        constants.remove(name);
        return left(SEVERAL);
    }
    constants.insert(name.to_owned(), value.to_owned());
    TAKEN
}

fn upstream(s: &mut Setting<'_>) -> Outcome {
    let (upstream, outcomes) = Upstream::read(s.directive, without_keys);
    for (inner, outcome) in s.directive.inner().iter().zip(outcomes) {
        s.converter.enter(inner, outcome);
    }
    s.converter.upstreams.insert(s.arg(0).to_owned(), upstream);
    TAKEN
}

/// All tables, in the order in which they are looked at.
pub(crate) const TABLES: &[&[Row<Reader>]] = &[
    BLOCKS,
    caching::TABLE,
    fields::TABLE,
    access::TABLE,
    limits::TABLE,
    compression::TABLE,
    logs::TABLE,
    tls::TABLE,
    needless::HANDLERS,
    needless::NEEDLESS,
    needless::LEFT,
];

/// The row of a directive. The modules of nginx have the same directives under two names.
fn row(directive: &Directive) -> Option<&'static Row<Reader>> {
    let find = |name: &str| {
        rows::find(TABLES.iter().flat_map(|table| table.iter()), name, directive.arg(0))
    };
    find(&directive.name).or_else(|| {
        let name = format!("proxy_{}", directive.name.strip_prefix("grpc_")?);
        find(&name).filter(|row| turn(Some(row)) == Some(Turn::Main))
    })
}

/// When a level reads the directive of a row.
fn turn(row: Option<&Row<Reader>>) -> Option<Turn> {
    match row.and_then(Row::keys) {
        Some(Reader::At(turn, _)) => Some(turn),
        Some(Reader::Elsewhere(_)) => None,
        _ => Some(Turn::Main),
    }
}

/// The fate of a directive where none is read.
pub(super) fn without_keys(directive: &Directive) -> Outcome {
    row(directive).and_then(Row::without_keys).unwrap_or_else(|| left(NOTHING))
}

/// The subject of a directive and of those in its block: as its row says, or its words where it has none.
pub(super) fn concern(directive: &Directive) -> Concern {
    let own = row(directive).map_or_else(|| gate::smell(&directive.name), Row::concern);
    match MAPS.contains(&directive.name.as_str()) {
        true => own,
        false => directive.inner().iter().map(concern).fold(own, Concern::max),
    }
}

/// Whether clients may be kept out, or sent elsewhere, by what is in a block: without it, what is around it must not
/// answer them.
pub(super) fn keeps_out(block: &Directive) -> bool {
    let inner = block.inner();
    let answers = |one: &Directive| match one.name.as_str() {
        "return" => true,
        "rewrite" => conditional::sends_away(one),
        _ => false,
    };
    concern(block) == Concern::Access
        || has_handler(inner)
        || inner.iter().any(|one| answers(one) || keeps_out(one))
}

/// Whether a program answers the requests of these directives.
pub(super) fn has_handler(directives: &[Directive]) -> bool {
    directives.iter().any(|one| rows::find(needless::HANDLERS, &one.name, one.arg(0)).is_some())
}

/// Enters what neither a block nor another directive used, such as `ssl_protocols` where no server speaks TLS.
pub(super) fn enter_unused(ledger: &mut Ledger, directives: &[Directive]) {
    for directive in directives {
        let unused = ledger.has_taken(directive).is_none();
        match row(directive).and_then(Row::keys) {
            Some(Reader::Elsewhere(reason)) if unused && !reason.is_empty() => {
                ledger.enter(directive, Ok(Fate::Needless(reason.to_owned())));
            }
            _ => {}
        }
        if !MAPS.contains(&directive.name.as_str()) {
            enter_unused(ledger, directive.inner());
        }
    }
}

impl Converter {
    /// Fills `table` with the keys that the directives of this level stand for.
    pub(super) fn settings(&mut self, scope: &Scope<'_>, table: &mut Table) {
        let rows: Vec<_> = scope.directives.iter().map(row).collect();
        self.read_flags(scope);
        self.turn(Turn::First, scope, &rows, table);
        self.turn(Turn::Main, scope, &rows, table);
        self.other_limits(scope, table);
        self.satisfy(scope, table);
        fields::keep(scope, table);
        self.turn(Turn::Last, scope, &rows, table);
    }

    /// Reads what the directives of `http` name for others.
    pub(super) fn declarations(&mut self, scope: &Scope<'_>, table: &mut Table) {
        let rows: Vec<_> = scope.directives.iter().map(row).collect();
        self.turn(Turn::Http, scope, &rows, table);
    }

    /// Reads the directives of a level whose turn it is, by their rows.
    fn turn(
        &mut self,
        now: Turn,
        scope: &Scope<'_>,
        rows: &[Option<&'static Row<Reader>>],
        table: &mut Table,
    ) {
        let all = scope.directives.iter().zip(rows);
        for (directive, row) in all.filter(|(_, row)| turn(**row) == Some(now)) {
            let outcome = match row {
                Some(row) => {
                    let mut setting = Setting { converter: self, scope, directive, table };
                    row.outcome(|reader| read(row, reader, &mut setting))
                }
                None => left(NOTHING),
            };
            let outcome = gate::pass(concern(directive), directive, outcome, table);
            match now {
                Turn::Main => self.ledger.enter_whole(directive, &outcome),
                _ => self.ledger.enter(directive, outcome),
            }
        }
    }
}

fn read(row: &Row<Reader>, reader: Reader, setting: &mut Setting<'_>) -> Outcome {
    match reader {
        Reader::At(_, read) => read(setting),
        Reader::Value(read) => limits::set(setting, row, read(setting.arg(0))?),
        Reader::Elsewhere(_) => left(NOTHING),
    }
}
