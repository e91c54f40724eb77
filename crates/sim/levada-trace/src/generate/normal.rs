//! The normal distribution, with the same results on every machine: `libm` is the same code
//! everywhere, unlike the logarithms of a system's own library.

use levada_types::Rng;

/// The probability that a standard normal variable is below `x`.
pub(super) fn cumulative(x: f64) -> f64 {
    0.5 * (1.0 + libm::erf(x / std::f64::consts::SQRT_2))
}

/// The inverse of [`cumulative`], by Acklam's rational approximation (relative error < 1.2e-9).
pub(super) fn quantile(p: f64) -> f64 {
    if p < LOW {
        tail(p)
    } else if p > 1.0 - LOW {
        -tail(1.0 - p)
    } else {
        let q = p - 0.5;
        let r = q * q;
        polynomial(&A, r) * q / (polynomial(&B, r) * r + 1.0)
    }
}

/// A standard normal random number.
pub(super) fn draw(rng: &mut Rng) -> f64 {
    // The middle of one of 2^53 equal intervals: neither 0 nor 1, whose quantiles are infinite.
    quantile(rng.unit() + 0.5 / (1u64 << 53) as f64)
}

fn tail(p: f64) -> f64 {
    let q = libm::sqrt(-2.0 * libm::log(p));
    polynomial(&C, q) / (polynomial(&D, q) * q + 1.0)
}

/// Horner's rule, highest power first.
fn polynomial(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

/// The limit between the approximations of the tail and of the middle.
const LOW: f64 = 0.02425;

const A: [f64; 6] = [
    -3.969683028665376e1,
    2.209460984245205e2,
    -2.759285104469687e2,
    1.38357751867269e2,
    -3.066479806614716e1,
    2.506628277459239,
];
const B: [f64; 5] = [
    -5.447609879822406e1,
    1.615858368580409e2,
    -1.556989798598866e2,
    6.680131188771972e1,
    -1.328068155288572e1,
];
const C: [f64; 6] = [
    -7.784894002430293e-3,
    -3.223964580411365e-1,
    -2.400758277161838,
    -2.549732539343734,
    4.374664141464968,
    2.938163982698783,
];
const D: [f64; 4] =
    [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_inverts_cumulative() {
        for p in [1e-9, 0.001, 0.0242, 0.0243, 0.3, 0.5, 0.9, 0.98, 0.999_999] {
            assert!((cumulative(quantile(p)) / p - 1.0).abs() < 1e-6, "{p}");
        }
        assert!((quantile(0.975) - 1.959_964).abs() < 1e-6);
    }

    #[test]
    fn draws_have_mean_zero_and_variance_one() {
        let mut rng = Rng::new(1);
        let draws: Vec<f64> = (0..50_000).map(|_| draw(&mut rng)).collect();
        let mean = draws.iter().sum::<f64>() / 50_000.0;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / 50_000.0;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }
}
