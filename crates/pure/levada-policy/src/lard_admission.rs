//! LARD's admission limit: the most requests that a front-end leaves outstanding at its servers (ASPLOS'98
//! Sec. 2.3). Further requests wait in the front-end.

use std::collections::BTreeMap;

use crate::{ParameterValue, Parameters, find, lard};

/// LARD's S for `nodes` of equal weight: (n - 1) x T_high + T_low - 1.
///
/// With S outstanding, n - 1 nodes can be at T_high while the last has T_low - 1. So if one node is
/// above T_high, another is below T_low, and all nodes can be above T_low.
pub const fn lard_admission_limit(nodes: usize, t_low: u64, t_high: u64) -> u64 {
    ((nodes as u64).saturating_sub(1) * t_high + t_low).saturating_sub(1)
}

/// LARD's S for nodes whose thresholds are multiples of their weights; the last node is the lightest.
/// For weights of 1 it is the published S.
pub fn weighted_lard_admission_limit(weights: &[f64], t_low: u64, t_high: u64) -> u64 {
    if weights.iter().all(|weight| *weight == 1.0) {
        return lard_admission_limit(weights.len(), t_low, t_high);
    }
    let (sum, least) = weights.iter().fold((0.0, f64::MAX), |(s, l), w| (s + w, w.min(l)));
    ((sum - least) * t_high as f64 + least * t_low as f64 - 1.0).max(0.0) as u64
}

/// T_low and T_high of a policy that has both, if at least one is given; `None` for a policy whose front-end admits
/// without them.
pub fn lard_thresholds(
    policy: &str,
    given: &BTreeMap<String, ParameterValue>,
) -> Option<(u64, u64)> {
    let entry = find(policy)?;
    let parameters = Parameters::check(entry.name, entry.parameters, given).ok()?;
    let has_both =
        ["t_low", "t_high"].iter().all(|name| entry.parameters.iter().any(|p| p.name == *name));
    if has_both { lard::given_thresholds(&parameters) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admission_leaves_one_node_below_t_low() {
        assert_eq!(lard_admission_limit(8, 25, 65), 479);
        assert_eq!(lard_admission_limit(1, 25, 65), 24);
        assert_eq!(lard_admission_limit(0, 25, 65), 24);
    }

    #[test]
    fn lard_admits_as_many_as_the_paper_says() {
        assert_eq!(weighted_lard_admission_limit(&[1.0; 4], 25, 65), 3 * 65 + 24);
        assert_eq!(weighted_lard_admission_limit(&[1.0], 25, 65), 24);
        // Two of weight 2 are as four of weight 1, but for the last.
        assert_eq!(weighted_lard_admission_limit(&[2.0, 2.0], 25, 65), 2 * 65 + 2 * 25 - 1);
        let given = BTreeMap::from([("t_high".to_owned(), ParameterValue::Integer(65))]);
        assert_eq!(lard_thresholds("lard/r", &given), Some((25, 65)));
        assert_eq!(lard_thresholds("lard/r", &BTreeMap::new()), None);
        assert_eq!(lard_thresholds("fdr", &BTreeMap::new()), None);
    }
}
