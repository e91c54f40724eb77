//! Clusters: policies, peers and requests that only claim to be from peers, redirects, loops.

use std::collections::BTreeMap;

use levada_config::{Delivery, PeerTrust};
use levada_upstream::PeerProof;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{nodes::*, *};

/// The node that served an answer which came through `redirector`.
fn served_by(redirector: usize, answer: &Answer) -> String {
    match answer.field("proxy-status").split_once("next-hop=\"") {
        Some((_, hop)) => hop.split('"').next().unwrap().to_owned(),
        None => format!("n{redirector}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_policy_serves_every_request_right() {
    let origin = Origin::start().await;
    for entry in levada_policy::POLICIES.iter().copied().flatten() {
        if !entry.runs_on_an_edge() {
            continue;
        }
        let cluster = Cluster::start(4, origin.address, |settings| {
            settings.sites[0].servers.policy = policy(entry.name);
        })
        .await;
        let mut wires = Vec::new();
        for index in 0..4 {
            wires.push(Wire::to(cluster.client(index)).await);
        }
        for n in 0..200 {
            let target = format!("/{}/{}", entry.name, n % 40);
            let wire = &mut wires[n * 7 % 4];
            wire.send(head_of("GET", &target, &[])).await;
            let answer = wire.answer().await;
            assert_eq!((answer.status, answer.text()), (200, target), "{}", entry.name);
        }
        cluster.settled().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirectors_agree_on_the_node_of_a_url() {
    let origin = Origin::start().await;
    for name in ["modulo", "maglev", "ring_hash", "hrw", "cdr", "fdr"] {
        let cluster = Cluster::start(4, origin.address, |settings| {
            settings.sites[0].servers.policy = policy(name);
        })
        .await;
        let mut by_node: BTreeMap<String, usize> = BTreeMap::new();
        for n in 0..16 {
            let target = format!("/{name}/{n}");
            let mut nodes = Vec::new();
            for redirector in 0..4 {
                let answer = get(cluster.client(redirector), &target).await;
                nodes.push(served_by(redirector, &answer));
            }
            assert!(nodes.iter().all(|node| *node == nodes[0]), "{name} {target}: {nodes:?}");
            *by_node.entry(nodes[0].clone()).or_default() += 1;
            assert_eq!(origin.hits(&target), 1, "fetched once for all");
        }
        assert!(by_node.len() >= 2, "{name}: {by_node:?}");
        cluster.settled().await;
    }
}

/// A target that `n0` sends to another node.
async fn target_of_a_peer(cluster: &Cluster) -> (String, usize) {
    for n in 0..64 {
        let target = format!("/elsewhere/{n}");
        let url = format!("/explain?url=http://{HOST}{target}");
        let told = admin_json(cluster.node(0), &url).await;
        let node = told["node"].as_str().unwrap().to_owned();
        if node != "n0" {
            return (target, node[1..].parse().unwrap());
        }
    }
    panic!("n0 serves everything itself");
}

#[tokio::test]
async fn request_is_forwarded_once_and_its_path_is_told() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |_| {}).await;
    let (target, peer) = target_of_a_peer(&cluster).await;
    let claims = [("X-Forwarded-For", "192.0.2.1")];
    let answer = get_with(cluster.client(0), &target, &claims).await;
    assert_eq!(answer.text(), target);
    assert_eq!(answer.field("via"), format!("1.1 n{peer}, 1.1 n0"));
    let status = answer.field("proxy-status");
    assert!(
        status.starts_with(&format!("n0; next-hop=\"n{peer}\"; details=\"policy=fdr")),
        "{status}"
    );
    assert!(answer.field("cache-status").starts_with(&format!("n{peer}; fwd=uri-miss")));
    let asked = &origin.asked(&target)[0];
    assert_eq!(asked.header("cdn-loop").unwrap(), "levada, levada");
    assert_eq!(asked.header("via").unwrap(), format!("1.1 n0, 1.1 n{peer}"));
    assert_eq!(asked.header("x-forwarded-for").unwrap(), "127.0.0.1");
    assert_eq!(asked.header("x-forwarded-host").unwrap(), HOST);
    assert_eq!(asked.header("levada-peer"), None, "the secret stays in the cluster");
    cluster.settled().await;
    assert!(get(cluster.client(0), &target).await.is_hit());
    // The node serves a request on the peer listener itself, whatever the policy decides.
    let stranger = (peer + 1) % 4;
    let direct = cluster.get_as_peer(stranger, &target, &[]).await;
    assert_eq!(direct.field("via"), format!("1.1 n{stranger}"));
    assert_eq!(direct.header("proxy-status"), None);
    cluster.settled().await;
}

#[tokio::test]
async fn peer_listener_refuses_strangers() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, |_| {}).await;
    for value in ["n1", "n1;", "n1;wrong", &format!("n1;{SECRET}"), SECRET] {
        let answer = get_with(cluster.peer(0), "/a", &[("Levada-Peer", value)]).await;
        assert_eq!(answer.status, 403, "{value}");
    }
    for (secret, node) in [("a guess of 16 bytes", "n0"), (SECRET, "n1")] {
        let mut stream = tokio::net::TcpStream::connect(cluster.peer(0)).await.unwrap();
        PeerProof::new(&secret.into(), node).give(&mut stream).await.unwrap();
        let mut wire = Wire::over(stream);
        wire.send(head_of("GET", "/a", &[])).await;
        assert_eq!(wire.answer().await.status, 403, "{secret} {node}");
    }
    for target in ["/a", "/.levada/health"] {
        let answer = get(cluster.peer(0), target).await;
        assert_eq!(answer.status, 403);
        assert!(answer.field("proxy-status").contains("error=http_request_denied"));
    }
    assert_eq!(origin.total(), 0);
    cluster.settled().await;
}

