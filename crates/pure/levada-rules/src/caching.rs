//! Cache rules that look at requests: the key, the requests that pass the cache by, cookies that are
//! removed, and how often an object must be requested before it is stored.

use http::HeaderMap;

use crate::{Expression, KeyRules, RequestFacts, Selector};

/// The rules of a site or of a route. One that has none of them has no such value, and pays nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct CachingRules {
    /// How keys are made.
    pub key: KeyRules,
    /// Requests that are answered by the origin, as nginx's `proxy_cache_bypass`.
    pub bypass: Vec<Selector>,
    /// Requests whose answers are not stored, as nginx's `proxy_no_cache`.
    pub no_store: Vec<Selector>,
    /// A condition in addition to `bypass`.
    pub bypass_when: Option<Expression>,
    /// A condition in addition to `no_store`.
    pub no_store_when: Option<Expression>,
    /// Cookies of requests are removed, except those of the key.
    pub strips_request_cookies: bool,
    /// Cookies of responses are removed.
    pub strips_response_cookies: bool,
    /// Requests for an object until it is stored.
    pub min_uses: u8,
}

/// What a request does with the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUse {
    /// It is answered from the cache, and its answer stored.
    Full,
    /// It is not answered from the cache, but its answer is stored.
    StoreOnly,
    /// It is answered from the cache, but its answer is not stored.
    ReadOnly,
    /// Neither.
    None,
}

impl Default for CachingRules {
    fn default() -> Self {
        Self {
            key: KeyRules::default(),
            bypass: Vec::new(),
            no_store: Vec::new(),
            bypass_when: None,
            no_store_when: None,
            strips_request_cookies: false,
            strips_response_cookies: false,
            min_uses: 1,
        }
    }
}

impl CachingRules {
    /// What a request for `target`, a path and an optional query, does with the cache.
    /// `facts` are those of the request; they are made only if an expression looks at them.
    pub fn cache_use<'f>(
        &self,
        target: &str,
        headers: &HeaderMap,
        facts: impl Fn() -> RequestFacts<'f>,
    ) -> CacheUse {
        let meets = |list: &[Selector], when: &Option<Expression>| {
            list.iter().any(|one| one.holds(target, headers))
                || when.as_ref().is_some_and(|when| when.holds(&facts()))
        };
        let bypass = meets(&self.bypass, &self.bypass_when);
        match (bypass, meets(&self.no_store, &self.no_store_when)) {
            (false, false) => CacheUse::Full,
            (true, false) => CacheUse::StoreOnly,
            (false, true) => CacheUse::ReadOnly,
            (true, true) => CacheUse::None,
        }
    }

    /// The expressions of the rules.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let all = [&self.key.expression, &self.bypass_when, &self.no_store_when];
        all.into_iter().flatten()
    }

    /// The rules, for operators.
    pub fn in_words(&self) -> Vec<String> {
        let word = |is: bool, text: &str| is.then(|| text.to_owned());
        let uses = format!("stored at request {}", self.min_uses);
        let shared = self.key.share.as_deref().unwrap_or_default();
        let shared = format!("shared with routes of the word {shared:?}");
        let words = [
            word(
                !matches!(self.key.query, crate::QueryRule::All),
                "not all of the query in the key",
            ),
            word(self.key.sort_query, "the query sorted in the key"),
            word(self.key.has_variants(), "more than the URL in the key"),
            word(self.key.share.is_some(), &shared),
            word(
                !self.bypass.is_empty() || self.bypass_when.is_some(),
                "some requests pass the cache by",
            ),
            word(
                !self.no_store.is_empty() || self.no_store_when.is_some(),
                "some answers are not stored",
            ),
            word(self.strips_request_cookies, "cookies of requests removed"),
            word(self.strips_response_cookies, "cookies of responses removed"),
            word(self.min_uses > 1, &uses),
        ];
        words.into_iter().flatten().collect()
    }

    /// Removes the cookies of a request that its key does not have.
    pub fn strip_request(&self, headers: &mut HeaderMap) {
        if self.strips_request_cookies {
            KeyRules::strip_cookies(Some(&self.key), headers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_facts() -> RequestFacts<'static> {
        unreachable!("no rule has an expression")
    }

    #[test]
    fn requests_pass_the_cache_by_as_their_selectors_say() {
        let of = |text: &str| vec![Selector::parse(text).unwrap()];
        let rules = CachingRules {
            bypass: of("query.fresh"),
            no_store: of("query.once"),
            ..CachingRules::default()
        };
        for (target, expected) in [
            ("/", CacheUse::Full),
            ("/?fresh", CacheUse::StoreOnly),
            ("/?once=1", CacheUse::ReadOnly),
            ("/?once&fresh", CacheUse::None),
        ] {
            assert_eq!(rules.cache_use(target, &HeaderMap::new(), no_facts), expected, "{target}");
        }
    }
}
