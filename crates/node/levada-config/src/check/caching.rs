//! Cache rules: lifetimes by status, keys, bypass, cookies and uses.

use std::{sync::Arc, time::Duration};

use http::HeaderName;
use levada_cache::{StatusTtl, Statuses};
use levada_rules::{
    CachingRules, FetchFields, KeyRules, Purpose, QueryRule, Selector, TextPattern,
};
use levada_types::document::Path;
use levada_types::parse_duration;

use super::{Check, levels::KeyLevels, parts::placed};
use crate::file::{self, CountedQuery, OneOrMany, StripCookies};

impl Check<'_, '_> {
    /// The forced lifetimes, and those of responses without one.
    pub(super) fn lifetimes(
        &mut self,
        of: &file::Handling,
        levels: &KeyLevels,
    ) -> Option<(Vec<StatusTtl>, Vec<StatusTtl>)> {
        let ttl = self.status_ttls(&of.ttl, &levels.key(self.findings, "ttl"));
        let status_ttl = self.status_ttls(&of.status_ttl, &levels.key(self.findings, "status_ttl"));
        if of.ttl.is_some() && !of.cache {
            self.warning(&levels.key(self.findings, "ttl"), "has no effect while `cache` is off");
        }
        ttl.zip(status_ttl)
    }

    fn status_ttls(
        &mut self,
        list: &Option<OneOrMany<String>>,
        path: &Path,
    ) -> Option<Vec<StatusTtl>> {
        let list = list.as_ref().map(OneOrMany::as_slice).unwrap_or_default();
        let mut taken: Vec<u16> = Vec::new();
        let mut read = Vec::new();
        for (place, text) in placed(list, path, list.len() == 1) {
            let one = status_ttl(text).and_then(|one| {
                let Statuses::Listed(statuses) = &one.statuses else { return Ok(one) };
                match statuses.iter().find(|status| taken.contains(status)) {
                    Some(twice) => Err(format!("status {twice} has a lifetime already")),
                    None => {
                        taken.extend(statuses);
                        Ok(one)
                    }
                }
            });
            match one {
                Ok(one) => read.push(one),
                Err(message) => {
                    let help =
                        "statuses and a time, as in `\"200 302 10m\"`, `\"any 1m\"` or `\"10m\"`";
                    self.error(&place, message).help(help);
                }
            }
        }
        (read.len() == list.len()).then_some(read)
    }

    /// The rules that look at requests; the inner `None` if there are none.
    pub(super) fn caching(
        &mut self,
        of: &file::Handling,
        levels: &KeyLevels,
    ) -> Option<Option<Arc<CachingRules>>> {
        let at = |check: &Self, key| levels.key(check.findings, key);
        let key = self.cache_key(&of.cache_key, &at(self, "cache_key"));
        let bypass = self.selectors(&of.bypass, &at(self, "bypass"));
        let no_store = self.selectors(&of.no_store, &at(self, "no_store"));
        let place = at(self, "bypass_when");
        let bypass_when = self.expression(&of.bypass_when, Purpose::Bypass, &place);
        let place = at(self, "no_store_when");
        let no_store_when = self.expression(&of.no_store_when, Purpose::NoStore, &place);
        let (key, bypass, no_store) = (key?, bypass?, no_store?);
        let strips = |kind| of.strip_cookies == kind || of.strip_cookies == StripCookies::Both;
        let rules = CachingRules {
            key: key.clone().unwrap_or_default(),
            bypass,
            no_store,
            bypass_when: bypass_when?,
            no_store_when: no_store_when?,
            strips_request_cookies: strips(StripCookies::Request),
            strips_response_cookies: strips(StripCookies::Response),
            min_uses: of.min_uses,
        };
        let has_any = key.is_some()
            || !rules.bypass.is_empty()
            || !rules.no_store.is_empty()
            || rules.bypass_when.is_some()
            || rules.no_store_when.is_some()
            || of.strip_cookies != StripCookies::None
            || of.min_uses > 1;
        Some(has_any.then(|| Arc::new(rules)))
    }

    /// The fields that shared fetches have in addition to those of the list.
    pub(super) fn fetch_fields(
        &mut self,
        of: &file::Handling,
        levels: &KeyLevels,
    ) -> Option<FetchFields> {
        let path = levels.key(self.findings, "fetch_fields");
        match &of.fetch_fields[..] {
            [all] if all == "*" => Some(FetchFields::All),
            names => self.field_names(names, &path).map(|names| FetchFields::Beside(names.into())),
        }
    }

