//! A response stored for one route never answers a request of a route that asks something else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use levada_types::Rng;

use crate::support::{
    Answer, Origin, Reply, Wire, alone, connect_from, get, get_with, head_of,
    nodes::{Cluster, sites, start},
    settled,
};

/// An origin that tells its name, and the host and the path that it was asked for.
async fn telling(name: &'static str) -> Origin {
    let origin = Origin::start().await;
    origin.otherwise(move |asked| {
        let host = asked.header("host").unwrap_or_default();
        let tag = asked.header("x-tag").unwrap_or_default();
        let path = asked.target.split('?').next().unwrap_or_default().to_owned();
        Reply::cached(format!("{name} {host} {path} {tag}"))
    });
    origin
}

/// A site with these routes, before which nothing is known of the request.
fn site(origin: &Origin, routes: &str) -> String {
    format!("[[site]]\nhosts = 'a.test'\norigin = 'http://{}'\n{routes}", origin.address)
}

#[tokio::test]
async fn routes_to_other_servers_share_nothing() {
    let (own, other) = (telling("own").await, telling("other").await);
    let to = format!("origin = 'http://{}'", other.address);
    for matcher in [
        "header = { x-r = '1' }",
        "cookie = { r = '1' }",
        "when = \"request.headers['x-r'] == '1'\"",
        "client = '127.0.0.2/32'",
    ] {
        let text = site(&own, &format!("[[site.route]]\n{matcher}\n{to}"));
        let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
        let mut routed = Wire::over(connect_from(2, at).await);
        let fields = [("x-r", "1"), ("cookie", "r=1")];
        for hit in [false, true] {
            routed.send(head_of("GET", "/x", &fields)).await;
            let answer = routed.answer().await;
            assert!(answer.text().starts_with("other"), "{matcher}: {}", answer.text());
            assert_eq!(answer.is_hit(), hit, "{matcher}");
            let answer = get(at, "/x").await;
            assert!(answer.text().starts_with("own"), "{matcher}: {}", answer.text());
            assert_eq!(answer.is_hit(), hit, "{matcher}");
        }
        drop(routed);
        settled(&node).await;
    }
}

#[tokio::test]
async fn routes_that_strip_their_prefixes_towards_other_servers_share_nothing() {
    let (a, b) = (telling("a").await, telling("b").await);
    let route = |prefix: &str, origin: &Origin| {
        let address = origin.address;
        format!(
            "[[site.route]]\npath = '/{prefix}/**'\nstrip_prefix = '/{prefix}'\n\
             origin = 'http://{address}'\n"
        )
    };
    let text = site(&a, &(route("a", &a) + &route("b", &b)));
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    assert_eq!(get(at, "/a/x").await.text(), "a a.test /x ");
    assert_eq!(get(at, "/b/x").await.text(), "b a.test /x ");
    assert!(get(at, "/x").await.is_hit(), "the servers of /a/ are the site's");
    settled(&node).await;
}

#[tokio::test]
async fn routes_that_ask_otherwise_share_nothing_and_those_that_only_answer_otherwise_share() {
    let origin = telling("own").await;
    let routes = "[[site.route]]\nheader = { x-r = 'host' }\norigin_host = 'b.test'\n\
         [[site.route]]\nheader = { x-r = 'tag' }\nrequest_headers.set = { X-Tag = '1' }\n\
         [[site.route]]\nheader = { x-r = 'age' }\ndefault_ttl = '1h'\n\
         response_headers.set = { X-Answer = '1' }\n";
    let (_, node, at) = alone(|settings| settings.sites = sites(&site(&origin, routes))).await;
    let asked = async |route: &'static str| get_with(at, "/x", &[("x-r", route)]).await;
    assert_eq!(asked("none").await.text(), "own a.test /x ");
    assert_eq!(asked("host").await.text(), "own b.test /x ");
    assert_eq!(asked("tag").await.text(), "own a.test /x 1");
    let answer = asked("age").await;
    assert!(answer.is_hit() && answer.field("x-answer") == "1");
    assert_eq!(origin.total(), 3);
    settled(&node).await;
}

