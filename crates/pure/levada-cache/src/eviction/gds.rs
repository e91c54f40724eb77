//! GreedyDual-Size (Cao and Irani, Cost-Aware WWW Proxy Caching Algorithms, USITS 1997).

use super::{
    EvictionEntry,
    greedy_dual::{Cost, GreedyDual},
};

const PAPER: &str = "Cao and Irani, Cost-Aware WWW Proxy Caching Algorithms, USITS 1997";

pub(super) const ENTRY: EvictionEntry = EvictionEntry {
    name: "gds",
    paper: PAPER,
    summary: "Evicts large objects without recent requests first; optimises the hit ratio.",
    build: |capacity| Box::new(GreedyDual::new(capacity, Cost::One, false)),
};

pub(super) const PACKETS: EvictionEntry = EvictionEntry {
    name: "gds-packets",
    paper: PAPER,
    summary: "GreedyDual-Size with the cost of a miss in packets; optimises the saved traffic.",
    build: |capacity| Box::new(GreedyDual::new(capacity, Cost::Packets, false)),
};

#[cfg(test)]
mod tests {
    use super::{super::steps::play, ENTRY, PACKETS};

    #[test]
    fn large_goes_before_small() {
        assert_eq!(play(&ENTRY, 10, "a2 b6 c2 d4"), ". . . b");
    }

    #[test]
    fn inflation_ages_what_is_not_asked_for() {
        // a has H = 1/2 and is evicted for b, so L = 1/2 and b has 3/4; b is evicted for c, so L =
        // 3/4 and c and d have 5/4. A hit sets c to the same H again but makes it the more recent
        // one, so d is evicted.
        assert_eq!(play(&ENTRY, 4, "a2 b4 c2 d2 c e2"), ". a b . d");
    }

    #[test]
    fn packets_hardly_tell_large_ones_apart() {
        // Cost per byte is 2/s + 1/536: of two large objects, the one with the later request is
        // kept.
        assert_eq!(play(&PACKETS, 30_000, "a10000 b12000 c1000 d5000 a e12000"), ". . . . b");
        assert_eq!(play(&ENTRY, 30_000, "a10000 b12000 c1000 d5000 a e12000"), ". . . . b");
    }
}
