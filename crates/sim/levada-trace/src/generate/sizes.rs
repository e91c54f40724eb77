//! File sizes: a lognormal body and a Pareto tail, both truncated.

use super::normal;

/// A mixture of two laws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeLaw {
    /// The mean of the body's logarithm (the median is its exponential).
    pub mu: f64,
    /// The deviation of the body's logarithm.
    pub sigma: f64,
    /// The share of files in the tail; 0 is a lognormal law truncated at `tail_from`.
    pub tail_share: f64,
    /// The exponent of the tail.
    pub tail_alpha: f64,
    /// The size in bytes where the body ends and the tail begins.
    pub tail_from: f64,
    /// The largest file, in bytes.
    pub largest: f64,
}

impl SizeLaw {
    /// The sizes of `count` files, smallest first, each from the middle of one of `count` equally
    /// likely classes. So the sizes follow the law exactly, for any seed.
    pub(super) fn strata(&self, count: usize) -> Vec<f64> {
        (0..count).map(|class| self.quantile((class as f64 + 0.5) / count as f64)).collect()
    }

    fn quantile(&self, p: f64) -> f64 {
        let body_share = 1.0 - self.tail_share;
        if p < body_share { self.body(p / body_share) } else { self.tail(p - body_share) }
    }

    fn body(&self, p: f64) -> f64 {
        let below_cut = normal::cumulative((libm::log(self.tail_from) - self.mu) / self.sigma);
        let p = (p * below_cut).clamp(1e-12, 1.0 - 1e-12);
        libm::exp(self.mu + self.sigma * normal::quantile(p))
    }

    fn tail(&self, beyond_body: f64) -> f64 {
        let v = beyond_body / self.tail_share.max(1e-12);
        let cut = 1.0 - libm::pow(self.tail_from / self.largest, self.tail_alpha);
        self.tail_from * libm::pow(1.0 - v * cut, -1.0 / self.tail_alpha)
    }
}

#[cfg(test)]
mod tests {
    use crate::generate::MODELS;

    #[test]
    fn sizes_rise_up_to_the_largest() {
        for model in MODELS {
            let sizes = model.sizes.strata(10_000);
            assert!(sizes.is_sorted(), "{}", model.name);
            assert!(sizes[0] > 0.0 && sizes[9_999] <= model.sizes.largest, "{}", model.name);
        }
    }
}
