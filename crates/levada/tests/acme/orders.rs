//! Orders by all ways to prove names, in clusters, and renewals under load.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use levada_types::{Key, hash64, weigh};

use crate::{
    DAY, addresses,
    node::Node,
    pebble,
    pebble::{EXTERNAL_KEY, Pebble, PebbleSettings},
    wait,
};

/// Three nodes get one certificate by one order, although the server asks each time another node for the proof.
fn cluster_by(challenge: &str) {
    let at = addresses::<3>();
    let Some(pebble) = pebble(at[0], 90 * DAY) else { return };
    let sites = [
        "hosts = [\"one.test\", \"other.test\", \"third.test\"]",
        "hosts = \"second-site.test\"",
        "hosts = \"without.test\"\nacme = \"off\"",
    ];
    let names = ["one.test", "other.test", "third.test", "second-site.test"];
    for (name, at) in names.iter().zip(at.iter().cycle()) {
        pebble.set_address(name, *at);
    }
    let acme = pebble.table(&format!("challenge = \"{challenge}\""));
    let mut nodes = Node::cluster(&at, &acme, &sites);
    nodes.iter_mut().for_each(Node::start);
    for name in names {
        let first = nodes[0].certificate(name);
        wait("all nodes show the same", || {
            nodes.iter().all(|node| node.certificate(name) == first)
        });
    }
    let first_site = |name: &str| nodes[0].certificate(name);
    assert_eq!(first_site("one.test"), first_site("third.test"), "one certificate for a site");
    assert_ne!(first_site("one.test"), first_site("second-site.test"));
    assert_eq!(nodes.iter().map(Node::orders).sum::<f64>(), 2.0, "one order for each site");
    for node in &nodes {
        let states = node.states();
        assert_eq!(states.len(), 2, "{states:?}");
        assert!(states.iter().all(|state| state["days"].as_f64().unwrap() > 89.0), "{states:?}");
        assert!(states.iter().all(|state| state["renews"].is_i64() && state["alarm"] == false));
        assert!(node.secure("without.test").is_err(), "it has no certificate");
        let (_, body) = node.secure("one.test").unwrap().get("one.test", "/").unwrap();
        assert_eq!(body, "hello");
    }
    assert!(pebble.log().contains("reject 10% of good nonces"), "{}", pebble.log());
}

#[test]
fn nodes_of_a_cluster_share_a_certificate_that_was_proved_at_port_80_of_any_node() {
    cluster_by("http-01");
}

#[test]
fn nodes_of_a_cluster_share_a_certificate_that_was_proved_at_port_443_of_any_node() {
    cluster_by("tls-alpn-01");
}

#[test]
fn wildcard_is_proved_by_a_command_that_makes_records() {
    let at = addresses::<2>();
    let Some(pebble) = pebble(at[0], 90 * DAY) else { return };
    let hook = pebble.directory.path().join("hook");
    let said = pebble.directory.path().join("said");
    // The name server of pebble takes records by HTTP.
    let script = format!(
        "#!/bin/bash\necho \"$1 $2\" >> {}\nexec 3<>/dev/tcp/{}/8055\n\
         case $1 in present) path=/set-txt;; *) path=/clear-txt;; esac\n\
         body=\"{{\\\"host\\\": \\\"$2.\\\", \\\"value\\\": \\\"$3\\\"}}\"\n\
         printf 'POST %s HTTP/1.0\\r\\nContent-Length: %d\\r\\n\\r\\n%s' $path ${{#body}} \"$body\" >&3\n\
         grep -q '200 OK' <&3\n",
        said.display(),
        pebble.at,
    );
    fs::write(&hook, script).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let more = format!("dns_command = [\"{}\"]\ndns_wait = \"0s\"", hook.display());
    let site = "hosts = \"*.wild.test\"";
    let mut nodes = Node::cluster(&at, &pebble.table(&more), &[site]);
    nodes.iter_mut().for_each(Node::start);
    let first = nodes[0].certificate("any.wild.test");
    wait("both nodes show the same", || nodes[1].certificate("other.wild.test") == first);
    let records = fs::read_to_string(said).unwrap();
    let name = "_acme-challenge.wild.test";
    assert!(records.starts_with(&format!("present {name}\n")), "{records}");
    wait("the record is removed", || {
        let records = fs::read_to_string(pebble.directory.path().join("said")).unwrap();
        records.matches("present").count() == records.matches("cleanup").count()
    });
}

#[test]
fn account_is_bound_to_one_outside_of_acme() {
    let [at, node] = addresses();
    let settings = PebbleSettings { life: DAY, external: true };
    let Some(pebble) = Pebble::start(at, node, settings) else { return };
    let site = "hosts = \"bound.test\"";
    let mut node = Node::alone(node, &pebble.table(""), &[site]);
    node.start();
    wait("the failure is told", || !node.events("certificate_failed").is_empty());
    let events = node.events("certificate_failed");
    assert!(events[0].contains("add [acme.external_account]"), "{events:?}");
    let account = format!("[acme.external_account]\nid = \"kid-1\"\nkey = \"{EXTERNAL_KEY}\"");
    node.configure("a", &pebble.table(&account), &[site], "");
    node.reload();
    node.certificate("bound.test");
}

