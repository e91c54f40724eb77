//! The limit of open files compared with the connections that a node may have.

use rustix::process::{Resource, getrlimit};

use crate::Finding;

pub(crate) fn check(connections: u64) -> Finding {
    let limit = getrlimit(Resource::Nofile);
    judge(limit.current, limit.maximum, connections)
}

/// `None` is no limit. A node raises its soft limit to the hard one.
fn judge(soft: Option<u64>, hard: Option<u64>, connections: u64) -> Finding {
    const CHECK: &str = "open files";
    let words =
        |limit: Option<u64>| limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
    let needed = connections.saturating_mul(2);
    let raised = if soft == hard { "" } else { "; the node raises the soft limit itself" };
    let seen = format!("soft limit {}, hard limit {}{raised}", words(soft), words(hard));
    let remedy = format!(
        "LimitNOFILE={needed} in the unit (systemctl edit levada), ulimit -n {needed} in the shell, or a lower `limits.connections`"
    );
    match hard {
        Some(hard) if hard < connections => Finding::fail(CHECK, seen)
            .meaning(format!(
                "`limits.connections` is {connections}, and each needs an open file: beyond {hard}, clients wait in vain"
            ))
            .remedy(remedy),
        Some(hard) if hard < needed => Finding::warn(CHECK, seen)
            .meaning(format!(
                "`limits.connections` is {connections}, and each client may need a second connection to a server: {needed} open files"
            ))
            .remedy(remedy),
        _ => Finding::ok(CHECK, seen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn hard_limit_is_compared_with_two_files_per_connection() {
        for (soft, hard, level) in [
            (Some(1024), None, Level::Ok),
            (Some(1024), Some(200), Level::Ok),
            (Some(1024), Some(199), Level::Warn),
            (Some(99), Some(99), Level::Fail),
        ] {
            assert_eq!(judge(soft, hard, 100).level, level, "{hard:?}");
        }
        assert!(judge(Some(64), Some(99), 100).remedy.unwrap().contains("ulimit -n 200"));
    }
}
