use levada_policy::POLICIES;
use levada_trace::{LogRecord, RICE, Trace, TraceLimits};

use super::*;
use crate::{Library, Scenario};

/// A scenario on eight servers, and a small trace called `small`.
fn prepare(changes: &[(&str, &str)]) -> Prepared {
    let mut library = Library::without_files();
    library.keep("small", RICE.scaled(2_000, 40_000).generate(1));
    let small = [
        ("workload.trace", "small"),
        ("workload.repeat", "true"),
        ("servers.count", "8"),
        ("workload.clients", "60"),
    ];
    let scenario =
        Scenario::default().with(small).and_then(|scenario| scenario.with(changes.iter().copied()));
    scenario.and_then(|scenario| scenario.prepare(&mut library)).unwrap()
}

fn play(prepared: &Prepared) -> Outcome {
    World::new(prepared).run(&mut |_| ControlFlow::Continue(()))
}

#[test]
fn what_is_sent_is_finished_and_counted_under_every_policy() {
    for entry in POLICIES.iter().flat_map(|file| file.iter()) {
        let prepared = prepare(&[
            ("policy.name", entry.name),
            ("workload.arrivals", "constant"),
            ("workload.rate", "1500"),
            ("measure.requests", "3000"),
        ]);
        let mut world = World::new(&prepared);
        world.begin();
        while world.demand.played() < 3000 {
            world.next();
            let in_flight = world.requests.len() as u64;
            assert!(world.redirectors.outstanding() <= in_flight, "{}", entry.name);
        }
        world.next_send = None;
        while world.requests.len() > 0 {
            world.next();
        }
        assert_eq!(world.redirectors.outstanding(), 0, "{}", entry.name);
        let finished: u64 = world.servers.iter().map(|server| server.finished).sum();
        assert_eq!(finished, 3000, "{}", entry.name);
        assert!(world.servers.iter().all(|server| server.active == 0), "{}", entry.name);
        assert_eq!(world.fills.len(), 0, "{}", entry.name);
    }
}

#[test]
fn a_ramp_ends_when_a_server_fails() {
    let outcome = play(&prepare(&[("policy.name", "random"), ("workload.growth", "0.1")]));
    assert_eq!(outcome.end, End::Overload);
    let capacity = outcome.reading(crate::Metric::Capacity).unwrap();
    assert!((1_000.0..8.0 * 1075.0).contains(&capacity), "{capacity}");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let bytes = |seed| {
        let changes = [("seed", seed), ("measure.requests", "4000"), ("policy.name", "p2c")];
        serde_json::to_string(&play(&prepare(&changes))).unwrap()
    };
    assert_eq!(bytes("1"), bytes("1"));
    assert_ne!(bytes("1"), bytes("2"));
}

#[test]
fn a_closed_loop_keeps_as_many_in_flight_as_it_may() {
    let prepared = prepare(&[
        ("workload.arrivals", "closed"),
        ("topology.name", "lan_cluster"),
        ("policy.name", "lard/r"),
        ("measure.requests", "20000"),
    ]);
    let mut world = World::new(&prepared);
    world.begin();
    // S of eight nodes: 7 x 65 + 25 - 1.
    for _ in 0..10_000 {
        assert_eq!(world.redirectors.outstanding(), 479);
        world.next();
    }
}

