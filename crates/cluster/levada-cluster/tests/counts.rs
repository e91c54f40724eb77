//! Counts of requests under way, while nodes join and leave.

use std::{collections::VecDeque, sync::Mutex};

use levada_policy::{LoadTable, NodeIndex};

/// Two nodes change places, and one leaves.
const ROTATED: [Option<NodeIndex>; 3] = [Some(NodeIndex(1)), Some(NodeIndex(0)), None];

#[test]
fn counts_come_back_to_zero_when_tables_change_under_load() {
    const THREADS: usize = 4;
    let tables: Vec<_> = (0..50).map(|_| LoadTable::new(3)).collect();
    let current = Mutex::new(tables[0].clone());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let current = &current;
            scope.spawn(move || {
                let mut held = VecDeque::new();
                for request in 0..20_000 {
                    let table = current.lock().unwrap().clone();
                    held.push_back(table.begin(NodeIndex(((request + thread) % 3) as u32)));
                    if held.len() > 40 {
                        held.pop_front();
                    }
                }
            });
        }
        for pair in tables.windows(2) {
            pair[0].hand_over(&pair[1], ROTATED.into());
            *current.lock().unwrap() = pair[1].clone();
            std::thread::yield_now();
        }
    });
    for table in &tables {
        let counts = [0, 1, 2].map(|node| table.of(NodeIndex(node)));
        assert_eq!((counts, table.total(), table.at_nodes_that_left()), ([0; 3], 0, 0));
    }
}
