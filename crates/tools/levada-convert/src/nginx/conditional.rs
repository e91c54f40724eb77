//! `if` and `rewrite` as routes.

use super::{
    conditions::{Case, cases},
    content::{ANSWERING, Match},
    converter::{Converter, Scope},
    parse::Directive,
    tls, variables,
};
use crate::{
    ledger::{Outcome, Stated as _, TAKEN, differs, left},
    matchers::{checked_regex, narrowed},
    plan::Route,
    table::Table,
    vocabulary,
};

impl Converter {
    /// The routes of `if` and `rewrite`, which come before locations; `around` are the matchers and keys of
    /// the level that they stand in.
    pub(super) fn conditional(&mut self, scope: &Scope<'_>, around: &Table) -> Vec<Route> {
        let mut routes = self.rewrites(scope, around);
        for directive in scope.own("if") {
            routes.extend(self.condition(scope, directive, around));
        }
        routes
    }

    pub(super) fn rewrites(&mut self, scope: &Scope<'_>, around: &Table) -> Vec<Route> {
        let mut routes = Vec::new();
        for directive in scope.own("rewrite") {
            let mut table = around.clone();
            let outcome = self.rewrite(scope, directive, &mut table);
            if outcome.is_ok() {
                routes.push(Route { comment: directive.place.to_string(), table });
            }
            self.enter(directive, outcome);
        }
        routes
    }

    fn condition(
        &mut self,
        scope: &Scope<'_>,
        directive: &Directive,
        around: &Table,
    ) -> Vec<Route> {
        if sets_flags(directive) {
            return Vec::new();
        }
        if let Some(outcome) = refusal_of_a_rule(scope, directive) {
            self.enter_whole(directive, &outcome);
            return Vec::new();
        }
        match self.tables(directive, around) {
            Ok(tables) => self.routes(scope, directive, tables),
            Err(reason) => {
                self.enter_whole(directive, &left(reason));
                Vec::new()
            }
        }
    }

    /// The keys around a block for the requests of its condition, with the value of a map's variable there.
    fn tables(
        &self,
        directive: &Directive,
        around: &Table,
    ) -> Result<Vec<(Table, Option<String>)>, String> {
        const TWICE: &str = "the location and the condition look at the same part of a request";
        if directive.inner().iter().any(|inner| inner.name == "if") {
            return Err("conditions within conditions".to_owned());
        }
        let cases = cases(&directive.args, &self.maps, &self.flags)?.into_iter();
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
            self.settings(&inner, &mut table);
            if !answers {
                routes.extend(self.rewrites(&inner, &table));
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
            false => TAKEN,
        };
        self.enter(directive, outcome);
        routes
    }

    /// Blocks of `if` that do nothing but `set` variables, for conditions that look at them.
    pub(super) fn read_flags(&mut self, scope: &Scope<'_>) {
        for directive in scope.own("if").filter(|directive| sets_flags(directive)) {
            let outcome = cases(&directive.args, &self.maps, &self.flags).and_then(|cases| {
                for set in directive.inner() {
                    let name = set.arg(0).trim_start_matches('$').to_owned();
                    self.constants.remove(&name);
                    let flag = self.flags.entry(name).or_default();
                    flag.extend(cases.iter().map(|case| case.condition.clone()));
                }
                TAKEN
            });
            self.enter_whole(directive, &outcome);
        }
    }

    /// `rewrite` with a flag: a redirect, or another path at the origin.
    fn rewrite(&mut self, scope: &Scope<'_>, directive: &Directive, table: &mut Table) -> Outcome {
        let (pattern, to, flag) = (directive.arg(0), directive.arg(1), directive.arg(2));
        if pattern.contains("\\?") || table.has_any(&["path_regex"]) {
            return left("a route has one expression, for the path");
        }
        let pattern = checked_regex(pattern)?;
        let (to, drops_query) = to.strip_suffix('?').map_or((to, false), |to| (to, true));
        let mut to = variables::translate(to, &self.constants)?;
        let leads_away =
            ["http://", "https://", "{scheme}"].iter().any(|start| to.starts_with(start));
        table.set("path_regex", pattern);
        if leads_away || ["permanent", "redirect"].contains(&flag) {
            if !drops_query && !to.contains('?') {
                to.push_str("{?query}");
            }
            vocabulary::redirect(table, if flag == "permanent" { 301 } else { 302 }, to);
            return TAKEN;
        }
        if table.has_any(&["files"]) {
            return left("files are found by the path that the client wrote");
        }
        table.set("rewrite", to);
        match scope.own("location").next() {
            Some(_) => differs(
                "the new path goes to the origin of the site; its locations are not looked at again",
            ),
            None => TAKEN,
        }
    }
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