/// One server, clients 15 ms away by two links of 1 Gbit/s: a full segment of 576 bytes takes 4,608 ns
/// at each, a packet without payload 320 ns.
#[test]
fn a_small_run_goes_as_worked_out_by_hand() {
    let back = 15_000_000 + 2 * 320;
    let round_trip = 15_000_000 + 2 * 4_608 + back;
    let last_segment = 15_000_000 + 2 * 4_608;
    // The handshake, then 145 us until the connection is established.
    let connected = 3 * back + 145_000;
    // /a: one block of one unit of 4 KB from the disk, two units of 512 bytes through the CPU, and
    // two segments, which take a round each.
    let (read_a, transmit_a) = (28_000_000 + 410_000, 80_000);
    let network_a = round_trip + last_segment;
    // /b: a block of 11 units, transmitted while the further one of 2 units is read: 94 segments in
    // windows of 1, 2, 4, 8, 16, 20, 20, 20 and 3.
    let (read_b, transmit_b) = (28_000_000 + 11 * 410_000, 88 * 40_000);
    let network_b = 8 * round_trip + 2 * 4_608 + last_segment;
    // Time and document of each request, and its latency.
    let requests: [(u64, &str, u64); 5] = [
        (0, "/a", connected + read_a + transmit_a + network_a),
        // The request arrives while the file is read, waits for the read, and is transmitted after
        // the first one.
        (20, "/a", connected + read_a + 2 * transmit_a + network_a - 20_000_000),
        (1_000, "/a", connected + transmit_a + network_a),
        (2_000, "/b", connected + read_b + transmit_b + network_b),
        (3_000, "/b", connected + transmit_b + network_b),
    ];
    let record = |(time, name, _): &(u64, &str, u64)| {
        Ok(LogRecord {
            method: "GET".to_owned(),
            target: (*name).to_owned(),
            bytes: Some(if *name == "/a" { 1_000 } else { 50_000 }),
            time: Some(*time as f64 / 1e3),
            ..LogRecord::default()
        })
    };
    let (trace, _) = Trace::from_reader(requests.iter().map(record), &TraceLimits::default());
    let mut library = Library::without_files();
    library.keep("by hand", trace);
    let mut sum = 0;
    for (n, (_, _, latency)) in requests.iter().enumerate() {
        let scenario = Scenario::default().with([
            ("topology.name", "star"),
            ("topology.server_latency", "5ms"),
            ("topology.client_latency", "10ms"),
            ("topology.server_mbps", "1000"),
            ("topology.client_mbps", "1000"),
            ("servers.count", "1"),
            ("workload.trace", "by hand"),
            ("workload.arrivals", "recorded"),
            ("measure.requests", &(n + 1).to_string()),
        ]);
        let outcome = play(&scenario.unwrap().prepare(&mut library).unwrap());
        let mean = outcome.reading(crate::Metric::LatencyMean).unwrap();
        sum += latency;
        let expected = sum as f64 / 1e9 / (n + 1) as f64;
        assert!((mean - expected).abs() < 1e-9, "{} requests: {mean} {expected}", n + 1);
    }
}

#[test]
fn a_global_memory_spares_the_disks_and_costs_cpu() {
    let play = |policy: &str| {
        let prepared = prepare(&[
            ("workload.arrivals", "closed"),
            ("topology.name", "lan_cluster"),
            ("policy.name", policy),
            ("cache.memory", "1MiB"),
            ("measure.requests", "20000"),
        ]);
        play(&prepared)
    };
    let (alone, together) = (play("wrr"), play("wrr/gms"));
    let of = |outcome: &Outcome, metric| outcome.reading(metric).unwrap();
    use crate::Metric::{CpuUtilisation, MissRatio, Throughput};
    assert!(of(&together, MissRatio) < 0.7 * of(&alone, MissRatio));
    let cpu_per_request = |outcome| of(outcome, CpuUtilisation) / of(outcome, Throughput);
    assert!(cpu_per_request(&together) > 1.2 * cpu_per_request(&alone));
}

#[test]
fn utilisation_is_rate_times_cost() {
    // One document of 8 KB from memory: 930 us of CPU each, so 465 ms of every second.
    let object = levada_trace::TraceObject { name: "/a".into(), size: 8 << 10 };
    let mut library = Library::without_files();
    library.keep("one", Trace::new(vec![object], vec![0]));
    let scenario = Scenario::default().with([
        ("topology.name", "star"),
        ("servers.count", "1"),
        ("workload.trace", "one"),
        ("workload.repeat", "true"),
        ("workload.arrivals", "constant"),
        ("workload.rate", "500"),
        ("measure.duration", "120s"),
        ("measure.warm_up", "20s"),
    ]);
    let outcome = play(&scenario.unwrap().prepare(&mut library).unwrap());
    let near = |metric, expected: f64| {
        let value = outcome.reading(metric).unwrap();
        assert!((value / expected - 1.0).abs() < 0.01, "{metric:?}: {value} {expected}");
    };
    near(crate::Metric::CpuUtilisation, 0.465);
    near(crate::Metric::Throughput, 500.0);
    near(crate::Metric::HitRatio, 1.0);
    assert_eq!(outcome.reading(crate::Metric::DiskUtilisation), Some(0.0));
    assert_eq!(outcome.reading(crate::Metric::Replicas), Some(1.0));
    assert_eq!(outcome.reading(crate::Metric::Idle), Some(0.0), "no server has so few");
}

#[test]
fn a_flash_crowd_is_most_of_what_is_asked() {
    let hit_ratio = |crowd: &[(&str, &str)]| {
        let calm = [
            ("policy.name", "lr-hrw"),
            ("workload.arrivals", "constant"),
            ("workload.rate", "400"),
            ("measure.requests", "5000"),
            ("cache.memory", "1MiB"),
        ];
        let changes: Vec<_> = calm.iter().chain(crowd).copied().collect();
        play(&prepare(&changes)).reading(crate::Metric::HitRatio).unwrap()
    };
    let calm = hit_ratio(&[]);
    let crowd = hit_ratio(&[("workload.flash.clients", "0.8"), ("workload.flash.urls", "1")]);
    assert!(crowd > 0.8 && crowd > calm + 0.1, "{crowd} {calm}");
}

