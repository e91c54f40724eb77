//! The rules of a site and of its routes at work, with the state that they share.
//!
//! A limit counts where it is stated: all routes that inherit a limit of their site count together, and the limit
//! of a route by itself.

use std::sync::Arc;

use crate::access::{Access, AccessSettings};

/// The rules of a site and of each of its routes; `None` for those without rules.
#[derive(Debug, Default)]
pub struct SiteAccess {
    own: Option<Arc<Access>>,
    routes: Vec<Option<Arc<Access>>>,
}

impl SiteAccess {
    /// The rules at work, with the state of `before` where a rule stays as it was.
    pub fn new<'a>(
        own: &AccessSettings,
        routes: impl Iterator<Item = &'a AccessSettings>,
        before: Option<&Self>,
        workers: usize,
    ) -> Self {
        let mut known: Vec<Arc<Access>> = before.into_iter().flat_map(Self::all).cloned().collect();
        let mut at_work = |settings: &AccessSettings| {
            let access = Access::new(settings, &known, workers);
            known.extend(access.clone());
            access
        };
        Self { own: at_work(own), routes: routes.map(at_work).collect() }
    }

    /// The rules of requests that no route takes.
    pub fn own(&self) -> Option<&Arc<Access>> {
        self.own.as_ref()
    }

    /// The rules of a route, by its number.
    pub fn of_route(&self, number: usize) -> Option<&Arc<Access>> {
        self.routes.get(number)?.as_ref()
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Access>> {
        self.own.iter().chain(self.routes.iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use http::{HeaderMap, Method};

    use super::*;
    use crate::{
        access::{AccessRequest, LimitSettings},
        limit_key::LimitKey,
        rate::RateBounds,
        signed::RequestUrl,
    };

    /// One request a minute, and two more at once.
    fn three(of: Option<&str>) -> AccessSettings {
        let rate = RateBounds { rate: "1r/m".parse().unwrap(), burst: 2, nodelay: true };
        let (key, rate) = (LimitKey::Client(32), Some(rate));
        let limit = LimitSettings { key, rate, concurrent: None, keys: 64, cluster: false };
        AccessSettings { limits: vec![limit], limits_of: of.map(Into::into), ..Default::default() }
    }

    fn passes(access: Option<&Arc<Access>>) -> bool {
        let request = AccessRequest {
            client: IpAddr::from([192, 0, 2, 1]),
            host: "a.test",
            url: RequestUrl { scheme: "http", host: "a.test", target: "/" },
            method: &Method::GET,
            headers: &HeaderMap::new(),
            now: 1_000_000_000,
            unix: 1,
            nodes: 1,
        };
        access.is_none_or(|access| access.admit(&request).is_ok())
    }

    #[test]
    fn inherited_limit_is_one_for_all_and_that_of_a_route_its_own() {
        let routes = [three(None), three(None), three(Some("api")), AccessSettings::default()];
        let site = SiteAccess::new(&three(None), routes.iter(), None, 1);
        assert!(passes(site.own()) && passes(site.of_route(0)) && passes(site.of_route(1)));
        assert!(!passes(site.own()) && !passes(site.of_route(0)) && !passes(site.of_route(1)));
        assert!(passes(site.of_route(2)));
        assert!(site.of_route(3).is_none() && site.of_route(4).is_none());
    }

    #[test]
    fn reload_keeps_the_counts_of_site_and_routes_apart() {
        let routes = [three(Some("api")), three(Some("web"))];
        let before = SiteAccess::new(&three(None), routes.iter(), None, 1);
        assert!((0..3).all(|_| passes(before.of_route(0))));
        let after = SiteAccess::new(&three(None), routes.iter().rev(), Some(&before), 1);
        assert!(passes(after.own()) && passes(after.of_route(0)), "nothing was counted there");
        assert!(!passes(after.of_route(1)));
    }

    #[test]
    fn of_two_limits_with_the_same_words_each_counts_once_after_a_reload() {
        let mut twice = three(None);
        twice.limits.extend(twice.limits.clone());
        let before = SiteAccess::new(&twice, [].iter(), None, 1);
        let after = SiteAccess::new(&twice, [].iter(), Some(&before), 1);
        assert!((0..3).all(|_| passes(after.own())));
        assert!(!passes(after.own()));
    }
}