#[tokio::test]
async fn secret_of_the_cluster_is_never_sent() {
    let origin = Origin::start().await;
    let tap = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tapped = tap.local_addr().unwrap().to_string();
    let cluster = Cluster::start(2, origin.address, |settings| {
        if settings.name == "n0" {
            settings.peering.as_mut().unwrap().peers[1].address = tapped.clone();
        }
    })
    .await;
    // The bytes of each connection.
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::<Vec<u8>>::new()));
    let (to, log) = (cluster.peer(1), heard.clone());
    tokio::spawn(async move {
        while let Ok((caller, _)) = tap.accept().await {
            let node = tokio::net::TcpStream::connect(to).await.unwrap();
            let ((mut from_caller, mut to_caller), (mut from_node, mut to_node)) =
                (caller.into_split(), node.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_node, &mut to_caller).await });
            let log = log.clone();
            let number = log.lock().unwrap().len();
            log.lock().unwrap().push(Vec::new());
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while let Ok(read @ 1..) = from_caller.read(&mut bytes).await {
                    log.lock().unwrap()[number].extend_from_slice(&bytes[..read]);
                    to_node.write_all(&bytes[..read]).await.unwrap();
                }
            });
        }
    });
    let mut answers = Vec::new();
    for number in 0..20 {
        answers.push(served_by(0, &get(cluster.client(0), &format!("/{number}")).await));
    }
    assert!(answers.iter().any(|node| node == "n1"), "{answers:?}");
    let heard = heard.lock().unwrap().clone();
    let has = |one: &[u8], text: &[u8]| one.windows(text.len()).any(|part| part == text);
    assert!(!heard.iter().any(|one| has(one, SECRET.as_bytes()) || has(one, b"levada-peer:")));
    // A party that has heard a connection cannot repeat it.
    let asking = heard.iter().find(|one| has(one, b"GET ")).expect("a request was heard");
    let mut repeated = Wire::saying(cluster.peer(1), asking).await;
    let nonce = repeated.take(32).await;
    assert_eq!((nonce.len(), repeated.answer().await.status), (32, 403));
    drop(repeated);
    cluster.settled().await;
}

#[tokio::test]
async fn client_cannot_play_a_peer() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |_| {}).await;
    let (target, peer) = target_of_a_peer(&cluster).await;
    // The client listener accepts no peers, even with the secret.
    let credential = format!("n1;{SECRET}");
    let fields = [("Levada-Peer", credential.as_str())];
    let answer = get_with(cluster.client(0), &target, &fields).await;
    assert_eq!(served_by(0, &answer), format!("n{peer}"));
    assert_eq!(origin.asked(&target)[0].header("levada-peer"), None);
    // The health probe's page is for peers.
    let probe = get_with(cluster.client(0), "/.levada/health", &fields).await;
    assert_eq!(probe.text(), "/.levada/health", "it is a page of the origin like any other");
    cluster.settled().await;
}