#[test]
fn near_servers_are_preferred_by_the_policies_of_proximity() {
    let mean = |policy: &str| {
        let changes = [
            ("policy.name", policy),
            ("servers.count", "16"),
            ("workload.arrivals", "constant"),
            ("workload.rate", "600"),
            ("measure.requests", "6000"),
            ("measure.warm_up", "4s"),
        ];
        play(&prepare(&changes)).reading(crate::Metric::LatencyP50).unwrap()
    };
    for (near, far) in [("npr-chash", "r-chash"), ("nplr-chash", "lr-chash")] {
        let (near_by, anywhere) = (mean(near), mean(far));
        assert!(near_by < 0.95 * anywhere, "{near}: {near_by} {anywhere}");
    }
}

#[test]
fn an_absurd_rate_ends_by_overload_not_by_memory() {
    let prepared = prepare(&[
        ("workload.arrivals", "constant"),
        ("workload.rate", "1e15"),
        ("measure.duration", "1h"),
    ]);
    let outcome = play(&prepared);
    assert_eq!(outcome.end, End::Overload);
    assert_eq!(outcome.reading(crate::Metric::Requests), Some(4.0 * 8.0 * 3072.0 + 1.0));
}

#[test]
fn a_trace_without_times_is_not_played_as_recorded() {
    let mut library = Library::without_files();
    library.keep("small", RICE.scaled(100, 1_000).generate(1));
    let scenario = Scenario::default()
        .with([
            ("workload.trace", "small"),
            ("workload.arrivals", "recorded"),
            ("measure.sample", "1us"),
        ])
        .unwrap();
    let problems = scenario.prepare(&mut library).unwrap_err().0;
    let places: Vec<_> = problems.iter().map(|problem| problem.place.as_str()).collect();
    assert_eq!(places, ["measure.sample", "workload.arrivals"]);
}

/// The state of a hundred thousand requests in flight fits into the processor's cache.
const _: () = assert!(Agenda::<Event>::BYTES_PER_EVENT <= 24 && BYTES_PER_REQUEST <= 256);

/// A run of 4,000 requests at a constant rate on eight servers in one room.
fn room(changes: &[(&str, &str)]) -> Prepared {
    let base = [
        ("topology.name", "lan_cluster"),
        ("policy.name", "hrw"),
        ("workload.arrivals", "constant"),
        ("workload.rate", "400"),
        ("measure.requests", "4000"),
    ];
    prepare(&[&base[..], changes].concat())
}

fn reading(outcome: &Outcome, metric: crate::Metric) -> f64 {
    outcome.reading(metric).unwrap()
}

#[test]
fn memories_that_were_filled_before_the_run_hit_at_once() {
    let hits = |changes: &[(&str, &str)]| {
        let outcome = play(&room(&[&[("cache.memory", "1GiB")], changes].concat()));
        reading(&outcome, crate::Metric::HitRatio)
    };
    assert!(hits(&[]) < 0.9);
    assert_eq!(hits(&[("cache.warm_requests", "40000")]), 1.0);
}

#[test]
fn a_slow_server_works_longer_for_each_request() {
    let warm = [("cache.memory", "1GiB"), ("cache.warm_requests", "40000")];
    let cpu = |speeds| {
        let outcome = play(&room(&[&warm[..], &[("servers.speeds", speeds)]].concat()));
        outcome.servers[0].cpu / outcome.servers[0].requests as f64
    };
    let ratio = cpu("[0.25]") / cpu("[]");
    assert!((3.9..4.1).contains(&ratio), "{ratio}");
}

#[test]
fn speeds_move_on_from_server_to_server() {
    let warm = [("cache.memory", "1GiB"), ("cache.warm_requests", "40000")];
    let cpu = |changes: &[(&str, &str)]| {
        let outcome = play(&room(&[&warm[..], changes].concat()));
        outcome.servers[0].cpu / outcome.servers[0].requests as f64
    };
    let usual = cpu(&[]);
    let slow_for =
        |time| cpu(&[("servers.speeds", "[0.25]"), ("servers.speeds_for", time)]) / usual;
    let (always, sometimes) = (slow_for("1h"), slow_for("50ms"));
    assert!((3.9..4.1).contains(&always) && (1.0..2.0).contains(&sometimes), "{sometimes}");
}

