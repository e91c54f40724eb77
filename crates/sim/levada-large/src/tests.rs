use super::*;

fn settings(seed: u64) -> Settings {
    Settings { file: 10_000_000, seed, ..Settings::default() }
}

#[test]
fn same_seed_gives_the_same_result() {
    let play = |seed| {
        let mut world = World::new(Settings { clients: 3, ..settings(seed) });
        [Fault::None, Fault::Slow(20), Fault::Killed(Duration::from_millis(300))]
            .map(|fault| world.fetch(fault))
    };
    assert_eq!(play(7), play(7));
    assert_ne!(play(7), play(8));
}

#[test]
fn origin_sends_a_file_once() {
    let mut world = World::new(settings(1));
    assert_eq!(world.fetch(Fault::None).origin_bytes, 10_000_000);
    assert_eq!(world.fetch(Fault::None).origin_bytes, 0);
    let mut crowd = World::new(Settings { clients: 20, ..settings(2) });
    let first = crowd.fetch(Fault::None);
    assert!(first.rates.iter().all(|rate| *rate > 0.0));
    assert!((10_000_000..12_000_000).contains(&first.origin_bytes), "{}", first.origin_bytes);
}

/// A crowd of thirty over links that are full for everybody, or whose origin has a full one: one piece in twenty at
/// most is asked for twice.
#[test]
fn origin_sends_hardly_a_piece_twice_whichever_links_are_full() {
    let pairs =
        [(10, 10), (10, 50), (40, 10), (40, 50), (100, 10), (100, 50)].map(|pair| (pair, 1));
    // Files of which nodes that seemed slow held pieces, which others then got from the origin.
    let more = [4, 18, 19].map(|seed| ((40, 50), seed));
    let mut wrong = Vec::new();
    for ((node, origin), seed) in pairs.into_iter().chain(more) {
        let mut world = World::new(full_links(node, origin, seed));
        let [first, cached] = [(), ()].map(|()| world.fetch(Fault::None));
        assert!(first.rates.iter().chain(&cached.rates).all(|rate| *rate > 0.0), "{node}/{origin}");
        let sent = [first, cached].map(|fetched| fetched.origin_bytes as f64 / 10e6);
        if sent[0] > 1.06 || sent[1] > 0.053 {
            wrong.push((node, origin, seed, sent));
        }
    }
    assert!(wrong.is_empty(), "times the file, first and cached: {wrong:?}");
}

fn full_links(node: u64, origin: u64, seed: u64) -> Settings {
    let line = |line: Line, rate| Line { rate: rate * 1_000_000, ..line };
    let all = settings(seed);
    Settings { clients: 30, node: line(all.node, node), origin: line(all.origin, origin), ..all }
}

#[test]
fn no_node_is_skipped_when_none_is_slow() {
    for seed in 1..=3 {
        let mut world = World::new(Settings { seed, ..Settings::default() });
        let (first, cached) = (world.fetch(Fault::None), world.fetch(Fault::None));
        assert_eq!([first.left_out, cached.left_out, cached.origin_bytes], [0; 3], "seed {seed}");
    }
}

#[test]
fn links_bound_the_rate() {
    let mut world = World::new(settings(2));
    let (first, cached) = (world.fetch(Fault::None).rate(), world.fetch(Fault::None).rate());
    assert!((20.0..50.0).contains(&first), "{first}: the origin's link has 50 Mbit/s");
    assert!((first..100.0).contains(&cached), "{cached}: a node's link has 100 Mbit/s");
}

#[test]
fn file_arrives_although_a_node_dies() {
    let mut world = World::new(Settings { seed: 3, ..Settings::default() });
    let fetched = world.fetch(Fault::Killed(Duration::from_secs(3)));
    assert!(fetched.rate() > 0.0);
    assert!(fetched.counts.retries > 0, "its pieces are asked of others");
}