#[tokio::test]
async fn head_at_the_limits_of_a_client_passes_between_peers() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |_| {}).await;
    let (target, _) = target_of_a_peer(&cluster).await;
    let many: Vec<(String, String)> = (0..98).map(|n| (format!("x-{n}"), "v".into())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let answer = get_with(cluster.client(0), &target, &many).await;
    assert_eq!((answer.status, answer.text()), (200, target.clone()));
    let long = "v".repeat((32 << 10) - 200);
    let answer = get_with(cluster.client(0), &target, &[("x-long", &long)]).await;
    assert_eq!((answer.status, answer.text()), (200, target.clone()));
    cluster.settled().await;
}

#[tokio::test]
async fn response_head_at_the_limits_passes_between_peers() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |_| {}).await;
    let (target, _) = target_of_a_peer(&cluster).await;
    // A hundred fields with the length, the limit for an origin.
    let reply = (0..99).fold(Reply::ok("x"), |reply, n| reply.with(&format!("x-{n}"), "v"));
    origin.on(&target, reply);
    assert_eq!(get(cluster.client(0), &target).await.status, 200);
    cluster.settled().await;
}

#[tokio::test]
async fn origin_cannot_pass_for_a_full_peer() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |_| {}).await;
    let (target, peer) = target_of_a_peer(&cluster).await;
    for (reply, why) in [
        (Reply::cached("x"), "full"),
        (Reply::ok("x"), "full"),
        (Reply::ok("x").with("cache-control", "no-store"), "full"),
        (Reply::ok("x").status("403 Forbidden").with("cache-control", "no-store"), "stranger"),
    ] {
        let before = origin.hits(&target);
        origin.on(&target, reply.with("levada-refused", why));
        let post = head_of("POST", &target, &[("Content-Length", "0")]);
        Wire::saying(cluster.client(peer), post).await.answer().await;
        let answer = get(cluster.client(0), &target).await;
        assert_eq!(served_by(0, &answer), format!("n{peer}"), "{answer:?}");
        assert_eq!(answer.header("levada-refused"), None);
        assert_eq!(origin.hits(&target), before + 2);
    }
    cluster.settled().await;
}

#[tokio::test]
async fn redirect_leads_to_the_chosen_node() {
    let origin = Origin::start().await;
    let cluster =
        Cluster::start(4, origin.address, |s| s.sites[0].delivery = Delivery::Redirect).await;
    let (path, _) = target_of_a_peer(&cluster).await;
    let target = format!("{path}?a=b");
    let mut found = None;
    for redirector in 0..4 {
        let answer = get(cluster.client(redirector), &target).await;
        if answer.status == 307 {
            found = Some(answer);
        }
    }
    let answer = found.expect("somebody sends the client away");
    let location = answer.field("location");
    assert_eq!(answer.field("cache-control"), "no-store");
    let (base, pass) = location.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let pass = format!("/{pass}");
    let chosen = (0..4).find(|n| cluster.client(*n).to_string() == base).expect("a node");
    let own_host = [("Host", base)];
    let followed = get_with(cluster.client(chosen), &pass, &own_host).await;
    assert_eq!((followed.status, followed.text()), (200, target.clone()), "{location}");
    assert_eq!(origin.asked(&path)[0].header("host").unwrap(), HOST);
    cluster.settled().await;
    // The object is the same, with or without a redirect.
    assert!(get(cluster.client(chosen), &target).await.is_hit());
    assert_eq!(origin.hits(&path), 1);
    // A pass for another target has no effect.
    let moved = pass.replacen("/elsewhere/", "/elsewhere/x", 1);
    assert_eq!(get_with(cluster.client(chosen), &moved, &own_host).await.status, 421);
    assert_eq!(get_with(cluster.client((chosen + 1) % 4), &pass, &own_host).await.status, 421);
    cluster.settled().await;
}

#[tokio::test]
async fn tampered_pass_leaves_the_choice_to_the_policy() {
    let origin = Origin::start().await;
    let cluster =
        Cluster::start(4, origin.address, |s| s.sites[0].delivery = Delivery::Redirect).await;
    let (target, _) = target_of_a_peer(&cluster).await;
    let forged = format!("{target}?levada-pass=ffffffffff.{}.{HOST}", "0".repeat(32));
    // A node other than the chosen one redirects, as for any client.
    let mut away = 0;
    for node in 0..4 {
        away += usize::from(get(cluster.client(node), &forged).await.status == 307);
    }
    assert_eq!(away, 3);
    assert_eq!(get(cluster.client(0), &target).await.status, 307);
    cluster.settled().await;
}

