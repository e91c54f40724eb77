//! Laws that the tier obeys with every algorithm.

use std::collections::HashMap;

use bytes::Bytes;
use levada_cache::eviction::{DEFAULT_EVICTION, EVICTIONS};
use levada_types::Rng;

use super::*;

fn block(number: u64, len: usize) -> StoredEntry {
    let body = Bytes::from(vec![number as u8; len]);
    let pieces = std::iter::once(&body);
    StoredEntry::Block(Arc::new(Block::new(Key(1), 2, number, pieces, len as u64)))
}

fn number(entry: &StoredEntry) -> u64 {
    match entry {
        StoredEntry::Block(block) => block.number,
        _ => panic!("only blocks were put in"),
    }
}

/// The table and the eviction hold the same entries with the same weights.
fn check(memory: &Memory, limit: u64) {
    for shard in &memory.shards {
        let shard = shard.0.lock();
        assert!(shard.bytes() <= shard.limit, "{} of {}", shard.bytes(), shard.limit);
        assert_eq!(shard.table.len(), shard.eviction.len());
        assert_eq!(shard.table.len() + shard.free.len(), shard.keys.len());
        let weights: u64 = shard.table.iter().map(|slot| slot.entry.weight()).sum();
        assert_eq!(weights, shard.eviction.used());
        for slot in &shard.table {
            assert!(shard.eviction.contains(slot.handle));
            assert_eq!(shard.keys[slot.handle.0 as usize], slot.key);
        }
    }
    assert!(memory.bytes() <= limit);
}

#[test]
fn limit_holds_and_table_and_eviction_agree_whatever_is_done() {
    for eviction in EVICTIONS {
        for (limit, largest) in [(64 << 10, 32 << 10), (1 << 20, 8 << 10), (3000, 1000)] {
            let memory = Memory::new(limit, largest, eviction);
            let mut rng = Rng::new(limit);
            for step in 0..4000 {
                let key = Key(rng.below(500) as u64);
                let len = rng.below(largest as usize + 100);
                match rng.below(8) {
                    0 => drop(memory.remove(key)),
                    1..4 => drop(memory.get(key)),
                    _ => match memory.insert(key, block(step, len)) {
                        Ok(()) => {}
                        Err(TooLarge) => assert!(memory.peek(key).is_none()),
                    },
                }
                if step % 100 == 0 {
                    check(&memory, limit);
                }
                assert!(memory.bytes() <= limit, "{} at step {step}", eviction.name);
            }
            check(&memory, limit);
        }
    }
}

#[test]
fn many_small_entries_count_with_all_that_is_kept_of_them() {
    for eviction in EVICTIONS {
        let memory = Memory::new(1 << 20, 1 << 10, eviction);
        for n in 0..20_000 {
            memory.insert(Key(n), block(n, 1)).unwrap();
            assert!(memory.bytes() <= 1 << 20, "{}", eviction.name);
        }
        check(&memory, 1 << 20);
        // Where new objects compete, lists have one more for a moment, and may double for it.
        let least = if memory.shards[0].0.lock().eviction.competes() { 600 } else { 1000 };
        assert!(memory.len() > least, "{}: {}", eviction.name, memory.len());
    }
}

#[test]
fn what_is_found_is_what_was_put_last() {
    let memory = Memory::new(1 << 20, 1 << 10, DEFAULT_EVICTION);
    let mut put = HashMap::new();
    let mut rng = Rng::new(5);
    for step in 0..20_000 {
        let key = Key(rng.below(2000) as u64);
        if rng.below(4) == 0 {
            let there = memory.peek(key).is_some();
            assert_eq!(memory.remove(key).is_some(), there);
            put.remove(&key);
        } else {
            memory.insert(key, block(step, rng.below(1000))).unwrap();
            put.insert(key, step);
        }
        let key = Key(rng.below(2000) as u64);
        if let Some(entry) = memory.get(key) {
            assert_eq!(Some(&number(&entry)), put.get(&key));
        }
    }
}

#[test]
fn what_is_too_large_is_refused_and_takes_what_it_replaces_along() {
    for eviction in EVICTIONS {
        let memory = Memory::new(10_000, 10_000, eviction);
        memory.insert(Key(1), block(1, 100)).unwrap();
        memory.insert(Key(2), block(2, 100)).unwrap();
        assert_eq!(memory.insert(Key(1), block(3, 10_000)), Err(TooLarge));
        assert!(memory.get(Key(1)).is_none() && memory.get(Key(2)).is_some());
    }
}

#[test]
fn what_is_replaced_stays_as_popular_as_it_was() {
    for eviction in EVICTIONS {
        let memory = Memory::new(40_000, 40_000, eviction);
        for n in 0..3 {
            memory.insert(Key(n), block(n, 10_000)).unwrap();
        }
        (0..3).for_each(|_| drop(memory.get(Key(0))));
        memory.insert(Key(0), block(10, 9_900)).unwrap();
        for n in 3..5 {
            memory.insert(Key(n), block(n, 10_000)).unwrap();
        }
        assert_eq!(memory.peek(Key(0)).map(|entry| number(&entry)), Some(10), "{}", eviction.name);
        assert!(memory.peek(Key(1)).is_none(), "{}", eviction.name);
    }
}

