//! The tiers of a simulated server: against the store of a node, which plays the same requests with a real disk, and
//! by laws that hold under every eviction.

use std::{
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header::CACHE_CONTROL};
use levada_cache::{
    CacheRules, OriginExchange, Validators,
    eviction::{EVICTIONS, find_eviction},
    may_store,
};
use levada_observe::metrics::Registry;
use levada_sim::{Library, Metric, Outcome, Scenario, run};
use levada_store::{CacheSettings, DiskCache, Label, Object, Store, StoredHead, disk::DiskMetrics};
use levada_trace::{Trace, generate::RICE};
use levada_types::Key;

const MIB: u64 = 1 << 20;

/// Parts of the requests: answered from memory, from disk, and from the origin.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Parts {
    memory: f64,
    disk: f64,
    origin: f64,
}

/// One server before an origin plays the trace once, one request after the other.
fn simulated(trace: &Trace, changes: &[(&str, &str)]) -> Outcome {
    let mut library = Library::without_files();
    library.keep("small", trace.clone());
    let requests = trace.requests().len().to_string();
    let base = [
        ("workload.trace", "small"),
        ("workload.arrivals", "constant"),
        ("workload.rate", "5"),
        ("workload.clients", "10"),
        ("measure.requests", requests.as_str()),
        ("topology.name", "star"),
        ("servers.count", "1"),
        ("servers.cpu", "1000"),
        ("servers.disk_latency", "100us"),
        ("servers.disk_bytes_per_second", "500000000"),
        ("origin.latency", "1ms"),
    ];
    let scenario =
        Scenario::default().with(base).and_then(|scenario| scenario.with(changes.iter().copied()));
    let prepared = scenario.and_then(|scenario| scenario.prepare(&mut library)).unwrap();
    run(&prepared, &mut |_| ControlFlow::Continue(()))
}

fn parts(outcome: &Outcome) -> Parts {
    let of = |metric| outcome.reading(metric).unwrap_or(0.0);
    Parts {
        memory: of(Metric::HitRatio),
        disk: of(Metric::DiskHits),
        origin: of(Metric::MissRatio),
    }
}

/// A response with a usual head.
fn object(name: &str, body: &Bytes) -> Object {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let mut fields = HeaderMap::new();
    fields.insert(CACHE_CONTROL, "public, max-age=31536000, immutable".parse().unwrap());
    fields.insert("server", "nginx/1.29.3".parse().unwrap());
    fields.insert("content-type", "image/jpeg".parse().unwrap());
    fields.insert("etag", "\"6787a0f0-10400\"".parse().unwrap());
    fields.insert("last-modified", "Fri, 15 Jan 2026 08:00:00 GMT".parse().unwrap());
    let exchange = OriginExchange {
        method: &Method::GET,
        request: &HeaderMap::new(),
        status: StatusCode::OK,
        response: &fields,
        requested: now,
        received: now,
    };
    let storable = may_store(&exchange, &CacheRules::default()).unwrap();
    let head = StoredHead {
        status: StatusCode::OK,
        freshness: storable.freshness,
        validators: Validators::of(&fields, now),
        variant: storable.vary.key(exchange.request),
        vary: storable.vary,
        label: Label::new(0, 0),
        copies: 0,
        headers: fields.clone(),
    };
    Object::new(name, head, std::iter::once(body), body.len() as u64)
}

/// The store of a node plays the trace.
async fn played(trace: &Trace, settings: &CacheSettings) -> Parts {
    let metrics = DiskMetrics::registered(&mut Registry::default());
    let store = Store::open(settings, &metrics).unwrap();
    let body = Bytes::from(vec![b'x'; 64 << 20]);
    let (fields, origin) = (HeaderMap::new(), || Duration::MAX);
    let (mut memory, mut disk) = (0.0, 0.0);
    for id in trace.requests() {
        let object_of = &trace.objects()[*id as usize];
        let name = format!("http://www.example.com{}", object_of.name);
        let key = Key::of(name.as_bytes());
        if store.get(key, &name, &fields).object.is_some() {
            memory += 1.0;
            continue;
        }
        if store.recall(key, &name, &fields, &origin).await.object.is_some() {
            disk += 1.0;
            continue;
        }
        if store.admits(key, &[]) {
            // The queue holds 8 MiB. Clients and the origin give a disk more time than this test.
            while !store.disk_takes(7 * MIB, 0) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            store.put(key, Arc::new(object(&name, &body.slice(..object_of.size as usize))));
        }
    }
    let all = trace.requests().len() as f64;
    Parts { memory: memory / all, disk: disk / all, origin: (all - memory - disk) / all }
}

