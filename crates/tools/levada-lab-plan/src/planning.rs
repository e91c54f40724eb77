//! The plans, by the code of `levada plan` with its options.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use levada_plan::{Candidate, Plan, PlanArgs, plan};
use tokio::task::spawn_blocking;

/// Plans twice from the logs: the logged cluster, and one of fewer nodes that finds as much in memory, whose
/// configurations are written into the directory.
///
/// # Errors
/// If nothing can be planned from the logs.
pub(crate) async fn plans(
    logged: &Candidate,
    logs: &[PathBuf],
    admins: &[SocketAddr],
    directory: &Path,
) -> anyhow::Result<(Plan, Plan)> {
    let same = of_cluster(logged, logs, admins).await?;
    let aim = same.answer.row.figures.hit.mean - LESS;
    let planned = by_options(logs, admins, other(logged, aim, directory)).await?;
    Ok((same, planned))
}

/// The figures of this cluster by its own logs.
///
/// # Errors
/// If nothing can be planned from the logs.
pub(crate) async fn of_cluster(
    cluster: &Candidate,
    logs: &[PathBuf],
    admins: &[SocketAddr],
) -> anyhow::Result<Plan> {
    by_options(logs, admins, same(cluster)).await
}

async fn by_options(
    logs: &[PathBuf],
    admins: &[SocketAddr],
    own: Vec<String>,
) -> anyhow::Result<Plan> {
    let files = logs.iter().map(|log| log.display().to_string());
    let nodes: Vec<_> = admins.iter().map(ToString::to_string).collect();
    let common = [format!("--node={}", nodes.join(",")), "--client-latency=0ms".to_owned()];
    let args = PlanArgs::from_words(files.chain(common).chain(own))?;
    spawn_blocking(move || plan(&args)).await?.context("nothing can be planned")
}

fn same(logged: &Candidate) -> Vec<String> {
    let Candidate { nodes, memory, policy, eviction, .. } = logged;
    vec![
        format!("--nodes={nodes}"),
        format!("--memory={memory}B"),
        format!("--policy={policy}"),
        format!("--eviction={eviction}"),
    ]
}

/// Fewer nodes, with the same memory or more.
fn other(logged: &Candidate, aim: f64, directory: &Path) -> Vec<String> {
    let Candidate { nodes, memory, .. } = logged;
    let counts: Vec<_> = (nodes.div_ceil(2)..*nodes).map(|count| count.to_string()).collect();
    let sizes = [1, 2, 4].map(|times| format!("{}B", memory * times));
    vec![
        format!("--nodes={}", counts.join(",")),
        format!("--memory={}", sizes.join(",")),
        format!("--slo=hit={:.4}", aim.max(0.0)),
        format!("--config={}", written(directory).display()),
    ]
}

/// The configurations that the second plan wrote.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn configurations(directory: &Path, nodes: usize) -> anyhow::Result<Vec<String>> {
    let file = |number| written(directory).join(format!("node-{number}/levada.toml"));
    let read = |file: PathBuf| {
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    };
    (1..=nodes).map(|number| read(file(number))).collect()
}

fn written(directory: &Path) -> PathBuf {
    directory.join("planned")
}

/// The planned cluster may find so much less than the logged one.
const LESS: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planned_cluster_has_fewer_nodes() {
        let logged = |nodes| Candidate {
            nodes,
            memory: 1 << 20,
            disk: 0,
            policy: "adaptive".to_owned(),
            eviction: "gdsf",
        };
        let words = |nodes| other(&logged(nodes), 0.85, Path::new("/tmp")).join(" ");
        assert!(
            words(4).starts_with("--nodes=2,3 --memory=1048576B,2097152B,4194304B --slo=hit=0.85")
        );
        assert!(words(2).starts_with("--nodes=1 "));
    }
}
