//! Nodes and origins that die and come back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use crate::support::{nodes::*, *};

async fn is_up(node: &levada_node::Running, kind: &str, name: &str) -> bool {
    let status = admin_json(node, "/status").await;
    let servers = status[kind].as_array().unwrap().clone();
    servers.iter().find(|s| s["name"] == name).unwrap()["up"].as_bool().unwrap()
}

async fn until_up(node: &levada_node::Running, kind: &str, name: &str, up: bool) {
    within(async {
        while is_up(node, kind, name).await != up {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_when_a_node_dies_and_comes_back() {
    let origin = Origin::start().await;
    let mut cluster = Cluster::start(4, origin.address, |settings| {
        settings.peering.as_mut().unwrap().health = watched();
    })
    .await;
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut load = JoinSet::new();
    for worker in 0..6usize {
        let at = cluster.client(worker % 3);
        let (stop, served) = (stop.clone(), served.clone());
        load.spawn(async move {
            let mut wire = Wire::to(at).await;
            for n in worker.. {
                if stop.load(Relaxed) {
                    return;
                }
                let target = format!("/{}", n % 50);
                wire.send(head_of("GET", &target, &[])).await;
                let answer = wire.answer().await;
                assert_eq!((answer.status, answer.text()), (200, target), "{answer:?}");
                assert!(answer.whole);
                served.fetch_add(1, Relaxed);
            }
        });
    }
    let some_more = || {
        let (served, from) = (served.clone(), served.load(Relaxed));
        async move { eventually("load", || served.load(Relaxed) > from + 200).await }
    };
    some_more().await;
    cluster.kill(3);
    some_more().await;
    for node in 0..3 {
        until_up(cluster.node(node), "peers", "n3", false).await;
    }
    some_more().await;
    cluster.revive(3).await;
    for node in 0..3 {
        until_up(cluster.node(node), "peers", "n3", true).await;
    }
    some_more().await;
    stop.store(true, Relaxed);
    while let Some(done) = load.join_next().await {
        done.unwrap();
    }
    cluster.settled().await;
}

#[tokio::test]
async fn node_that_comes_back_gets_its_keys_gradually() {
    let origin = Origin::start().await;
    let mut cluster = Cluster::start(3, origin.address, |settings| {
        let peering = settings.peering.as_mut().unwrap();
        peering.health = watched();
        peering.slow_start = Duration::from_secs(6);
        settings.sites[0].servers.policy = policy("hrw");
    })
    .await;
    let share = async |cluster: &Cluster| {
        let mut found = 0;
        for n in 0..60 {
            let url = format!("/explain?url=http://{HOST}/{n}");
            found += usize::from(admin_json(cluster.node(0), &url).await["node"] == "n2");
        }
        found
    };
    let full = share(&cluster).await;
    assert!(full > 8, "{full}");
    cluster.kill(2);
    until_up(cluster.node(0), "peers", "n2", false).await;
    assert_eq!(share(&cluster).await, 0);
    cluster.revive(2).await;
    until_up(cluster.node(0), "peers", "n2", true).await;
    let first = share(&cluster).await;
    assert!(first < full, "{first} of {full} keys at once");
    within(async {
        while share(&cluster).await < full {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    cluster.settled().await;
}

#[tokio::test]
async fn failing_origin_is_ejected_and_tried_again_later() {
    let (bad, good) = (Origin::start().await, Origin::start().await);
    for n in 0..50 {
        bad.on(&format!("/{n}"), Reply::hang_up());
    }
    let mut settings = single(&[bad.address, good.address]);
    settings.sites[0].servers.health = levada_config::HealthCheck {
        interval: Duration::ZERO,
        eject_for: Duration::from_millis(400),
        ..watched()
    };
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    let name = bad.address.to_string();
    for n in 0..3 {
        assert_eq!(get(at, &format!("/{n}")).await.status, 200);
    }
    assert!(!is_up(&node, "origins", &name).await);
    assert_eq!(bad.total(), 3);
    for n in 3..6 {
        assert_eq!(get(at, &format!("/{n}")).await.status, 200);
    }
    assert_eq!(bad.total(), 3, "nobody asks it meanwhile");
    until_up(&node, "origins", &name, true).await;
    // Now one failure ejects it, and the ejection lasts twice as long.
    assert_eq!(get(at, "/7").await.status, 200);
    let ejected = std::time::Instant::now();
    assert!(!is_up(&node, "origins", &name).await);
    assert_eq!(bad.total(), 4);
    until_up(&node, "origins", &name, true).await;
    assert!(ejected.elapsed() >= Duration::from_millis(700), "{:?}", ejected.elapsed());
    settled(&node).await;
}

#[tokio::test]
async fn probes_find_out_that_an_origin_is_gone_and_back() {
    let origin = Origin::start().await;
    let address = origin.address;
    let mut settings = single(&[address]);
    settings.sites[0].servers.health =
        levada_config::HealthCheck { path: Some("/up".to_owned()), eject_after: 0, ..watched() };
    let node = start(settings).await;
    let name = address.to_string();
    eventually("it is probed", || origin.hits("/up") > 3).await;
    assert_eq!(origin.asked("/up")[0].header("host").unwrap(), HOST);
    assert_eq!(admin(&node, "/readyz").await.status, 200);
    origin.on("/up", Reply::ok("").status("500 Internal Server Error"));
    until_up(&node, "origins", &name, false).await;
    assert_eq!(admin(&node, "/readyz").await.status, 503);
    assert_eq!(get(node.addresses.clients[0], "/a").await.status, 200, "asked as a last resort");
    origin.on("/up", Reply::ok(""));
    until_up(&node, "origins", &name, true).await;
    drop(origin);
    until_up(&node, "origins", &name, false).await;
    let _back = Origin::at(address).await;
    until_up(&node, "origins", &name, true).await;
    settled(&node).await;
}

#[tokio::test]
async fn sites_with_the_same_origin_and_check_share_its_probes() {
    let (alone, shared) = (Origin::start().await, Origin::start().await);
    let probed = |name: &str, host: &str, origin: &Origin| {
        let mut site = site(name, &[origin.address]);
        site.servers.origin_host = Some(host.to_owned());
        site.servers.health =
            levada_config::HealthCheck { path: Some("/up".to_owned()), ..watched() };
        site
    };
    let mut settings = single(&[]);
    settings.sites = vec![probed("alone.test", "a.test", &alone)];
    let many = (0..50).map(|number| probed(&format!("{number}.test"), "a.test", &shared));
    settings.sites.extend(many);
    // Another host is another probe.
    settings.sites.push(probed("other.test", "b.test", &shared));
    let (node, file) = world(settings.clone()).await;
    let counts = || {
        let of = |host: &str| {
            let asked = shared.asked("/up");
            asked.iter().filter(|one| one.header("host").is_some_and(|name| name == host)).count()
        };
        [alone.hits("/up"), of("a.test"), of("b.test")]
    };
    // Without the first sites, another one leads.
    for sites in [0..0, 1..20] {
        settings.sites.drain(sites);
        *file.lock().unwrap() = Ok(settings.clone());
        assert_eq!(reload(&node).await.status, 200);
        let before = counts();
        eventually("it is probed", || counts()[0] >= before[0] + 30).await;
        let [alone, shared, other] = [0, 1, 2].map(|at| counts()[at] - before[at]);
        assert!((alone / 3..alone * 2).contains(&shared), "{alone} {shared}");
        assert!((alone / 3..alone * 2).contains(&other), "{alone} {other}");
    }
    let name = shared.address.to_string();
    shared.on("/up", Reply::ok("").status("500 Internal Server Error"));
    until_up(&node, "origins", &name, false).await;
    shared.on("/up", Reply::ok(""));
    until_up(&node, "origins", &name, true).await;
    settled(&node).await;
}

#[tokio::test]
async fn busy_server_is_not_taken_for_a_dead_one() {
    let origin = Origin::start().await;
    let gate = Gate::new();
    origin.on("/slow", Reply::ok("done").after(&gate));
    let mut settings = single(&[origin.address]);
    settings.limits.server_connections = 1;
    settings.sites[0].servers.health = levada_config::HealthCheck {
        timeout: Duration::from_millis(500),
        path: Some("/up".to_owned()),
        ..watched()
    };
    let node = start(settings).await;
    let mut slow = Wire::saying(node.addresses.clients[0], head_of("GET", "/slow", &[])).await;
    eventually("the only place is taken", || origin.hits("/slow") == 1).await;
    let before = origin.hits("/up");
    eventually("it is probed all the same", || origin.hits("/up") > before + 5).await;
    assert!(is_up(&node, "origins", &origin.address.to_string()).await);
    gate.open();
    assert_eq!(slow.answer().await.text(), "done");
    settled(&node).await;
}

#[tokio::test]
async fn full_node_refuses_and_the_next_one_serves() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |settings| {
        settings.limits.capacity = 1;
        settings.sites[0].servers.policy = policy("hrw");
    })
    .await;
    let mut target = String::new();
    let mut peer = 0;
    for n in 0.. {
        target = format!("/{n}");
        let url = format!("/explain?url=http://{HOST}{target}");
        let told = admin_json(cluster.node(0), &url).await["node"].as_str().unwrap().to_owned();
        if told != "n0" {
            peer = told[1..].parse().unwrap();
            break;
        }
    }
    let gate = Gate::new();
    origin.on("/held", Reply::ok("held").after(&gate));
    // Over the peer listener, so that this node holds the request.
    let mut held = cluster.peer_wire(peer).await;
    held.send(head_of("GET", "/held", &[])).await;
    eventually("the node is full", || cluster.node(peer).counts().in_service == 1).await;
    let refused = cluster.get_as_peer(peer, &target, &[]).await;
    assert_eq!((refused.status, refused.field("retry-after")), (503, "1".to_owned()));
    let answer = get(cluster.client(0), &target).await;
    assert_eq!((answer.status, answer.text()), (200, target));
    assert!(!answer.field("via").contains(&format!("n{peer}")), "{answer:?}");
    gate.open();
    assert_eq!(held.answer().await.text(), "held");
    cluster.settled().await;
}

/// The first two nodes of a cluster as the first one sees it. The second one accepts requests, and answers
/// none.
async fn beside_a_silent_peer(origin: &Origin, peer: &Origin) -> Cluster {
    peer.otherwise(|_| Reply::ok("never").after(&Gate::new()));
    let silent = as_peer("n1", peer.address).await;
    Cluster::start(2, origin.address, |settings| {
        settings.sites[0].servers.policy = policy("hrw");
        settings.peering.as_mut().unwrap().peers[1].address = silent.clone();
    })
    .await
}

#[tokio::test]
async fn request_does_not_wait_for_a_peer_that_is_suspended() {
    let (origin, peer) = (Origin::start().await, Origin::start().await);
    let cluster = beside_a_silent_peer(&origin, &peer).await;
    let at = cluster.client(0);
    let mut asked = JoinSet::new();
    for n in 0..20 {
        asked.spawn(async move { (n, get(at, &format!("/{n}")).await) });
    }
    while let Some(answer) = asked.join_next().await {
        let (n, answer) = answer.unwrap();
        assert_eq!((answer.status, answer.text()), (200, format!("/{n}")));
    }
    assert!(peer.total() > 3, "{}", peer.total());
    settled(cluster.node(0)).await;
}

#[tokio::test]
async fn single_origin_is_asked_again_when_its_response_is_late() {
    let (origin, node, at) = alone(|_| {}).await;
    let asked = AtomicUsize::new(0);
    origin.script("/a", move |_| match asked.fetch_add(1, Relaxed) {
        0 => Reply::ok("never").after(&Gate::new()),
        _ => Reply::ok("again"),
    });
    assert_eq!(get(at, "/a").await.text(), "again");
    settled(&node).await;
}

#[tokio::test]
async fn origin_that_serves_requests_is_not_declared_down_by_lost_probes() {
    let (origin, node, at) = alone(|settings| {
        settings.sites[0].servers.health = levada_config::HealthCheck {
            path: Some("/health".to_owned()),
            timeout: Duration::from_millis(500),
            ..watched()
        };
    })
    .await;
    let name = origin.address.to_string();
    origin.script("/health", |_| Reply::ok("too late").after(&Gate::new()));
    origin.script("/busy", |_| Reply::ok("busy").with("cache-control", "no-store"));
    within(async {
        while origin.hits("/health") < 6 {
            assert_eq!(get(at, "/busy").await.status, 200);
            assert!(is_up(&node, "origins", &name).await);
        }
    })
    .await;
    // Nothing speaks for it any more.
    until_up(&node, "origins", &name, false).await;
    settled(&node).await;
}
