//! Which candidates are simulated: those that one large cache of their whole memory does not exclude.

use std::time::Instant;

use levada_cache::eviction::{DEFAULT_EVICTION, find_eviction};
use levada_curves::{CacheCurve, CurveReport};
use levada_sim::Library;
use serde::Serialize;

use crate::{
    aims::Aims,
    costs::Prices,
    evaluate::{Candidate, Figures, Surroundings, evaluate},
    one_cache::hit,
    peak::Load,
    resume::{Finished, key},
    watch::Progress,
};

/// A simulated candidate.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The candidate.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// Its figures at the peak.
    #[serde(flatten)]
    pub figures: Figures,
    /// With fewer nodes, as `--survive` says.
    pub(crate) survived: Option<Figures>,
    /// Money, if prices are given.
    pub(crate) price: Option<f64>,
    /// The aims that it does not meet.
    pub(crate) missed: Vec<String>,
    /// How far it is from them, as a sum of parts of the aims.
    pub(crate) distance: f64,
}

/// The questions of a plan.
pub(crate) struct Question<'a> {
    pub(crate) nodes: &'a [usize],
    pub(crate) memory: &'a [u64],
    pub(crate) disk: &'a [u64],
    pub(crate) policies: &'a [String],
    pub(crate) aims: Aims,
    pub(crate) survive: usize,
    pub(crate) prices: Option<Prices>,
}

/// The simulated candidates, the cheapest first, and the number of those that were excluded.
pub(crate) fn search(
    question: &Question<'_>,
    loads: &[(Load, CurveReport)],
    library: &mut Library,
    around: &Surroundings,
    finished: &mut Finished,
    progress: &mut Progress<'_>,
) -> anyhow::Result<(Vec<Row>, usize)> {
    let all = candidates(question, loads);
    let total = all.len();
    let mut hopeful: Vec<Candidate> =
        all.iter().filter(|one| could_do(one, question, loads, around)).cloned().collect();
    // Impossible aims: the largest candidates show the nearest that is possible.
    if hopeful.is_empty() {
        let most = all.iter().map(|candidate| candidate.cache(candidate.nodes)).max();
        hopeful = all.into_iter().filter(|c| Some(c.cache(c.nodes)) == most).collect();
    }
    let begin = Instant::now();
    let mut rows = Vec::new();
    for (done, candidate) in hopeful.iter().enumerate() {
        progress.candidates(done, hopeful.len(), begin)?;
        let mut figures_of = |nodes: usize| -> anyhow::Result<Figures> {
            let fewer = Candidate { nodes, ..candidate.clone() };
            let key = key(&fewer, loads, around);
            if let Some(figures) = finished.get(&key) {
                return Ok(figures);
            }
            let figures = evaluate(&fewer, loads, library, around, progress)?;
            finished.keep(key, figures)?;
            Ok(figures)
        };
        let figures = figures_of(candidate.nodes)?;
        let left = candidate.nodes.checked_sub(question.survive).filter(|left| *left > 0);
        let survived = match left {
            Some(left) if question.survive > 0 => Some(figures_of(left)?),
            _ => None,
        };
        rows.push(row(candidate, figures, survived, question));
    }
    let size = |row: &Row| (row.candidate.nodes, row.candidate.memory, row.candidate.disk);
    let price = |row: &Row| row.price.unwrap_or(0.0);
    rows.sort_by(|a, b| price(a).total_cmp(&price(b)).then(size(a).cmp(&size(b))));
    let excluded = total - rows.len();
    Ok((rows, excluded))
}

fn row(
    candidate: &Candidate,
    figures: Figures,
    survived: Option<Figures>,
    question: &Question<'_>,
) -> Row {
    let mut missed = question.aims.missed(&figures);
    if let Some(survived) = &survived {
        let fewer = question.aims.missed(survived).into_iter();
        missed
            .extend(fewer.map(|(text, by)| (format!("without {}: {text}", question.survive), by)));
    } else if question.survive > 0 {
        missed.push((format!("no node is left without {}", question.survive), 10.0));
    }
    let price = question.prices.map(|prices| prices.of(candidate, figures.origin.mean));
    Row {
        candidate: candidate.clone(),
        figures,
        survived,
        price,
        distance: missed.iter().map(|(_, by)| by).sum(),
        missed: missed.into_iter().map(|(text, _)| text).collect(),
    }
}

/// All combinations, each with the eviction whose curve is the highest.
fn candidates(question: &Question<'_>, loads: &[(Load, CurveReport)]) -> Vec<Candidate> {
    let mut all = Vec::new();
    for &nodes in question.nodes {
        for (memory, disk) in tiers(question) {
            let mut candidate = Candidate {
                nodes,
                memory,
                disk,
                policy: String::new(),
                eviction: DEFAULT_EVICTION.name,
            };
            let cache = candidate.cache(nodes);
            let hit = |curve: &&CacheCurve| hit(curve, cache);
            let curves = loads.first().map_or(&[][..], |(_, report)| &report.curves);
            let best = curves.iter().max_by(|a, b| hit(a).total_cmp(&hit(b)));
            if let Some(best) = best.and_then(|curve| find_eviction(&curve.eviction)) {
                candidate.eviction = best.name;
            }
            // With one node there is nothing to choose.
            let policies = if nodes == 1 { &question.policies[..1] } else { question.policies };
            let with = |policy: &String| Candidate { policy: policy.clone(), ..candidate.clone() };
            all.extend(policies.iter().map(with));
        }
    }
    all
}

/// All sizes of memory and disk. What is in memory is on the disk, too: it is no smaller.
fn tiers(question: &Question<'_>) -> impl Iterator<Item = (u64, u64)> {
    let with = |memory: &u64| question.disk.iter().map(|disk| (*memory, *disk)).collect::<Vec<_>>();
    let all = question.memory.iter().flat_map(with);
    all.filter(|(memory, disk)| *disk == 0 || disk >= memory)
}

/// Whether one cache of all memory and disk, and all CPUs as one, could meet the aims. Two points of the hit ratio are left
/// for the error of the curve.
fn could_do(
    candidate: &Candidate,
    question: &Question<'_>,
    loads: &[(Load, CurveReport)],
    around: &Surroundings,
) -> bool {
    const ERROR: f64 = 0.02;
    let left = candidate.nodes.saturating_sub(question.survive);
    let most = question.aims.cpu.unwrap_or(1.0).min(1.0);
    let seconds = around.costs.seconds(around.mean_bytes, left);
    left > 0
        && loads.iter().all(|(load, report)| {
            let mut curves = report.curves.iter();
            let curve = curves.find(|curve| curve.eviction == candidate.eviction);
            let hit = curve.map_or(1.0, |curve| hit(curve, candidate.cache(left)));
            load.rate * seconds <= most * left as f64
                && question.aims.hit.is_none_or(|aim| hit + ERROR >= aim)
        })
}
