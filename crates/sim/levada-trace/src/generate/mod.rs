//! Generated traces that resemble published ones which are not available.
//!
//! A model has four parts: the popularity of files ([`Popularity`]), their sizes ([`SizeLaw`]), the
//! correlation between both (a Gaussian copula), and the temporal locality of requests
//! ([`Locality`]). The result is then calibrated ([`Population`]) to the figures that the papers
//! print: the bytes of the most requested files that together receive 97, 98 and 99 % of the
//! requests. This figure determines the hit ratio of a cache of a given size, for which the papers
//! used these traces.
//!
//! [`RICE`] models the Rice University trace (Pai et al., "Locality-Aware Request Distribution in
//! Cluster-based Network Servers", ASPLOS'98; Wang et al., "The Effectiveness of Request
//! Redirection on CDN Robustness", OSDI'02, Sec. 4.3), [`IBM`] the www.ibm.com trace of the former
//! paper. Files, bytes and coverages are published; the number of requests and the mean transfer of
//! [`IBM`] are assumptions.
//!
//! A known difference: no file is requested only once here, but many are in real logs.
//!
//! The file mix of SPECweb99 is available as well; its rules define it completely. `cdn` resembles no
//! published trace: it has the exponent that is usual for content delivery networks, and more files
//! than caches hold. `regions` has the warm requests of `levada lab regions`, with their times.

mod cdn;
mod normal;
mod popularity;
mod population;
mod regions;
mod sequence;
mod sizes;
mod specweb99;

pub use popularity::Popularity;
pub use population::Population;
pub use sequence::Locality;
pub use sizes::SizeLaw;

use crate::Trace;

/// The properties of a generated trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// The name in reports.
    pub name: &'static str,
    /// Files, each requested at least once.
    pub files: usize,
    /// Requests.
    pub requests: u64,
    /// Bytes of all files together.
    pub bytes: u64,
    /// The bytes of the most requested files, by increasing share.
    pub coverage: [Coverage; 3],
    /// The mean number of bytes per request.
    pub mean_transfer: f64,
    /// The popularity law.
    pub popularity: Popularity,
    /// The size law.
    pub sizes: SizeLaw,
    /// The correlation of unpopularity with size: positive if popular files are small.
    pub correlation: f64,
    /// The temporal locality of requests.
    pub locality: Locality,
    /// The number of most popular files whose sizes are drawn again until the mean transfer fits.
    pub head: usize,
}

/// The bytes of the most requested files that together receive a share of the requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coverage {
    /// The share of the requests.
    pub share: f64,
    /// The bytes of those files.
    pub bytes: u64,
}

/// A model of the Rice University trace: 37,703 files of 1418 MB, 2.3 million requests.
pub const RICE: Model = Model {
    name: "rice",
    files: 37_703,
    requests: 2_300_000,
    bytes: 1418 * MB,
    coverage: coverages([560, 705, 927]),
    mean_transfer: 17_600.0,
    popularity: Popularity { a: 1.107904, b: 1.080662, g: 2.975273, q: 2.0 },
    sizes: SizeLaw {
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

/// A model of the www.ibm.com trace: 38,527 files of 1029 MB, 15.5 million requests.
pub const IBM: Model = Model {
    name: "ibm",
    files: 38_527,
    requests: 15_500_000,
    bytes: 1029 * MB,
    coverage: coverages([51, 80, 182]),
    mean_transfer: 3_000.0,
    popularity: Popularity { a: 0.78988, b: 0.00012341, g: 0.19933, q: 5.0 },
    sizes: SizeLaw {
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

/// A trace that can be generated completely.
#[derive(Debug)]
pub struct Generator {
    /// The name in configurations.
    pub name: &'static str,
    /// The largest number of files.
    pub files: usize,
    /// Requests.
    pub requests: u64,
    /// Generates the trace from a seed: the same seed gives the same trace on every machine.
    pub generate: fn(u64) -> Trace,
}

/// All generators.
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
    Generator { name: "cdn", files: cdn::FILES, requests: cdn::REQUESTS, generate: cdn::trace },
    Generator {
        name: "regions",
        files: regions::FILES,
        requests: regions::REQUESTS,
        generate: regions::trace,
    },
];

/// The models among the generators.
pub const MODELS: &[&Model] = &[&RICE, &IBM];

impl Model {
    /// The model scaled to fewer (or more) files and requests.
    ///
    /// Bytes and coverages scale with the files, so that coverages stay the same part of the whole
    /// and the mean transfer does not change. The head of the popularity law is adapted so that the
    /// most requested file keeps its share of the requests; the next ones gain a little. A model
    /// has at least eight files, and at least as many requests as files; smaller numbers are
    /// raised. With less than about a thousand files the mean transfer can no longer be kept.
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

    /// Draws files with their popularities and sizes; the same seed gives the same files.
    pub fn population(&self, seed: u64) -> Population {
        Population::draw(self, seed)
    }

    /// Generates a whole trace. The same seed gives the same trace on every machine.
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
