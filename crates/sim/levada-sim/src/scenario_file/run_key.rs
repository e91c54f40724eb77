//! The identity of a run: equal keys mean equal outcomes.

use std::fs;

use crate::Scenario;
use levada_types::hash64;

/// Hash of the sources that determine an outcome (build.rs). Runs of another version of the simulator
/// have other keys.
pub const SIMULATOR: &str = env!("LEVADA_SIM_CODE");

/// The key of a run: a hash of the scenario, of the contents of the files that it reads, and of the
/// simulator's code.
pub fn run_key(scenario: &Scenario) -> String {
    let mut text = serde_json::to_string(scenario).unwrap_or_default();
    let files = [Some(&scenario.workload.trace), scenario.topology.file.as_ref()];
    for path in files.into_iter().flatten() {
        // A generated trace has no file; a file that cannot be read is an error later.
        if let Ok(bytes) = fs::read(path) {
            text += &format!("\n{:016x}", hash64(&bytes));
        }
    }
    format!("{:016x}", hash64(format!("{SIMULATOR}\n{text}").as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_scenarios() {
        let scenario = Scenario::default();
        let other = scenario.with([("servers.count", "16")]).unwrap();
        assert_eq!(run_key(&scenario), run_key(&scenario.clone()));
        assert_ne!(run_key(&scenario), run_key(&other));
    }
}