#[test]
fn clients_are_dealt_to_several_front_ends() {
    let prepared = room(&[("topology.front_ends", "4")]);
    let world = World::new(&prepared);
    let mut clients = [0; 4];
    (0..60).for_each(|client| clients[world.redirectors.of(client)] += 1);
    assert_eq!(clients, [15; 4]);
    let (one, four) = (play(&room(&[])), play(&prepared));
    let mean = |outcome| reading(outcome, crate::Metric::LatencyMean);
    assert!((mean(&four) / mean(&one) - 1.0).abs() < 0.05, "the network is the same");
}

#[test]
fn an_admission_limit_holds_requests_back_in_an_open_loop() {
    let limited = [("workload.outstanding", "40"), ("workload.rate", "4000")];
    let prepared = room(&[&limited[..], &[("topology.front_ends", "4")]].concat());
    let mut world = World::new(&prepared);
    world.begin();
    let mut most = 0;
    while world.demand.played() < 4_000 {
        world.next();
        most = most.max(world.redirectors.outstanding());
    }
    assert_eq!(most, 40);
    assert!(world.front_ends.iter().any(|front_end| !front_end.waiting.is_empty()));
    let outcome = play(&prepared);
    assert_eq!(reading(&outcome, crate::Metric::Requests), 4_000.0, "none is lost");
}

#[test]
fn a_trace_that_does_not_repeat_ends_the_run() {
    let changes = [("workload.repeat", "false"), ("measure.requests", "100000")];
    let outcome = play(&room(&[&changes[..], &[("workload.rate", "2000")]].concat()));
    assert!(matches!(outcome.remarks[..], [Remark::TraceEnded { after }] if after > 15.0));
    assert_eq!(reading(&outcome, crate::Metric::Requests), 40_000.0);
}

#[test]
fn trace_that_ends_before_the_warm_up_is_refused_with_what_to_set() {
    let mut library = Library::without_files();
    library.keep("small", RICE.scaled(200, 4_000).generate(1));
    let mut of = |changes: &[(&str, &str)]| {
        let short = [
            ("workload.trace", "small"),
            ("workload.arrivals", "constant"),
            ("workload.rate", "2000"),
            ("measure.duration", "5m"),
            ("measure.warm_up", "1m"),
        ];
        let scenario = Scenario::default().with(short);
        let scenario = scenario.and_then(|scenario| scenario.with(changes.iter().copied()));
        scenario.and_then(|scenario| scenario.prepare(&mut library)).map_err(|p| p.to_string())
    };
    let refusal = of(&[]).expect_err("it is too short");
    let said = "its 4000 requests are over after 2 s, and nothing is measured before \
                `measure.warm_up`, 1m: set `workload.repeat = true`, or `workload.rate` to 13 at most";
    assert!(refusal.contains(said), "{refusal}");
    for changes in [("workload.repeat", "true"), ("workload.rate", "13")] {
        assert!(of(&[changes]).is_ok(), "{changes:?}");
    }
}

#[test]
fn a_seed_draws_the_places_of_servers_in_hash_orders() {
    let busiest = |seed| play(&room(&[("seed", seed)])).servers.into_iter().map(|s| s.requests);
    assert_ne!(busiest("1").collect::<Vec<_>>(), busiest("2").collect::<Vec<_>>());
}

/// The room with some failures, for long enough to see them.
fn failing(failures: &str, changes: &[(&str, &str)]) -> Prepared {
    let base = [("servers.failure", failures), ("measure.requests", "40000")];
    room(&[&base[..], changes].concat())
}

#[test]
fn failing_servers_lose_and_move_requests_under_every_policy() {
    let entries = POLICIES.iter().flat_map(|file| file.iter());
    let entries = entries.filter(|entry| entry.name != "wrr/gms");
    for (entry, fidelity) in entries.flat_map(|entry| ["flow", "packet"].map(|one| (entry, one))) {
        let prepared = failing(
            r#"[{ at = "1s", for = "1s", every = "700ms" }]"#,
            &[
                ("policy.name", entry.name),
                ("network.fidelity", fidelity),
                ("measure.requests", "4000"),
                ("cache.memory", "1GiB"),
                ("cache.warm_requests", "40000"),
            ],
        );
        let mut world = World::new(&prepared);
        world.begin();
        while world.demand.played() < 4_000 {
            world.next();
        }
        world.next_send = None;
        while world.requests.len() > 0 {
            world.next();
        }
        assert_eq!(world.redirectors.outstanding(), 0, "{}", entry.name);
        let finished: u64 = world.servers.iter().map(|server| server.finished).sum();
        let outcome = world.conclude(End::Done);
        let [lost, retried] = [crate::Metric::Lost, crate::Metric::Retried]
            .map(|metric| reading(&outcome, metric) as u64);
        // A connection that was being closed is in neither count.
        assert!((3_900..=4_000).contains(&(finished + lost)), "{}: {finished} {lost}", entry.name);
        assert!(lost < 1_000 && retried > 0, "{}: {lost} {retried}", entry.name);
    }
}

