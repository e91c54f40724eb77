//! The revision that a node should use, from what it follows and what it has seen. Pure.

use crate::{
    model::{Head, Member},
    state::Followed,
};

/// The revision that a node should use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// There is none yet.
    Nothing,
    /// This one.
    Revision(Head),
    /// The state says something that the node does not follow; it stays as it is. In words.
    Refused(String),
    /// The node is a member no more.
    Removed,
}

/// The revision for the node `me`, which has seen the head `seen`.
pub(crate) fn wanted(followed: &Followed, me: &Member, seen: Option<&Head>) -> Wanted {
    if let Some(why) = went_back(followed.head.as_ref(), seen) {
        return Wanted::Refused(why);
    }
    match followed.member(&me.name) {
        None => return Wanted::Removed,
        Some(other) if other.identity != me.identity => {
            return Wanted::Refused(format!(
                "another machine has joined as {}: remove one (levada fleet remove), and join it with another --name",
                me.name
            ));
        }
        Some(_) => {}
    }
    let Some(head) = &followed.head else { return Wanted::Nothing };
    match &followed.rollout {
        Some(rollout)
            if rollout.nodes.contains(&me.name) && rollout.revision.number > head.number =>
        {
            Wanted::Revision(rollout.revision.clone())
        }
        _ => Wanted::Revision(head.clone()),
    }
}

/// Why a head is not the successor of one that was seen: a state that was restored from a copy has an older one.
fn went_back(head: Option<&Head>, seen: Option<&Head>) -> Option<String> {
    let seen = seen?;
    let remedy = "to go on from here, run levada fleet apply again";
    match head {
        None => Some(format!(
            "the state has no revision, and this node has seen {}: was it emptied? {remedy}",
            seen.number
        )),
        Some(head) if head.number < seen.number => Some(format!(
            "the state is at revision {}, and this node has seen {}: was it restored from an old copy? {remedy}",
            head.number, seen.number
        )),
        Some(head) if head.number == seen.number && head.digest != seen.digest => Some(format!(
            "revision {} is not the one that this node has seen: was the state restored from an old copy? {remedy}",
            head.number
        )),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Rollout;

    fn head(number: u64, digest: &str) -> Head {
        Head { number, digest: digest.to_owned() }
    }

    fn followed(number: u64, rollout: Option<(u64, &[&str])>) -> Followed {
        let member = |name: &str| Member { name: name.to_owned(), ..Member::default() };
        Followed {
            head: Some(head(number, "d")),
            rollout: rollout.map(|(number, nodes)| Rollout {
                revision: head(number, "r"),
                nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
            }),
            members: vec![member("a"), member("b")],
            ..Followed::default()
        }
    }

    #[test]
    fn canary_tries_what_the_others_do_not_use_yet() {
        let followed = followed(3, Some((4, &["a"])));
        let of = |name| wanted(&followed, followed.member(name).unwrap(), Some(&head(3, "d")));
        assert_eq!(of("a"), Wanted::Revision(head(4, "r")));
        assert_eq!(of("b"), Wanted::Revision(head(3, "d")));
    }

    #[test]
    fn state_that_went_back_is_refused_and_removes_nobody() {
        let mut state = followed(3, None);
        state.members.clear();
        let me = Member { name: "a".to_owned(), ..Member::default() };
        let refused = |seen| match wanted(&state, &me, Some(&seen)) {
            Wanted::Refused(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(refused(head(7, "d")).contains("at revision 3, and this node has seen 7"));
        assert!(refused(head(3, "other")).contains("is not the one that this node has seen"));
        assert_eq!(wanted(&state, &me, Some(&head(3, "d"))), Wanted::Removed);
        state.head = None;
        let why = match wanted(&state, &me, Some(&head(1, "d"))) {
            Wanted::Refused(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(why.contains("the state has no revision"), "{why}");
    }

    #[test]
    fn name_of_another_machine_is_refused() {
        let mut state = followed(1, None);
        state.members[0].identity = "other".to_owned();
        let me = Member { name: "a".to_owned(), ..Member::default() };
        assert!(matches!(wanted(&state, &me, None), Wanted::Refused(_)));
    }
}
