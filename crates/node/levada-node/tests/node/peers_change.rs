//! Nodes that join, leave and move while the cluster serves: the list of peers changes by reload, node by node.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use levada_config::{Delivery, LargeSettings, Peer, PeerTrust, Plan, Settings};
use levada_tls::{pem::Certificate, secret::Secrets};
use levada_upstream::PeerProof;
use serde_json::{Value as Json, json};
use tokio::net::{TcpListener, TcpStream};

use crate::{
    purge::{is_stored_at, order, results, stored_everywhere, url},
    support::{nodes::*, *},
};

/// A cluster whose first nodes know the first `known` only, and the others all.
async fn growing(origin: &Origin, count: usize, known: usize) -> (Cluster, Vec<Peer>) {
    let cluster = Cluster::start(count, origin.address, |settings| {
        let peering = settings.peering.as_mut().unwrap();
        peering.health = watched();
        let index: usize = settings.name[1..].parse().unwrap();
        if index < known {
            peering.peers.truncate(known);
        }
    })
    .await;
    let all = cluster.settings[count - 1].peering.as_ref().unwrap().peers.clone();
    (cluster, all)
}

fn set_peers(settings: &mut Settings, peers: &[&Peer]) {
    settings.peering.as_mut().unwrap().peers = peers.iter().map(|peer| (*peer).clone()).collect();
}