/// A connection without packets under way is forgotten when its request is over, however that ends.
#[test]
fn connections_of_requests_that_failures_cut_are_closed() {
    let full = [("topology.server_mbps", "20"), ("topology.queue", "8"), ("network.window", "40")];
    let kept = [("network.persistent", "true"), ("network.initial_window", "10")];
    for changes in [&full[..], &kept, &[&full[..], &kept].concat(), &[]] {
        let base = [
            ("network.fidelity", "packet"),
            ("measure.requests", "6000"),
            ("workload.rate", "1000"),
        ];
        let prepared = failing(
            r#"[{ at = "500ms", for = "300ms", every = "400ms" }]"#,
            &[&base[..], changes].concat(),
        );
        let mut world = World::new(&prepared);
        world.begin();
        let mut most = 0;
        while world.demand.played() < 6_000 {
            world.next();
            // A connection is closed before its request is removed, but for a few last packets.
            most = most.max(world.network.connections().saturating_sub(world.requests.len()));
        }
        assert!(most < 100, "{changes:?}: {most} connections without a request");
        world.next_send = None;
        while world.requests.len() > 0 {
            world.next();
        }
        let later = world.now + std::time::Duration::from_secs(60);
        while world.now < later {
            world.next();
        }
        assert_eq!(world.network.connections(), 0, "{changes:?}");
    }
}

#[test]
fn requests_end_at_front_ends_and_at_servers_that_fail() {
    for fidelity in ["flow", "packet"] {
        let prepared = failing(
            r#"[{ at = "1s", for = "1s", every = "1500ms" }]"#,
            &[
                ("network.fidelity", fidelity),
                ("measure.requests", "20000"),
                ("front_ends.memory", "256KiB"),
                ("cache.memory", "2MiB"),
            ],
        );
        let mut world = World::new(&prepared);
        world.begin();
        while world.demand.played() < 20_000 {
            world.next();
        }
        world.next_send = None;
        while world.requests.len() > 0 {
            world.next();
        }
        assert_eq!(world.redirectors.outstanding(), 0, "{fidelity}");
        let finished: u64 = world.servers.iter().map(|server| server.finished).sum();
        let outcome = world.conclude(End::Done);
        let of = |metric| reading(&outcome, metric);
        assert_eq!(of(crate::Metric::Requests), 20_000.0, "{fidelity}");
        let answered = of(crate::Metric::FrontHits) * 20_000.0;
        assert_eq!(of(crate::Metric::ServerRequests), 20_000.0 - answered.round(), "{fidelity}");
        let lost = of(crate::Metric::Lost);
        assert!(lost > 0.0 && answered > 2_000.0, "{fidelity}: {lost} {answered}");
        // Of the lost requests some waited at a front-end. A connection that was being closed is in neither count.
        let from_servers = of(crate::Metric::ServerRequests) - finished as f64;
        assert!((0.0..=lost + 50.0).contains(&from_servers), "{fidelity}: {from_servers} {lost}");
    }
}

#[test]
fn server_returns_with_an_empty_memory_and_misses_recover() {
    let warm = [("cache.memory", "1GiB"), ("cache.warm_requests", "40000")];
    let one = r#"[{ servers = [2], at = "20s", for = "10s" }]"#;
    let outcome = play(&failing(one, &warm));
    let of = |metric| reading(&outcome, metric);
    // Everything was in memory, so that each miss after the failure is one more.
    let misses = of(crate::Metric::MissRatio) * of(crate::Metric::Requests);
    let more = of(crate::Metric::LossMisses);
    assert!(more > 100.0 && more <= misses && more > 0.9 * misses, "{more} {misses}");
    let recovery = of(crate::Metric::Recovery);
    assert!((15.0..=80.0).contains(&recovery), "{recovery}: it begins again at the return");
    assert!(of(crate::Metric::AwayP95) > 0.0);
    let calm = play(&room(&warm));
    assert_eq!(calm.reading(crate::Metric::Lost), None, "no failure, no such readings");
}