#[tokio::test]
async fn routes_with_one_word_share_what_is_stored() {
    let (own, other) = (telling("own").await, telling("other").await);
    let routes = format!(
        "cache_key = {{ share = 'all of it' }}\n[[site.route]]\nheader = {{ x-r = '1' }}\n\
         origin = 'http://{}'\n",
        other.address
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&site(&own, &routes))).await;
    assert!(get(at, "/x").await.text().starts_with("own"));
    assert!(get_with(at, "/x", &[("x-r", "1")]).await.is_hit());
    assert_eq!(other.total(), 0);
    settled(&node).await;
}

#[tokio::test]
async fn unsafe_request_of_one_route_invalidates_what_another_has_stored() {
    let (own, writer) = (telling("own").await, telling("writer").await);
    let routes = format!(
        "[[site.route]]\nmethod = 'POST'\norigin = 'http://{}'\n\
         [[site.route]]\nheader = {{ x-r = '1' }}\norigin_host = 'b.test'\n",
        writer.address
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&site(&own, &routes))).await;
    for fields in [&[][..], &[("x-r", "1")]] {
        get_with(at, "/x", fields).await;
        assert!(get_with(at, "/x", fields).await.is_hit());
    }
    Wire::saying(at, head_of("POST", "/x", &[("content-length", "0")])).await.answer().await;
    for fields in [&[][..], &[("x-r", "1")]] {
        assert!(!get_with(at, "/x", fields).await.is_hit(), "{fields:?}");
    }
    settled(&node).await;
}

/// A random site of this host, with one to four routes.
pub(crate) fn random_site(rng: &mut Rng, host: &str, origins: &[Origin]) -> String {
    let mut below = |bound: usize| rng.below(bound);
    let key = |choice: usize| match choice {
        0 => "cache_key = { query = 'none' }\n",
        1 => "cache_key = { headers = ['x-lang'] }\n",
        2 => "cache_key = { device = true, sort_query = true }\n",
        _ => "",
    };
    let origin = origins[below(origins.len())].address;
    let mut text = format!("[[site]]\nhosts = '{host}'\norigin = 'http://{origin}'\n");
    text += key(below(6));
    for _ in 0..=below(4) {
        text += "[[site.route]]\n";
        text += match below(6) {
            0 => "header = { x-r = '1' }\n",
            1 => "cookie = { r = '1' }\n",
            2 => "query = { r = '1' }\n",
            3 => "client = '127.0.0.2/32'\n",
            4 => "when = \"request.headers['x-w'] == '1'\"\n",
            _ => "path = '/a/**'\n",
        };
        if below(2) == 0 {
            let origin = origins[below(origins.len())].address;
            text += &format!("origin = 'http://{origin}'\n");
        }
        text += match below(5) {
            0 => "origin_host = 'b.test'\n",
            1 => "request_headers.set = { X-Tag = '1' }\n",
            2 => "response_headers.set = { X-Answer = '1' }\n",
            _ => "",
        };
        text += match below(5) {
            0 => "strip_prefix = '/a'\n",
            1 => "add_prefix = '/a'\n",
            2 => "rewrite = '/c{path}'\n",
            _ => "",
        };
        text += key(below(8));
    }
    text
}

/// A random request: the number of its client, its target and its fields.
pub(crate) fn random_request(
    rng: &mut Rng,
) -> (u8, &'static str, Vec<(&'static str, &'static str)>) {
    let target = ["/x", "/a/x", "/a/a/x", "/x?r=1", "/c/x"][rng.below(5)];
    let fields = [("x-r", "1"), ("cookie", "r=1"), ("x-w", "1"), ("x-lang", "de")];
    let fields = fields.into_iter().filter(|_| rng.below(3) == 0).collect();
    (1 + rng.below(2) as u8, target, fields)
}

