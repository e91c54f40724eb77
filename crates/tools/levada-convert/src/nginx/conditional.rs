//! `if` and `rewrite` as routes.

use super::{
    access,
    conditions::{Case, cases},
    content::{ANSWERING, Match},
    converter::{Converter, Scope},
    directives::{concern, has_handler, keeps_out},
    fields,
    parse::Directive,
    tls, variables,
};
use crate::{
    gate::{self, Concern},
    ledger::{Outcome, Stated as _, TAKEN, differs, left, needless},
    matchers::{checked_regex, narrowed},
    plan::Route,
    table::Table,
    vocabulary,
};

impl Converter {
    /// The routes of `if` and `rewrite` up to a `return`, which come before locations; `around` are the matchers and
    /// keys of the level that they stand in. It is closed if a condition by which it refuses clients cannot be
    /// converted.
    pub(super) fn conditional(&mut self, scope: &Scope<'_>, around: &mut Table) -> Vec<Route> {
        let mut routes = Vec::new();
        let mut rest = scope.directives.iter();
        while let Some(directive) = rest.next() {
            match directive.name.as_str() {
                "if" => routes.extend(self.condition(scope, directive, around)),
                "rewrite" => {
                    let is_last = !rest.as_slice().iter().any(|one| one.name == "rewrite");
                    routes.extend(self.one_rewrite(scope, directive, is_last, around));
                }
                "return" => {
                    for late in rest.filter(|one| ["if", "rewrite"].contains(&one.name.as_str())) {
                        self.enter_whole(late, &needless("`return` stands before it"));
                    }
                    return routes;
                }
                _ => {}
            }
        }
        routes
    }

    fn rewrites(&mut self, scope: &Scope<'_>, around: &mut Table) -> Vec<Route> {
        let all: Vec<_> = scope.own("rewrite").collect();
        let number = all.len();
        let routes = all.into_iter().enumerate();
        routes
            .filter_map(|(at, one)| self.one_rewrite(scope, one, at + 1 == number, around))
            .collect()
    }

    /// The route of a `rewrite`. After one without a flag, the next one would look at its result.
    fn one_rewrite(
        &mut self,
        scope: &Scope<'_>,
        directive: &Directive,
        is_last: bool,
        around: &mut Table,
    ) -> Option<Route> {
        let mut table = around.clone();
        let goes_on = directive.arg(2).is_empty() && !is_last;
        let outcome = match goes_on && !leads_away(directive.arg(1)) {
            true => left("the next `rewrite` would look at its result: write it as one"),
            false => access::comes_first(scope, self.rewrite(scope, directive, &mut table)),
        };
        if outcome.is_ok() || table.1.is_closed() {
            self.enter(directive, outcome);
            return Some(Route { comment: directive.place.to_string(), table });
        }
        let concern = match sends_away(directive) {
            true => Concern::Access,
            false => Concern::Other,
        };
        let outcome = gate::pass(concern, directive, outcome, around);
        self.enter(directive, outcome);
        None
    }

    fn condition(
        &mut self,
        scope: &Scope<'_>,
        directive: &Directive,
        around: &mut Table,
    ) -> Vec<Route> {
        if sets_flags(directive) {
            return Vec::new();
        }
        if let Some(outcome) = refusal_of_a_rule(scope, directive) {
            let others = scope.directives.iter().filter(|one| RULES.contains(&one.name.as_str()));
            let outcome = match outcome {
                TAKEN if others.count() > 1 => {
                    differs("the referer is looked at before the other rules of the level")
                }
                outcome => outcome,
            };
            self.enter_whole(directive, &outcome);
            return Vec::new();
        }
        let concern = match keeps_out(directive) {
            true => Concern::Access,
            false => Concern::Other,
        };
        let failed = match self.tables(scope, directive, around) {
            Ok(tables) => match self.routes(scope, directive, tables) {
                routes if routes.is_empty() && concern == Concern::Access => {
                    left("nothing in the block could be said as a route")
                }
                routes => return routes,
            },
            Err(reason) => left(reason),
        };
        let outcome = gate::pass(concern, directive, failed, around);
        self.enter_whole(directive, &outcome);
        Vec::new()
    }

    /// The keys around a block for the requests of its condition, with the value of a map's variable there.
    fn tables(
        &self,
        scope: &Scope<'_>,
        directive: &Directive,
        around: &Table,
    ) -> Result<Vec<(Table, Option<String>)>, String> {
        const TWICE: &str = "the location and the condition look at the same part of a request";
        if directive.inner().iter().any(|inner| inner.name == "if") {
            return Err("conditions within conditions".to_owned());
        }
        let cases = self.cases(scope, &directive.args)?.into_iter();
        let table = |case: Case| Some((narrowed(around, &case.condition)?, case.value));
        cases.map(|case| table(case).ok_or_else(|| TWICE.to_owned())).collect()
    }

