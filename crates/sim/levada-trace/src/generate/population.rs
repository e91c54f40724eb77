//! Files with popularities and sizes, calibrated to a model's published figures.

use std::ops::Range;

use levada_types::Rng;

use super::{Locality, Model, normal, sequence};
use crate::{Trace, TraceObject, TraceSummary, Workload};

/// The files of a generated trace, most requested first.
#[derive(Clone, Debug, PartialEq)]
pub struct Population {
    /// The number of requests of each file.
    pub counts: Vec<u64>,
    /// The size of each file in bytes.
    pub sizes: Vec<u64>,
    /// The factors by which the sizes of each popularity band were multiplied to match the
    /// coverages. The closer to 1, the better the laws describe the original.
    pub band_factors: [f64; 4],
}

impl Population {
    pub(super) fn draw(model: &Model, seed: u64) -> Self {
        let counts = model.popularity.counts(model.files, model.requests);
        let (sizes, band_factors) = fit_sizes(model, &counts, &mut Rng::new(seed));
        let sizes = sizes.iter().map(|size| size.round().max(SMALLEST) as u64).collect();
        Self { counts, sizes, band_factors }
    }

    /// The requests, in an order that follows `locality`.
    ///
    /// File `n` has the name `/n`.
    pub fn trace(&self, locality: Locality, seed: u64) -> Trace {
        let objects = self.sizes.iter().enumerate();
        let objects = objects.map(|(n, &size)| TraceObject { name: format!("/{n}").into(), size });
        // A random stream separate from the one of the sizes, so that order and size are
        // independent.
        let mut rng = Rng::new(seed ^ ORDER);
        Trace::new(objects.collect(), sequence::arrange(&self.counts, locality, &mut rng))
    }

    /// Draws requests for these files without end.
    pub fn workload(&self, seed: u64) -> Workload {
        Workload::new(&self.counts, seed)
    }

    /// The summary of a trace of these files.
    pub fn summary(&self) -> TraceSummary {
        TraceSummary::of_ranked(
            self.counts.iter().copied().zip(self.sizes.iter().copied()).collect(),
        )
    }
}

/// Couples sizes to popularity and calibrates them; redraws the head until the mean transfer fits.
///
/// The few hundred most popular files determine the mean transfer and have little effect on
/// anything else, so only their sizes are drawn again. Tries with an extremely large file at the
/// very top are rejected; of the others, the one closest to the mean transfer is used. The mean is
/// compared after matching the coverages, because that changes it.
fn fit_sizes(model: &Model, counts: &[u64], rng: &mut Rng) -> (Vec<f64>, [f64; 4]) {
    let mut coupling = Coupling::new(model, rng);
    let mut best = Vec::new();
    let mut best_factors = [1.0; 4];
    let mut best_fit = (true, f64::INFINITY);
    for _ in 0..(TRIES * ALL_FILES / model.files).clamp(TRIES, 100 * TRIES) {
        coupling.draw_head(rng);
        let mut sizes = coupling.sizes();
        let factors = meet_coverages(model, counts, &mut sizes);
        let error = (mean_transfer(counts, &sizes) / model.mean_transfer - 1.0).abs();
        let fit = (has_absurd_head(model, &sizes), error);
        if best.is_empty() || fit < best_fit {
            (best, best_factors, best_fit) = (sizes, factors, fit);
        }
        if !best_fit.0 && best_fit.1 < CLOSE {
            break;
        }
    }
    (best, best_factors)
}

/// A Gaussian copula between popularity and size.
///
/// The rank of file `i` among all sizes equals the rank of its score `rho z_i + sqrt(1 - rho^2)
/// noise` among all scores, where `z_i` is the normal score of its popularity rank. The scores of
/// the head are drawn repeatedly and merged with the constant scores of all other files.
struct Coupling {
    rho: f64,
    /// All sizes, smallest first.
    strata: Vec<f64>,
    /// Scores and numbers of files, lowest score first.
    head: Vec<(f64, u32)>,
    others: Vec<(f64, u32)>,
}

