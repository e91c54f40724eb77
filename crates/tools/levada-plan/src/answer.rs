//! The candidate that was asked for, and why no smaller one does.

use levada_types::ByteSize;
use serde::Serialize;

use crate::{evaluate::Candidate, search::Row};

/// The answer of a plan.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// Whether all aims are met.
    pub met: bool,
    /// The smallest candidate that meets them, or the one that comes nearest.
    pub row: Row,
    /// Sentences: why smaller candidates do not do, or what to set.
    pub reasons: Vec<String>,
}

/// A candidate in words.
pub fn words(candidate: &Candidate) -> String {
    let Candidate { nodes, memory, disk, policy, eviction } = candidate;
    let nodes = if *nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
    let disk = match disk {
        0 => String::new(),
        disk => format!(" and {} of disk", ByteSize(*disk)),
    };
    format!(
        "{nodes} with {} of memory{disk} each, policy {policy}, eviction {eviction}",
        ByteSize(*memory)
    )
}

/// Chooses among the rows, which are sorted by cost.
pub(crate) fn answer(rows: &[Row], excluded: usize) -> Option<Answer> {
    if let Some(at) = rows.iter().position(|row| row.missed.is_empty()) {
        let own = &rows[at].candidate;
        let before = &rows[..at];
        let less_memory = before.iter().rev().find(|row| row.candidate.nodes == own.nodes);
        let fewer_nodes = before.iter().rev().find(|row| row.candidate.nodes < own.nodes);
        let mut reasons: Vec<String> = [less_memory, fewer_nodes]
            .into_iter()
            .flatten()
            .map(|row| {
                format!("{} do not meet the aims: {}", words(&row.candidate), row.missed.join("; "))
            })
            .collect();
        if reasons.is_empty() && excluded > 0 {
            reasons.push(
                "smaller candidates have too few nodes to lose one, or cannot meet the aims as one large cache with one fast CPU"
                    .to_owned(),
            );
        } else if reasons.is_empty() {
            reasons.push(
                "there is no smaller candidate; give smaller --nodes, --memory or --disk to try"
                    .to_owned(),
            );
        }
        return Some(Answer { met: true, row: rows[at].clone(), reasons });
    }
    let nearest = rows.iter().min_by(|a, b| a.distance.total_cmp(&b.distance))?;
    let mut reasons = nearest.missed.clone();
    reasons
        .push("set more --nodes, --memory or --disk, or aims that this candidate meets".to_owned());
    Some(Answer { met: false, row: nearest.clone(), reasons })
}
