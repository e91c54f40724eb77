//! An endless sequence of nodes in which each node appears in proportion to its weight, evenly
//! spaced.
//!
//! Node i is due every W / w_i picks (w_i is its weight, W the sum). The sequence is computed one
//! turn at a time: a counting sort puts all due times of the turn in order. The rest of each node's
//! interval is carried over to the next turn, so that rounding loses nothing. A turn costs one pass
//! over the nodes and one over its entries, so a pick costs the same with 8 nodes and with 1024.
//!
//! The alternatives: nginx's smooth weighted round robin scans all nodes per pick; Envoy's earliest
//! deadline first keeps a heap.

/// Described at the top of this file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    weights: Vec<f64>,
    /// Per node, the part of its interval until it is due, in 0..1.
    waits: Vec<f64>,
    turn: Vec<u32>,
    next: usize,
}

/// The least number of entries of a turn, in total and per node: enough to spread the cost of
/// computing it.
const PLACES: usize = 256;
const PLACES_PER_NODE: usize = 4;

impl Schedule {
    /// Sets the weights, all above 0. From now on each index appears in proportion to its weight.
    pub(crate) fn set(&mut self, weights: Vec<f64>) {
        if weights.len() != self.weights.len() {
            // Nodes of equal weight must not be due in one burst. The multiples of the golden ratio
            // spread any run of neighbours evenly.
            const GOLDEN: f64 = 0.618_033_988_749_894_9;
            self.waits = (0..weights.len()).map(|i| (i as f64 * GOLDEN).fract()).collect();
        }
        self.weights = weights;
        self.turn.clear();
        self.next = 0;
    }

    /// The next node of the sequence; `None` without weights.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<usize> {
        while self.next == self.turn.len() {
            if self.weights.is_empty() {
                return None;
            }
            self.lay_out();
        }
        let index = self.turn[self.next];
        self.next += 1;
        Some(index as usize)
    }

    /// The number of picks in the current turn.
    pub(crate) fn turn_len(&self) -> usize {
        self.turn.len()
    }

    #[cold]
    fn lay_out(&mut self) {
        let places = (self.weights.len() * PLACES_PER_NODE).max(PLACES);
        let per_weight = places as f64 / self.weights.iter().sum::<f64>();
        let due = |weight: f64, wait: f64| {
            let interval = places as f64 / (weight * per_weight);
            let count = (weight * per_weight - wait).ceil().max(0.0) as usize;
            (0..count).map(move |k| (((wait + k as f64) * interval) as usize).min(places - 1))
        };

        let mut ends = vec![0u32; places + 1];
        for (&weight, &wait) in self.weights.iter().zip(&self.waits) {
            due(weight, wait).for_each(|place| ends[place + 1] += 1);
        }
        for place in 0..places {
            ends[place + 1] += ends[place];
        }
        self.turn.resize(ends[places] as usize, 0);
        for (index, (&weight, wait)) in (0..).zip(self.weights.iter().zip(&mut self.waits)) {
            let mut count = 0;
            for place in due(weight, *wait) {
                self.turn[ends[place] as usize] = index;
                ends[place] += 1;
                count += 1;
            }
            *wait += f64::from(count) - weight * per_weight;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(weights: &[f64], count: usize) -> Vec<usize> {
        let mut schedule = Schedule::default();
        schedule.set(weights.to_vec());
        (0..count).map(|_| schedule.next().unwrap()).collect()
    }

    #[test]
    fn heavy_nodes_are_spread_not_bunched() {
        let text: String =
            sequence(&[5.0, 1.0, 1.0], 14).iter().map(|i| ["a", "b", "c"][*i]).collect();
        assert_eq!(text, "aacaabaaacaaba");
    }

    #[test]
    fn equal_weights_come_up_once_per_round() {
        for nodes in [1, 2, 7, 64, 1000] {
            for round in sequence(&vec![0.3; nodes], 5 * nodes).chunks(nodes) {
                let mut round = round.to_vec();
                round.sort_unstable();
                assert_eq!(round, (0..nodes).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn no_node_is_ever_far_from_its_share() {
        let weights: Vec<f64> = (0..50).map(|i| 0.01 * f64::from(i * i + 1)).collect();
        let total: f64 = weights.iter().sum();
        let mut counts = vec![0.0; 50];
        for (picks, index) in (1..).zip(sequence(&weights, 100_000)) {
            counts[index] += 1.0;
            let due = weights[index] / total * f64::from(picks);
            assert!(f64::abs(counts[index] - due) < 3.0, "{index}: {} of {due}", counts[index]);
        }
    }

    #[test]
    fn changed_weights_keep_what_was_waited_for() {
        // A node that is due every 1000 picks appears although the weights change every 10.
        let mut schedule = Schedule::default();
        let mut rare = 0;
        for change in 0..2_000 {
            schedule.set(vec![1.0, 999.0 + f64::from(change % 2)]);
            rare += (0..10).filter(|_| schedule.next() == Some(0)).count();
        }
        assert!(rare > 0);
    }
}
