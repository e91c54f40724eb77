//! Connections with many requests, each for another back-end than the one before, or for the same.

use super::*;

#[test]
fn a_connection_moves_as_often_as_its_requests_change_their_back_end() {
    // Several in a row for one back-end, then for the other one; bodies of no byte and of many packets.
    let at = |number: usize| number * number / 7 % 2;
    let hosts = ["back0.test", "back1.test"];
    let requests: Vec<_> = (0..400).map(|number| (hosts[at(number)], number % 9 * 7919)).collect();
    let expected: Vec<_> = (0..400).map(|number| format!("back{}", at(number))).collect();
    let changes = expected.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64;
    for (after, moves) in [("on", changes), ("back", 399)] {
        let Some(cluster) = Cluster::new(after) else { return };
        let given_back = || cluster.metric("levada_handoffs_total{result=\"given-back\"}");
        let before = given_back();
        assert_eq!(answered(&cluster, &requests), expected, "{after}");
        assert_eq!(given_back() - before, moves, "{after}");
        assert_eq!(cluster.metric("levada_handoffs_total{result=\"lost\"}"), 0, "{after}");
    }
}
