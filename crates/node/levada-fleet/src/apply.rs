//! Brings a revision to all nodes: a lock, the files, a canary, the head, and the wait until all nodes use it.
//!
//! The roll-out and the lock live as long as a lease that this command renews. If it is cut in the middle, the lease
//! ends, and the nodes that tried the revision go back to the head by themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, mem,
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    content,
    directory::Directory,
    model::{Alive, Head, Manifest, Rollout, keys},
    prune::prune,
    rollout::{Tolerance, steps, worse},
    state::{Followed, State, digest, put},
    store::{Change, StoreError},
};

/// How a revision is brought to the nodes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The user and the machine, for the audit.
    pub from: String,
    /// Why, in the words of the person.
    pub note: String,
    /// The canary; `None` brings the revision to all nodes at once.
    pub canary: Option<Canary>,
    /// How long the nodes may take to use it.
    pub patience: Duration,
    /// The head ([`Followed::version`]) that the caller saw: nothing is applied on another one. `None` for any.
    pub base: Option<String>,
    /// The number of revisions that stay in the state, in addition to those that nodes use.
    pub kept: usize,
}

/// How some of the nodes try a revision first.
#[derive(Clone, Copy, Debug)]
pub struct Canary {
    /// The share of the nodes of each region, from 0 to 1, that try it after the first node.
    pub share: f64,
    /// How long each step is watched.
    pub hold: Duration,
    /// The most that they may be worse.
    pub tolerance: Tolerance,
}

/// A step of an apply, for the person who waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// The files are in the state.
    Published(u64),
    /// These nodes try it.
    Trying(Vec<String>),
    /// It is the head.
    Head(u64),
    /// The clock of a node is ahead of that of the state by so many seconds, or behind if they are negative.
    Clock(String, i64),
    /// So many old revisions have left the state.
    Pruned(usize),
}

/// How an apply ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Applied {
    /// All nodes use the revision.
    Everywhere {
        /// Its number.
        number: u64,
        /// The nodes.
        nodes: usize,
    },
    /// It is the head, and these nodes do not use it yet, each with the reason.
    Missing {
        /// Its number.
        number: u64,
        /// Names and reasons.
        nodes: Vec<(String, String)>,
    },
    /// The canary went back, for this reason.
    RolledBack {
        /// The number that was not used.
        number: u64,
        /// Why.
        why: String,
    },
}

/// Why nothing was applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The state does not answer as it should.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another one applies.
    #[error(
        "{0} applies at this moment: wait until that is over; a command that was cut loses its lock within {LOCK_SECONDS} s"
    )]
    Locked(String),
    /// The lock was lost: the state was away for too long.
    #[error(
        "the lock was lost, since the state was away for too long: nothing has changed, apply again"
    )]
    LockLost,
    /// Another command moved the head.
    #[error("the head was moved by another command: apply again")]
    Moved,
}

/// A command that was cut loses its lock within so many seconds.
const LOCK_SECONDS: u64 = 10;
const LOCK_RENEWAL: Duration = Duration::from_secs(3);

/// Applies a directory that was checked. `said` is called with each step.
///
/// # Errors
/// If the state does not answer, or another command applies.
pub async fn apply(
    state: &State,
    directory: &Directory,
    plan: &Plan,
    said: &mut (dyn FnMut(Progress) + Send),
) -> Result<Applied, ApplyError> {
    let lease = lock(state, &plan.from).await?;
    let outcome = tokio::select! {
        outcome = locked(state, directory, plan, &lease, said) => outcome,
        () = lock_lost(state, &lease) => Err(ApplyError::LockLost),
    };
    // The roll-out goes with it.
    let _ = state.revoke(&lease).await;
    outcome
}

pub(crate) async fn lock(state: &State, from: &str) -> Result<String, ApplyError> {
    let lease = state.grant(LOCK_SECONDS).await?;
    let owner = format!("{from} with the token {}", state.token);
    let change = Change::put(keys::APPLY_LOCK, owner).leased(&lease);
    if state.write(&[(keys::APPLY_LOCK, 0)], vec![change]).await? {
        return Ok(lease);
    }
    state.revoke(&lease).await?;
    let owner = state.get(keys::APPLY_LOCK).await?.map(|entry| entry.value.0);
    let owner = owner.map(|owner| String::from_utf8_lossy(&owner).into_owned());
    Err(ApplyError::Locked(owner.unwrap_or_else(|| "another command".to_owned())))
}

/// Renews the lock; returns when it is lost.
pub(crate) async fn lock_lost(state: &State, lease: &str) {
    let mut renewed = Instant::now();
    loop {
        tokio::time::sleep(LOCK_RENEWAL).await;
        match state.renew(lease).await {
            Ok(true) => renewed = Instant::now(),
            Ok(false) => return,
            Err(_) if renewed.elapsed() > Duration::from_secs(LOCK_SECONDS) => return,
            Err(_) => {}
        }
    }
}

