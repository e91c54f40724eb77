//! Where two parts of a node, or two nodes, meet: what one of them knows holds for the other.

use levada_config::Delivery;

use crate::support::{
    Answer, HOST, Origin, Reply, Wire, alone, get, get_with, head_of,
    nodes::{Cluster, sites},
    settled,
};

/// A site with these lines, after the origin.
fn site(origin: &Origin, lines: &str) -> String {
    format!("[[site]]\nhosts = '*'\norigin = 'http://{}'\n{lines}", origin.address)
}

/// An origin that answers everything with its name.
async fn named(name: &'static str) -> Origin {
    let origin = Origin::start().await;
    origin.otherwise(move |_| Reply::cached(name));
    origin
}

async fn send(
    at: std::net::SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
) -> Answer {
    Wire::saying(at, head_of(method, path, fields)).await.answer_to(method).await
}

#[tokio::test]
async fn peer_serves_the_route_that_the_node_has_found() {
    let (own, other) = (named("own").await, named("other").await);
    let to = format!("origin = 'http://{}'", other.address);
    for (matcher, fields) in [
        // The field ends at the node that meets the client.
        ("header = { X-Beta = '1' }", &[("X-Beta", "1"), ("Connection", "X-Beta")][..]),
        // The node adds these itself.
        ("header = { X-Forwarded-For = false }", &[]),
        ("header = { Via = false }", &[]),
    ] {
        let text = site(&own, &format!("[[site.route]]\n{matcher}\n{to}"));
        let cluster =
            Cluster::start(2, own.address, |settings| settings.sites = sites(&text)).await;
        for number in 0..12 {
            let answer = get_with(cluster.client(0), &format!("/{number}"), fields).await;
            assert_eq!(answer.text(), "other", "{matcher} /{number}");
        }
        cluster.settled().await;
    }
}

#[tokio::test]
async fn pass_of_one_route_opens_no_other() {
    let (own, other) = (named("own").await, named("other").await);
    let to = format!("origin = 'http://{}'", other.address);
    let routes = format!(
        "delivery = 'redirect'\n[[site.route]]\nheader = {{ X-Admin = '1' }}\n{to}\naccess = 'deny all'"
    );
    let text = site(&own, &routes);
    let cluster = Cluster::start(2, own.address, |settings| {
        settings.sites = sites(&text.replace("delivery = 'redirect'\n", ""));
        settings.sites[0].delivery = Delivery::Redirect;
    })
    .await;
    let mut passes = 0;
    for number in 0..12 {
        let sent = get(cluster.client(0), &format!("/{number}")).await;
        if sent.status != 307 {
            continue;
        }
        passes += 1;
        let location = sent.field("location");
        let (base, target) = location.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let fields = [("Host", base), ("X-Admin", "1")];
        let answer = get_with(cluster.client(1), &format!("/{target}"), &fields).await;
        assert_eq!(answer.status, 403, "{}", answer.text());
        let answer = get_with(cluster.client(1), &format!("/{target}"), &fields[..1]).await;
        assert_eq!(answer.text(), "own");
    }
    assert!(passes > 0, "somebody was sent to the peer");
    assert_eq!(other.total(), 0);
    cluster.settled().await;
}

