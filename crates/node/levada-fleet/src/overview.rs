//! The fleet at one moment, as commands, the API and the page of a node show it: its nodes, its revisions, its orders.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    apply::Seen,
    model::{Alive, AuditEntry, Manifest, Member},
    state::{State, age},
    store::StoreError,
};

/// The nodes of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overview {
    /// The fleet.
    pub fleet: String,
    /// The revision of all nodes; 0 before the first.
    pub head: u64,
    /// A revision that some of the nodes try.
    pub rollout: Option<u64>,
    /// The nodes, by name.
    pub nodes: Vec<NodeView>,
}

/// A node of a fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its region, in a fleet with regions.
    pub region: Option<String>,
    /// Its address for peers.
    pub address: String,
    /// Whether an operator has drained it.
    pub drained: bool,
    /// How it stands to the head.
    pub condition: Condition,
    /// The same in words, with the reason.
    pub words: String,
    /// Its last report; `None` for a node that is away.
    pub alive: Option<Alive>,
}

/// How a node stands to the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// It uses the head, or a revision that it tries, and serves.
    Active,
    /// It does, and is drained.
    Drained,
    /// It does, and is not ready for clients.
    NotReady,
    /// It waits for the first revision of the fleet.
    Waiting,
    /// It uses an older revision.
    Behind,
    /// It cannot do what the state says.
    Failed,
    /// It has not been heard for some seconds.
    Away,
}

/// The revisions of a fleet, and the orders.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// The revision of all nodes; 0 before the first.
    pub head: u64,
    /// The revisions that the state has, oldest first.
    pub revisions: Vec<Manifest>,
    /// The orders of people, oldest first.
    pub audit: Vec<AuditEntry>,
}

impl Overview {
    /// Looks at a fleet.
    ///
    /// # Errors
    /// If the state does not answer.
    pub async fn of(state: &State, fleet: &str) -> Result<Self, StoreError> {
        let (followed, (_, alive)) = tokio::try_join!(state.followed(), state.alive())?;
        let head = followed.head.as_ref().map_or(0, |head| head.number);
        let view = |member: &Member| NodeView::of(member, alive.get(&member.name), head);
        Ok(Self {
            fleet: fleet.to_owned(),
            head,
            rollout: followed.rollout.as_ref().map(|rollout| rollout.revision.number),
            nodes: followed.members.iter().map(view).collect(),
        })
    }

    /// Whether all nodes do what they should, and their clocks are right.
    pub fn is_well(&self) -> bool {
        let is_well = |node: &NodeView| {
            let clock = node.alive.as_ref().map_or(0, |alive| alive.clock);
            matches!(node.condition, Condition::Active | Condition::Drained) && clock == 0
        };
        self.nodes.iter().all(is_well)
    }
}

impl fmt::Display for Overview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fleet, head, rollout, nodes } = self;
        write!(f, "fleet {fleet}: revision {head}")?;
        rollout.iter().try_for_each(|number| write!(f, ", {number} is tried"))?;
        for NodeView { name, region, address, words, .. } in nodes {
            let region = region.as_deref().unwrap_or("-");
            write!(f, "\n  {name:<16} {region:<8} {address:<22} {words}")?;
        }
        Ok(())
    }
}

impl NodeView {
    fn of(member: &Member, alive: Option<&Alive>, head: u64) -> Self {
        let condition = condition(member, alive, head);
        Self {
            name: member.name.clone(),
            region: member.region.clone(),
            address: member.address.to_string(),
            drained: member.drained,
            condition,
            words: in_words(member, alive, condition),
            alive: alive.cloned(),
        }
    }
}

fn condition(member: &Member, alive: Option<&Alive>, head: u64) -> Condition {
    let Some(alive) = alive else { return Condition::Away };
    match alive {
        Alive { error: Some(_), .. } => Condition::Failed,
        Alive { revision: 0, .. } => Condition::Waiting,
        Alive { revision, .. } if *revision < head => Condition::Behind,
        _ if member.drained => Condition::Drained,
        Alive { ready: false, .. } => Condition::NotReady,
        _ => Condition::Active,
    }
}

fn in_words(member: &Member, alive: Option<&Alive>, condition: Condition) -> String {
    let Some(alive) = alive else { return "away".to_owned() };
    if condition == Condition::Waiting {
        return "waits for the first revision".to_owned();
    }
    let mut words = format!("revision {} for {}", alive.revision, age(alive.since));
    if condition == Condition::Behind {
        words += ", behind";
    }
    if member.drained {
        words += ", drained";
    } else if !alive.ready {
        words += &format!(", not ready: {}", alive.missing.join("; "));
    }
    match alive.clock {
        0 => {}
        ahead @ 1.. => words += &format!(", its clock is {ahead} s ahead of the state's"),
        behind => words += &format!(", its clock is {} s behind the state's", -behind),
    }
    if let Some(error) = &alive.error {
        words += &format!(", error: {error}");
    }
    words
}

impl History {
    /// Looks at the history of a fleet.
    ///
    /// # Errors
    /// If the state does not answer, or the token may not see it.
    pub async fn of(state: &State) -> Result<Self, StoreError> {
        let (seen, audit) = tokio::try_join!(Seen::of(state), state.audit())?;
        let head = seen.followed.head.map_or(0, |head| head.number);
        Ok(Self { head, revisions: seen.revisions, audit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_shown_by_what_keeps_it_from_the_head() {
        let of = |drained, alive: Option<Alive>| {
            let member = Member { drained, ..Member::default() };
            let view = NodeView::of(&member, alive.as_ref(), 3);
            (view.condition, view.words)
        };
        let at = |revision, error: Option<&str>| {
            let error = error.map(str::to_owned);
            Some(Alive { revision, error, ready: true, ..Alive::default() })
        };
        assert_eq!(of(false, None), (Condition::Away, "away".to_owned()));
        let waits = (Condition::Waiting, "waits for the first revision".to_owned());
        assert_eq!(of(false, at(0, None)), waits);
        assert_eq!(of(false, at(2, None)).0, Condition::Behind);
        assert_eq!(of(false, at(3, None)).0, Condition::Active);
        assert_eq!(of(true, at(4, None)).0, Condition::Drained);
        let (condition, words) = of(false, at(2, Some("no room")));
        assert_eq!(condition, Condition::Failed);
        assert!(words.ends_with("error: no room"), "{words}");
        let silent =
            Some(Alive { revision: 3, missing: vec!["disk".to_owned()], ..Alive::default() });
        let (condition, words) = of(false, silent);
        assert_eq!(condition, Condition::NotReady);
        assert!(words.ends_with("not ready: disk"), "{words}");
    }
}
