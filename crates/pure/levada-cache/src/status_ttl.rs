//! Lifetimes by status, as a site states them: `200 302 10m`, `404 1m`, `any 30s`.

use std::time::Duration;

use http::StatusCode;

use crate::freshness::is_heuristically_cacheable;

/// The statuses that a lifetime is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statuses {
    /// The statuses that are heuristically cacheable (RFC 9110, Sec. 15.1).
    Cacheable,
    /// These.
    Listed(Vec<u16>),
    /// All.
    Any,
}

/// A lifetime and the statuses that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusTtl {
    /// The statuses.
    pub statuses: Statuses,
    /// The lifetime.
    pub ttl: Duration,
}

impl StatusTtl {
    /// The lifetime for a status: by the entry that names it, else by the statuses without a name, else
    /// by `any`. The order of the entries does not matter.
    pub fn find(list: &[Self], status: StatusCode) -> Option<Duration> {
        let status_number = status.as_u16();
        let listed = |one: &Self| match &one.statuses {
            Statuses::Listed(all) => all.contains(&status_number),
            _ => false,
        };
        let cacheable =
            |one: &Self| one.statuses == Statuses::Cacheable && is_heuristically_cacheable(status);
        let any = |one: &Self| one.statuses == Statuses::Any;
        let first = |suits: &dyn Fn(&Self) -> bool| list.iter().find(|one| suits(one));
        let found = first(&listed).or_else(|| first(&cacheable)).or_else(|| first(&any));
        found.map(|one| one.ttl)
    }

    /// Each entry, for operators.
    pub fn in_words(list: &[Self], fresh: &str) -> Vec<String> {
        let words = |one: &Self| {
            let statuses = match &one.statuses {
                Statuses::Cacheable => String::new(),
                Statuses::Any => " (any status)".to_owned(),
                Statuses::Listed(all) => {
                    let all: Vec<String> = all.iter().map(u16::to_string).collect();
                    format!(" (status {})", all.join(", "))
                }
            };
            format!("{fresh} for {}{statuses}", levada_types::format_duration(one.ttl))
        };
        list.iter().map(words).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_takes_the_entry_that_names_it() {
        let ttl = |statuses, seconds| StatusTtl { statuses, ttl: Duration::from_secs(seconds) };
        let list = [
            ttl(Statuses::Any, 1),
            ttl(Statuses::Cacheable, 2),
            ttl(Statuses::Listed(vec![200, 302]), 3),
        ];
        for (status, seconds) in [(200, 3), (302, 3), (404, 2), (500, 1)] {
            let found = StatusTtl::find(&list, StatusCode::from_u16(status).unwrap());
            assert_eq!(found, Some(Duration::from_secs(seconds)), "{status}");
        }
        assert_eq!(StatusTtl::find(&list[2..], StatusCode::NOT_FOUND), None);
    }
}
