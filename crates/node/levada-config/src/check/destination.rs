//! Internal redirects: whether the routes that they name are there, and whether they come to an end.

use levada_rules::{Conditions, Destination, Rewrite};
use levada_types::document::{Path, did_you_mean};

use super::{Check, adjustments::is_url_text, levels::KeyLevels};
use crate::{
    file::{self, FilesOrRoot},
    settings::SiteRoutes,
};

impl Check<'_, '_> {
    /// The place that a text names, for requests of a route with these matchers.
    pub(super) fn destination(
        &mut self,
        (text, has_next): (&str, bool),
        route: &Conditions,
        path: &Path,
    ) -> Option<Destination> {
        if text == "next" && has_next {
            return Some(Destination::Next);
        }
        if let Some(name) = text.strip_prefix('@') {
            if self.route_names.iter().any(|own| own == name) {
                return Some(Destination::Route(name.into()));
            }
            let known = did_you_mean(name, self.route_names.iter().map(String::as_str));
            let help = "give one of the site's routes this `name`".to_owned();
            return self
                .error(path, format!("the site has no route {name:?}"))
                .maybe_help(known.or(Some(help)))
                .none();
        }
        if !text.starts_with('/') || text.starts_with("//") || !is_url_text(text) {
            let next = if has_next { "`next`, " } else { "" };
            let message = format!("must be {next}`@` and the name of a route, or a path");
            return self.error(path, message).help("for example `@app` or `/index.html`").none();
        }
        self.url(text, route, path).map(|to| Destination::Path(Rewrite::Template(to)))
    }

    /// Where a request goes on whose file is not there. The outer `None` marks an error.
    pub(super) fn without_file(
        &mut self,
        (of, is_route): (&file::SiteServers, bool),
        route: &Conditions,
        levels: &KeyLevels,
    ) -> Option<Option<Destination>> {
        let Some(FilesOrRoot::Table(table)) = &of.files else { return Some(None) };
        let Some(text) = &table.otherwise else { return Some(None) };
        let path = levels.below(self.findings, "files", &["else"]);
        if table.fallback.is_some() {
            self.error(&path, "stands beside `fallback`: there is one answer without a file")
                .help("write the path of `fallback` here: the routes are tried with it");
            return None;
        }
        self.destination((text, is_route), route, &path).map(Some)
    }

    /// Where the requests of a route go on. The outer `None` marks an error.
    pub(super) fn reroute(
        &mut self,
        route: &file::SiteRoute,
        conditions: &Conditions,
        place: &Path,
    ) -> Option<Option<Destination>> {
        let Some(text) = &route.reroute else { return Some(None) };
        let path = place.key("reroute");
        if route.redirect.is_some() || route.respond.is_some() {
            let message = "stands beside `redirect` or `respond`: a route has one of them";
            return self.error(&path, message).none();
        }
        let to = self.destination((text, false), conditions, &path)?;
        let is_loop = match &to {
            Destination::Path(Rewrite::Template(to)) => to.leads_back_to(conditions),
            _ => false,
        };
        if is_loop {
            self.error(&path, "leads to this route again, and so on")
                .help("let a route before this one take the path, or exclude it");
            return None;
        }
        Some(Some(to))
    }

    /// The routes, if none of them leads to itself by the names alone.
    pub(super) fn with_an_end(&mut self, routes: SiteRoutes, list: &Path) -> Option<SiteRoutes> {
        let mut good = true;
        for at in 0..routes.all.len() {
            if let Some(names) = routes.endless(at) {
                let message = format!("leads to this route again: {}", names.join(", "));
                self.error(&list.index(at).key("reroute"), message)
                    .help("let one of them answer, or ask a server");
                good = false;
            }
        }
        good.then_some(routes)
    }
}
