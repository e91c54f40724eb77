//! Checks of the origin.

use super::{Problems, Scenario};

impl Scenario {
    pub(super) fn check_origin(&self, problems: &mut Problems) {
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
            origin.requests_per_second.is_some_and(|rate| !(rate.is_finite() && rate >= LEAST_RATE)),
            "origin.requests_per_second",
            "it must be a number of requests per second from 0.001; without the key there is no limit",
        );
        problems.add_if(
            origin.bits_per_second == Some(0),
            "origin.bits_per_second",
            "a link must carry something; without the key bodies take no time",
        );
    }
}

/// At less, a request takes more than a quarter of an hour.
const LEAST_RATE: f64 = 0.001;