/// A pass for this node, valid until this Unix time.
fn pass(node: &str, target: &str, until: u64) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET.as_bytes());
    let message = format!("{node}\n{HOST}\n{target}\n{until}\n");
    let mark = ring::hmac::sign(&key, message.as_bytes());
    let mark: String = mark.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{target}?levada-pass={until:x}.{mark}.{HOST}")
}

#[tokio::test]
async fn expired_pass_opens_nothing_but_tells_what_was_asked_for() {
    let origin = Origin::start().await;
    let cluster =
        Cluster::start(4, origin.address, |s| s.sites[0].delivery = Delivery::Redirect).await;
    let (target, peer) = target_of_a_peer(&cluster).await;
    let own_host = [("Host", "n0.test")];
    // A valid pass is served by the node it names, although the policy would choose another.
    let good = get_with(cluster.client(0), &pass("n0", &target, u32::MAX.into()), &own_host).await;
    assert_eq!((good.status, good.text()), (200, target.clone()));
    // After an expired pass, as in a bookmark, the client is redirected to the right node and target.
    let late = get_with(cluster.client(0), &pass("n0", &target, 1000), &own_host).await;
    assert_eq!(late.status, 307);
    let expected = format!("http://{}{target}?levada-pass=", cluster.client(peer));
    assert!(late.field("location").starts_with(&expected), "{late:?}");
    cluster.settled().await;
}

#[tokio::test]
async fn two_nodes_that_are_each_others_origin_find_the_loop() {
    let (first, second) = (reserve(1)[0], reserve(1)[0]);
    let mut running = Vec::new();
    for (name, own, other) in [("a", first, second), ("b", second, first)] {
        let mut settings = single(&[other]);
        settings.name = name.to_owned();
        settings.listeners[0].address = own;
        running.push(start(settings).await);
    }
    let began = std::time::Instant::now();
    let answer = get(first, "/a").await;
    assert_eq!(answer.status, 508, "{answer:?}");
    assert!(answer.field("via").split(',').count() <= 5, "{answer:?}");
    let post = head_of("POST", "/a", &[("Content-Length", "0")]);
    assert_eq!(Wire::saying(first, post).await.answer().await.status, 508);
    assert!(began.elapsed().as_secs() < 10);
    for node in &running {
        settled(node).await;
    }
}

#[tokio::test]
async fn node_that_is_its_own_origin_finds_the_loop() {
    let own = reserve(1)[0];
    let mut settings = single(&[own]);
    settings.listeners[0].address = own;
    let node = start(settings).await;
    assert_eq!(get(own, "/a").await.status, 508);
    settled(&node).await;
}

