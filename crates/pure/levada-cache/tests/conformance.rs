//! The laws that all eviction algorithms obey.

use levada_cache::eviction::{
    EVICTIONS, Eviction, EvictionEntry, Handle, Keyed, TooLarge, find_eviction,
};
use levada_types::{Key, Rng};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(u32, u64),
    Touch(u32),
    Resize(u32, u64),
    Remove(u32),
    Evict,
    SetCapacity(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u32..40, prop_oneof![Just(0u64), 1u64..30, 1u64..150]).prop_map(|(h, b)| Step::Insert(h, b)),
        4 => (0u32..45).prop_map(Step::Touch),
        1 => (0u32..45, 0u64..150).prop_map(|(h, b)| Step::Resize(h, b)),
        1 => (0u32..45).prop_map(Step::Remove),
        1 => Just(Step::Evict),
        1 => (0u64..200).prop_map(Step::SetCapacity),
    ];
    prop::collection::vec(step, 1..300)
}

/// Runs the steps, compares the set with a simple model, and returns all victims in order.
fn play(entry: &EvictionEntry, mut capacity: u64, steps: &[Step]) -> Vec<Handle> {
    let mut eviction = (entry.build)(capacity);
    let mut there = BTreeMap::new();
    let mut gone = Vec::new();
    for &step in steps {
        let before = gone.len();
        match step {
            Step::Insert(handle, bytes) => {
                there.remove(&Handle(handle));
                insert(&mut *eviction, &mut there, handle, bytes, &mut gone);
            }
            Step::Touch(handle) => eviction.touch(Handle(handle)),
            Step::Resize(handle, bytes) => {
                let others = eviction.used() - there.get(&Handle(handle)).unwrap_or(&0);
                if others + bytes <= capacity {
                    eviction.resize(Handle(handle), bytes);
                    there.entry(Handle(handle)).and_modify(|weight| *weight = bytes);
                }
            }
            Step::Remove(handle) => {
                let expected = there.remove(&Handle(handle)).is_some();
                assert_eq!(eviction.remove(Handle(handle)), expected, "{}", entry.name);
            }
            Step::Evict => match eviction.evict() {
                Some(victim) => gone.push(victim),
                None => assert!(there.is_empty(), "{} evicts no object", entry.name),
            },
            Step::SetCapacity(bytes) => {
                capacity = bytes;
                eviction.set_capacity(bytes);
                eviction.make_room(0, &mut gone);
            }
        }
        for victim in &gone[before..] {
            assert!(
                there.remove(victim).is_some(),
                "{} evicts an object that is not in the set",
                entry.name
            );
        }
        check(&*eviction, &there, entry.name);
    }
    gone
}

fn insert(
    eviction: &mut dyn Eviction,
    there: &mut BTreeMap<Handle, u64>,
    handle: u32,
    bytes: u64,
    gone: &mut Vec<Handle>,
) {
    let before = gone.len();
    let inserted = eviction.insert(Handle(handle), Key(u64::from(handle)), bytes, gone);
    if bytes > eviction.capacity() {
        assert_eq!(inserted, Err(TooLarge));
        assert_eq!(gone.len(), before, "a refused object evicts none");
    } else {
        assert_eq!(inserted, Ok(()));
        let kept = eviction.contains(Handle(handle));
        assert!(kept || eviction.competes(), "the inserted object is in the set");
        assert_eq!(gone[before..].contains(&Handle(handle)), !kept, "a victim is not in the set");
        there.insert(Handle(handle), bytes);
    }
}

