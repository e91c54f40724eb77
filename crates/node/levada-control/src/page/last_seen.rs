//! The last answers of nodes: one that does not answer in time is shown as it was, with the age of that.

use std::{collections::HashMap, time::Instant};

use crate::status::{ClusterNode, NodeStatus};
use parking_lot::Mutex;

use crate::page::SeenNode;

/// The last answers, by the nodes' names.
#[derive(Default)]
pub struct LastSeen {
    answers: Mutex<HashMap<String, (Instant, NodeStatus)>>,
}

impl LastSeen {
    /// Takes in the answers of this moment. Nodes that are not among `nodes` are forgotten.
    pub fn take(&self, nodes: Vec<ClusterNode>) -> Vec<SeenNode> {
        let mut before = std::mem::take(&mut *self.answers.lock());
        let now = Instant::now();
        let mut kept = HashMap::new();
        let mut seen = Vec::new();
        for ClusterNode { name, address, up, round_trip, status, .. } in nodes {
            let answer = status.map(|status| (now, status)).or_else(|| before.remove(&name));
            let age_seconds = answer.as_ref().map(|(at, _)| (now - *at).as_secs_f64());
            let status = answer.as_ref().map(|(_, status)| status.clone());
            kept.extend(answer.map(|answer| (name.clone(), answer)));
            seen.push(SeenNode { name, address, up, round_trip, age_seconds, status });
        }
        *self.answers.lock() = kept;
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, status: Option<NodeStatus>) -> ClusterNode {
        ClusterNode { name: name.to_owned(), up: true, status, ..ClusterNode::default() }
    }

    #[test]
    fn node_that_does_not_answer_is_shown_as_it_was_with_the_age() {
        let (seen, status) = (LastSeen::default(), || Some(NodeStatus::default()));
        let first = seen.take(vec![node("a", status()), node("b", None)]);
        assert_eq!((first[0].age_seconds, first[1].age_seconds), (Some(0.0), None));
        std::thread::sleep(std::time::Duration::from_millis(2));
        let later = seen.take(vec![node("a", None)]);
        assert!(later[0].status.is_some() && later[0].age_seconds > Some(0.001), "{later:?}");
        seen.take(Vec::new());
        assert!(seen.take(vec![node("a", None)])[0].status.is_none(), "it has left");
    }
}
