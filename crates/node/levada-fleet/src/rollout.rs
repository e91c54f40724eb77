//! The steps of a roll-out, and whether the nodes that try a revision are worse than the others. Pure.

use std::collections::BTreeMap;

use crate::model::{Alive, Health, Member};

/// The most that a canary may be worse than the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// The share of 5xx answers beyond that of the others, from 0 to 1.
    pub failed: f64,
    /// The 90th percentile of response times, as a multiple of that of the others.
    pub slower: f64,
    /// The seconds by which it must be longer at least: the times of short answers differ by chance.
    pub slower_seconds: f64,
    /// The requests that a canary must have answered before it is judged.
    pub requests: u64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { failed: 0.02, slower: 2.0, slower_seconds: 0.02, requests: 20 }
    }
}

/// The nodes that try a revision in each step, each step with those of the former: one node, then a share of all, region
/// by region. The nodes that are missing in the last step follow with the head.
pub(crate) fn steps(members: &[Member], share: f64) -> Vec<Vec<String>> {
    let mut by_region: BTreeMap<Option<&str>, Vec<&str>> = BTreeMap::new();
    for member in members {
        by_region.entry(member.region.as_deref()).or_default().push(&member.name);
    }
    by_region.values_mut().for_each(|names| names.sort_unstable());
    let Some(first) = by_region.values().find_map(|names| names.first()) else { return Vec::new() };
    let mut steps = vec![vec![(*first).to_owned()]];
    let mut trying = steps[0].clone();
    for names in by_region.values() {
        let count = (names.len() as f64 * share).ceil() as usize;
        trying.extend(names.iter().take(count).map(|name| (*name).to_owned()));
        trying.sort();
        trying.dedup();
        if trying.len() < members.len() && steps.last() != Some(&trying) {
            steps.push(trying.clone());
        }
    }
    // A fleet of one node has no canary.
    steps.retain(|step| step.len() < members.len());
    steps
}

/// Why the nodes in `trying` are worse than the others; `None` if they are not, or have too few requests to say so.
pub(crate) fn worse(
    alive: &BTreeMap<String, Alive>,
    trying: &[String],
    tolerance: &Tolerance,
) -> Option<String> {
    let of = |tries: bool| {
        let nodes = alive.iter().filter(move |(name, _)| trying.contains(name) == tries);
        nodes.filter_map(|(name, node)| Some((name, node.health?)))
    };
    let others = total(of(false).map(|(_, health)| health));
    for (name, health) in of(true).filter(|(_, health)| health.requests >= tolerance.requests) {
        let share = |health: &Health| health.failed as f64 / health.requests.max(1) as f64;
        let (own, usual) = (share(&health), share(&others));
        if own > usual + tolerance.failed {
            return Some(format!(
                "{name} answers {:.1} % of its requests with 5xx, the others {:.1} %",
                100.0 * own,
                100.0 * usual
            ));
        }
        if let (Some(own), Some(usual)) = (health.p90, others.p90)
            && others.requests >= tolerance.requests
            && own > usual * tolerance.slower
            && own > usual + tolerance.slower_seconds
        {
            return Some(format!(
                "90 % of the answers of {name} take up to {:.0} ms, those of the others {:.0} ms",
                1e3 * own,
                1e3 * usual
            ));
        }
    }
    None
}

/// The requests of several nodes. The node in the middle stands for their time: the answers that a canary is slow with
/// reach the clients of its peers, too.
fn total(nodes: impl Iterator<Item = Health>) -> Health {
    let nodes: Vec<_> = nodes.collect();
    let mut times: Vec<_> = nodes.iter().filter_map(|node| node.p90).collect();
    times.sort_by(f64::total_cmp);
    Health {
        requests: nodes.iter().map(|node| node.requests).sum(),
        failed: nodes.iter().map(|node| node.failed).sum(),
        p90: times.get(times.len() / 2).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(regions: &[(&str, usize)]) -> Vec<Member> {
        let nodes = |(region, count): &(&str, usize)| {
            let region = (*region).to_owned();
            (1..=*count).map(move |number| Member {
                name: format!("{region}-{number}"),
                region: Some(region.clone()),
                ..Member::default()
            })
        };
        regions.iter().flat_map(nodes).collect()
    }

    #[test]
    fn one_node_tries_first_then_a_share_region_by_region() {
        let steps = steps(&members(&[("eu", 4), ("us", 4), ("ap", 4)]), 0.25);
        let steps: Vec<String> = steps.iter().map(|step| step.join(" ")).collect();
        assert_eq!(steps, ["ap-1", "ap-1 eu-1", "ap-1 eu-1 us-1"]);
    }

    #[test]
    fn fleet_of_one_node_has_no_canary() {
        assert!(steps(&members(&[("eu", 1)]), 0.5).is_empty());
        assert!(steps(&[], 0.5).is_empty());
        assert_eq!(steps(&members(&[("eu", 2)]), 1.0), [["eu-1"]]);
    }

    fn alive(nodes: &[(&str, u64, u64, f64)]) -> BTreeMap<String, Alive> {
        let node = |(name, requests, failed, p90): &(&str, u64, u64, f64)| {
            let health = Health { requests: *requests, failed: *failed, p90: Some(*p90) };
            ((*name).to_owned(), Alive { health: Some(health), ..Alive::default() })
        };
        nodes.iter().map(node).collect()
    }

    #[test]
    fn canary_is_compared_with_the_others() {
        let canary = ["a".to_owned()];
        let judged = |nodes: &[_]| worse(&alive(nodes), &canary, &Tolerance::default());
        assert_eq!(judged(&[("a", 100, 1, 0.01), ("b", 100, 0, 0.01)]), None);
        let failing = judged(&[("a", 100, 30, 0.01), ("b", 100, 1, 0.01)]).unwrap();
        assert_eq!(failing, "a answers 30.0 % of its requests with 5xx, the others 1.0 %");
        // An origin that fails for all of them is not the fault of a revision.
        assert_eq!(judged(&[("a", 100, 30, 0.01), ("b", 100, 30, 0.01)]), None);
        let slow = judged(&[("a", 100, 0, 0.5), ("b", 100, 0, 0.1)]).unwrap();
        assert_eq!(slow, "90 % of the answers of a take up to 500 ms, those of the others 100 ms");
        assert_eq!(judged(&[("a", 100, 0, 0.010), ("b", 100, 0, 0.001)]), None);
        assert_eq!(judged(&[("a", 5, 5, 0.01), ("b", 100, 0, 0.01)]), None);
    }
}