fn check(eviction: &dyn Eviction, there: &BTreeMap<Handle, u64>, name: &str) {
    assert_eq!(eviction.used(), there.values().sum::<u64>(), "{name} miscounts bytes");
    assert!(eviction.used() <= eviction.capacity(), "{name} exceeds its capacity");
    assert_eq!((eviction.len(), eviction.is_empty()), (there.len(), there.is_empty()), "{name}");
    for handle in (0..45).map(Handle) {
        assert_eq!(eviction.contains(handle), there.contains_key(&handle), "{name} {handle:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn capacity_and_contents_are_always_as_recorded(steps in steps(), capacity in 0u64..200) {
        for entry in EVICTIONS {
            play(entry, capacity, &steps);
        }
    }

    #[test]
    fn same_steps_same_victims(steps in steps(), capacity in 0u64..200) {
        for entry in EVICTIONS {
            prop_assert_eq!(play(entry, capacity, &steps), play(entry, capacity, &steps));
        }
    }
}

#[test]
fn nothing_goes_while_there_is_room() {
    for entry in EVICTIONS {
        let steps: Vec<Step> = (0..40).map(|n| Step::Insert(n, 5)).collect();
        assert!(play(entry, 200, &steps).is_empty(), "{}", entry.name);
        assert_eq!(play(entry, 199, &steps).len(), 1, "{}", entry.name);
    }
}

#[test]
fn greedy_dual_evicts_exactly_the_least_value() {
    // Follows the paper's definition directly: search for the least value, subtract nothing, keep
    // L.
    let mut rng = Rng::new(1997);
    let mut eviction = (find_eviction("gds").unwrap().build)(500);
    let mut model: BTreeMap<u32, (f64, u64, u64)> = BTreeMap::new();
    let (mut inflation, mut victims) = (0.0f64, Vec::new());
    for request in 0..20_000u64 {
        let handle = rng.below(60) as u32;
        if let Some((value, asked, bytes)) = model.get_mut(&handle) {
            (*value, *asked) = (inflation + 1.0 / *bytes as f64, request);
            eviction.touch(Handle(handle));
            continue;
        }
        let bytes = 1 + rng.below(100) as u64;
        let mut expected = Vec::new();
        while model.values().map(|object| object.2).sum::<u64>() + bytes > 500 {
            let least = model.iter().min_by(|a, b| a.1.0.total_cmp(&b.1.0).then(a.1.1.cmp(&b.1.1)));
            let (&least, &(value, ..)) = least.unwrap();
            inflation = value;
            model.remove(&least);
            expected.push(Handle(least));
        }
        model.insert(handle, (inflation + 1.0 / bytes as f64, request, bytes));
        victims.clear();
        eviction.insert(Handle(handle), Key(0), bytes, &mut victims).unwrap();
        assert_eq!(victims, expected, "request {request}");
    }
}

#[test]
fn what_is_known_of_hits_survives_another_weight() {
    for entry in EVICTIONS {
        let mut eviction = (entry.build)(3000);
        let mut victims = Vec::new();
        let mut insert = |eviction: &mut dyn Eviction, handle| {
            eviction.insert(Handle(handle), Key(u64::from(handle)), 1000, &mut victims).unwrap();
        };
        (0..3).for_each(|handle| insert(&mut *eviction, handle));
        (0..3).for_each(|_| eviction.touch(Handle(0)));
        eviction.resize(Handle(0), 999);
        eviction.resize(Handle(0), 1000);
        insert(&mut *eviction, 3);
        insert(&mut *eviction, 4);
        assert_eq!(victims, [Handle(1), Handle(2)], "{}", entry.name);
    }
}

#[test]
fn popular_objects_stay() {
    // A third of the requests go to 20 objects, the others to new objects of the same size.
    for entry in EVICTIONS {
        let mut cache = Keyed::new((entry.build)(100_000));
        let mut rng = Rng::new(7);
        let (mut hits, mut fresh) = (0, 1000u64);
        for _ in 0..30_000 {
            if rng.below(3) == 0 {
                hits += u32::from(cache.request(Key(rng.below(20) as u64), 1000));
            } else {
                fresh += 1;
                assert!(!cache.request(Key(fresh), 1000));
            }
        }
        assert!(hits > 7_000, "{}: {hits} hits of 10,000", entry.name);
    }
}

#[test]
fn index_by_key_agrees_with_the_algorithm() {
    for entry in EVICTIONS {
        let mut cache = Keyed::new((entry.build)(1000));
        let mut rng = Rng::new(3);
        for _ in 0..10_000 {
            let (key, bytes) = (Key(rng.below(50) as u64), 1 + rng.below(1200) as u64);
            let there = cache.contains(key);
            assert_eq!(cache.request(key, bytes), there);
            let kept = cache.contains(key);
            let competes = cache.eviction().competes();
            assert!(kept == (there || bytes <= 1000) || (competes && !kept), "{}", entry.name);
            if rng.below(10) == 0 {
                assert_eq!(cache.remove(key), kept);
            }
        }
        let counted = (0..50).filter(|&key| cache.contains(Key(key))).count();
        assert_eq!(counted, cache.eviction().len(), "{}", entry.name);
    }
}

#[test]
fn every_entry_tells_what_it_is() {
    for entry in EVICTIONS {
        assert!(
            entry.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        );
        assert!(!entry.paper.is_empty() && entry.summary.ends_with('.'), "{}", entry.name);
        assert_eq!(EVICTIONS.iter().filter(|other| other.name == entry.name).count(), 1);
    }
}
