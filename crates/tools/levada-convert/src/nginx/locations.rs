//! `location` as a route.

use super::{
    content::Match,
    converter::{Converter, Scope},
    directives::{has_handler, is_rule},
    parse::Directive,
};
use crate::{
    ledger::{Place, Stated as _, TAKEN, differs, left, needless},
    plan::Route,
    table::Table,
    vocabulary,
};

impl Converter {
    /// All locations in a block, nested ones too.
    pub(super) fn locations(
        &mut self,
        scope: &Scope<'_>,
        within: Option<&Match>,
        inherited: &Table,
    ) -> Vec<Location> {
        let mut locations = Vec::new();
        for directive in scope.own("location") {
            let at = match Match::read(&directive.args) {
                Ok(at) => at,
                Err(mut reason) => {
                    if is_closed(directive) {
                        reason.push_str("; WARNING: what is around it answers its requests");
                    }
                    self.enter_whole(directive, &left(reason));
                    continue;
                }
            };
            let inner = scope.within(directive);
            if inner.own("internal").next().is_some() {
                locations.push(self.internal(directive, &inner, at));
                continue;
            }
            let mut own = Table::default();
            self.settings(&inner, &mut own);
            self.close_by_certificate(&inner, &mut own);
            let mut settings = inherited.clone();
            settings.lay_over(own);
            let mut table = at.matchers();
            if let (Match::Regex(_), Some(Match::Prefix { path, .. })) = (&at, within) {
                table.set("path", format!("{path}**"));
            }
            table.lay_over(settings.clone());
            // A place that is closed stays closed, although the site around it would serve it.
            let has_content =
                self.content(&inner, &at, &mut table) || vocabulary::restricts(&settings);
            let mut around = table.clone();
            around.remove_all(vocabulary::ANSWERS);
            let before = self.conditional(&inner, &around);
            locations.extend(self.locations(&inner, Some(&at), &settings));
            let outcome = if has_handler(inner.directives) {
                left("until you write where its answers come from, it has status 501")
            } else if has_content || !before.is_empty() {
                TAKEN
            } else {
                left("where its answers come from could not be converted")
            };
            self.enter(directive, outcome);
            locations.push(Location::new(directive, at, table, before, has_content));
        }
        locations
    }

    /// A location for questions to servers and for error pages. The directives that use it look at it themselves;
    /// clients get 404.
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
        let mut table = at.matchers();
        vocabulary::respond(&mut table, 404, None);
        self.enter(directive, TAKEN);
        Location::new(directive, at, table, Vec::new(), true)
    }

    /// A `^~` location goes before expressions only where it is the longest prefix; a route is simply first.
    pub(super) fn mark_shadowed(&mut self, locations: &[Location]) {
        if !locations.iter().any(|location| matches!(location.at, Match::Regex(_))) {
            return;
        }
        for location in locations {
            let first = matches!(&location.at, Match::Prefix { before_regexes: true, .. });
            let shadows = |other: &Location| {
                matches!(other.at, Match::Prefix { before_regexes: false, .. })
                    && other.at != location.at
                    && location.at.covers(&other.at)
            };
            if first && locations.iter().any(shadows) {
                let reason = "it comes before a longer location without `^~`, too";
                self.ledger.enter_line(&location.place, &location.statement, differs(reason));
            }
        }
    }
}

/// Whether a location is not for everybody, or its files are programs.
fn is_closed(location: &Directive) -> bool {
    !location.arg(0).starts_with('@')
        && (has_handler(location.inner()) || location.inner().iter().any(is_rule))
}

/// A `location` as a route.
#[derive(Clone, Debug)]
pub(super) struct Location {
    place: Place,
    statement: String,
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
        let (place, statement) = (directive.place.clone(), directive.shown());
        Self { place, statement, at, route, before, has_content }
    }
}

/// nginx's order: whole paths, the longest prefix if it says so, expressions, the longest prefix.
pub(super) fn in_order(mut locations: Vec<Location>) -> Vec<Location> {
    let rank = |location: &Location| match &location.at {
        Match::Exact(_) => (0, 0),
        Match::Prefix { path, before_regexes: true } => (1, usize::MAX - path.len()),
        Match::Regex(_) => (2, 0),
        Match::Prefix { path, before_regexes: false } => (3, usize::MAX - path.len()),
    };
    locations.sort_by_key(rank);
    locations
}
