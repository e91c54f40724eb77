//! GreedyDual-Size with frequencies (Cherkasova, HP Laboratories 98-69R1, 1998): every hit adds the
//! object's value once more, so that frequently requested objects stay during a pause.

use super::{
    EvictionEntry,
    greedy_dual::{Cost, GreedyDual},
};

const PAPER: &str =
    "Cherkasova, Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency, HPL-98-69R1";

pub(super) const ENTRY: EvictionEntry = EvictionEntry {
    name: "gdsf",
    paper: PAPER,
    summary: "GreedyDual-Size that also counts hits; optimises the hit ratio.",
    build: |capacity| Box::new(GreedyDual::new(capacity, Cost::One, true)),
};

pub(super) const PACKETS: EvictionEntry = EvictionEntry {
    name: "gdsf-packets",
    paper: PAPER,
    summary: "GreedyDual-Size-Frequency with the cost of a miss in packets; optimises the saved traffic.",
    build: |capacity| Box::new(GreedyDual::new(capacity, Cost::Packets, true)),
};

#[cfg(test)]
mod tests {
    use super::{super::steps::play, ENTRY};
    use crate::eviction::find_eviction;

    #[test]
    fn frequent_outlives_recent() {
        let steps = "a2 b2 a a a b c2 d2";
        assert_eq!(play(&ENTRY, 4, steps), ". . b c");
        assert_eq!(play(find_eviction("gds").unwrap(), 4, steps), ". . a b");
    }
}