/// A node's default eviction, and one that knows nothing of sizes.
#[tokio::test]
async fn every_tier_has_the_hit_ratio_of_a_nodes_store() {
    let trace = RICE.scaled(2_000, 12_000).generate(3);
    for (eviction, second_hit) in [("gdsf", false), ("lru", false), ("lru", true)] {
        let dir = tempfile::tempdir().unwrap();
        let settings = CacheSettings {
            memory: 2 * MIB,
            eviction: find_eviction(eviction).unwrap(),
            second_hit,
            disk: Some(DiskCache { path: dir.path().to_owned(), size: 24 * MIB }),
            ..CacheSettings::default()
        };
        let node = played(&trace, &settings).await;
        let simulated = parts(&simulated(
            &trace,
            &[
                ("cache.memory", "2MiB"),
                ("cache.disk", "24MiB"),
                ("cache.eviction", eviction),
                ("cache.head", "500"),
                ("cache.admission", if second_hit { "second_hit" } else { "always" }),
            ],
        ));
        println!("{eviction}, second hit {second_hit}: node {node:?}, simulated {simulated:?}");
        for (node, simulated) in [
            (node.memory, simulated.memory),
            (node.disk, simulated.disk),
            (node.origin, simulated.origin),
        ] {
            assert!((node - simulated).abs() < 0.02, "{eviction}: {node} {simulated}");
        }
        assert!(node.disk > 0.05 && node.origin > 0.05, "the tiers have work: {node:?}");
    }
}

#[test]
fn disk_leaves_the_memory_as_it_is_and_keeps_requests_from_the_origin() {
    let trace = RICE.scaled(1_000, 10_000).generate(3);
    let distinct = trace.objects().len() as f64 / trace.requests().len() as f64;
    for eviction in EVICTIONS {
        let play = |disk: Option<&str>| {
            let changes = [("cache.memory", "2MiB"), ("cache.eviction", eviction.name)];
            let disk = disk.map(|size| ("cache.disk", size));
            parts(&simulated(&trace, &changes.into_iter().chain(disk).collect::<Vec<_>>()))
        };
        let (alone, small, large) = (play(None), play(Some("16MiB")), play(Some("1GiB")));
        let name = eviction.name;
        for tiers in [small, large] {
            assert!(
                (tiers.memory + tiers.disk + tiers.origin - 1.0).abs() < 1e-9,
                "{name}: {tiers:?}"
            );
            // The rest are requests that met a read of the same document.
            assert!((tiers.memory - alone.memory).abs() < 0.002, "{name}: {tiers:?} {alone:?}");
        }
        assert!(small.origin < alone.origin - 0.02, "{name}: {small:?} {alone:?}");
        assert!((large.origin - distinct).abs() < 0.002, "{name}: each once: {large:?} {distinct}");
    }
}

/// Reads at random times, all of the same length: an M/D/1 queue.
#[test]
fn requests_wait_for_the_disk_as_in_the_closed_form() {
    let object = |n: u32| levada_trace::TraceObject { name: format!("/{n}").into(), size: 1000 };
    let trace = Trace::new((0..2_000).map(object).collect(), (0..2_000).collect());
    let play = |rate: &str| {
        simulated(
            &trace,
            &[
                ("cache.memory", "0"),
                ("cache.disk", "64MiB"),
                ("cache.warm_requests", "2000"),
                ("workload.repeat", "true"),
                ("workload.rate", rate),
                ("measure.requests", "100000"),
                ("servers.disk_latency", "9995us"),
                ("servers.disk_bytes_per_second", "819200000"),
            ],
        )
    };
    let (idle, busy) = (play("0.1"), play("70"));
    assert_eq!(parts(&busy).disk, 1.0);
    let of = |outcome: &Outcome, metric| outcome.reading(metric).unwrap();
    assert!((of(&busy, Metric::DiskUtilisation) / 0.7 - 1.0).abs() < 0.02);
    let waited = of(&busy, Metric::LatencyMean) - of(&idle, Metric::LatencyMean);
    let expected = 0.01 * 0.7 / (2.0 * (1.0 - 0.7));
    assert!((waited / expected - 1.0).abs() < 0.05, "{waited} {expected}");
}