#[tokio::test]
async fn forged_loop_entries_only_hurt_who_forges_them() {
    let origin = Origin::start().await;
    let node = start(single(&[origin.address])).await;
    let at = node.addresses.clients[0];
    let fields = [("CDN-Loop", "levada, levada;v=1, other, LEVADA, levada")];
    let answer = get_with(at, "/a", &fields).await;
    assert_eq!(answer.status, 508);
    assert!(answer.field("proxy-status").contains("error=proxy_loop_detected"));
    assert_eq!(get(at, "/a").await.status, 200);
    settled(&node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_speak_http2_when_told_to() {
    let origin = Origin::start().await;
    let cluster =
        Cluster::start(4, origin.address, |s| s.peering.as_mut().unwrap().h2 = true).await;
    for n in 0..40 {
        let target = format!("/{n}");
        let answer = get(cluster.client(n % 4), &target).await;
        assert_eq!((answer.status, answer.text()), (200, target));
    }
    let (target, peer) = target_of_a_peer(&cluster).await;
    let big = vec![b'x'; 3 << 20];
    origin.on(&target, Reply::chunked(vec![Piece::Bytes(big.clone())]));
    let answer = get(cluster.client(0), &target).await;
    assert_eq!(served_by(0, &answer), format!("n{peer}"));
    assert!(answer.whole && answer.body == big);
    let answer = Wire::saying(cluster.client(0), head_of("HEAD", &target, &[]))
        .await
        .answer_to("HEAD")
        .await;
    assert_eq!(answer.status, 200);
    origin.on(
        &target,
        Reply::ok("")
            .with("content-length", "8")
            .pieces(vec![Piece::Bytes(b"half".to_vec()), Piece::Cut]),
    );
    let answer = get(cluster.client(0), &target).await;
    assert!(!answer.whole, "a cut stays a cut over two hops: {answer:?}");
    cluster.settled().await;
}

#[tokio::test]
async fn body_cut_at_the_origin_is_cut_behind_a_peer_as_well() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |_| {}).await;
    let (target, _) = target_of_a_peer(&cluster).await;
    let pieces = vec![Piece::Bytes(b"half".to_vec()), Piece::Cut];
    origin.on(&target, Reply::chunked(pieces).with("cache-control", "max-age=60"));
    let answer = get(cluster.client(0), &target).await;
    assert_eq!((answer.status, answer.whole), (200, false));
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_show_each_other_certificates() {
    let origin = Origin::start().await;
    let authority = secure::Authority::new();
    let identities: Vec<_> =
        (0..3).map(|n| authority.issue(&[&format!("n{n}"), &RESERVED.to_string()])).collect();
    for h2 in [false, true] {
        let cluster = Cluster::start(3, origin.address, |settings| {
            let index: usize = settings.name[1..].parse().unwrap();
            let peering = settings.peering.as_mut().unwrap();
            peering.h2 = h2;
            peering.trust = PeerTrust::Mtls {
                identity: identities[index].clone(),
                authority: authority.path(),
                secrets: None,
            };
        })
        .await;
        let mut relayed = 0;
        for n in 0..30 {
            let target = format!("/{h2}/{n}");
            let answer = get(cluster.client(0), &target).await;
            assert_eq!((answer.status, answer.text()), (200, target));
            relayed += usize::from(served_by(0, &answer) != "n0");
        }
        assert!(relayed > 0);
        // Connections without a certificate of the authority are refused.
        let other = secure::Authority::new();
        let stranger = other.issue(&["n1"]);
        for identity in [None, Some(&stranger)] {
            let connected = secure::connect(
                cluster.peer(0),
                &RESERVED.to_string(),
                &authority.path(),
                &["http/1.1"],
                identity,
            )
            .await;
            if let Ok(stream) = connected {
                let mut wire = Wire::over(stream);
                wire.send(head_of("GET", "/a", &[])).await;
                assert_eq!(wire.answer().await.status, 0);
            }
        }
        cluster.settled().await;
    }
}

#[tokio::test]
async fn peers_get_in_although_clients_fill_the_node() {
    let origin = Origin::start().await;
    // Each of the others has a connection to compare purge logs, and one for requests.
    let cluster = Cluster::start(4, origin.address, |s| s.limits.connections = 6).await;
    let (target, peer) = target_of_a_peer(&cluster).await;
    let mut busy = Vec::new();
    // A client may have as many connections as are free.
    for client in [1, 1, 1, 2, 2, 3] {
        let mut wire = Wire::over(connect_from(client, cluster.client(peer)).await);
        wire.send(head_of("GET", "/x", &[])).await;
        assert_eq!(wire.answer().await.status, 200);
        busy.push(wire);
    }
    // All of the peer's connections for clients are in use; a request from a node does not count as a
    // client's.
    let answer = get(cluster.client(0), &target).await;
    assert_eq!(served_by(0, &answer), format!("n{peer}"));
    drop(busy);
    cluster.settled().await;
}

#[tokio::test]
async fn peer_whose_connections_are_all_taken_is_not_waited_for() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, |settings| {
        settings.sites[0].servers.policy = policy("hrw");
        settings.limits.server_connections = 1;
    })
    .await;
    let mut targets = Vec::new();
    for n in 0.. {
        let target = format!("/{n}");
        origin.on(&target, Reply::ok("a").with("cache-control", "no-store"));
        if served_by(0, &get(cluster.client(0), &target).await) == "n1" {
            targets.push(target);
        }
        if targets.len() == 2 {
            break;
        }
    }
    let (gate, before) = (Gate::new(), origin.heads());
    let mut waiting = Vec::new();
    for (number, target) in (1..).zip(&targets) {
        origin.on(target, Reply::ok("b").after(&gate));
        waiting.push(Wire::saying(cluster.client(0), head_of("GET", target, &[])).await);
        eventually("it is at the origin", || origin.heads() == before + number).await;
    }
    gate.open();
    let mut served = Vec::new();
    for mut wire in waiting {
        served.push(served_by(0, &wire.answer().await));
    }
    assert_eq!(served, ["n1", "n0"]);
    cluster.settled().await;
}
