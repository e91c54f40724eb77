//! Request traces like published ones that nobody can download.
//!
//! A model is four laws: how popular files are ([`Popularity`]), how large ([`Sizes`]), how the two
//! hang together (a Gaussian copula), and how a file's requests lie in time ([`Locality`]). The
//! result is then calibrated ([`Population`]) so that it reproduces what the papers print: the bytes
//! of the most requested files that together take 97, 98 and 99 % of the requests. That figure
//! decides how well a cache of given size does, which is what these traces were used to measure.
//!
//! [`RICE`] stands for the Rice University trace (Pai et al., "Locality-Aware Request Distribution
//! in Cluster-based Network Servers", ASPLOS'98; Wang et al., "The Effectiveness of Request
//! Redirection on CDN Robustness", OSDI'02, Sec. 4.2), [`IBM`] for the www.ibm.com trace of the
//! former paper. Files, bytes and coverages are published; the number of requests and the mean
//! transfer of [`IBM`] are taken to be what they are here.
//!
//! A known difference: no file is requested only once here, while in real logs many are.
//!
//! SPECweb99's file mix stands beside them; its rules leave nothing to be fitted.

mod normal;
mod popularity;
mod population;
mod sequence;
mod sizes;
mod specweb99;

pub use popularity::Popularity;
pub use population::Population;
pub use sequence::Locality;
pub use sizes::Sizes;

use crate::Trace;

/// What a generated trace shall look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// As reports print it.
    pub name: &'static str,
    /// Files, each requested at least once.
    pub files: usize,
    /// Requests.
    pub requests: u64,
    /// Bytes of all files together.
    pub bytes: u64,
    /// What the most requested files weigh, by rising share.
    pub coverage: [Coverage; 3],
    /// Bytes of an average request.
    pub mean_transfer: f64,
    /// How popular files are.
    pub popularity: Popularity,
    /// How large files are.
    pub sizes: Sizes,
    /// The correlation of unpopularity with size: positive when popular files are small.
    pub correlation: f64,
    /// How a file's requests lie in time.
    pub locality: Locality,
    /// Among how many of the most popular files sizes are redrawn until the mean transfer fits.
    pub head: usize,
}

/// The bytes of the most requested files that together take a share of the requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coverage {
    /// The share of the requests.
    pub share: f64,
    /// The bytes of those files.
    pub bytes: u64,
}

/// Like the trace of Rice University: 37,703 files of 1418 MB, 2.3 million requests.
pub const RICE: Model = Model {
    name: "rice",
    files: 37_703,
    requests: 2_300_000,
    bytes: 1418 * MB,
    coverage: coverages([560, 705, 927]),
    mean_transfer: 17_600.0,
    popularity: Popularity { a: 1.107904, b: 1.080662, g: 2.975273, q: 2.0 },
    sizes: Sizes {
        mu: 8.574,
        sigma: 1.96,
        tail_share: 0.0,
        tail_alpha: 1.3,
        tail_from: 30e6,
        largest: 30e6,
    },
    correlation: 0.154761,
    locality: Locality::NONE,
    head: 500,
};

/// Like the trace of www.ibm.com: 38,527 files of 1029 MB, 15.5 million requests.
pub const IBM: Model = Model {
    name: "ibm",
    files: 38_527,
    requests: 15_500_000,
    bytes: 1029 * MB,
    coverage: coverages([51, 80, 182]),
    mean_transfer: 3_000.0,
    popularity: Popularity { a: 0.78988, b: 0.00012341, g: 0.19933, q: 5.0 },
    sizes: Sizes {
        mu: 7.7,
        sigma: 1.30,
        tail_share: 0.07,
        tail_alpha: 1.1,
        tail_from: 64e3,
        largest: 30e6,
    },
    correlation: 0.33716,
    locality: Locality::NONE,
    head: 500,
};

/// A trace that can be made whole.
#[derive(Debug)]
pub struct Generator {
    /// As configurations name it.
    pub name: &'static str,
    /// Files at most.
    pub files: usize,
    /// Requests.
    pub requests: u64,
    /// Makes it from a seed: the same seed gives the same trace, on every machine.
    pub generate: fn(u64) -> Trace,
}

/// Every one of them.
pub const GENERATORS: &[Generator] = &[
    Generator {
        name: RICE.name,
        files: RICE.files,
        requests: RICE.requests,
        generate: |seed| RICE.generate(seed),
    },
    Generator {
        name: IBM.name,
        files: IBM.files,
        requests: IBM.requests,
        generate: |seed| IBM.generate(seed),
    },
    Generator {
        name: "specweb99",
        files: specweb99::FILES,
        requests: specweb99::REQUESTS,
        generate: specweb99::trace,
    },
];

/// The models among them.
pub const MODELS: &[&Model] = &[&RICE, &IBM];

impl Model {
    /// The same shape with fewer (or more) files and requests.
    ///
    /// Bytes and coverages shrink with the files, so that coverages stay the same part of the whole
    /// and the mean transfer stays what it is; the head of the popularity law is bent so that the
    /// most requested file keeps its share of the requests (the next ones gain a little). A model has
    /// at least eight files and as many requests as files; smaller numbers are raised. Below about
    /// a thousand files the mean transfer can no longer be held.
    pub fn scaled(&self, files: usize, requests: u64) -> Self {
        let files = files.clamp(8, u32::MAX as usize);
        let part = files as f64 / self.files as f64;
        let shrink = |bytes: u64| (bytes as f64 * part) as u64;
        Self {
            files,
            requests: requests.max(files as u64),
            bytes: shrink(self.bytes),
            coverage: self.coverage.map(|c| Coverage { bytes: shrink(c.bytes), ..c }),
            popularity: self.popularity.scaled(self.files, files),
            head: ((self.head as f64 * part) as usize).clamp(4, files),
            ..*self
        }
    }

    /// Files with their popularities and sizes; the same seed gives the same files.
    pub fn population(&self, seed: u64) -> Population {
        Population::draw(self, seed)
    }

    /// A whole trace. The same seed gives the same trace, on every machine.
    pub fn generate(&self, seed: u64) -> Trace {
        self.population(seed).trace(self.locality, seed)
    }
}

const MB: u64 = 1_000_000;

const fn coverages(megabytes: [u64; 3]) -> [Coverage; 3] {
    let [low, middle, high] = megabytes;
    [
        Coverage { share: 0.97, bytes: low * MB },
        Coverage { share: 0.98, bytes: middle * MB },
        Coverage { share: 0.99, bytes: high * MB },
    ]
}

#[cfg(test)]
mod tests;