    fn routes(
        &mut self,
        scope: &Scope<'_>,
        directive: &Directive,
        tables: Vec<(Table, Option<String>)>,
    ) -> Vec<Route> {
        let name = directive.args.join("").trim_matches(['(', ')', '$']).to_owned();
        let former = self.constants.get(&name).cloned();
        let mut routes = Vec::new();
        let inner = scope.within(directive);
        let answers = inner.directives.iter().any(|d| ANSWERING.contains(&d.name.as_str()));
        for (mut table, value) in tables {
            if let Some(value) = value {
                self.constants.insert(name.clone(), value);
            }
            fields::replace(&inner, &mut table);
            self.settings(&inner, &mut table);
            if !answers {
                routes.extend(self.rewrites(&inner, &mut table));
            } else if self.content(&inner, &Match::everything(), &mut table) {
                routes.push(Route { comment: directive.place.to_string(), table });
            }
        }
        match former {
            Some(value) => self.constants.insert(name, value),
            None => self.constants.remove(&name),
        };
        let outcome = match routes.is_empty() {
            true => left("nothing in the block could be said as a route"),
            false if directive.args.iter().any(|arg| arg.contains("$request_uri")) => {
                differs("the path is compared in its normal form, not as the client wrote it")
            }
            false => access::comes_first(&inner, TAKEN),
        };
        self.enter(directive, outcome);
        routes
    }

    /// Blocks of `if` that do nothing but `set` variables, for conditions that look at them.
    pub(super) fn read_flags(&mut self, scope: &Scope<'_>) {
        for directive in scope.own("if") {
            let cases = self.cases(scope, &directive.args);
            let sets = directive.inner().iter().filter(|inner| inner.name == "set");
            let names = sets.map(|set| set.arg(0).trim_start_matches('$').to_owned());
            let names: Vec<_> = names.collect();
            if !sets_flags(directive) || cases.is_err() {
                // Without its requests, a flag must not count as one that is never set.
                self.unknown.extend(names.iter().cloned());
            }
            if !sets_flags(directive) {
                continue;
            }
            let outcome = cases.and_then(|cases| {
                for name in names {
                    self.constants.remove(&name);
                    let flag = self.flags.entry(name).or_default();
                    flag.extend(cases.iter().map(|case| case.condition.clone()));
                }
                TAKEN
            });
            self.enter_whole(directive, &outcome);
        }
    }

    /// The requests of a condition. Those of an address are known where clients' addresses are.
    fn cases(&self, scope: &Scope<'_>, args: &[String]) -> Result<Vec<Case>, String> {
        let cases = cases(args, &self.maps, &self.flags, &self.unknown)?;
        if cases.iter().any(|case| case.condition.is_about_clients()) {
            self.knows_clients(scope)?;
        }
        Ok(cases)
    }

    /// `rewrite` with a flag: a redirect, or another path at the origin.
    fn rewrite(&mut self, scope: &Scope<'_>, directive: &Directive, table: &mut Table) -> Outcome {
        let (pattern, to, flag) = (directive.arg(0), directive.arg(1), directive.arg(2));
        if pattern.contains("\\?") || table.has_any(&["path_regex"]) {
            return left("a route has one expression, for the path");
        }
        let pattern = checked_regex(pattern)?;
        let (to, drops_query) = to.strip_suffix('?').map_or((to, false), |to| (to, true));
        let fixed = to;
        let mut to = variables::translate(to, &self.constants)?;
        let has_query = to.contains('?');
        table.set("path_regex", pattern);
        if leads_away(&to) || ["permanent", "redirect"].contains(&flag) {
            if !drops_query && !has_query {
                to.push_str("{?query}");
            }
            vocabulary::redirect(table, if flag == "permanent" { 301 } else { 302 }, to);
            return match has_query && !drops_query {
                true => differs("the query of the client is not added to that of the new URL"),
                false => TAKEN,
            };
        }
        if !to.starts_with(['/', '{']) {
            return left("a new path begins with `/`");
        }
        if has_query && !drops_query {
            return left("the query of the client is not added to that of the new path");
        }
        if drops_query && !has_query {
            to.push('?');
        }
        let is_of_server = scope.outer.is_some_and(|outer| outer.outer.is_none());
        let is_taken_again = is_of_server && may_match_again(directive.arg(0), fixed);
        if flag != "break" && !is_taken_again {
            table.keep(MATCHERS);
            table.set("reroute", to);
            let others = scope
                .directives
                .iter()
                .filter(|one| ["if", "rewrite"].contains(&one.name.as_str()));
            return match is_of_server && others.count() > 1 {
                true => differs("the other rules of the server look at the new path as well"),
                false => TAKEN,
            };
        }
        table.set("rewrite", to);
        if flag != "break" || scope.outer.is_some_and(|outer| outer.outer.is_none()) {
            // The location of the new path might have refused the client.
            let start = fixed.split(['$', '?']).next().unwrap_or_default();
            if locations_around(scope).any(|location| may_refuse(location, start)) {
                let outcome = left("the location of the new path may refuse clients");
                return gate::pass(Concern::Access, directive, outcome, table);
            }
        }
        match scope.own("location").next() {
            Some(_) => differs(
                "the new path goes to the origin of the site; its locations are not looked at again",
            ),
            None => TAKEN,
        }
    }
}

