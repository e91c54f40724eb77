//! The popularity of files: a Zipf law with a flattened head and a truncated tail.

/// `c(r) = A (r + q)^-a exp(-(r / (b N))^g)` requests for the file of rank `r` of `N` files.
///
/// `A` follows from the number of requests; every file gets at least one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Popularity {
    /// The slope; Zipf's law has 1.
    pub a: f64,
    /// The rank at which the tail falls off, as a fraction of the number of files.
    pub b: f64,
    /// The sharpness of the tail's fall.
    pub g: f64,
    /// The flatness of the head, in ranks.
    pub q: f64,
}

impl Popularity {
    /// The requests of each of `files`, most requested first; their sum is `requests`.
    ///
    /// `requests` must not be below `files`.
    pub(super) fn counts(&self, files: usize, requests: u64) -> Vec<u64> {
        let weights = self.weights(files);
        let scale = scale_to(&weights, requests as f64);
        let exact: Vec<f64> = weights.iter().map(|weight| (scale * weight).max(1.0)).collect();
        let mut counts: Vec<u64> = exact.iter().map(|count| count.floor() as u64).collect();
        let rest = requests.saturating_sub(counts.iter().sum());
        // Requests lost by rounding down go to the files that lost the largest fractions.
        let mut losers: Vec<usize> = (0..files).collect();
        let lost = |id: usize| exact[id] - exact[id].floor();
        losers.sort_by(|&x, &y| lost(y).total_cmp(&lost(x)));
        for &id in losers.iter().cycle().take(rest as usize) {
            counts[id] += 1;
        }
        counts.sort_unstable_by_key(|&count| std::cmp::Reverse(count));
        counts
    }

    /// The law for `to` files instead of `from`, with the same share for the first file.
    pub(super) fn scaled(&self, from: usize, to: usize) -> Self {
        let wanted = self.first_share(from);
        // A flatter head gives the first file less: its share falls as q grows.
        let (mut low, mut high) = (-0.9, 10.0 * from as f64);
        for _ in 0..100 {
            let q = (low + high) / 2.0;
            if (Self { q, ..*self }).first_share(to) > wanted {
                low = q;
            } else {
                high = q;
            }
        }
        Self { q: (low + high) / 2.0, ..*self }
    }

    fn first_share(&self, files: usize) -> f64 {
        let weights = self.weights(files);
        weights[0] / weights.iter().sum::<f64>()
    }

    /// Relative weights, within the range of floating-point numbers.
    fn weights(&self, files: usize) -> Vec<f64> {
        let log_weight = |rank: usize| {
            let rank = rank as f64;
            -self.a * libm::log(rank + self.q) - libm::pow(rank / (self.b * files as f64), self.g)
        };
        // The first file has the largest weight, because both terms fall with the rank.
        let largest = log_weight(1);
        (1..=files).map(|rank| libm::exp(log_weight(rank) - largest)).collect()
    }
}

/// The factor that makes weights, each at least one, sum to `requests`; found by bisection.
fn scale_to(weights: &[f64], requests: f64) -> f64 {
    let (mut low, mut high) = (0.0, requests / weights.iter().sum::<f64>() * 4.0);
    for _ in 0..100 {
        let scale = (low + high) / 2.0;
        if weights.iter().map(|weight| (scale * weight).max(1.0)).sum::<f64>() < requests {
            low = scale;
        } else {
            high = scale;
        }
    }
    // The lower end, because rounding down must not start above the sum.
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZIPF: Popularity = Popularity { a: 1.0, b: 1.0, g: 3.0, q: 0.0 };

    #[test]
    fn counts_fall_and_sum_up() {
        for (files, requests) in [(8, 8), (8, 9), (100, 10_000), (1000, 1234)] {
            let counts = ZIPF.counts(files, requests);
            assert_eq!((counts.len(), counts.iter().sum::<u64>()), (files, requests));
            assert!(counts.is_sorted_by(|x, y| x >= y) && counts[files - 1] >= 1);
        }
    }

    #[test]
    fn a_scaled_law_keeps_the_share_of_the_first_file() {
        for files in [100, 1000, 20_000] {
            let scaled = ZIPF.scaled(10_000, files);
            let ratio = scaled.first_share(files) / ZIPF.first_share(10_000);
            assert!((ratio - 1.0).abs() < 1e-6, "{files}: {ratio}");
        }
    }
}