async fn locked(
    state: &State,
    directory: &Directory,
    plan: &Plan,
    lease: &str,
    said: &mut (dyn FnMut(Progress) + Send),
) -> Result<Applied, ApplyError> {
    let seen = Seen::of(state).await?;
    let followed = &seen.followed;
    if plan.base.as_ref().is_some_and(|base| *base != followed.version()) {
        return Err(ApplyError::Moved);
    }
    let manifest = publish(state, directory, plan, &seen).await?;
    let head = Head { number: manifest.number, digest: digest(&manifest) };
    let key = keys::revision(head.number);
    let (mut unchanged, mut changes) = (vec![(&*key, 0)], vec![put(&key, &manifest)]);
    // A fleet without a revision serves nothing that could become worse.
    if let Some(canary) = plan.canary.filter(|_| followed.head.is_some()) {
        if !state.write(&mem::take(&mut unchanged), mem::take(&mut changes)).await? {
            return Err(ApplyError::Moved);
        }
        said(Progress::Published(head.number));
        for trying in steps(&followed.members, canary.share) {
            said(Progress::Trying(trying.clone()));
            if let Err(why) = try_on(state, &head, &trying, canary, plan, lease, said).await? {
                state
                    .write(
                        &[],
                        vec![
                            Change::remove(keys::ROLLOUT),
                            state.audited(
                                &plan.from,
                                format!("revision {} rolled back: {why}", head.number),
                            ),
                        ],
                    )
                    .await?;
                return Ok(Applied::RolledBack { number: head.number, why });
            }
        }
    }
    // Without a canary the revision comes with the head: the state may be far away.
    let comes_along = !changes.is_empty();
    unchanged.push((keys::HEAD, followed.head_changed));
    changes.push(put(keys::HEAD, &head));
    changes.push(Change::remove(keys::ROLLOUT));
    changes.push(state.audited(&plan.from, format!("applied revision {}", head.number)));
    if !state.write(&unchanged, changes).await? {
        return Err(ApplyError::Moved);
    }
    if comes_along {
        said(Progress::Published(head.number));
    }
    said(Progress::Head(head.number));
    let names: Vec<_> = followed.members.iter().map(|member| member.name.clone()).collect();
    let missing = until_active(state, &head, &names, plan.patience, said).await?;
    // Another apply removes what this one cannot.
    if seen.revisions.len() >= plan.kept
        && let Ok(Some(count)) = pruned(state, &head, plan.kept).await
    {
        said(Progress::Pruned(count));
    }
    let (number, nodes) = (head.number, names.len());
    match missing.is_empty() {
        true => Ok(Applied::Everywhere { number, nodes }),
        false => Ok(Applied::Missing { number, nodes: missing }),
    }
}

/// Removes old revisions, but none that a node uses; how many, if any.
async fn pruned(state: &State, head: &Head, kept: usize) -> Result<Option<usize>, StoreError> {
    let (_, alive) = state.alive().await?;
    let in_use = alive.values().map(|node| node.revision).chain([head.number]);
    let in_use: BTreeSet<u64> = in_use.collect();
    Ok(Some(prune(state, kept, &in_use).await?).filter(|count| *count > 0))
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Published(number) => write!(f, "revision {number} is in the state"),
            Self::Trying(nodes) => write!(f, "tried by {}", nodes.join(", ")),
            Self::Head(number) => write!(f, "revision {number} is the head"),
            Self::Clock(node, ahead) => {
                let side = if *ahead > 0 { "ahead of" } else { "behind" };
                let seconds = ahead.unsigned_abs();
                write!(f, "warning: the clock of {node} is {seconds} s {side} the state's")
            }
            Self::Pruned(1) => f.write_str("an old revision has left the state"),
            Self::Pruned(count) => write!(f, "{count} old revisions have left the state"),
        }
    }
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everywhere { number, nodes } => {
                write!(f, "revision {number} is active on all {nodes} nodes")
            }
            Self::Missing { number, nodes } => {
                write!(f, "revision {number} is the head; not active on:")?;
                nodes.iter().try_for_each(|(name, why)| write!(f, "\n  {name}: {why}"))
            }
            Self::RolledBack { number, why } => write!(
                f,
                "revision {number} went back: {why}\nthe nodes that tried it go back to the head; nothing else has changed"
            ),
        }
    }
}

/// The state at one moment.
pub struct Seen {
    /// The keys that nodes follow.
    pub followed: Followed,
    /// The nodes that are alive.
    pub alive: BTreeMap<String, Alive>,
    /// The revisions, oldest first.
    pub revisions: Vec<Manifest>,
}

impl Seen {
    /// Looks at it. A state may be far away: the questions do not wait for each other.
    ///
    /// # Errors
    /// If the state does not answer.
    pub async fn of(state: &State) -> Result<Self, StoreError> {
        let (followed, alive, revisions) =
            tokio::try_join!(state.followed(), state.alive(), state.revisions())?;
        Ok(Self { followed, alive: alive.1, revisions })
    }

    /// The highest number of a head that a node has seen.
    pub fn highest(&self) -> u64 {
        self.alive.values().map(|node| node.seen).max().unwrap_or(0)
    }