/// Reloads a node with this list, and returns what the node says has changed.
async fn with_peers(cluster: &mut Cluster, index: usize, peers: &[&Peer]) -> Vec<String> {
    let answer = cluster.reload(index, |settings| set_peers(settings, peers)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let said: Json = serde_json::from_str(&answer.text()).unwrap();
    serde_json::from_value(said["changed"].clone()).unwrap()
}

/// What a node says of its peers, by name: whether each is up, and its outstanding requests.
async fn seen_by(cluster: &Cluster, index: usize) -> BTreeMap<String, (bool, u64)> {
    let status = admin_json(cluster.node(index), "/status").await;
    let seen = |peer: &Json| {
        let (up, outstanding) = (&peer["up"], &peer["outstanding"]);
        let name = peer["name"].as_str().unwrap().to_owned();
        (name, (up.as_bool().unwrap(), outstanding.as_u64().unwrap()))
    };
    status["peers"].as_array().unwrap().iter().map(seen).collect()
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn until_up(cluster: &Cluster, index: usize, name: &str) {
    until("it is up", async || seen_by(cluster, index).await[name].0).await;
}

/// A target that the node `index` sends to `name`.
async fn target_of(cluster: &Cluster, index: usize, name: &str) -> String {
    for n in 0..500 {
        let target = format!("/of/{n}");
        let url = format!("/explain?url=http://{HOST}{target}");
        if admin_json(cluster.node(index), &url).await["node"] == name {
            return target;
        }
    }
    panic!("n{index} sends nothing to {name}");
}

/// Clients that ask all nodes without a pause, each on a connection of its own.
struct Clients {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    tasks: Vec<tokio::task::JoinHandle<Vec<String>>>,
}

impl Clients {
    fn of(cluster: &Cluster, nodes: &[usize]) -> Self {
        let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let client = |index: usize| {
            let (at, stop, served) = (cluster.client(index), stop.clone(), served.clone());
            tokio::spawn(async move {
                let (mut wire, mut failed) = (Wire::to(at).await, Vec::new());
                for n in 0.. {
                    if stop.load(Relaxed) {
                        break;
                    }
                    let target = format!("/load/{}", n * 7 % 60);
                    wire.send(head_of("GET", &target, &[])).await;
                    let answer = wire.answer().await;
                    served.fetch_add(1, Relaxed);
                    if (answer.status, answer.text()) != (200, target) {
                        failed.push(format!("n{index}: {answer:?}"));
                    }
                }
                failed
            })
        };
        let tasks = nodes.iter().flat_map(|index| [*index; 2]).map(client).collect();
        Self { stop, served, tasks }
    }

    /// Waits for as many more answers.
    async fn go_on(&self, count: usize) {
        let goal = self.served.load(Relaxed) + count;
        eventually("they go on", || self.served.load(Relaxed) >= goal).await;
    }

    async fn end(self) {
        self.stop.store(true, Relaxed);
        for task in self.tasks {
            assert_eq!(within(task).await.unwrap(), Vec::<String>::new());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_join_and_leave_under_load_fail_no_request() {
    let origin = Origin::start().await;
    for name in ["fdr", "adaptive", "maglev", "lard", "least_conn"] {
        let (mut cluster, all) = growing(&origin, 4, 3).await;
        for index in 0..4 {
            let answer = cluster.reload(index, |settings| {
                settings.sites[0].servers.policy = policy(name);
            });
            assert_eq!(answer.await.status, 200);
        }
        let clients = Clients::of(&cluster, &[0, 1, 2, 3]);
        clients.go_on(200).await;
        assert!(cluster.node(3).counts().outstanding <= 2, "a node that others do not know serves");
        let four: Vec<&Peer> = all.iter().collect();
        for index in 0..3 {
            assert_eq!(with_peers(&mut cluster, index, &four).await, ["peer n3 added"]);
            until_up(&cluster, index, "n3").await;
            clients.go_on(50).await;
        }
        let mut targets = 0;
        until("n0 sends requests to n3", async || {
            targets += 1;
            let answer = get(cluster.client(0), &format!("/new/{targets}")).await;
            answer.field("via").starts_with("1.1 n3")
        })
        .await;
        let rest: Vec<&Peer> = [0, 2, 3].map(|n| &all[n]).into();
        for index in [0, 2, 3] {
            assert_eq!(with_peers(&mut cluster, index, &rest).await, ["peer n1 removed"]);
            clients.go_on(50).await;
        }
        clients.end().await;
        cluster.settled().await;
        assert!(!seen_by(&cluster, 0).await.contains_key("n1"));
        let page = admin(cluster.node(0), "/metrics").await.text();
        assert!(page.contains("server=\"n3\"") && !page.contains("server=\"n1\""), "{page}");
        if name != "least_conn" {
            until("it shows what has moved", async || {
                let moved = metric(cluster.node(0), "levada_policy_moved_ratio").await;
                (0.2..0.3).contains(&moved)
            })
            .await;
        }
    }
}

#[tokio::test]
async fn node_that_is_not_there_yet_gets_no_requests_until_it_answers() {
    let origin = Origin::start().await;
    let (mut cluster, all) = growing(&origin, 3, 2).await;
    cluster.stop(2).await;
    with_peers(&mut cluster, 0, &all.iter().collect::<Vec<_>>()).await;
    assert_eq!(seen_by(&cluster, 0).await["n2"], (false, 0));
    for n in 0..30 {
        assert_eq!(get(cluster.client(0), &format!("/{n}")).await.status, 200);
    }
    let page = admin(cluster.node(0), "/metrics").await.text();
    assert!(!page.contains("levada_upstream_failures_total{upstream=\"peer\""), "{page}");
    cluster.revive(2).await;
    until_up(&cluster, 0, "n2").await;
    let target = target_of(&cluster, 0, "n2").await;
    assert!(get(cluster.client(0), &target).await.field("via").starts_with("1.1 n2"));
    cluster.settled().await;
}

#[tokio::test]
async fn running_requests_count_at_their_node_whatever_its_place_until_they_end() {
    let origin = Origin::start().await;
    let (mut cluster, all) = growing(&origin, 4, 4).await;
    let target = target_of(&cluster, 0, "n2").await;
    let gate = Gate::new();
    origin.on(&target, Reply::ok("held").after(&gate));
    let (at, asked) = (cluster.client(0), target.clone());
    let held = tokio::spawn(async move { get(at, &asked).await });
    eventually("it is at the origin", || origin.hits(&target) == 1).await;
    assert_eq!(seen_by(&cluster, 0).await["n2"], (true, 1));
    with_peers(&mut cluster, 0, &[&all[2], &all[0], &all[3]]).await;
    let seen = seen_by(&cluster, 0).await;
    let counts: Vec<_> = seen.iter().map(|(name, (_, count))| (name.as_str(), *count)).collect();
    assert_eq!(counts, [("n0", 0), ("n2", 1), ("n3", 0)]);
    with_peers(&mut cluster, 0, &[&all[0], &all[3]]).await;
    assert_eq!(cluster.node(0).counts().outstanding, 1, "at a node that left");
    // It comes back, and is another one.
    with_peers(&mut cluster, 0, &[&all[2], &all[0], &all[3]]).await;
    assert_eq!(seen_by(&cluster, 0).await["n2"].1, 0);
    assert!(!held.is_finished());
    gate.open();
    let answer = within(held).await.unwrap();
    assert_eq!((answer.status, answer.text().as_str(), answer.whole), (200, "held", true));
    cluster.settled().await;
}

#[tokio::test]
async fn purge_during_a_change_reaches_nodes_that_join_and_waits_for_none_that_left() {
    let origin = Origin::start().await;
    let (mut cluster, all) = growing(&origin, 3, 2).await;
    stored_everywhere(&cluster, "/a").await;
    stored_everywhere(&cluster, "/b").await;
    // The third node knows the others, which do not know it yet: it asks them.
    let answer = order(cluster.node(0), &json!({"url": url("/a")})).await;
    let report: Json = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(results(&report), [("n0", "confirmed"), ("n1", "confirmed")]);
    until("it has heard", async || !is_stored_at(&cluster, 2, "/a").await).await;
    with_peers(&mut cluster, 0, &all.iter().collect::<Vec<_>>()).await;
    let answer = order(cluster.node(0), &json!({"url": url("/b")})).await;
    let report: Json = serde_json::from_slice(&answer.body).unwrap();
    let every = [("n0", "confirmed"), ("n1", "confirmed"), ("n2", "confirmed")];
    assert_eq!(results(&report), every);
    for index in 0..3 {
        assert!(!is_stored_at(&cluster, index, "/b").await);
    }
    // One that does not answer leaves while it is waited for.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hanging = Peer {
        name: "n9".to_owned(),
        address: silent.local_addr().unwrap().to_string(),
        ..all[1].clone()
    };
    with_peers(&mut cluster, 0, &[&all[0], &hanging, &all[2]]).await;
    let admin = cluster.node(0).addresses.admin.unwrap();
    let asked = within(silent.accept()).await.unwrap();
    let waiting = tokio::spawn(async move { order_at(admin, &json!({"all": true})).await });
    until("the purge is known", async || {
        metric(cluster.node(0), "levada_purges_total").await >= 3.0
    })
    .await;
    with_peers(&mut cluster, 0, &[&all[0], &all[2]]).await;
    let answer = within(waiting).await.unwrap();
    let report: Json = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(results(&report), [("n0", "confirmed"), ("n2", "confirmed")]);
    assert_eq!(metric(cluster.node(0), "levada_purges_pending").await, 0.0);
    drop(asked);
    cluster.settled().await;
}

/// An order at an admin address.
async fn order_at(admin: std::net::SocketAddr, what: &Json) -> Answer {
    let body = what.to_string();
    let length = body.len().to_string();
    let fields = [("Content-Type", "application/json"), ("Content-Length", length.as_str())];
    Wire::saying(admin, head_of("POST", "/purge", &fields) + &body).await.answer().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protocol_between_peers_changes_node_by_node_under_load() {
    let origin = Origin::start().await;
    let (mut cluster, _) = growing(&origin, 3, 3).await;
    let clients = Clients::of(&cluster, &[0, 1, 2]);
    clients.go_on(100).await;
    for h2 in [true, false] {
        for index in 0..3 {
            let answer = cluster.reload(index, |settings| {
                settings.peering.as_mut().unwrap().h2 = h2;
            });
            let answer = answer.await;
            assert!(answer.text().contains("[peering]"), "{answer:?}");
            clients.go_on(60).await;
            assert!(seen_by(&cluster, index).await.values().all(|(up, _)| *up));
        }
    }
    clients.end().await;
    cluster.settled().await;
    for index in 0..3 {
        let page = admin(cluster.node(index), "/metrics").await.text();
        assert!(!page.contains("levada_upstream_failures_total{upstream=\"peer\""), "{page}");
    }
}

#[tokio::test]
async fn node_at_another_address_is_the_same_node() {
    let origin = Origin::start().await;
    let (mut cluster, mut all) = growing(&origin, 2, 2).await;
    let target = target_of(&cluster, 0, "n1").await;
    assert!(get(cluster.client(0), &target).await.field("via").starts_with("1.1 n1"));
    let moved = reserve(1)[0];
    all[1].address = moved.to_string();
    let both: Vec<&Peer> = all.iter().collect();
    let said = cluster.reload(1, |settings| {
        set_peers(settings, &both);
        settings.peering.as_mut().unwrap().listen = moved;
    });
    assert_eq!(said.await.status, 200);
    assert_eq!(with_peers(&mut cluster, 0, &both).await, ["peer n1"]);
    let status = admin_json(cluster.node(0), "/status").await;
    let shown = status["peers"].as_array().unwrap().iter().find(|peer| peer["name"] == "n1");
    assert_eq!(shown.unwrap()["address"], moved.to_string());
    let again = get(cluster.client(0), &target).await;
    assert!(again.is_hit() && again.field("via").starts_with("1.1 n1"), "{again:?}");
    cluster.stop(1).await;
    cluster.revive(1).await;
    until_up(&cluster, 0, "n1").await;
    assert!(get(cluster.client(0), &target).await.field("via").starts_with("1.1 n1"));
    cluster.settled().await;
}

#[tokio::test]
async fn file_in_pieces_is_whole_when_a_source_leaves_and_another_joins() {
    const PIECE: usize = 16 << 10;
    let origin = Origin::start().await;
    let whole: Vec<u8> = (0..60 * PIECE).map(|n| (n % 251) as u8 ^ (n / PIECE) as u8).collect();
    let content = whole.clone();
    origin.script("/file", move |asked| {
        let told = |reply: Reply| reply.with("etag", "\"1\"").with("accept-ranges", "bytes");
        let Some(range) = asked.header("range") else { return told(Reply::cached(&content[..])) };
        let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let first: usize = first.parse().unwrap();
        let end = last.parse::<usize>().map_or(content.len(), |last| content.len().min(last + 1));
        let value = format!("bytes {first}-{}/{}", end - 1, content.len());
        told(Reply::cached(&content[first..end]))
            .status("206 Partial Content")
            .with("content-range", &value)
    });
    let (mut cluster, all) = growing(&origin, 4, 3).await;
    let plan = Plan { chunk: PIECE as u64, window: 4, ..LargeSettings::default().plan };
    let large = LargeSettings { threshold: 2 * PIECE as u64, plan, replicas: None };
    for index in 0..4 {
        cluster.reload(index, |settings| settings.sites[0].large = Some(large)).await;
    }
    let mut wire = Wire::narrow(cluster.client(0)).await;
    wire.send(head_of("GET", "/file", &[])).await;
    let head = wire.head().await;
    assert_eq!(head.status, 200);
    let mut got = wire.take(10 * PIECE).await;
    with_peers(&mut cluster, 0, &[&all[1], &all[0]]).await;
    cluster.stop(2).await;
    got.extend(wire.take(10 * PIECE).await);
    with_peers(&mut cluster, 0, &[&all[3], &all[1], &all[0]]).await;
    until_up(&cluster, 0, "n3").await;
    got.extend(wire.take(40 * PIECE).await);
    assert!(got == whole, "every byte");
    assert_eq!(cluster.node(0).counts().waiting, 0);
    drop(wire);
    cluster.settled().await;
}

#[tokio::test]
async fn list_that_cannot_be_used_changes_nothing() {
    let origin = Origin::start().await;
    let (mut cluster, all) = growing(&origin, 3, 3).await;
    let before = cluster.settings[0].clone();
    let mut refused = async |edit: &dyn Fn(&mut Settings), reason: &str| {
        let answer = cluster.reload(0, edit).await;
        assert_eq!((answer.status, answer.text().contains(reason)), (422, true), "{answer:?}");
        cluster.settings[0] = before.clone();
        assert_eq!(seen_by(&cluster, 0).await.len(), 3);
    };
    let twice = |settings: &mut Settings| set_peers(settings, &[&all[0], &all[1], &all[1]]);
    refused(&twice, "two nodes of the cluster are called \"n1\"").await;
    let others = |settings: &mut Settings| set_peers(settings, &[&all[1], &all[2]]);
    refused(&others, "\"n0\", the name of this node, is not among the nodes").await;
    let secret = |settings: &mut Settings| {
        settings.peering.as_mut().unwrap().trust = PeerTrust::Secret("another secret".into());
    };
    refused(&secret, "or its secret without the old one in `secrets`").await;
    refused(&|settings| settings.peering = None, "[peering] as a whole").await;
    cluster.settled().await;
}

/// Writes the certificate and the key of one over those of another.
fn renew(old: &Certificate, new: &Certificate) {
    let copy = |from: &Path, to: &Path| std::fs::copy(from, to).unwrap();
    copy(&new.certificate, &old.certificate);
    copy(&new.key, &old.key);
}

#[tokio::test]
async fn renewed_certificate_of_a_node_holds_for_new_connections() {
    let origin = Origin::start().await;
    let (old, new) = (secure::Authority::new(), secure::Authority::new());
    let (stale, fresh) = (old.issue(&["127.1.2.3"]), new.issue(&["127.1.2.3"]));
    let mut cluster = Cluster::start(2, origin.address, |settings| {
        let identity = if settings.name == "n0" { &stale } else { &fresh }.clone();
        let trust = PeerTrust::Mtls { identity, authority: new.path(), secrets: None };
        settings.peering.as_mut().unwrap().trust = trust;
    })
    .await;
    let target = target_of(&cluster, 0, "n1").await;
    let via = async |cluster: &Cluster, n: usize| {
        get(cluster.client(0), &format!("{target}?{n}")).await.field("via")
    };
    assert_eq!(get(cluster.client(0), &target).await.field("via"), "1.1 n0", "it is not trusted");
    renew(&stale, &fresh);
    let answer = cluster.reload(0, |_| {}).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let mut all = Vec::new();
    for n in 0..20 {
        all.push(via(&cluster, n).await);
    }
    assert!(all.iter().any(|via| via.starts_with("1.1 n1")), "{all:?}");
    cluster.settled().await;
}

fn secrets(all: &[&str]) -> PeerTrust {
    let all = all.iter().map(|secret| (*secret).to_owned()).collect();
    PeerTrust::Secret(Secrets::new(all).unwrap())
}

/// The steps of docs/operate/change.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_changes_by_reloads_under_load_and_fails_no_request() {
    let origin = Origin::start().await;
    let (old, new) = ("the old secret of the cluster", "the new secret of the cluster");
    for h2 in [false, true] {
        let mut cluster = Cluster::start(4, origin.address, |settings| {
            let peering = settings.peering.as_mut().unwrap();
            (peering.health, peering.h2, peering.trust) = (watched(), h2, secrets(&[old]));
        })
        .await;
        let clients = Clients::of(&cluster, &[0, 1, 2, 3]);
        clients.go_on(200).await;
        let mut former = by_secret(&cluster, old).await;
        assert_eq!(asked(&mut former).await, 200);
        for step in [&[old, new][..], &[new, old], &[new]] {
            for index in 0..4 {
                let answer = cluster.reload(index, |settings| {
                    settings.peering.as_mut().unwrap().trust = secrets(step);
                });
                let answer = answer.await;
                assert_eq!(answer.status, 200, "{answer:?}");
                clients.go_on(50).await;
                if step.contains(&old) {
                    assert_eq!(asked(&mut former).await, 200, "its secret still holds");
                }
                // An order reaches all nodes at each step.
                let answer = order(cluster.node(index), &json!({"url": url("/load/0")})).await;
                let report: Json = serde_json::from_slice(&answer.body).unwrap();
                assert!(results(&report).iter().all(|(_, it)| *it == "confirmed"), "{report}");
            }
        }
        clients.end().await;
        cluster.settled().await;
        for index in 0..4 {
            assert!(seen_by(&cluster, index).await.values().all(|(up, _)| *up));
            let page = admin(cluster.node(index), "/metrics").await.text();
            assert!(!page.contains("levada_upstream_failures_total{upstream=\"peer\""), "{page}");
        }
        assert!(former.rest().await.is_empty(), "its secret holds no more");
        // The old secret opens no connection.
        assert_eq!(asked(&mut by_secret(&cluster, old).await).await, 403);
    }
}

/// A connection to the first node that a secret has opened.
async fn by_secret(cluster: &Cluster, secret: &str) -> Wire {
    let mut stream = TcpStream::connect(cluster.peer(0)).await.unwrap();
    PeerProof::new(&secret.into(), "n0").give(&mut stream).await.unwrap();
    Wire::over(stream)
}

async fn asked(wire: &mut Wire) -> u16 {
    wire.send(head_of("GET", "/load/1", &[])).await;
    wire.answer().await.status
}

#[tokio::test]
async fn pass_of_either_secret_is_accepted_while_the_secret_changes() {
    let origin = Origin::start().await;
    let (old, new) = ("the old secret of the cluster", "the new secret of the cluster");
    let mut cluster = Cluster::start(2, origin.address, |settings| {
        settings.sites[0].delivery = Delivery::Redirect;
        settings.peering.as_mut().unwrap().trust = secrets(&[old]);
    })
    .await;
    let target = target_of(&cluster, 0, "n1").await;
    let location = async |cluster: &Cluster| {
        let answer = get(cluster.client(0), &target).await;
        assert_eq!(answer.status, 307, "{answer:?}");
        let base = format!("http://{}", cluster.client(1));
        answer.field("location").strip_prefix(&base).unwrap().to_owned()
    };
    let mut accepts = async |signs: &[&str], accepted: &[&str]| {
        for (index, all) in [(0, signs), (1, accepted)] {
            let answer = cluster.reload(index, |settings| {
                settings.peering.as_mut().unwrap().trust = secrets(all);
            });
            assert_eq!(answer.await.status, 200);
        }
        let passed = location(&cluster).await;
        // Without a good pass, the argument is a part of the URL.
        get(cluster.client(1), &passed).await.text() == target
    };
    assert!(accepts(&[old], &[old, new]).await);
    assert!(accepts(&[new, old], &[old, new]).await);
    assert!(accepts(&[new, old], &[new]).await);
    assert!(!accepts(&[old, new], &[new]).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_never_sees_that_a_peer_refuses_its_node() {
    let origin = Origin::start().await;
    for h2 in [false, true] {
        let cluster = Cluster::start(4, origin.address, |settings| {
            let peering = settings.peering.as_mut().unwrap();
            peering.h2 = h2;
            peering.health.eject_after = 3;
            if settings.name == "n3" {
                peering.trust = secrets(&["the secret of another cluster"]);
            }
        })
        .await;
        // An origin, or a rule, may forbid what it likes: that reaches the client by way of a peer.
        origin.otherwise(|asked| match asked.target.contains("forbidden") {
            true => Reply::ok("not for you").status("403 Forbidden"),
            false => Reply::ok(asked.target.clone()),
        });
        let (clients, mut by_peer) = (Clients::of(&cluster, &[0, 1, 2, 3]), 0);
        clients.go_on(400).await;
        for n in 0..40 {
            let answer = get(cluster.client(0), &format!("/forbidden/{n}")).await;
            assert_eq!((answer.status, answer.text()), (403, "not for you".to_owned()));
            assert_eq!(answer.header("levada-refused"), None);
            by_peer += usize::from(answer.field("via").contains(','));
        }
        clients.end().await;
        assert!(by_peer > 0, "peers serve too");
        let status = admin_json(cluster.node(0), "/status").await;
        let told = status["peers"].as_array().unwrap().iter().find(|peer| peer["name"] == "n3");
        let told = told.unwrap();
        let why = told["why"].as_str().unwrap_or_default();
        assert!(why.contains("a secret of [peering] in common"), "{told}");
        let page = admin(cluster.node(0), "/metrics").await.text();
        let counted =
            "levada_upstream_failures_total{upstream=\"peer\",error=\"connection_refused\"}";
        assert!(page.contains(counted), "{page}");
        cluster.settled().await;
    }
}