/// Each of two nodes takes the order for its own, because they list the names of the site in another order.
#[test]
fn two_nodes_that_order_at_once_end_up_with_one_certificate() {
    let at = addresses::<2>();
    let Some(pebble) = pebble(at[0], 90 * DAY) else { return };
    let is_first = |node: &str, name: &str| {
        let weight = |node: &str| weigh(Key(hash64(name.as_bytes())), hash64(node.as_bytes()));
        weight(node) == weight("a").max(weight("b"))
    };
    let first = |node: &str| {
        let names = (0..).map(|number| format!("name-{number}.test"));
        names.into_iter().find(|name| is_first(node, name)).unwrap()
    };
    let (of_a, of_b) = (first("a"), first("b"));
    let mut nodes = Node::cluster(&at, &pebble.table(""), &["hosts = \"x.test\""]);
    for (node, names) in nodes.iter().zip([[&of_a, &of_b], [&of_b, &of_a]]) {
        let text = fs::read_to_string(node.file("levada.toml")).unwrap();
        let hosts = format!("hosts = {names:?}");
        fs::write(node.file("levada.toml"), text.replace("hosts = \"x.test\"", &hosts)).unwrap();
    }
    nodes.iter_mut().for_each(Node::start);
    wait("both have ordered", || nodes.iter().all(|node| node.orders() >= 1.0));
    wait("both show the newer one", || {
        let shown = [&of_a, &of_b].map(|name| [0, 1].map(|node| nodes[node].certificate(name)));
        shown.as_flattened().iter().all(|one| *one == shown[0][0])
    });
    for node in &nodes {
        assert_eq!(node.orders(), 1.0);
        assert!(node.events("certificate_failed").is_empty());
    }
}

/// One node orders for many sites; another one that comes later is given all of it.
#[test]
fn sixty_sites_of_a_new_node_have_certificates_and_a_second_node_orders_none() {
    let at = addresses::<2>();
    let Some(pebble) = pebble(at[0], 90 * DAY) else { return };
    let names: Vec<_> = (0..60).map(|number| format!("name-{number}.test")).collect();
    let sites: Vec<_> = names.iter().map(|name| format!("hosts = \"{name}\"")).collect();
    let sites: Vec<_> = sites.iter().map(String::as_str).collect();
    let mut nodes = Node::cluster(&at, &pebble.table(""), &sites);
    let mut times = Vec::new();
    for node in &mut nodes {
        let begun = Instant::now();
        node.start();
        names.iter().for_each(|name| drop(node.certificate(name)));
        times.push(begun.elapsed().as_secs_f64());
    }
    eprintln!("60 certificates: ordered in {:.1} s, taken over in {:.1} s", times[0], times[1]);
    assert_eq!((nodes[0].orders(), nodes[1].orders()), (60.0, 0.0));
    for name in &names {
        assert_eq!(nodes[0].certificate(name), nodes[1].certificate(name), "{name}");
    }
}

#[test]
fn renewals_by_files_at_port_80_fail_no_request_under_load() {
    renewals_under_load("http-01");
}

#[test]
fn renewals_by_handshakes_at_port_443_fail_no_request_under_load() {
    renewals_under_load("tls-alpn-01");
}

/// Clients of both nodes ask all the while, over new connections and over kept ones.
fn renewals_under_load(challenge: &str) {
    // Without it, clients take the processors from the servers for half a minute.
    const PAUSE: Duration = Duration::from_millis(5);
    let at = addresses::<2>();
    let Some(pebble) = pebble(at[0], 40) else { return };
    let site = "hosts = \"busy.test\"";
    let acme = pebble.table(&format!("challenge = \"{challenge}\""));
    let mut nodes = Node::cluster(&at, &acme, &[site]);
    nodes.iter_mut().for_each(Node::start);
    let first = nodes[0].certificate("busy.test");
    wait("both nodes show it", || nodes[1].certificate("busy.test") == first);
    let (nodes, over) = (Arc::new(nodes), Arc::new(AtomicBool::new(false)));
    let (asked, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::new(Mutex::new([HashSet::new(), HashSet::new()]));
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let (nodes, over) = (nodes.clone(), over.clone());
            let (asked, failed, seen) = (asked.clone(), failed.clone(), seen.clone());
            thread::spawn(move || {
                let at = client % 2;
                while !over.load(Relaxed) {
                    let requests = if client < 2 { 1 } else { 20 };
                    let of_connection = || {
                        let mut connection = nodes[at].secure("busy.test")?;
                        seen.lock().unwrap()[at].insert(connection.certificate.clone());
                        for _ in 0..requests {
                            let (status, body) = connection.get("busy.test", "/")?;
                            if (status, &*body) != (200, "hello") {
                                return Err(std::io::Error::other(format!("{status} {body}")));
                            }
                            asked.fetch_add(1, Relaxed);
                            thread::sleep(PAUSE);
                        }
                        Ok(())
                    };
                    if let Err(error) = of_connection() {
                        failed.lock().unwrap().push(error.to_string());
                    }
                }
            })
        })
        .collect();
    wait("both nodes have shown three certificates", || {
        seen.lock().unwrap().iter().all(|seen| seen.len() >= 3)
    });
    over.store(true, Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    let (asked, failed) = (asked.load(Relaxed), failed.lock().unwrap().clone());
    let renewals = nodes.iter().map(Node::orders).sum::<f64>() - 1.0;
    eprintln!("{challenge}: {asked} requests, {renewals} renewals, {} failed", failed.len());
    assert!(failed.is_empty(), "{asked} requests, {failed:?}");
    assert!(asked > 100, "{asked}");
    assert!(nodes[0].events("certificate_renewed").len() >= 3);
}
