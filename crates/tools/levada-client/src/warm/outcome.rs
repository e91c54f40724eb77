//! The outcome of a request for an object, by the `Cache-Status` of its response, and the report of a run.

use http::{HeaderMap, HeaderName};
use serde::Serialize;

pub(super) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// The outcome of a request for an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum WarmOutcome {
    /// It was fetched and stored, or validated.
    Warmed,
    /// It was stored before.
    AlreadyThere,
    /// It was fetched and not stored.
    NotStorable {
        /// The reason.
        why: String,
    },
    /// There was no good response.
    Failed {
        /// The reason.
        why: String,
    },
    /// The limit of bytes was reached before.
    NotTried,
}

/// A URL and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct WarmedUrl {
    /// The URL.
    pub url: String,
    /// Its outcome.
    #[serde(flatten)]
    pub outcome: WarmOutcome,
    /// Bytes of body that came.
    pub bytes: u64,
}

/// The outcomes of all URLs, in the order of their ends.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WarmReport {
    /// The URLs.
    pub urls: Vec<WarmedUrl>,
}

impl WarmReport {
    pub(super) fn add(&mut self, one: WarmedUrl) {
        self.urls.push(one);
    }

    /// Whether everything is stored now.
    pub fn is_complete(&self) -> bool {
        let is_stored = |one: &WarmedUrl| {
            matches!(one.outcome, WarmOutcome::Warmed | WarmOutcome::AlreadyThere)
        };
        self.urls.iter().all(is_stored)
    }
}

impl WarmOutcome {
    /// By the caches that handled the response: it is warm if one of them has it.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(CACHE_STATUS).iter().filter_map(|line| line.to_str().ok());
        let members: Vec<&str> = lines.flat_map(|line| line.split(',')).collect();
        let parameters = |member: &'static str| {
            let named = move |one: &&str| one.split(';').skip(1).any(|p| p.trim() == member);
            members.iter().any(named)
        };
        if parameters("hit") {
            return Self::AlreadyThere;
        }
        let is_stored =
            ["stored", "collapsed", "fwd-status=304", "detail=pieces", "detail=pieces-weak"];
        if is_stored.into_iter().any(parameters) {
            return Self::Warmed;
        }
        let values = members.iter().flat_map(|member| member.split(';').skip(1));
        let detail = values.filter_map(|value| value.trim().strip_prefix("detail=")).last();
        let unknown = if members.is_empty() { "no Cache-Status" } else { "no reason given" };
        Self::NotStorable { why: detail.unwrap_or(unknown).trim_matches('"').to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_is_read_from_cache_status() {
        let of = |lines: &[&str]| {
            let lines = lines.iter().map(|line| (CACHE_STATUS, line.parse().unwrap()));
            WarmOutcome::of(&lines.collect())
        };
        assert_eq!(of(&["n0; hit; ttl=5"]), WarmOutcome::AlreadyThere);
        assert_eq!(of(&["n0; fwd=uri-miss; fwd-status=200; stored"]), WarmOutcome::Warmed);
        assert_eq!(of(&["o; fwd=uri-miss", "n0; fwd=uri-miss; stored"]), WarmOutcome::Warmed);
        assert_eq!(of(&["n0; fwd=stale; fwd-status=304"]), WarmOutcome::Warmed);
        for (line, reason) in [
            ("n0; fwd=uri-miss; fwd-status=200; detail=no-store", "no-store"),
            ("n0; fwd=bypass; detail=off", "off"),
            ("n0; fwd=uri-miss", "no reason given"),
        ] {
            assert_eq!(of(&[line]), WarmOutcome::NotStorable { why: reason.to_owned() });
        }
        assert_eq!(of(&[]), WarmOutcome::NotStorable { why: "no Cache-Status".to_owned() });
    }
}
