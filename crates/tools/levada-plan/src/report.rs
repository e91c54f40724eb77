//! All that a plan says: plain data for text, page and JSON.

use levada_curves::CacheCurve;
use serde::Serialize;

use crate::{
    aims::Aims, answer::Answer, backtest::Backtest, clean::Cleaning, costs::Costs, expiry::Expiry,
    peak::Peak, search::Row,
};

/// A plan.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// `None` if the log does not say what its caches did.
    pub backtest: Option<Backtest>,
    pub(crate) log: Cleaning,
    pub(crate) peak: Peak,
    pub(crate) growth: f64,
    pub(crate) aims: Aims,
    pub(crate) costs: Costs,
    /// Where the costs are from.
    pub(crate) costs_from: String,
    pub(crate) expiry: Expiry,
    /// Seconds.
    pub(crate) origin_latency: f64,
    /// Bits per second of a body from the origin; `None` if it takes no time.
    pub(crate) origin_rate: Option<f64>,
    /// Where that is from.
    pub(crate) origin_latency_from: String,
    /// Of today's objects.
    pub(crate) curves: Vec<CacheCurve>,
    /// The simulated candidates, the cheapest first.
    pub(crate) rows: Vec<Row>,
    /// Candidates that were not simulated.
    pub(crate) excluded: usize,
    /// The answer.
    pub answer: Answer,
}
