//! `location` as a route.

use super::{
    access,
    content::{ANSWERING, Match},
    converter::{Converter, Scope},
    directives::{has_handler, keeps_out},
    fields,
    parse::Directive,
};
use crate::{
    gate::{self, Concern},
    ledger::{Stated as _, TAKEN, differs, left, needless},
    matchers::{Condition, narrowed, quoted},
    plan::Route,
    table::Table,
    vocabulary,
};

impl Converter {
    /// All locations in a block, nested ones too. `around` is the table of the block, which answers for a location whose
    /// path cannot be said, and is closed if that one was.
    pub(super) fn locations(
        &mut self,
        scope: &Scope<'_>,
        within: Option<&Match>,
        inherited: &Table,
        around: &mut Table,
    ) -> Vec<Location> {
        let mut locations = Vec::new();
        for directive in scope.own("location") {
            let at = match Match::read(&directive.args) {
                Ok(at) => at,
                Err(reason) => {
                    let is_named = directive.arg(0).starts_with('@');
                    let concern = match !is_named && keeps_out(directive) {
                        true => Concern::Access,
                        false => Concern::Other,
                    };
                    let outcome = gate::pass(concern, directive, left(reason), around);
                    self.enter_whole(directive, &outcome);
                    continue;
                }
            };
            let inner = scope.within(directive);
            let is_internal = inner.own("internal").next().is_some();
            if is_internal && is_asked_about_clients(scope, directive) {
                locations.push(self.internal(directive, &inner, at));
                continue;
            }
            let mut own = Table::default();
            self.settings(&inner, &mut own);
            self.close_by_certificate(&inner, &mut own);
            let mut settings = inherited.clone();
            fields::replace(&inner, &mut settings);
            settings.lay_over(own);
            let mut table = at.matchers();
            if let (Match::Regex(_), Some(Match::Prefix { path, .. })) = (&at, within) {
                table.set("path", format!("{path}**"));
            }
            if let Some(path) = alone(scope, &inner, &at) {
                let pattern = quoted(&format!("^{}", regex::escape(path)));
                table.set("when", format!("request.path.matches({pattern})"));
            }
            table.lay_over(settings.clone());
            // A place that is closed stays closed, although the site around it would serve it.
            let found = self.content(&inner, &at, &mut table);
            let has_content = found || vocabulary::restricts(&settings);
            let mut here = table.clone();
            here.remove_all(vocabulary::ANSWERS);
            let mut before = self.conditional(&inner, &mut here);
            before.extend(self.other_methods(&inner, &mut here));
            locations.extend(self.locations(&inner, Some(&at), &settings, &mut here));
            table.1.merge(&here.1);
            before.iter_mut().for_each(|route| route.table.1.merge(&here.1));
            if !found && answers(inner.directives) {
                vocabulary::respond(&mut table, 501, None);
            }
            let has_content = has_content || table.has_any(vocabulary::ANSWERS);
            let without = without_slash(scope, directive, &at, &table);
            let outcome = if has_handler(inner.directives) || !found && answers(inner.directives) {
                left("until you write where its answers come from, it has status 501")
            } else if without.is_some() {
                access::comes_first(&inner, TAKEN)
            } else if has_content || !before.is_empty() {
                TAKEN
            } else {
                left("where its answers come from could not be converted")
            };
            self.enter(directive, outcome);
            if is_internal {
                // Clients get 404.
                before.push(Route { comment: directive.place.to_string(), table });
                before.iter_mut().for_each(|route| route.table.set("internal", true));
                table = at.matchers();
                vocabulary::respond(&mut table, 404, None);
                locations.push(Location::new(directive, at, table, before, true));
                continue;
            }
            locations.extend(without);
            locations.push(Location::new(directive, at, table, before, has_content));
        }
        locations
    }

    /// `limit_except GET { ... }`: a route before that of the location, for all other methods.
    fn other_methods(&mut self, scope: &Scope<'_>, around: &mut Table) -> Vec<Route> {
        let mut routes = Vec::new();
        for directive in scope.own("limit_except") {
            let mut methods = directive.args.clone();
            if directive.has_arg("GET") {
                methods.push("HEAD".to_owned());
            }
            let is_token = |method: &String| method.bytes().all(|c| c.is_ascii_alphabetic());
            let pattern = format!("^({})$", methods.join("|"));
            let others = Condition::comparison("request_method", "!~", &pattern);
            let table = others.ok().filter(|_| methods.iter().all(is_token));
            let Some(mut table) = table.and_then(|others| narrowed(around, &others)) else {
                let outcome = left("there is no matcher for all other methods here");
                let outcome = gate::pass(Concern::Access, directive, outcome, around);
                self.enter_whole(directive, &outcome);
                continue;
            };
            let inner = scope.within(directive);
            // Rules of this level stand in the place of those of the location.
            if ["allow", "deny"].iter().any(|name| inner.own(name).next().is_some()) {
                table.remove("access");
            }
            self.settings(&inner, &mut table);
            self.enter(directive, TAKEN);
            routes.push(Route { comment: directive.place.to_string(), table });
        }
        routes
    }