/// The connections of two clients to one node.
pub(crate) struct Clients(Vec<Wire>);

impl Clients {
    pub(crate) async fn of(at: std::net::SocketAddr) -> Self {
        Self(vec![Wire::over(connect_from(1, at).await), Wire::over(connect_from(2, at).await)])
    }

    pub(crate) async fn ask(&mut self, client: u8, head: &str) -> Answer {
        let wire = &mut self.0[usize::from(client) - 1];
        wire.send(head).await;
        wire.answer().await
    }
}

/// Compared with a node that stores nothing: each answer is the same, and what was purged is fetched again.
#[tokio::test]
async fn no_route_gets_what_another_origin_sent() {
    const IN_ONE_FILE: usize = 50;
    let files: usize = std::env::var("LEVADA_ROUTE_FILES").map_or(100, |n| n.parse().unwrap());
    let generation = Arc::new(AtomicU32::new(0));
    let mut origins = Vec::new();
    for number in 0..4 {
        let (origin, generation) = (Origin::start().await, generation.clone());
        origin.otherwise(move |asked| {
            let host = asked.header("host").unwrap_or_default();
            let tag = asked.header("x-tag").unwrap_or_default();
            let path = asked.target.split('?').next().unwrap_or_default().to_owned();
            let now = generation.load(Relaxed);
            Reply::cached(format!("{now}|{number} {host} {path} {tag}"))
        });
        origins.push(origin);
    }
    let mut cluster = Cluster::start(2, origins[0].address, |_| {}).await;
    let mut rng = Rng::new(32);
    for batch in 0..files.div_ceil(IN_ONE_FILE) {
        let host = |number: usize| format!("h{}.test", batch * IN_ONE_FILE + number);
        let each: Vec<String> = (0..IN_ONE_FILE)
            .map(|number| {
                let count = 2 + rng.below(3);
                random_site(&mut rng, &host(number), &origins[..count])
            })
            .collect();
        let text = each.concat();
        for node in 0..2 {
            let new = sites(&text);
            let answer = cluster.reload(node, |settings| settings.sites = new).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        let mut plain = crate::support::nodes::single(&[]);
        plain.sites = sites(&format!("[defaults]\ncache = false\n{text}"));
        let plain = start(plain).await;
        let mut asked = Clients::of(plain.addresses.clients[0]).await;
        let mut nodes =
            vec![Clients::of(cluster.client(0)).await, Clients::of(cluster.client(1)).await];
        for (number, file) in each.iter().enumerate() {
            let host = host(number);
            for step in 0..10 {
                let (client, target, mut fields) = random_request(&mut rng);
                fields.push(("host", &host));
                let head = head_of("GET", target, &fields);
                if step % 5 == 4 {
                    generation.fetch_add(1, Relaxed);
                    let order = format!("{{\"url\":\"http://{host}{target}\"}}");
                    let length = order.len().to_string();
                    let fields =
                        [("content-type", "application/json"), ("content-length", &*length)];
                    let order = head_of("POST", "/purge", &fields) + &order;
                    let admin = cluster.node(0).addresses.admin.unwrap();
                    let purged = Wire::saying(admin, order).await.answer().await;
                    assert_eq!(purged.status, 200, "{}", purged.text());
                }
                let expected = asked.ask(client, &head).await.text();
                let got = nodes[rng.below(2)].ask(client, &head).await;
                let (_, rest) = expected.split_once('|').unwrap();
                let text = got.text();
                let (_, same) = text.split_once('|').unwrap();
                assert_eq!(same, rest, "{} in\n{file}\n{head}", got.field("cache-status"));
                if step % 5 == 4 {
                    assert_eq!(text, expected, "purged in\n{file}\n{head}");
                }
            }
        }
        drop((asked, nodes));
        plain.stop().await;
    }
    cluster.settled().await;
}
