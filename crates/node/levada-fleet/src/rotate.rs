//! Another secret for the cluster, in three rounds (docs/operate/change.md): nodes accept both, nodes sign with the new
//! one, nodes accept the new one only. A round begins when every node uses the secrets of the former.

use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    apply::{ApplyError, lock, lock_lost},
    model::{ClusterSecrets, keys},
    seal::random_text,
    state::State,
};

/// How a change of the secret ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rotated {
    /// All nodes use the new one only.
    Done,
    /// These nodes do not use the secrets of a round yet. Both secrets are good until the command is run again.
    Missing(Vec<String>),
}

/// Changes the secret, or goes on where a former command has stopped. Nodes may take so long in each round.
///
/// # Errors
/// If the state does not answer, or another command holds the lock.
pub async fn rotate(state: &State, from: &str, patience: Duration) -> Result<Rotated, ApplyError> {
    let lease = lock(state, from).await?;
    let outcome = tokio::select! {
        outcome = rounds(state, from, patience) => outcome,
        () = lock_lost(state, &lease) => Err(ApplyError::LockLost),
    };
    let _ = state.revoke(&lease).await;
    outcome
}

async fn rounds(state: &State, from: &str, patience: Duration) -> Result<Rotated, ApplyError> {
    let mut is_first = true;
    loop {
        let followed = state.followed().await?;
        let present = followed.secrets;
        let names: Vec<_> = followed.members.iter().map(|member| member.name.clone()).collect();
        let missing = until_used(state, &present, names, patience).await?;
        if !missing.is_empty() {
            return Ok(Rotated::Missing(missing));
        }
        if present.round == 0 && !is_first {
            return Ok(Rotated::Done);
        }
        is_first = false;
        let next = next_round(&present, random_text::<24>());
        let what = format!("the secret of the cluster changes: round {}", present.round + 1);
        let changes = vec![state.sealed(&next), state.audited(from, what)];
        if !state.write(&[(keys::SECRETS, followed.secrets_changed)], changes).await? {
            return Err(ApplyError::Moved);
        }
    }
}

/// The secrets of the next round. `fresh` is the new one, if the change begins.
fn next_round(present: &ClusterSecrets, fresh: String) -> ClusterSecrets {
    let ClusterSecrets { secrets, round } = present;
    match (round, &secrets[..]) {
        (1, [old, new, ..]) => ClusterSecrets { secrets: vec![new.clone(), old.clone()], round: 2 },
        (2, [new, ..]) => ClusterSecrets { secrets: vec![new.clone()], round: 0 },
        (_, rest) => {
            let secrets = rest.iter().take(1).cloned().chain([fresh]).collect();
            ClusterSecrets { secrets, round: 1 }
        }
    }
}

/// Waits until these nodes use the secrets; the names of those that do not in time.
async fn until_used(
    state: &State,
    secrets: &ClusterSecrets,
    names: Vec<String>,
    patience: Duration,
) -> Result<Vec<String>, ApplyError> {
    let (began, digest) = (Instant::now(), secrets.digest());
    loop {
        let (revision, alive) = state.alive().await?;
        let uses = |name: &String| alive.get(name).is_some_and(|node| node.secrets == digest);
        let missing: Vec<_> = names.iter().filter(|name| !uses(name)).cloned().collect();
        let left = patience.saturating_sub(began.elapsed());
        if missing.is_empty() || left.is_zero() {
            return Ok(missing);
        }
        state.wait(keys::ALIVE, revision, left.min(Duration::from_secs(5))).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_shares_a_secret_with_the_one_before() {
        let mut secrets = ClusterSecrets { secrets: vec!["old".to_owned()], round: 0 };
        let mut rounds = Vec::new();
        for _ in 0..3 {
            secrets = next_round(&secrets, "new".to_owned());
            rounds.push(format!("{} {}", secrets.round, secrets.secrets.join(" ")));
        }
        assert_eq!(rounds, ["1 old new", "2 new old", "0 new"]);
    }
}