    /// The revision of this number, or the last one whose files differ from those of the head.
    pub fn earlier(&self, number: Option<u64>) -> Option<&Manifest> {
        let head = self.head()?;
        match number {
            Some(number) => self.revisions.iter().find(|one| one.number == number),
            None => {
                let earlier = self.revisions.iter().filter(|one| one.number < head.number);
                earlier.rev().find(|one| head.files != one.files)
            }
        }
    }

    /// The manifest of the head.
    pub fn head(&self) -> Option<&Manifest> {
        let head = self.followed.head.as_ref()?;
        self.revisions.iter().find(|one| one.number == head.number)
    }
}

/// Makes a new revision, and writes the parts of its files: one that is in the state has all of them there, also if
/// this command is cut now.
async fn publish(
    state: &State,
    directory: &Directory,
    plan: &Plan,
    seen: &Seen,
) -> Result<Manifest, StoreError> {
    let written = seen.revisions.last().map_or(0, |one| one.number);
    let head = seen.followed.head.as_ref().map_or(0, |head| head.number);
    // Nodes that have seen more than a restored state go on from there.
    let number = written.max(head).max(seen.highest()).saturating_add(1);
    content::publish(state, directory, &seen.revisions).await?;
    Ok(Manifest {
        number,
        time: state.time(),
        by: format!("{} ({})", state.token, plan.from),
        note: plan.note.clone(),
        files: content::stored_files(directory),
    })
}

/// Lets some nodes try a revision; the inner error says why they must not.
async fn try_on(
    state: &State,
    head: &Head,
    trying: &[String],
    canary: Canary,
    plan: &Plan,
    lease: &str,
    said: &mut (dyn FnMut(Progress) + Send),
) -> Result<Result<(), String>, ApplyError> {
    let rollout = Rollout { revision: head.clone(), nodes: trying.to_vec() };
    if !state.write(&[], vec![put(keys::ROLLOUT, &rollout).leased(lease)]).await? {
        return Err(ApplyError::LockLost);
    }
    let missing = until_active(state, head, trying, plan.patience, said).await?;
    if let Some((name, why)) = missing.first() {
        return Ok(Err(format!("{name}: {why}")));
    }
    let began = Instant::now();
    while began.elapsed() < canary.hold {
        let left = canary.hold.saturating_sub(began.elapsed());
        tokio::time::sleep(left.min(Duration::from_secs(1))).await;
        let (_, alive) = state.alive().await?;
        if let Some(why) = worse(&alive, trying, &canary.tolerance) {
            return Ok(Err(why));
        }
        if let Some(gone) = trying.iter().find(|name| !alive.contains_key(*name)) {
            return Ok(Err(format!("{gone} is not alive any more")));
        }
    }
    Ok(Ok(()))
}

/// Waits until these nodes use a revision; the ones that do not in time, each with the reason.
async fn until_active(
    state: &State,
    head: &Head,
    names: &[String],
    patience: Duration,
    said: &mut (dyn FnMut(Progress) + Send),
) -> Result<Vec<(String, String)>, ApplyError> {
    let began = Instant::now();
    let mut clocks = Vec::new();
    loop {
        let (revision, alive) = state.alive().await?;
        differing_clocks(&alive, &mut clocks, said);
        let missing: Vec<_> = names
            .iter()
            .filter_map(|name| Some((name.clone(), why_missing(alive.get(name), head)?)))
            .collect();
        let refused = names.iter().filter_map(|name| alive.get(name));
        let is_over = refused.clone().any(|node| node.refused == head.number)
            && names.iter().all(|name| {
                alive
                    .get(name)
                    .is_none_or(|node| node.revision == head.number || node.refused == head.number)
            });
        let left = patience.saturating_sub(began.elapsed());
        if missing.is_empty() || left.is_zero() || is_over {
            return Ok(missing);
        }
        state.wait(keys::ALIVE, revision, left.min(Duration::from_secs(5))).await?;
    }
}

/// Why a node does not use a revision; `None` if it does.
fn why_missing(node: Option<&Alive>, head: &Head) -> Option<String> {
    let Some(node) = node else { return Some("it is not alive".to_owned()) };
    if node.refused == head.number {
        return Some(node.error.clone().unwrap_or_else(|| "it refused the revision".to_owned()));
    }
    (node.revision != head.number).then(|| match &node.error {
        Some(error) => error.clone(),
        None if node.revision == 0 => "it waits for its first revision".to_owned(),
        None => format!("it uses revision {}", node.revision),
    })
}

/// Says which clocks differ from that of the state, each once.
fn differing_clocks(
    alive: &BTreeMap<String, Alive>,
    known: &mut Vec<String>,
    said: &mut (dyn FnMut(Progress) + Send),
) {
    for (name, node) in alive.iter().filter(|(_, node)| node.clock != 0) {
        if !known.contains(name) {
            known.push(name.clone());
            said(Progress::Clock(name.clone(), node.clock));
        }
    }
}