    /// A location for questions to a server about clients. The directive that asks looks at it itself; clients get 404.
    fn internal(&mut self, directive: &Directive, inner: &Scope<'_>, at: Match) -> Location {
        let is_used = |directive: &Directive| {
            matches!(directive.name.as_str(), "internal" | "proxy_pass" | "root")
                || ["proxy_", "grpc_"].iter().any(|module| directive.name.starts_with(module))
        };
        for one in inner.directives {
            let outcome = match is_used(one) {
                true => needless("who uses the location looks at this: auth_request, error_page"),
                false => left("the location is not for clients"),
            };
            self.enter_whole(one, &outcome);
        }
        for one in inner.own("internal") {
            self.enter(one, differs(access::NO_ACCEL));
        }
        let mut table = at.matchers();
        vocabulary::respond(&mut table, 404, None);
        self.enter(directive, TAKEN);
        Location::new(directive, at, table, Vec::new(), true)
    }
}

/// Whether `auth_request` names the location.
fn is_asked_about_clients(scope: &Scope<'_>, location: &Directive) -> bool {
    fn names(directives: &[Directive], path: &str) -> bool {
        directives
            .iter()
            .any(|one| one.name == "auth_request" && one.arg(0) == path || names(one.inner(), path))
    }
    let path = location.args.last().map_or("", String::as_str);
    names(scope.directives, path)
        || scope.outer.is_some_and(|outer| is_asked_about_clients(outer, location))
}

/// The path `/a/` of a location whose pattern would take `/a` as well, where that is for another one.
fn alone<'a>(scope: &Scope<'_>, inner: &Scope<'_>, at: &'a Match) -> Option<&'a str> {
    let Match::Prefix { path, .. } = at else { return None };
    let without = path.strip_suffix('/').filter(|without| !without.is_empty())?;
    let is_without = |own: &Directive| own.args.last().is_some_and(|own| own == without);
    let is_other = scope.own("location").any(is_without) || inner.own("return").next().is_some();
    is_other.then_some(path)
}

/// nginx sends `/a` to `/a/` where `location /a/` asks a server.
fn without_slash(
    scope: &Scope<'_>,
    directive: &Directive,
    at: &Match,
    location: &Table,
) -> Option<Location> {
    let Match::Prefix { path, .. } = at else { return None };
    let path = path.strip_suffix('/').filter(|path| path.starts_with('/'))?;
    let asks = directive.inner().iter().any(|one| one.name.ends_with("_pass"));
    let has_own = |own: &Directive| own.args.last().is_some_and(|own| own == path);
    if !asks || scope.own("location").any(has_own) {
        return None;
    }
    let exact = Match::Exact(path.to_owned());
    let mut table = exact.matchers();
    let to =
        format!("{{scheme}}://{{host}}{}/{{?query}}", path.replace('{', "{{").replace('}', "}}"));
    vocabulary::redirect(&mut table, 301, to);
    if let Some(fields) = location.get("response_headers") {
        table.set("response_headers", fields.clone());
    }
    Some(Location::new(directive, exact, table, Vec::new(), true))
}

/// Whether a block says where its answers come from.
fn answers(directives: &[Directive]) -> bool {
    directives.iter().any(|one| ANSWERING.contains(&one.name.as_str()) || one.name == "alias")
}

/// A `location` as a route.
#[derive(Clone, Debug)]
pub(super) struct Location {
    pub(super) at: Match,
    pub(super) route: Route,
    pub(super) before: Vec<Route>,
    pub(super) has_content: bool,
}

impl Location {
    fn new(
        directive: &Directive,
        at: Match,
        table: Table,
        before: Vec<Route>,
        has_content: bool,
    ) -> Self {
        let route = Route { comment: directive.place.to_string(), table };
        Self { at, route, before, has_content }
    }
}

/// nginx's order: whole paths, the longest prefix if it says so, expressions, the longest prefix.
///
/// A location with `^~` goes before expressions only where no longer location without it takes the path. Such a longer
/// one stands before it, and the expressions stand there once more, for its paths.
pub(super) fn in_order(mut locations: Vec<Location>) -> Vec<Location> {
    let is_first =
        |location: &Location| matches!(&location.at, Match::Prefix { before_regexes: true, .. });
    let is_inner = |location: &Location| {
        matches!(&location.at, Match::Prefix { before_regexes: false, .. })
            && locations.iter().any(|first| is_first(first) && first.at.covers(&location.at))
    };
    let inner: Vec<_> = locations.iter().map(is_inner).collect();
    let mut ranked = Vec::new();
    for (location, is_inner) in locations.iter().zip(&inner) {
        let rank = match &location.at {
            Match::Exact(_) => (0, 0, 0),
            Match::Prefix { path, .. } if *is_inner => {
                let rank = usize::MAX - path.len();
                ranked.extend(expressions_within(&locations, path).map(|one| ((1, rank, 0), one)));
                (1, rank, 1)
            }
            Match::Prefix { path, before_regexes: true } => (1, usize::MAX - path.len(), 1),
            Match::Regex(_) => (2, 0, 0),
            Match::Named(_) => (4, 0, 0),
            Match::Prefix { path, .. } => (3, usize::MAX - path.len(), 0),
        };
        ranked.push((rank, location.clone()));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    locations.clear();
    locations.extend(ranked.into_iter().map(|(_, location)| location));
    locations
}

/// The locations by expressions, for paths below one.
fn expressions_within<'a>(
    locations: &'a [Location],
    path: &'a str,
) -> impl Iterator<Item = Location> + 'a {
    let expressions = locations.iter().filter(|location| matches!(location.at, Match::Regex(_)));
    // One that stands in a location has a path already.
    let expressions = expressions.filter(|location| !location.route.table.has_any(&["path"]));
    expressions.cloned().map(move |mut location| {
        for route in location.before.iter_mut().chain([&mut location.route]) {
            route.table.set("path", format!("{path}**"));
        }
        location
    })
}
