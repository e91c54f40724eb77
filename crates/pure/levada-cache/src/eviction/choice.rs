//! The choice among algorithms, as metrics and status show it.

/// The state of an algorithm that chooses among others.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The name of the algorithm in use.
    pub current: &'static str,
    /// The algorithms to choose from, with what they would have answered of the recent requests.
    pub candidates: Vec<Candidate>,
    /// The share of the objects in the sample, above 0 and at most 1.
    pub rate: f64,
    /// The objects in the sample.
    pub objects: usize,
    /// The bytes that the sample takes.
    pub bytes: u64,
    /// The number of judgements, one for each 1,024 sampled requests.
    pub judgements: u64,
    /// The number of switches.
    pub switches: u64,
    /// The last switches, the latest first.
    pub last: Vec<Switch>,
}

/// An algorithm to choose, in its miniature cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub name: &'static str,
    /// Hits of the sampled requests, from 0 to 1.
    pub hit_ratio: f64,
    /// Bytes of hits of the bytes of sampled requests, from 0 to 1.
    pub byte_hit_ratio: f64,
}

/// A change from one algorithm to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switch {
    /// The judgement, as [`Choice::judgements`] counts.
    pub judgement: u64,
    /// The names of the former and the new algorithm.
    pub names: [&'static str; 2],
    /// Their ratios, by the aim: of requests or of bytes.
    pub ratios: [f64; 2],
}