#[test]
fn a_shard_has_room_for_many_of_the_largest() {
    for (bytes, largest) in [(1u64 << 20, 1u64 << 20), (256 << 20, 1 << 20), (8 << 30, 1 << 20)] {
        let memory = Memory::new(bytes, largest, DEFAULT_EVICTION);
        let shards = memory.shards.len() as u64;
        assert!(shards == 1 || bytes / shards >= 16 * largest, "{shards} shards");
        let limits: u64 = memory.shards.iter().map(|shard| shard.0.lock().limit).sum();
        assert!(limits <= bytes);
    }
}

#[test]
fn sweep_sees_everything_once_and_removes_what_it_is_told() {
    for eviction in EVICTIONS {
        let memory = Memory::new(4 << 20, 1 << 10, eviction);
        for n in 0..5000 {
            memory.insert(Key(n), block(n, 10)).unwrap();
        }
        let mut seen = vec![0; 5000];
        let (mut place, mut steps) = (SweepCursor::default(), 0);
        while let Some(next) = memory.sweep(place, |key, entry| {
            seen[key.0 as usize] += 1;
            assert_eq!(number(entry), key.0);
            if key.0 % 3 == 0 { SweepAction::Remove } else { SweepAction::Keep }
        }) {
            (place, steps) = (next, steps + 1);
        }
        assert!(seen.iter().all(|&times| times == 1));
        assert!(steps >= 5000 / SWEEP_STEP);
        assert_eq!(memory.len(), 5000 - 5000usize.div_ceil(3));
        assert!((0..5000).all(|n| memory.peek(Key(n)).is_some() == (n % 3 != 0)));
        check(&memory, 4 << 20);
    }
}

#[test]
fn handles_are_used_again() {
    let memory = Memory::new(1 << 20, 1 << 20, DEFAULT_EVICTION);
    for n in 0..10_000 {
        memory.insert(Key(n), block(n, 10_000)).unwrap();
        memory.remove(Key(n / 2));
    }
    assert!(memory.shards[0].0.lock().keys.len() <= 110);
}

#[test]
fn handles_that_wait_to_be_used_again_count() {
    let memory = Memory::new(1 << 20, 1 << 20, DEFAULT_EVICTION);
    (0..1000).for_each(|n| memory.insert(Key(n), block(n, 1)).unwrap());
    let overhead = || memory.shards[0].0.lock().overhead();
    let before = overhead();
    (0..1000).for_each(|n| drop(memory.remove(Key(n))));
    assert!(overhead() >= before + 1000 * size_of::<Handle>() as u64);
}

#[test]
fn keys_are_spread_evenly_and_otherwise_in_every_process() {
    let (one, other) = (Hash::seeded(), Hash::seeded());
    assert_ne!(one.of(Key(1)), other.of(Key(1)));
    // Keys of one low half, as a stranger who knows the fixed hash of URLs could find them.
    for step in [1u64, 1 << 16, 1 << 32, 1 << 48] {
        let mut counts = [0u32; 64];
        for n in 0..16_000 {
            counts[(one.of(Key(n * step)) >> 32) as usize % 64] += 1;
        }
        assert!(counts.iter().all(|&count| count < 2500), "{step}: {counts:?}");
    }
}

#[test]
fn what_is_there_is_not_replaced_by_what_was_read_before() {
    let memory = Memory::new(1 << 20, 1000, DEFAULT_EVICTION);
    assert_eq!(number(&memory.insert_if_absent(Key(1), block(1, 100))), 1);
    assert_eq!(number(&memory.insert_if_absent(Key(1), block(2, 100))), 1);
    assert!(memory.peek(Key(1)).is_some_and(|entry| number(&entry) == 1));
    check(&memory, 1 << 20);
}

#[test]
fn shrinking_evicts_about_so_many_bytes() {
    for eviction in EVICTIONS {
        let memory = Memory::new(1 << 20, 8 << 10, eviction);
        // Keys in sequence would now and then all be in one shard.
        for step in 0..1000u64 {
            memory.insert(Key::of(&step.to_le_bytes()), block(step, 1000)).unwrap();
        }
        let before = memory.bytes();
        memory.shrink(before / 2);
        check(&memory, 1 << 20);
        // Shards are not equally full, and each evicts whole entries.
        let left = memory.bytes();
        let about = before / 4..before / 4 * 3;
        assert!(about.contains(&left), "{}: {left} of {before}", eviction.name);
        memory.shrink(u64::MAX);
        assert_eq!(memory.len(), 0, "{}", eviction.name);
    }
}

#[test]
fn an_eviction_that_chooses_says_what_and_why() {
    let auto = levada_cache::eviction::find_eviction("auto").unwrap();
    let memory = Memory::new(1 << 20, 64 << 10, auto);
    let mut rng = Rng::new(9);
    for step in 0..50_000 {
        let key = Key((rng.unit().powi(4) * 5000.0) as u64);
        if memory.get(key).is_none() {
            memory.insert(key, block(step, 900)).unwrap();
        }
    }
    check(&memory, 1 << 20);
    let status = crate::EvictionStatus::of(&memory.choices()).unwrap();
    let in_use: usize = status.algorithms.iter().map(|one| one.shards).sum();
    assert_eq!(in_use, memory.shards.len());
    assert!(status.algorithms.iter().all(|one| (0.1..1.0).contains(&one.hit_ratio)), "{status:?}");
    assert!(status.sampled_objects > 10 && status.sample_bytes < 1 << 19, "{status:?}");
    let none = Memory::new(1 << 20, 1 << 10, DEFAULT_EVICTION);
    assert_eq!(crate::EvictionStatus::of(&none.choices()), None);
}