/// Whether a `rewrite` is a redirect.
pub(super) fn sends_away(rewrite: &Directive) -> bool {
    leads_away(rewrite.arg(1)) || ["redirect", "permanent"].contains(&rewrite.arg(2))
}

fn leads_away(to: &str) -> bool {
    ["http://", "https://", "{scheme}", "$scheme"].iter().any(|start| to.starts_with(start))
}

/// Whether a location other than this level keeps clients out of a file that stands for a directory, or for one that is
/// missing: nginx looks for the location of its path.
pub(super) fn hides_file(scope: &Scope<'_>, name: &str) -> bool {
    locations_around(scope).any(|location| {
        let path = location.args.last().map_or("", String::as_str);
        let matches = match location.arg(0) {
            "~" | "~*" => checked_regex(&format!("(?i){path}")).ok().is_none_or(|regex| {
                regex::Regex::new(&regex).is_ok_and(|regex| regex.is_match(&format!("/{name}")))
            }),
            "=" => path.trim_start_matches('/').ends_with(name.trim_start_matches('/')),
            _ => false,
        };
        matches
            && concern(location) == Concern::Access
            && !std::ptr::eq(location.inner(), scope.directives)
    })
}

/// The locations of the server around a level.
fn locations_around<'a>(scope: &Scope<'a>) -> impl Iterator<Item = &'a Directive> {
    let mut level = *scope;
    while let Some(outer) = level.outer.filter(|outer| outer.outer.is_some()) {
        level = *outer;
    }
    level.directives.iter().filter(|one| one.name == "location")
}

/// Directives that nginx carries out in their order.
const RULES: &[&str] = &["if", "return", "rewrite"];

/// The keys of a route that say which requests it takes.
const MATCHERS: &[&str] = &[
    "path",
    "path_regex",
    "host",
    "scheme",
    "method",
    "header",
    "query",
    "cookie",
    "client",
    "when",
    "internal",
];

/// Whether an expression may be found in the path that a rewrite makes, as far as their beginnings say so.
fn may_match_again(pattern: &str, to: &str) -> bool {
    let Some(pattern) = pattern.strip_prefix('^') else { return true };
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "/-_".contains(*c);
    let start: String = pattern.chars().take_while(is_plain).collect();
    // The last letter may be optional.
    let start = &start[..start.len().saturating_sub(1)];
    let to = to.split(['$', '?']).next().unwrap_or_default();
    to.starts_with(start) || start.starts_with(to)
}

/// Whether a location, or one within it, keeps clients out of paths that begin so.
fn may_refuse(location: &Directive, start: &str) -> bool {
    let path = location.args.last().map_or("", String::as_str);
    let may_match = match location.arg(0) {
        "~" | "~*" => true,
        _ => path.starts_with(start) || start.starts_with(path),
    };
    may_match && (concern(location) == Concern::Access || has_handler(location.inner()))
}

/// Whether a block of `if` does nothing but `set` variables to what is neither empty nor 0.
fn sets_flags(directive: &Directive) -> bool {
    let sets = |inner: &Directive| {
        inner.name == "set" && !["", "0"].contains(&inner.arg(1)) && !inner.arg(1).contains('$')
    };
    !directive.inner().is_empty() && directive.inner().iter().all(sets)
}

/// `if ($invalid_referer)` and `if ($secure_link = "")` refuse what a key of the site refuses.
fn refusal_of_a_rule(scope: &Scope<'_>, directive: &Directive) -> Option<Outcome> {
    let [refusal] = directive.inner() else { return None };
    if let Some(outcome) = tls::fate_of_demand(scope, directive) {
        return Some(outcome);
    }
    let condition = directive.args.join("");
    let (rule, is_known) = match condition.as_str() {
        "($invalid_referer)" => ("valid_referers", true),
        text => ("secure_link", text.starts_with("($secure_link=") || text == "(!$secure_link)"),
    };
    if !is_known || refusal.name != "return" || scope.nearest(rule).is_empty() {
        return None;
    }
    Some(match refusal.arg(0) {
        "403" => TAKEN,
        _ => differs("the refusal has status 403"),
    })
}
