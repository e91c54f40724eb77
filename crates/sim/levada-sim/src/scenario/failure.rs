//! Checks of servers that fail and return.

use levada_types::format_duration;

use super::{Arrivals, Failure, Problems, Scenario};

impl Scenario {
    pub(super) fn check_failures(&self, problems: &mut Problems) {
        let servers = &self.servers;
        problems.add_if(servers.tries == 0, "servers.tries", "a request is tried once at least");
        if servers.failure.is_empty() {
            return;
        }
        for (key, wrong, what) in [
            (
                "workload.arrivals",
                self.workload.arrivals == Arrivals::Closed,
                "a closed loop sends a lost request again at once: choose `ramp`, `constant` or \
                 `recorded`, or leave `servers.failure` out",
            ),
            (
                "policy.name",
                self.has_global_memory(),
                "its servers read from each other's memory, which a failure takes away: choose another \
                 policy, or leave `servers.failure` out",
            ),
            (
                "servers.failure",
                self.cap.is_some() || self.regions.is_some(),
                "nothing fails in `cap` and `regions`: leave it out",
            ),
        ] {
            problems.add_if(wrong, key, what);
        }
        for (at, failure) in servers.failure.iter().enumerate() {
            for what in failure.problems(servers.count) {
                problems.add(format!("servers.failure[{at}]"), what);
            }
        }
    }
}

impl Failure {
    fn problems(&self, count: usize) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(number) = self.servers.iter().find(|number| **number as usize >= count) {
            let last = count.saturating_sub(1);
            problems.push(format!(
                "there is no server {number}: `servers` are numbers from 0 to {last}"
            ));
        }
        if self.r#for.0.is_zero() {
            problems.push("`for` must be a time above 0, such as \"10s\"".to_owned());
        }
        let Some(every) = self.every else { return problems };
        let turns = if self.servers.is_empty() { count } else { self.servers.len() };
        let round = every.0.saturating_mul(u32::try_from(turns).unwrap_or(u32::MAX));
        if every.0.is_zero() {
            problems.push("`every` must be a time above 0, such as \"20s\"".to_owned());
        } else if self.r#for.0 >= round {
            problems.push(format!(
                "a server is still away when it is its turn again, after {}: set a shorter `for`, or a \
                 longer `every`",
                format_duration(round)
            ));
        }
        problems
    }
}