#[test]
fn requests_find_the_other_servers_before_the_failure_is_noticed() {
    let one = |tries, noticed: &str| {
        let changes = [("servers.tries", tries), ("servers.noticed_after", noticed)];
        play(&failing(r#"[{ servers = [0], at = "10s", for = "20s" }]"#, &changes))
    };
    let (again, never) = (one("3", "5s"), one("1", "5s"));
    let lost = |outcome| reading(outcome, crate::Metric::Lost);
    assert_eq!(reading(&never, crate::Metric::Retried), 0.0);
    assert!(lost(&never) >= lost(&again) + 3.0, "three of them eject the server");
    assert!(lost(&never) < 60.0, "later ones do not find it");
}

#[test]
fn all_servers_away_is_a_loss_and_no_hang() {
    let all =
        r#"[{ at = "1s", for = "2s" , servers = [0] }, { at = "1s", for = "2s", servers = [1] }]"#;
    for limit in [&[][..], &[("workload.outstanding", "10")]] {
        let changes = [&[("servers.count", "2"), ("measure.requests", "2000")], limit].concat();
        let outcome = play(&failing(all, &changes));
        assert!(reading(&outcome, crate::Metric::Lost) > 400.0);
        assert_eq!(outcome.end, End::Done);
    }
}

#[test]
fn failures_that_cannot_be_are_refused_with_what_to_set() {
    let wrong = |failures, changes: &[(&str, &str)]| {
        let mut library = Library::without_files();
        library.keep("small", RICE.scaled(100, 1_000).generate(1));
        let base =
            [("workload.trace", "small"), ("servers.count", "4"), ("servers.failure", failures)];
        let scenario = Scenario::default().with([&base[..], changes].concat()).unwrap();
        scenario.prepare(&mut library).unwrap_err().to_string()
    };
    for (failures, changes, said) in [
        (
            "[{ servers = [4] }]",
            &[][..],
            "servers.failure[0]: there is no server 4: `servers` are numbers from 0 to 3",
        ),
        (r#"[{}, { for = "0s" }]"#, &[], "servers.failure[1]: `for` must be a time above 0"),
        (r#"[{ every = "0s" }]"#, &[], "`every` must be a time above 0"),
        (r#"[{ servers = [1], for = "5s", every = "5s" }]"#, &[], "its turn again, after 5s"),
        ("[{}]", &[("workload.arrivals", "closed")], "workload.arrivals: a closed loop"),
        ("[{}]", &[("policy.name", "wrr/gms")], "policy.name: its servers read"),
        ("[]", &[("servers.tries", "0")], "servers.tries: a request is tried once at least"),
    ] {
        let refusal = wrong(failures, changes);
        assert!(refusal.contains(said), "{refusal}");
    }
    let unknown = Scenario::default().with([("servers.failure", "[{ ta = \"1s\" }]")]).unwrap_err();
    assert!(unknown.to_string().contains("servers.failure: unknown field `ta`"), "{unknown}");
}

#[test]
fn heads_and_connections_that_cannot_be_are_refused() {
    let wrong = |changes: &[(&str, &str)]| {
        let mut library = Library::without_files();
        library.keep("small", RICE.scaled(100, 1_000).generate(1));
        let changes = [&[("workload.trace", "small")], changes].concat();
        let scenario = Scenario::default().with(changes).unwrap();
        scenario.prepare(&mut library).unwrap_err().to_string()
    };
    let large = wrong(&[("network.response_head", "2MiB")]);
    assert!(large.contains("network.response_head: it must be at most"), "{large}");
    let elsewhere = wrong(&[("regions", "{}"), ("network.persistent", "true")]);
    assert!(elsewhere.contains("know no `response_head`"), "{elsewhere}");
}

#[test]
fn servers_with_the_names_of_nodes_have_their_places_in_hash_orders() {
    let requests = |changes: &[(&str, &str)]| {
        let outcome = play(&room(changes));
        outcome.servers.iter().map(|server| server.requests).collect::<Vec<_>>()
    };
    let drawn: Vec<_> = (0..8).map(|n| format!("\"server-{n}/0\"")).collect();
    assert_eq!(requests(&[("servers.names", &format!("[{}]", drawn.join(",")))]), requests(&[]));
    let own = (0..8).map(|n| format!("\"node{n}\"")).collect::<Vec<_>>().join(",");
    assert_ne!(requests(&[("servers.names", &format!("[{own}]"))]), requests(&[]));
}

/// A minute of servers without caches before an origin, which gets 300 requests a second.
fn origin(changes: &[(&str, &str)]) -> Outcome {
    let uncached = [
        ("cache.memory", "0"),
        ("servers.cpu", "1000"),
        ("workload.arrivals", "constant"),
        ("workload.rate", "300"),
        ("measure.warm_up", "10s"),
        ("measure.duration", "70s"),
        ("origin.latency", "20ms"),
    ];
    play(&prepare(&[&uncached[..], changes].concat()))
}

#[test]
fn servers_share_the_link_to_the_origin() {
    let (narrow, wide) = (
        origin(&[("origin.bits_per_second", "20000000")]),
        origin(&[("origin.bits_per_second", "500000000")]),
    );
    assert_eq!(reading(&narrow, crate::Metric::DiskUtilisation), 0.0);
    let egress = reading(&narrow, crate::Metric::OriginEgress);
    assert!((0.99..=1.01).contains(&(egress / 20e6)), "the link is full: {egress}");
    let peak = reading(&narrow, crate::Metric::OriginPeak);
    assert!((1.0..1.02).contains(&(peak / 20e6)), "a second has a block more at most: {peak}");
    let rate = reading(&wide, crate::Metric::OriginRate);
    assert!((0.9..1.0).contains(&(rate / 300.0)), "fills are shared: {rate}");
}

#[test]
fn bodies_of_a_rate_each_take_time_and_do_not_wait_for_each_other() {
    let (slow, free) = (origin(&[("origin.body_bits_per_second", "20000000")]), origin(&[]));
    let egress = |outcome| reading(outcome, crate::Metric::OriginEgress);
    assert!(egress(&slow) > 25e6, "more than one at a time: {}", egress(&slow));
    let ratio = egress(&slow) / egress(&free);
    assert!((0.9..=1.01).contains(&ratio), "{ratio}");
    let p95 = |outcome| reading(outcome, crate::Metric::LatencyP95);
    assert!(p95(&slow) > p95(&free) + 0.01, "{} {}", p95(&slow), p95(&free));
}

/// A place for each of 20 ms, and requests at random times that nothing merges: an M/D/1 queue of half its load.
#[test]
fn waiting_for_the_only_place_at_an_origin_agrees_with_the_closed_form() {
    let alone = [("origin.at_once", "1"), ("workload.rate", "25"), ("measure.duration", "1000s")];
    let outcome = origin(&alone);
    let (waited, rate) = (
        reading(&outcome, crate::Metric::OriginWait),
        reading(&outcome, crate::Metric::OriginRate),
    );
    let load = rate * 0.02;
    let expected = 0.02 * load / (2.0 * (1.0 - load));
    assert!((waited / expected - 1.0).abs() < 0.05, "{waited} {expected}");
}

#[test]
fn an_origin_begins_no_more_requests_a_second_than_it_may() {
    let outcome = origin(&[("origin.requests_per_second", "40")]);
    let rate = reading(&outcome, crate::Metric::OriginRate);
    assert!((39.5..=40.1).contains(&rate), "{rate}");
    assert!(reading(&outcome, crate::Metric::OriginWait) > 1.0);
}

#[test]
fn places_at_an_origin_are_free_again_when_servers_fail() {
    let changes = [
        ("origin.at_once", "2"),
        ("origin.latency", "2ms"),
        ("servers.failure", "[{ at = \"5s\", for = \"2s\", every = \"3s\" }]"),
    ];
    let outcome = origin(&changes);
    assert_eq!(outcome.end, End::Done);
    let throughput = reading(&outcome, crate::Metric::Throughput);
    assert!(throughput > 270.0, "{throughput}");
}

/// All documents have these directives, and memory for all of them is full from the beginning.
fn expiring(cache_control: &str, changes: &[(&str, &str)]) -> Outcome {
    let class = format!("[{{ share = 1.0, cache_control = \"{cache_control}\" }}]");
    let base = [
        ("freshness.class", class.as_str()),
        ("policy.name", "hrw"),
        ("cache.memory", "1GiB"),
        ("cache.warm_requests", "40000"),
    ];
    origin(&[&base[..], changes].concat())
}

#[test]
fn copies_that_expire_are_confirmed_without_a_body() {
    let outcome = expiring("max-age=5", &[]);
    let of = |metric| reading(&outcome, metric);
    let (misses, confirmed) = (of(crate::Metric::MissRatio), of(crate::Metric::Confirmed));
    assert_eq!((misses, of(crate::Metric::OriginEgress)), (0.0, 0.0));
    assert!((0.1..0.9).contains(&confirmed), "{confirmed}");
    let always = expiring("no-cache, max-age=5", &[]);
    assert_eq!(reading(&always, crate::Metric::Confirmed), 1.0);
}

#[test]
fn copies_from_before_the_run_expire_in_it() {
    // The 40,000 requests before it took 133 s, by the rate.
    let confirmed = |age| reading(&expiring(age, &[]), crate::Metric::Confirmed);
    let (soon, late) = (confirmed("max-age=100"), confirmed("max-age=1000"));
    assert!((0.01..0.5).contains(&soon), "{soon}");
    assert_eq!(late, 0.0);
}

#[test]
fn copies_of_documents_that_changed_are_fetched_again() {
    let changing = "[{ share = 1.0, cache_control = \"no-cache, max-age=5\", changes = \"1ms\" }]";
    let outcome = expiring("max-age=5", &[("freshness.class", changing)]);
    assert!(reading(&outcome, crate::Metric::MissRatio) > 0.99);
    assert!(reading(&outcome, crate::Metric::OriginEgress) > 1e6);
}

#[test]
fn copies_are_served_stale_while_they_are_revalidated() {
    let outcome = expiring("max-age=5, stale-while-revalidate=1000", &[]);
    assert_eq!(reading(&outcome, crate::Metric::HitRatio), 1.0);
    assert!(reading(&outcome, crate::Metric::OriginRate) > 10.0);
}

#[test]
fn documents_that_may_not_be_stored_are_fetched_for_each_request() {
    let classes = "[{ share = 0.3, cache_control = \"no-store\" }]";
    let outcome = expiring("", &[("freshness.class", classes)]);
    let (misses, asked) =
        (reading(&outcome, crate::Metric::MissRatio), reading(&outcome, crate::Metric::OriginRate));
    assert!((0.1..0.6).contains(&misses), "{misses}");
    assert!((asked / (300.0 * misses) - 1.0).abs() < 0.05, "{asked} {misses}");
}

#[test]
fn what_is_purged_is_fetched_again() {
    let purges = |share: &str| format!("[{{ at = \"20s\", every = \"1s\", share = {share} }}]");
    let misses = |share| {
        let purges = purges(share);
        let outcome = expiring("max-age=1000", &[("freshness.purge", purges.as_str())]);
        reading(&outcome, crate::Metric::MissRatio)
    };
    let (none, some, all) = (misses("0.0"), misses("0.2"), misses("1.0"));
    assert_eq!(none, 0.0);
    assert!(some > 0.02 && all > 1.5 * some, "{some} {all}");
}

#[test]
fn freshness_that_cannot_be_is_refused_with_what_to_set() {
    let class =
        "[{ share = 0.7, cache_control = \"a\\u0001\" }, { share = 0.7, changes = \"0s\" }]";
    let scenario = Scenario::default()
        .with([("freshness.class", class), ("freshness.purge", "[{ every = \"0s\" }]")])
        .unwrap();
    let problems = scenario.prepare(&mut Library::without_files()).unwrap_err();
    let places: Vec<_> = problems.0.iter().map(|problem| problem.place.as_str()).collect();
    let expected = [
        "freshness",
        "freshness.class",
        "freshness.class[0]",
        "freshness.class[1]",
        "freshness.class[1]",
        "freshness.purge[0]",
    ];
    assert_eq!(places, expected);
}

/// A crowd of half of the clients for URLs that do not exist.
const INVALID: [(&str, &str); 6] = [
    ("policy.name", "hrw"),
    ("workload.arrivals", "constant"),
    ("measure.requests", "4000"),
    ("workload.flash.clients", "0.5"),
    ("workload.flash.exist", "false"),
    ("origin.latency", "100ms"),
];

#[test]
fn origin_is_asked_for_each_request_of_what_does_not_exist() {
    let prepared = prepare(&INVALID);
    let outcome = play(&prepared);
    let hits = outcome.reading(crate::Metric::HitRatio).unwrap();
    assert!((0.2..0.52).contains(&hits), "{hits}");
    assert_eq!(outcome.reading(crate::Metric::Lost), None);
}

#[test]
fn server_refuses_misses_beyond_those_that_it_may_forward() {
    let prepared = prepare(&[INVALID.as_slice(), &[("origin.misses_per_server", "2")]].concat());
    let mut world = World::new(&prepared);
    world.begin();
    while world.demand.played() < 4_000 {
        world.next();
        assert!(world.servers.iter().all(|server| server.asking <= 2));
    }
    world.next_send = None;
    while world.requests.len() > 0 {
        world.next();
    }
    assert!(world.servers.iter().all(|server| server.asking == 0 && server.active == 0));
    let outcome = play(&prepared);
    let lost = outcome.reading(crate::Metric::Lost).unwrap();
    // Eight servers of two places each, for a tenth of a second, serve 160 of 1,000 requests a second.
    assert!((1_000.0..3_500.0).contains(&lost), "{lost}");
}
