//! Checks of the origin, and of what expires there.

use http::{
    HeaderMap, HeaderValue,
    header::{CACHE_CONTROL, ETAG},
};

use super::{FreshnessClass, Problems, Scenario};

impl Scenario {
    pub(super) fn check_origin(&self, problems: &mut Problems) {
        self.check_freshness(problems);
        let Some(origin) = &self.origin else { return };
        problems.add_if(
            self.cap.is_some() || self.regions.is_some(),
            "origin",
            "`cap` and `regions` have origins of their own: leave it out",
        );
        problems.add_if(
            origin.at_once == Some(0),
            "origin.at_once",
            "it must work on one request at least; without the key there is no limit",
        );
        problems.add_if(
            origin.misses_per_server == Some(0),
            "origin.misses_per_server",
            "a server must fetch one document at least; without the key there is no limit",
        );
        problems.add_if(
            origin.requests_per_second.is_some_and(|rate| !(rate.is_finite() && rate >= LEAST_RATE)),
            "origin.requests_per_second",
            "it must be a number of requests per second from 0.001; without the key there is no limit",
        );
        for (key, rate) in [
            ("origin.bits_per_second", origin.bits_per_second),
            ("origin.body_bits_per_second", origin.body_bits_per_second),
        ] {
            problems.add_if(
                rate == Some(0),
                key,
                "a link must carry something; without the key bodies take no time",
            );
        }
    }

    fn check_freshness(&self, problems: &mut Problems) {
        let (classes, purges) = (&self.freshness.class, &self.freshness.purge);
        if classes.is_empty() && purges.is_empty() {
            return;
        }
        problems.add_if(
            self.origin.is_none(),
            "freshness",
            "documents expire and change at an origin: give `[origin]`, or leave this table out",
        );
        problems.add_if(
            self.cap.is_some() || self.regions.is_some(),
            "freshness",
            "nothing expires by it in `cap` and `regions`: leave it out (`regions.fresh` is another key)",
        );
        problems.add_if(
            self.has_global_memory(),
            "policy.name",
            "its servers read from each other's memory, where nothing expires: choose another policy, or \
             leave `freshness` out",
        );
        problems.add_if(
            classes.len() > MOST_CLASSES,
            "freshness.class",
            &format!("there can be {MOST_CLASSES} at most"),
        );
        problems.add_if(
            classes.iter().map(|class| class.share.0).sum::<f64>() > 1.0 + 1e-9,
            "freshness.class",
            "the shares of all classes add up to more than 1",
        );
        for (at, class) in classes.iter().enumerate() {
            let place = format!("freshness.class[{at}]");
            problems.add_if(
                class.fields().is_none(),
                &place,
                "`cache_control` must be as an origin sends it, such as \"max-age=60\" or \"no-store\"",
            );
            problems.add_if(
                class.changes.is_some_and(|time| time.0.is_zero()),
                &place,
                "`changes` must be a time above 0; without it nothing changes",
            );
        }
        for (at, purge) in purges.iter().enumerate() {
            problems.add_if(
                purge.every.is_some_and(|every| every.0.is_zero()),
                &format!("freshness.purge[{at}]"),
                "`every` must be a time above 0; without it there is one purge",
            );
        }
    }
}

impl FreshnessClass {
    /// The fields of its answers, an `ETag` among them, if an origin can send them.
    pub(crate) fn fields(&self) -> Option<HeaderMap> {
        let given = Some(&self.cache_control).filter(|text| !text.is_empty())?;
        let value = HeaderValue::from_str(given).ok()?;
        // Without a validator nothing could be confirmed.
        let version = HeaderValue::from_static("\"version\"");
        Some(HeaderMap::from_iter([(CACHE_CONTROL, value), (ETAG, version)]))
    }
}

/// Classes of documents.
const MOST_CLASSES: usize = 100;
/// At less, a request takes more than a quarter of an hour.
const LEAST_RATE: f64 = 0.001;
