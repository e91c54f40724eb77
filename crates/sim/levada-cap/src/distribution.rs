//! The distributions of the sessions of WWW10 (Table 1): inverse Gaussian, Pareto and lognormal,
//! all computed with `libm` so that every machine draws the same numbers.

use levada_types::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The inverse Gaussian (Wald) distribution: pages per session.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InverseGaussian {
    /// The mean.
    pub mu: f64,
    /// The shape: the larger, the closer to the mean.
    pub lambda: f64,
}

impl InverseGaussian {
    /// Draws a number by the transformation of Michael, Schucany and Haas (The American
    /// Statistician 1976): a squared normal number has two roots, and the smaller is right with
    /// probability mu / (mu + root).
    pub(super) fn draw(self, rng: &mut Rng) -> f64 {
        let (mu, lambda) = (self.mu, self.lambda);
        let normal = standard_normal(rng);
        let y = mu * normal * normal;
        let root = mu + mu / (2.0 * lambda) * (y - libm::sqrt(4.0 * lambda * y + y * y));
        if rng.unit() * (mu + root) <= mu { root } else { mu * mu / root }
    }
}

/// The Pareto distribution: think times, objects per page, the largest files.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pareto {
    /// The exponent of the tail; at 2 or less the variance is infinite, at 1 or less the mean is.
    pub alpha: f64,
    /// The smallest value.
    pub k: f64,
}

impl Pareto {
    /// Draws a number.
    pub fn draw(self, rng: &mut Rng) -> f64 {
        self.k * libm::pow(1.0 - rng.unit(), -1.0 / self.alpha)
    }
}

/// The lognormal distribution: the body of the file sizes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lognormal {
    /// The mean of the logarithm.
    pub mu: f64,
    /// The standard deviation of the logarithm.
    pub sigma: f64,
}

impl Lognormal {
    /// Draws a number.
    pub(super) fn draw(self, rng: &mut Rng) -> f64 {
        libm::exp(self.mu + self.sigma * standard_normal(rng))
    }
}

/// Box and Muller, Annals of Mathematical Statistics 1958; the second number is discarded.
fn standard_normal(rng: &mut Rng) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.unit()));
    radius * libm::cos(std::f64::consts::TAU * rng.unit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn draws(mut draw: impl FnMut(&mut Rng) -> f64) -> Vec<f64> {
        let mut rng = Rng::new(5);
        let mut drawn: Vec<f64> = (0..DRAWS).map(|_| draw(&mut rng)).collect();
        drawn.sort_by(f64::total_cmp);
        drawn
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn inverse_gaussian_has_its_mean_and_variance() {
        let law = InverseGaussian { mu: 3.86, lambda: 9.46 };
        let drawn = draws(|rng| law.draw(rng));
        let mean = mean(&drawn);
        let variance = drawn.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / DRAWS as f64;
        assert!((mean - 3.86).abs() < 0.03, "{mean}");
        // mu^3 / lambda
        assert!((variance / (3.86_f64.powi(3) / 9.46) - 1.0).abs() < 0.04, "{variance}");
        assert!(drawn[0] > 0.0);
    }

    #[test]
    fn pareto_has_its_quantiles() {
        let drawn = draws(|rng| Pareto { alpha: 1.33, k: 2.0 }.draw(rng));
        assert!(drawn[0] >= 2.0);
        for share in [0.5_f64, 0.9, 0.99] {
            let expected = 2.0 * (1.0 - share).powf(-1.0 / 1.33);
            let got = drawn[(share * DRAWS as f64) as usize];
            assert!((got / expected - 1.0).abs() < 0.05, "{share}: {got} for {expected}");
        }
    }

    #[test]
    fn lognormal_has_its_median_and_mean() {
        let drawn = draws(|rng| Lognormal { mu: 7.64, sigma: 1.705 }.draw(rng));
        assert!((drawn[DRAWS / 2] / 7.64_f64.exp() - 1.0).abs() < 0.02);
        let expected = (7.64 + 1.705 * 1.705 / 2.0_f64).exp();
        assert!((mean(&drawn) / expected - 1.0).abs() < 0.06, "{}", mean(&drawn));
    }
}
