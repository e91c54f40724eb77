//! How long objects are fresh: as given, or by the log's results of copies that had expired.
//!
//! One lifetime holds for all objects. A copy that has expired is confirmed by the origin without a body, or fetched
//! again if its object has changed.

use std::{collections::HashMap, time::Duration};

use levada_sim::{Freshness, FreshnessClass, Share, Time};
use serde::Serialize;

use crate::{
    backtest::Halves,
    peak::Load,
    read::{Log, LoggedResult},
};

/// The lifetime of all objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Expiry {
    /// Seconds until a copy expires; `None` if none does.
    pub(crate) lifetime: Option<f64>,
    /// The share of expired copies whose object has changed.
    pub(crate) changed: f64,
    /// Results of copies that had expired, as logged.
    pub(crate) logged: u64,
    /// Whether the lifetime was given.
    pub(crate) given: bool,
}

/// Fewer results of expired copies give no lifetime.
const ENOUGH: u64 = 50;
/// Steps of the search for a lifetime.
const STEPS: u32 = 14;
/// Objects change so soon that every expired copy differs.
const AT_ONCE: Duration = Duration::from_millis(1);

impl Expiry {
    /// The lifetime that is given, zero for none, and the share of changes by the log.
    pub(crate) fn given(log: &Log, lifetime: Option<Duration>) -> Self {
        let count = |wanted| log.requests.iter().filter(|r| r.result() == Some(wanted)).count();
        let (expired, confirmed) = (count(LoggedResult::Expired), count(LoggedResult::Revalidated));
        let logged = (expired + confirmed) as u64;
        Self {
            lifetime: lifetime.filter(|time| !time.is_zero()).map(|time| time.as_secs_f64()),
            changed: expired as f64 / logged.max(1) as f64,
            logged,
            given: lifetime.is_some(),
        }
    }

    /// The lifetime that explains the logged share of expired copies among those that a cache of so many bytes finds.
    pub(crate) fn learn(self, halves: &Halves<'_>, bytes: u64) -> Self {
        let (aim, span) = (halves.logged_expired(), halves.seconds());
        // Without times nothing has an age.
        if self.given || self.logged < ENOUGH || aim <= 0.0 || span < 2.0 {
            return self;
        }
        let (mut low, mut high) = (1.0f64, span);
        for _ in 0..STEPS {
            let lifetime = (low * high).sqrt();
            let found = halves.explain(bytes, Self { lifetime: Some(lifetime), ..self });
            match found.expired / found.found.max(1.0) > aim {
                true => low = lifetime,
                false => high = lifetime,
            }
        }
        Self { lifetime: Some((low * high).sqrt()), ..self }
    }

    /// Whether a copy of this age has expired.
    pub(crate) fn is_over(&self, age: f64) -> bool {
        self.lifetime.is_some_and(|lifetime| age >= lifetime)
    }

    /// The documents of the simulator. Their changes come at random, and as often as an expired copy is one lifetime old.
    pub(crate) fn simulated(&self) -> Freshness {
        let class = self.lifetime.map(|lifetime| {
            let between = -lifetime / (1.0 - self.changed).ln();
            FreshnessClass {
                share: Share(1.0),
                cache_control: format!("max-age={}", lifetime.round().max(1.0) as u64),
                changes: (self.changed > 0.0)
                    .then(|| Time(Duration::from_secs_f64(between.min(1e12)).max(AT_ONCE))),
            }
        });
        Freshness { class: class.into_iter().collect(), ..Freshness::default() }
    }

    /// The share of a load's hits that remain in an unlimited cache if what has changed is no hit.
    pub(crate) fn best(&self, load: &Load) -> f64 {
        let (mut since, mut found, mut lost) = (HashMap::new(), 0.0, 0.0);
        for (at, object) in load.trace.requests().iter().enumerate() {
            let now = load.seconds(at);
            let before = since.get(object).copied();
            let is_over = before.is_some_and(|before| self.is_over(now - before));
            if is_over || before.is_none() {
                since.insert(*object, now);
            }
            if at >= load.warm && before.is_some() {
                found += 1.0;
                lost += if is_over { self.changed } else { 0.0 };
            }
        }
        1.0 - lost / f64::max(found, 1.0)
    }

    /// The lifetime in one sentence.
    pub(crate) fn sentence(&self) -> String {
        let Some(lifetime) = self.lifetime else {
            return match self.given {
                true => "no object expires (--ttl)".to_owned(),
                false => format!(
                    "no object is taken to expire: the log has {} results of expired copies, too few; --ttl gives a \
                     lifetime",
                    self.logged
                ),
            };
        };
        let from = match self.given {
            true => "--ttl".to_owned(),
            false => format!("by {} results of expired copies in the log", self.logged),
        };
        format!(
            "objects expire after {:.0} s ({from}); {:.1} % of expired copies have changed and are fetched again, all \
             others are confirmed and count as hits; the curves of one cache know no expiry",
            lifetime,
            self.changed * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_as_often_as_expired_copies_show_them() {
        let expiry = |changed| Expiry { lifetime: Some(600.0), changed, ..Expiry::default() };
        let changes = |changed| expiry(changed).simulated().class[0].changes.map(|time| time.0);
        assert_eq!(changes(0.0), None);
        assert_eq!(changes(1.0), Some(AT_ONCE));
        // Half of the copies that are 600 s old differ.
        let half = changes(0.5).unwrap().as_secs_f64();
        assert!(((-600.0 / half).exp() - 0.5).abs() < 1e-9, "{half}");
        assert_eq!(expiry(0.5).simulated().class[0].cache_control, "max-age=600");
        assert_eq!(Expiry::default().simulated(), Freshness::default());
    }
}