impl Coupling {
    fn new(model: &Model, rng: &mut Rng) -> Self {
        let strata = model.sizes.strata(model.files);
        let (head, others) = (vec![(0.0, 0); model.head], Vec::new());
        let mut coupling = Self { rho: model.correlation, strata, head, others };
        coupling.others = coupling.scores(model.head..model.files, rng);
        coupling
    }

    fn draw_head(&mut self, rng: &mut Rng) {
        self.head = self.scores(0..self.head.len(), rng);
    }

    fn scores(&self, files: Range<usize>, rng: &mut Rng) -> Vec<(f64, u32)> {
        let own = libm::sqrt(1.0 - self.rho * self.rho);
        let mut score = |file: usize| {
            let rank = normal::quantile((file as f64 + 0.5) / self.strata.len() as f64);
            (self.rho * rank + own * normal::draw(rng), file as u32)
        };
        let mut scores: Vec<(f64, u32)> = files.map(&mut score).collect();
        scores.sort_unstable_by(|(x, i), (y, j)| x.total_cmp(y).then(i.cmp(j)));
        scores
    }

    fn sizes(&self) -> Vec<f64> {
        let mut sizes = vec![0.0; self.strata.len()];
        let (mut head, mut others) = (self.head.iter().peekable(), self.others.iter().peekable());
        for size in &self.strata {
            let from_head = match (head.peek(), others.peek()) {
                (Some((x, _)), Some((y, _))) => x < y,
                (first, _) => first.is_some(),
            };
            let next = if from_head { head.next() } else { others.next() };
            // There are as many scores as strata.
            let Some((_, file)) = next else { break };
            sizes[*file as usize] = *size;
        }
        sizes
    }
}

fn mean_transfer(counts: &[u64], sizes: &[f64]) -> f64 {
    let moved: f64 = counts.iter().zip(sizes).map(|(count, size)| *count as f64 * size).sum();
    moved / counts.iter().sum::<u64>() as f64
}

fn has_absurd_head(model: &Model, sizes: &[f64]) -> bool {
    let large = |size: &f64| *size >= 10.0 * model.mean_transfer;
    sizes[0] >= 3.0 * model.mean_transfer || sizes.iter().take(10).any(large)
}

/// Multiplies the sizes of each popularity band (0-97, 97-98, 98-99, 99-100 % of the requests) so
/// that the bytes of each band match the model.
fn meet_coverages(model: &Model, counts: &[u64], sizes: &mut [f64]) -> [f64; 4] {
    let ends = model.coverage.map(|c| files_for(counts, c.share)).into_iter().chain([sizes.len()]);
    let targets = model.coverage.map(|c| c.bytes).into_iter().chain([model.bytes]);
    let (mut begin, mut below) = (0, 0);
    let mut factors = [1.0; 4];
    for (factor, (end, target)) in factors.iter_mut().zip(ends.zip(targets)) {
        // In a tiny model two shares may need the same files; the later band is then empty, and its
        // bytes go to the next.
        let band = &mut sizes[begin..end.max(begin)];
        if band.is_empty() {
            continue;
        }
        *factor = target.saturating_sub(below) as f64 / band.iter().sum::<f64>();
        band.iter_mut().for_each(|size| *size *= *factor);
        (begin, below) = (end, target);
    }
    factors
}

/// The number of most requested files that receive `share` of the requests.
fn files_for(counts: &[u64], share: f64) -> usize {
    let total = counts.iter().sum::<u64>() as f64;
    let mut requests = 0;
    let reached = counts.iter().position(|count| {
        requests += count;
        requests as f64 / total >= share
    });
    reached.map_or(counts.len(), |last| last + 1)
}

/// The number of tries for the head of a full model. With fewer files each of them has more effect,
/// so smaller models, whose tries are cheaper, get more tries in proportion.
const TRIES: usize = 400;
const ALL_FILES: usize = 40_000;

/// The relative error of the mean transfer at which the search stops.
const CLOSE: f64 = 0.01;

/// The size of the smallest file in bytes.
const SMALLEST: f64 = 64.0;

/// Separates the random stream of the order from that of the sizes.
const ORDER: u64 = 0x6f72_6465_725f_6f66;