#[tokio::test]
async fn head_of_one_client_changes_nothing_for_others() {
    let origin = Origin::start().await;
    origin.otherwise(|asked| {
        let from = asked.header("origin").or(asked.header("cookie")).unwrap_or_default();
        Reply::cached("x").with("etag", "\"1\"").with("access-control-allow-origin", &from)
    });
    let text = site(&origin, "no_store = ['cookie.session']\nbypass = ['cookie.session']");
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    get(at, "/cors").await;
    for fields in [
        [("Cache-Control", "no-cache"), ("Origin", "https://evil.test")],
        [("Cache-Control", "no-cache"), ("Cookie", "session=bob")],
    ] {
        assert_eq!(send(at, "HEAD", "/cors", &fields).await.status, 200);
        let answer = get(at, "/cors").await;
        assert!(answer.is_hit(), "{fields:?}");
        assert_eq!(answer.field("access-control-allow-origin"), "", "{fields:?}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn answer_to_a_post_is_stored_by_the_rules_of_a_get() {
    let origin = Origin::start().await;
    origin.otherwise(|asked| {
        let url = format!("http://{HOST}{}", asked.target);
        let private = asked.target.contains(';');
        let control = if private { "private" } else { "max-age=600" };
        Reply::ok(asked.method.clone())
            .with("cache-control", control)
            .with("expires", "Thu, 01 Jan 2099 00:00:00 GMT")
            .with("date", "Thu, 26 Nov 2026 00:00:00 GMT")
            .with("content-type", "text/html")
            .with("content-location", &url)
    });
    let text = site(
        &origin,
        "no_store = ['cookie.session']\n[[site.route]]\npath = '/**.css'\n\
         ignore_headers = ['cache-control']",
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    for (path, cookie) in [("/a", "session=bob"), ("/account;x.css", "a=b")] {
        let fields = [("Cookie", cookie), ("Content-Length", "0")];
        assert_eq!(send(at, "POST", path, &fields).await.text(), "POST");
        settled(&node).await;
        assert_eq!(get(at, path).await.text(), "GET", "{path}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn kept_error_page_is_that_of_the_route_and_of_no_purge() {
    let (own, other) = (Origin::start().await, Origin::start().await);
    for (origin, name) in [(&own, "own"), (&other, "other")] {
        origin.otherwise(move |asked| match asked.target.as_str() {
            "/err.html" => Reply::cached(format!("page of {name}")),
            "/broken" => Reply::hang_up(),
            _ => Reply::ok("none").status("404 Not Found"),
        });
    }
    let routes = format!(
        "error_pages = {{ 4xx = {{ path = '/err.html' }}, 5xx = {{ path = '/err.html' }} }}\n\
         [[site.route]]\nclient = '127.0.0.2/32'\norigin = 'http://{}'",
        other.address
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&site(&own, &routes))).await;
    let mut inside = Wire::over(crate::support::connect_from(2, at).await);
    inside.send(head_of("GET", "/gone", &[])).await;
    assert_eq!(inside.answer().await.text(), "page of other");
    let answer = get(at, "/broken").await;
    assert_eq!((answer.status, answer.text().contains("other")), (502, false));
    assert_eq!(get(at, "/gone").await.text(), "page of own");
    assert_eq!(get(at, "/broken").await.text(), "page of own", "it is kept");
    own.otherwise(|_| Reply::hang_up());
    crate::purge::purge(&node, serde_json::json!({"all": true})).await;
    let answer = get(at, "/broken").await;
    assert!(!answer.text().contains("page of"), "a purged page is gone: {}", answer.text());
    drop(inside);
    settled(&node).await;
}

#[tokio::test]
async fn purge_by_request_reaches_what_other_methods_have_stored() {
    let origin = named("own").await;
    let routes = "add_prefix = '/main'\n[[site.route]]\nmethod = ['GET', 'HEAD']\npath = '/g/**'\n\
                  add_prefix = '/get'";
    let (_, node, at) = alone(|settings| {
        settings.sites = sites(&site(&origin, routes));
        settings.purge.access.token = Some("0123456789abcdef".to_owned());
    })
    .await;
    let token = ("Authorization", "Bearer 0123456789abcdef");
    get(at, "/g/x").await;
    assert!(get(at, "/g/x").await.is_hit());
    assert_eq!(send(at, "PURGE", "/g/x", &[token]).await.status, 200);
    assert!(!get(at, "/g/x").await.is_hit());
    settled(&node).await;
}

#[tokio::test]
async fn soft_purge_is_for_both_schemes_of_a_rewrite() {
    let origin = named("own").await;
    let text = site(&origin, "rewrite = '/{scheme}{path}'");
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    get(at, "/x").await;
    assert!(get(at, "/x").await.is_hit());
    let order = serde_json::json!({"url": format!("https://{HOST}/x"), "soft": true});
    crate::purge::purge(&node, order).await;
    assert!(!get(at, "/x").await.is_hit());
    settled(&node).await;
}
