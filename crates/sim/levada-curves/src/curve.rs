//! The options and the results: the interface of this crate.

use levada_cache::eviction::{EVICTIONS, EvictionEntry};
use serde::{Deserialize, Serialize};

/// The curves to compute, and the size of the sample.
#[derive(Clone, Debug)]
pub struct CurveOptions {
    /// Sizes of the cache in bytes, ascending. If empty, [`CurveReport`] has ten sizes, each twice the one before;
    /// the largest holds all objects.
    pub sizes: Vec<u64>,
    /// The eviction algorithms; the default is all of them.
    pub evictions: Vec<&'static EvictionEntry>,
    /// The admission rules; the default is all of them.
    pub admissions: Vec<Admission>,
    /// The share of the objects to begin with, above 0 and at most 1. With 1 a log that fits [`Self::sample`] is not
    /// sampled at all, and its figures are exact. The default is 1.
    pub rate: f64,
    /// The most requests to keep, at least 1,000. Consecutive requests for one object count once. When there are more,
    /// the rate falls by a quarter. Each takes 8 bytes, each of their objects about 60, and while curves are
    /// computed some hundred more. The default is 4,000,000.
    pub sample: usize,
    /// Another seed samples other objects. The same seed gives the same figures.
    pub seed: u64,
    /// Threads that compute, at least 1. The default is one for each processor.
    pub threads: usize,
}

impl Default for CurveOptions {
    fn default() -> Self {
        Self {
            sizes: Vec::new(),
            evictions: EVICTIONS.iter().collect(),
            admissions: Admission::ALL.to_vec(),
            rate: 1.0,
            sample: 4_000_000,
            seed: 1,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// The admission rule of a cache, as `admission` in `[cache]` of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// Every object is stored.
    Always,
    /// Objects that are fetched for the second time, as far as the doorkeeper remembers.
    SecondHit,
}

impl Admission {
    /// All rules.
    pub const ALL: [Self; 2] = [Self::Always, Self::SecondHit];

    /// The name in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::SecondHit => "second_hit",
        }
    }
}

/// All curves of the requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveReport {
    /// Requests, sampled or not, for objects of known size.
    pub requests: u64,
    /// Requests that are left out, because no response states the size of their object; an estimate if `rate` is
    /// below 1.
    pub sizeless_requests: u64,
    /// The bytes of `requests`, each with the size of its object; an estimate if `rate` is below 1.
    pub bytes: u64,
    /// Distinct objects; an estimate if `rate` is below 1.
    pub objects: u64,
    /// The bytes of all distinct objects: the size of a cache that never evicts. An estimate if `rate` is below 1.
    pub object_bytes: u64,
    /// The share of the objects that were sampled, above 0 and at most 1.
    pub rate: f64,
    /// Requests in the sample.
    pub sampled_requests: u64,
    /// Objects in the sample.
    pub sampled_objects: u64,
    /// A cache that never evicts, with every object admitted. Its `bytes` are `object_bytes`.
    pub unlimited: CurvePoint,
    /// A curve for each eviction and admission, in the order of the options: admissions within evictions.
    pub curves: Vec<CacheCurve>,
}

/// The hit ratios of one eviction and admission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheCurve {
    /// The name of the eviction, as in a configuration.
    pub eviction: String,
    /// The admission rule.
    pub admission: Admission,
    /// A point for each size, ascending.
    pub points: Vec<CurvePoint>,
}

/// The hit ratios of a cache of one size. The cache is empty at the first request, or filled by those before
/// [`Curves::begin`](crate::Curves::begin). Objects take as many bytes as their bodies; an object that is larger
/// than the cache is never stored.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// The size of the cache in bytes.
    pub bytes: u64,
    /// Hits of all requests, from 0 to 1.
    pub hit_ratio: f64,
    /// Bytes of hits of the bytes of all requests, from 0 to 1.
    pub byte_hit_ratio: f64,
    /// The sampling error of `hit_ratio`: with a confidence of 95 % the hit ratio of all requests is at most this
    /// far away. 0 if nothing was left out.
    pub hit_error: f64,
    /// The sampling error of `byte_hit_ratio`.
    pub byte_hit_error: f64,
}

/// The reason why there are no curves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CurveError {
    /// There were no requests.
    #[error(
        "there are no requests to compute a curve from; give a log with GET requests of status 200, 206 or 304"
    )]
    NoRequests,
    /// No response states the size of an object.
    #[error(
        "no response states its size, which the curves need; log the bytes sent (nginx: $body_bytes_sent)"
    )]
    NoSizes,
    /// The sample is too small for an estimate with an error.
    #[error(
        "only {objects} of the objects were sampled, too few to state an error; set the rate to 1, or give a longer log"
    )]
    TooFewSampled {
        /// Objects in the sample.
        objects: u64,
    },
}
