//! Regions, and the one that shields origins: docs/operate/regions.md.

use std::time::Duration;

use levada_config::{MissLimits, Settings, SiteSettings};
use levada_policy::POLICIES;
use serde_json::json;

use super::{
    large::{PIECE, asked_ranges, body, in_pieces, piece_ranges, ranged, serve},
    purge::purge,
};
use crate::support::{nodes::*, *};

/// Gives `n0` and `n1` the region eu, and the others us, which is the shield.
fn regions(settings: &mut Settings) {
    for (at, peer) in settings.peering.iter_mut().flat_map(|peering| &mut peering.peers).enumerate()
    {
        peer.region = if at < 2 { "eu" } else { "us" }.into();
    }
    settings.sites[0].servers.shield = Some(shielded("us", "hrw"));
}

/// The next hop of an answer, if there was one.
fn next_hop(answer: &Answer) -> Option<String> {
    let told = answer.field("proxy-status");
    let (_, hop) = told.split_once("next-hop=\"")?;
    hop.split('"').next().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_is_asked_once_for_all_regions() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, regions).await;
    for n in 0..24 {
        let target = format!("/{n}");
        for node in [0, 2, 1, 3, 0] {
            let answer = get(cluster.client(node), &target).await;
            assert_eq!((answer.status, answer.text()), (200, target.clone()));
            let own = if node < 2 { ["n0", "n1"] } else { ["n2", "n3"] };
            let hop = next_hop(&answer).unwrap_or_else(|| own[0].to_owned());
            assert!(own.contains(&&*hop), "{target} at n{node}: {hop}");
        }
        assert_eq!(origin.hits(&target), 1, "{target}");
        let passed = origin.asked(&target)[0].header("cdn-loop").unwrap();
        assert!(
            passed.contains("levada, levada"),
            "the first request went by the shield: {passed}"
        );
    }
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_names_the_cache_of_each_tier() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, regions).await;
    let explained = async |node: usize, target: &str| {
        let url = format!("/explain?url=http://{HOST}{target}");
        admin_json(cluster.node(node), &url).await
    };
    let mut own = None;
    for n in 0..64 {
        let target = format!("/{n}");
        if explained(0, &target).await["node"] == "n0" {
            own = Some(target);
            break;
        }
    }
    let target = own.expect("n0 has a part of the objects");
    let shield = explained(0, &target).await["shield"].clone();
    assert_eq!((&shield["policy"], &shield["reason"]), (&json!("hrw"), &json!("hash")));
    let first = shield["node"].as_str().unwrap();
    let told = get(cluster.client(0), &target).await.field("cache-status");
    let members: Vec<_> = told.split(", ").collect();
    assert!(members[0].starts_with(&format!("{first}; fwd=uri-miss")), "{told}");
    assert!(members[1].starts_with("n0; fwd=uri-miss"), "{told}");
    let of_shield = &explained(2, &target).await["shield"];
    assert_eq!(of_shield["node"], first, "the nodes of the shield agree");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_policy_chooses_among_the_nodes_of_the_shield() {
    let origin = Origin::start().await;
    let policies =
        || POLICIES.iter().flat_map(|file| file.iter()).filter(|one| one.runs_on_an_edge());
    let host = |at: usize| format!("p{at}.test");
    let cluster = Cluster::start(4, origin.address, |settings| {
        regions(settings);
        let first = settings.sites[0].clone();
        settings.sites.extend(policies().enumerate().map(|(at, entry)| {
            let mut site = SiteSettings { hosts: vec![host(at)], ..first.clone() };
            site.servers.shield = Some(shielded("us", entry.name));
            site
        }));
    })
    .await;
    for (at, entry) in policies().enumerate() {
        let (name, host) = (entry.name, host(at));
        let explained = async |node: usize, target: &str| {
            let url = format!("/explain?url=http://{host}{target}");
            admin_json(cluster.node(node), &url).await["shield"].clone()
        };
        for n in 0..4 {
            let target = format!("/{at}/{n}");
            let choice = explained(0, &target).await;
            assert_eq!((&choice["region"], &choice["policy"]), (&json!("us"), &json!(name)));
            assert!(["n2", "n3"].contains(&choice["node"].as_str().unwrap()), "{name}: {choice}");
            for node in 0..4 {
                let answer = get_with(cluster.client(node), &target, &[("Host", &host)]).await;
                assert_eq!((answer.status, answer.text()), (200, target.clone()), "{name}");
            }
            let asked = origin.asked(&target);
            assert!((1..=2).contains(&asked.len()), "{name}: no node of us asks twice");
            let hops = asked[0].header("cdn-loop").unwrap();
            assert!(hops.contains("levada, levada"), "{name}: eu has asked by us: {hops}");
        }
    }
    let decided = metric(cluster.node(0), "levada_policy_decisions_total").await;
    assert!(decided > 0.0);
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_of_the_shield_sees_the_requests_of_this_node_at_each_of_its_nodes() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |settings| {
        regions(settings);
        settings.sites[0].servers.policy = policy("hrw");
        settings.sites[0].servers.shield = Some(shielded("us", "least_conn"));
    })
    .await;
    let explained = async |target: &str| {
        let url = format!("/explain?url=http://{HOST}{target}");
        admin_json(cluster.node(0), &url).await
    };
    let mut own = Vec::new();
    for n in 0..64 {
        let target = format!("/held?{n}");
        if explained(&target).await["node"] == "n0" {
            own.push(target);
        }
    }
    let gate = Gate::new();
    origin.on("/held", Reply::cached("held").after(&gate));
    let (held, at) = (own.pop().unwrap(), cluster.client(0));
    let held = tokio::spawn(async move { get(at, &held).await.status });
    let outstanding = async || {
        let status = admin_json(cluster.node(0), "/status").await;
        let peers = status["peers"].as_array().unwrap().clone();
        let of =
            |name| peers.iter().find(|peer| peer["name"] == name).unwrap()["outstanding"].clone();
        [of("n2"), of("n3")]
    };
    while outstanding().await == [0, 0] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let free = if outstanding().await[0] == 0 { "n2" } else { "n3" };
    for target in &own {
        let choice = explained(target).await["shield"].clone();
        assert_eq!((&choice["node"], &choice["reason"]), (&json!(free), &json!("least")));
    }
    gate.open();
    assert_eq!(within(held).await.unwrap(), 200);
    cluster.settled().await;
    assert_eq!(outstanding().await, [0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_the_shield_ask_the_one_that_the_other_regions_ask() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |settings| {
        regions(settings);
        // Clients of us get objects from either of its nodes.
        settings.sites[0].servers.policy = policy("round_robin");
        settings.sites[0].large = Some(in_pieces());
        settings.sites[0].large.as_mut().unwrap().replicas = Some(2);
    })
    .await;
    for n in 0..12 {
        let target = format!("/{n}");
        for node in [2, 3, 2, 3, 0, 1, 2] {
            assert_eq!(get(cluster.client(node), &target).await.text(), target);
        }
        assert_eq!(origin.hits(&target), 1, "{target}");
    }
    let whole = serve(&origin, 6 * PIECE + 77);
    for node in [2, 3, 2, 3, 0, 1] {
        assert!(get(cluster.client(node), "/a").await.body == whole, "n{node}");
    }
    cluster.settled().await;
    let expected = [vec![String::new()], piece_ranges(whole.len())].concat();
    assert_eq!(asked_ranges(&origin), expected, "the head once, and each piece once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_the_shield_that_take_each_other_for_the_chosen_one_do_not_wait_for_each_other() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |settings| {
        regions(settings);
        settings.sites[0].servers.policy = policy("round_robin");
        settings.sites[0].servers.shield = Some(shielded("us", "round_robin"));
    })
    .await;
    let targets: Vec<_> = (0..40).map(|n| format!("/{n}")).collect();
    let asked =
        targets.iter().flat_map(|target| (2..4).map(|node| (cluster.client(node), target.clone())));
    let asked: Vec<_> = asked
        .map(|(at, target)| tokio::spawn(async move { get(at, &target).await.text() == target }))
        .collect();
    for one in asked {
        assert!(within(one).await.unwrap());
    }
    assert!(targets.iter().all(|target| (1..=2).contains(&origin.hits(target))));
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_is_asked_itself_while_the_shield_is_away() {
    let origin = Origin::start().await;
    let mut cluster = Cluster::start(4, origin.address, regions).await;
    assert_eq!(get(cluster.client(0), "/a").await.status, 200);
    cluster.kill(2);
    cluster.kill(3);
    for target in ["/b", "/c", "/d"] {
        assert_eq!(get(cluster.client(0), target).await.text(), target);
        assert_eq!(origin.hits(target), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_is_asked_itself_while_the_queues_of_the_shield_are_full() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |settings| {
        regions(settings);
        if ["n2", "n3"].contains(&&*settings.name) {
            let wait = Duration::from_secs(60);
            settings.sites[0].servers.misses = MissLimits { at_once: 1, queue: 0, wait };
        }
    })
    .await;
    let gate = Gate::new();
    origin.on("/held", Reply::cached("held").after(&gate));
    let held: Vec<_> = (0..16)
        .map(|n| {
            let at = cluster.client(2 + n % 2);
            tokio::spawn(async move { get(at, &format!("/held?{n}")).await.status })
        })
        .collect();
    let places = || [2, 3].map(|node| cluster.node(node).counts().misses);
    eventually("the places of the shield are taken", || places() == [1, 1]).await;
    for node in [0, 1] {
        let target = format!("/{node}");
        let answer = get(cluster.client(node), &target).await;
        assert_eq!((answer.status, answer.text()), (200, target.clone()), "{answer:?}");
        assert_eq!(origin.hits(&target), 1);
    }
    gate.open();
    let mut passed = 0;
    for request in held {
        passed += usize::from(within(request).await.unwrap() == 200);
    }
    assert!(passed >= 2, "{passed}");
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purge_by_tag_reaches_what_came_by_the_shield() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, regions).await;
    let reply = |text: &str| {
        Reply::ok(text).with("Cache-Control", "max-age=60").with("Surrogate-Key", "news sport")
    };
    origin.on("/a", reply("old"));
    for node in 0..4 {
        let answer = get(cluster.client(node), "/a").await;
        assert_eq!((&*answer.text(), &*answer.field("levada-tags")), ("old", ""));
    }
    assert_eq!(origin.hits("/a"), 1);
    origin.on("/a", reply("new"));
    let report = purge(cluster.node(1), json!({"tag": "sport"})).await;
    assert_eq!(report["confirmed"], true, "{report}");
    for node in 0..4 {
        assert_eq!(get(cluster.client(node), "/a").await.text(), "new");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_and_ranges_come_by_the_shield() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |settings| {
        regions(settings);
        settings.cache.block = 64 << 10;
    })
    .await;
    let body: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    origin.on(
        "/long",
        Reply::ok(body.clone()).with("Cache-Control", "max-age=60").with("ETag", "\"1\""),
    );
    for node in [0, 1, 2, 3] {
        let answer = get(cluster.client(node), "/long").await;
        assert!(answer.body == body, "n{node}: {} bytes", answer.body.len());
        let part =
            get_with(cluster.client(node), "/long", &[("Range", "bytes=70000-199999")]).await;
        assert!(part.status == 206 && part.body == body[70_000..200_000], "n{node}");
    }
    assert_eq!(origin.hits("/long"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_of_a_large_file_come_from_the_origin_once_for_all_regions() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |settings| {
        regions(settings);
        settings.sites[0].large = Some(in_pieces());
    })
    .await;
    let whole = serve(&origin, 6 * PIECE + 77);
    for node in 0..4 {
        let part = &[("Range", "bytes=20000-59999")];
        let answer = get_with(cluster.client(node), "/a", part).await;
        assert!(answer.status == 206 && answer.body == whole[20_000..60_000], "n{node}");
        let answer = get(cluster.client(node), "/a").await;
        assert!(answer.body == whole && answer.header("levada-large").is_none(), "n{node}");
    }
    cluster.settled().await;
    let mut expected = piece_ranges(whole.len());
    // The client's range begins in the first block, which the head came with.
    expected.push("bytes=0-1048575".to_owned());
    expected.sort();
    assert_eq!(asked_ranges(&origin), expected, "the head once, and each piece once");
    let passed = origin.asked("/a").into_iter().map(|asked| asked.header("cdn-loop").unwrap());
    assert!(passed.into_iter().all(|passed| passed.contains("levada")));
    assert!(origin.asked("/a").iter().all(|asked| {
        ["levada-piece", "levada-large", "levada-shield"].iter().all(|n| asked.header(n).is_none())
    }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purge_and_a_new_version_of_a_large_file_reach_all_regions() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |settings| {
        regions(settings);
        settings.sites[0].large = Some(in_pieces());
    })
    .await;
    let old = serve(&origin, 6 * PIECE + 77);
    for node in 0..4 {
        assert!(get(cluster.client(node), "/a").await.body == old, "n{node}");
    }
    let new = body(4 * PIECE + 5, 1);
    let content = new.clone();
    origin.script("/a", move |asked| ranged(asked, &content, "\"v2\""));
    let report = purge(cluster.node(0), json!({"url": format!("http://{HOST}/a")})).await;
    assert_eq!(report["confirmed"], true, "{report}");
    for node in 0..4 {
        assert!(get(cluster.client(node), "/a").await.body == new, "n{node}");
    }
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shield_that_takes_another_region_for_it_asks_the_origin() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |settings| {
        regions(settings);
        // The nodes of us take eu for the shield, which takes us for it.
        if ["n2", "n3"].contains(&&*settings.name) {
            settings.sites[0].servers.shield = Some(shielded("eu", "hrw"));
        }
    })
    .await;
    for node in 0..4 {
        let target = format!("/{node}");
        assert_eq!(get(cluster.client(node), &target).await.text(), target);
        assert_eq!(origin.hits(&target), 1);
    }
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_is_no_region() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, regions).await;
    origin.on("/a", Reply::ok("a").with("Cache-Control", "max-age=60").with("Surrogate-Key", "k"));
    let answer = get_with(cluster.client(0), "/a", &[("levada-shield", "1")]).await;
    assert_eq!((answer.status, &*answer.field("levada-tags")), (200, ""));
    assert!(origin.asked("/a")[0].header("cdn-loop").unwrap().contains("levada, levada"));
    assert_eq!(origin.asked("/a")[0].header("levada-shield"), None);
}