#[test]
fn disk_survives_its_server_and_fills_the_memory_again() {
    let trace = RICE.scaled(500, 20_000).generate(3);
    let failure = ("servers.failure", "[{ at = \"2000s\", for = \"1s\" }]");
    let base = [("cache.memory", "16MiB"), ("workload.repeat", "true"), failure];
    let lost = |changes: &[(&str, &str)]| {
        let outcome = simulated(&trace, &[&base[..], changes].concat());
        outcome.reading(Metric::LossMisses).unwrap()
    };
    let (alone, with_disk) = (lost(&[]), lost(&[("cache.disk", "1GiB")]));
    assert!(alone > 100.0 && with_disk < 0.05 * alone, "{alone} {with_disk}");
}

#[test]
fn copies_on_disk_are_confirmed_purged_and_read() {
    let trace = RICE.scaled(500, 10_000).generate(3);
    let play = |cache_control: &str, changes: &[(&str, &str)]| {
        let class = format!("[{{ share = 1.0, cache_control = \"{cache_control}\" }}]");
        let base = [
            ("cache.memory", "0"),
            ("cache.disk", "1GiB"),
            ("cache.warm_requests", "10000"),
            ("workload.repeat", "true"),
            ("freshness.class", class.as_str()),
        ];
        simulated(&trace, &[&base[..], changes].concat())
    };
    let of = |outcome: &Outcome, metric| outcome.reading(metric).unwrap();
    let fresh = play("max-age=1000000", &[]);
    assert_eq!(parts(&fresh), Parts { memory: 0.0, disk: 1.0, origin: 0.0 });
    let asked = play("no-cache, max-age=1", &[]);
    assert_eq!((of(&asked, Metric::Confirmed), of(&asked, Metric::OriginEgress)), (1.0, 0.0));
    assert!(of(&asked, Metric::DiskUtilisation) > 0.0, "bodies come from the disk");
    let purges = [("freshness.purge", "[{ at = \"100s\", share = 1.0 }]")];
    let purged = play("max-age=1000000", &purges);
    assert!((0.01..0.1).contains(&parts(&purged).origin), "{:?}", parts(&purged));
}

#[test]
fn disk_that_cannot_be_is_refused_with_what_to_set() {
    let places = |changes: &[(&str, &str)]| {
        let mut library = Library::without_files();
        library.keep("small", RICE.scaled(100, 1_000).generate(1));
        let small = [("workload.trace", "small")];
        let scenario = Scenario::default().with(small).unwrap().with(changes.iter().copied());
        let problems = scenario.unwrap().prepare(&mut library).unwrap_err();
        problems.0.into_iter().map(|problem| problem.to_string()).collect::<Vec<_>>()
    };
    let origin = ("origin.latency", "40ms");
    for (changes, place, what) in [
        (vec![origin, ("cache.disk", "0")], "cache.disk", "16MiB"),
        (vec![origin, ("cache.disk", "20MiB")], "cache.disk", "`cache.memory`"),
        (vec![("cache.disk", "1GiB")], "cache.disk", "`[origin]`"),
        (vec![origin, ("cache.disk", "1GiB"), ("policy.name", "wrr/gms")], "policy.name", "leave"),
        (vec![("servers.disk_bytes_per_second", "0")], "servers.disk_bytes", "papers"),
        (
            vec![("cap.window.drain", "1m"), ("cache.admission", "second_hit")],
            "cache.admission",
            "leave",
        ),
    ] {
        let problems = places(&changes);
        let found = problems.iter().any(|text| text.starts_with(place) && text.contains(what));
        assert!(found, "{changes:?}: {problems:?}");
    }
    assert!(Scenario::default().with([("cache.disk", "much")]).is_err());
}