    fn field_names(&mut self, list: &[String], path: &Path) -> Option<Vec<HeaderName>> {
        self.read_each(list, path, |name| match HeaderName::try_from(name) {
            Ok(name) if name != "*" => Ok(name),
            _ => Err((format!("`{name}` is no name of a header field"), None)),
        })
    }

    fn cache_key(&mut self, of: &file::CacheKey, path: &Path) -> Option<Option<KeyRules>> {
        let only = self.texts(&of.query_only, &path.key("query_only"));
        let without = self.texts(&of.query_without, &path.key("query_without"));
        let mut valid = true;
        let stated = [
            ("query", of.query == CountedQuery::None),
            ("query_only", !of.query_only.is_empty()),
            ("query_without", !of.query_without.is_empty()),
        ];
        let stated: Vec<&str> =
            stated.into_iter().filter_map(|(key, stated)| stated.then_some(key)).collect();
        if let [first, second, ..] = stated[..] {
            let message = format!("stands beside `{first}`: only one of them can count");
            self.error(&path.key(second.to_owned()), message);
            valid = false;
        }
        let headers = self.field_names(&of.headers, &path.key("headers"));
        for (at, name) in of.cookies.iter().enumerate() {
            let wrong = |byte: u8| !byte.is_ascii_graphic() || b"=;,\"".contains(&byte);
            if name.is_empty() || name.bytes().any(wrong) {
                let message = format!("`{name}` is no name of a cookie");
                self.error(&path.key("cookies").index(at), message);
                valid = false;
            }
        }
        if let Some(host) = &of.host
            && !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte))
        {
            self.error(
                &path.key("host"),
                format!("{host:?} is no host, such as \"www.example.com\""),
            );
            valid = false;
        }
        let place = path.key("expression");
        let expression = self.expression(&of.expression, Purpose::Key, &place);
        let (only, without, expression, headers) = (only?, without?, expression?, headers?);
        let query = match (of.query, only.is_empty(), without.is_empty()) {
            (CountedQuery::None, ..) => QueryRule::None,
            (_, false, _) => QueryRule::Only(only),
            (_, _, false) => QueryRule::Without(without),
            _ => QueryRule::All,
        };
        let changes = !matches!(query, QueryRule::All)
            || of.sort_query
            || of.ignore_path_case
            || of.host.is_some();
        let rules = KeyRules {
            query,
            sort_query: of.sort_query,
            ignore_path_case: of.ignore_path_case,
            host: of.host.as_ref().map(|host| host.to_ascii_lowercase().into()),
            headers,
            cookies: of.cookies.clone(),
            device: of.device,
            expression,
            share: of.share.as_deref().map(Into::into),
        };
        let has_any = changes || rules.has_variants() || rules.share.is_some();
        valid.then(|| has_any.then_some(rules))
    }

    fn texts(&mut self, list: &[String], path: &Path) -> Option<Vec<TextPattern>> {
        let pattern = |text: &str| TextPattern::parse(text, false);
        self.read_each(list, path, |text| pattern(text).map_err(|error| (error.to_string(), None)))
    }

    fn selectors(&mut self, list: &[String], path: &Path) -> Option<Vec<Selector>> {
        let help = "for example `cookie.session`, `header.x-preview=1` or `query.nocache`";
        self.read_each(list, path, |text| {
            Selector::parse(text).map_err(|error| (error.to_string(), Some(help.to_owned())))
        })
    }
}

/// Reads statuses and a time.
fn status_ttl(text: &str) -> Result<StatusTtl, String> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let last = words.pop().ok_or("is empty")?;
    let ttl = parse_duration(last).map_err(|_| format!("`{last}` is no time"))?;
    if ttl > LONGEST {
        return Err(format!("`{last}` is more than a year"));
    }
    let status = |word: &&str| match word.parse::<u16>() {
        Ok(status) if (200..=599).contains(&status) && status != 304 => Ok(status),
        _ => Err(format!("`{word}` is no status that can be stored")),
    };
    let statuses = match words[..] {
        [] => Statuses::Cacheable,
        ["any"] => Statuses::Any,
        _ => Statuses::Listed(words.iter().map(status).collect::<Result<_, _>>()?),
    };
    Ok(StatusTtl { statuses, ttl })
}

/// The longest lifetime that makes sense (RFC 2616 Sec. 14.21).
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
