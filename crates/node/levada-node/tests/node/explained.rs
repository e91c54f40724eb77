//! `/explain` says what the next request meets.

use levada_types::Rng;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    spaces::{Clients, random_request, random_site},
    support::{
        Answer, Origin, Reply, head_of,
        nodes::{Cluster, admin_json, sites},
    },
};

/// The node or server that served, the reason and the size of the set, as an answer tells them.
fn told(answer: &Answer) -> Option<(String, String, u64)> {
    let status = answer.field("proxy-status");
    let (_, hop) = status.split_once("next-hop=\"")?;
    let (node, rest) = hop.split_once('"')?;
    let (_, reason) = rest.split_once("reason=")?;
    let (reason, set) = reason.split_once(" set=")?;
    let set = set.split('"').next()?.parse().ok()?;
    Some((node.to_owned(), reason.to_owned(), set))
}

/// A site whose servers a policy chooses among, with a key from a random part of the request.
fn random_switch(rng: &mut Rng, host: &str, origins: &[Origin]) -> String {
    let policies = ["hrw", "lard", "lard/r", "cap", "maglev", "bounded_hash", "adaptive"];
    let keys = [
        "{ from = 'url' }",
        "{ from = 'host' }",
        "{ from = 'header', name = 'X-Lang' }",
        "{ from = 'cookie', name = 'r' }",
        "{ from = 'query', name = 'r' }",
    ];
    let (policy, key) = (policies[rng.below(policies.len())], keys[rng.below(keys.len())]);
    let mut text = format!(
        "[[site]]\nhosts = '{host}'\npolicy = {{ name = '{policy}' }}\nkey = {key}\ncache = false\n"
    );
    text += ["", "request_headers.set = { X-Lang = 'fr' }\n", "add_prefix = '/a'\n"][rng.below(3)];
    for (number, origin) in origins.iter().enumerate() {
        text +=
            &format!("[[site.server]]\nname = 's{number}'\nurl = 'http://{}'\n", origin.address);
    }
    text += ["", "[[site.class]]\nclass = 'cpu'\nprefix = '/a/'\n"][rng.below(2)];
    text += ["", "[[site.route]]\nheader = { x-r = '1' }\nstrip_prefix = '/a'\n"][rng.below(2)];
    text
}

/// Over key sources, routes, policies and sizes of clusters.
#[tokio::test]
async fn requests_meet_what_was_explained_before() {
    let requests: usize = std::env::var("LEVADA_EXPLAINED").map_or(600, |n| n.parse().unwrap());
    let policies = ["adaptive", "fdr", "cdr", "hrw", "r-hrw", "maglev", "ring_hash", "lr-chash"];
    let mut origins = Vec::new();
    for _ in 0..4 {
        let origin = Origin::start().await;
        origin.otherwise(|_| Reply::ok("x").with("cache-control", "no-store"));
        origins.push(origin);
    }
    let mut rng = Rng::new(5);
    for size in [1, 2, 5] {
        let mut cluster = Cluster::start(size, origins[0].address, |_| {}).await;
        let hosts: Vec<String> = (0..32).map(|number| format!("h{number}.test")).collect();
        let mut text = String::from("[defaults]\ndebug = true\n");
        for (number, host) in hosts.iter().enumerate() {
            text += &match number % 2 {
                0 => random_switch(&mut rng, host, &origins),
                _ => {
                    let policy = policies[rng.below(policies.len())];
                    let line = format!("\npolicy = {{ name = '{policy}' }}\norigin");
                    random_site(&mut rng, host, &origins).replacen("\norigin", &line, 1)
                }
            };
        }
        for node in 0..size {
            let new = sites(&text);
            let answer = cluster.reload(node, |settings| settings.sites = new).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        let mut clients = Vec::new();
        for node in 0..size {
            clients.push(Clients::of(cluster.client(node)).await);
        }
        for _ in 0..requests / 3 {
            let (client, target, mut fields) = random_request(&mut rng);
            let (node, host) = (rng.below(size), rng.below(hosts.len()));
            let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
            let url = format!("http://{}{target}", hosts[host]);
            let mut asked = format!("/explain?url={}&client=127.0.0.{client}", escaped(&url));
            for (name, value) in &fields {
                asked += &format!("&header={}", escaped(&format!("{name}: {value}")));
            }
            let explained = admin_json(cluster.node(node), &asked).await;
            fields.push(("host", &hosts[host]));
            let answer = clients[node].ask(client, &head_of("GET", target, &fields)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let chosen = explained["node"].as_str().unwrap();
            match told(&answer) {
                Some((served, reason, set)) => {
                    let expected = (chosen, explained["reason"].as_str().unwrap());
                    assert_eq!(expected, (&*served, &*reason), "{asked} in\n{text}");
                    assert_eq!(explained["set_size"].as_u64(), Some(set), "{asked} in\n{text}");
                }
                None => assert_eq!(chosen, format!("n{node}"), "{asked} in\n{text}"),
            }
        }
        drop(clients);
        cluster.settled().await;
    }
}
