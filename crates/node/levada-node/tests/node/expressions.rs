//! Expressions in matchers, keys, `bypass_when` and `no_store_when`.

use crate::support::{
    HOST, Origin, Reply, Wire, alone, get, get_with, head_of,
    nodes::{Cluster, admin_json, metric, sites},
    settled, within,
};

async fn origin() -> Origin {
    let origin = Origin::start().await;
    origin.otherwise(|asked| Reply::cached(asked.target.clone()));
    origin
}

/// A site with these lines.
fn site(origin: &Origin, lines: &str) -> String {
    format!("[[site]]\nhosts = '{HOST}'\norigin = 'http://{}'\n{lines}", origin.address)
}

#[tokio::test]
async fn route_takes_the_requests_for_which_its_expression_holds() {
    let origin = origin().await;
    let lines = r#"[[site.route]]
        when = "request.headers['x-beta'] == '1' && request.path.startsWith('/shop/')"
        respond = { status = 203, body = "beta" }"#;
    let text = site(&origin, lines);
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    assert_eq!(get_with(at, "/shop/a", &[("X-Beta", "1")]).await.status, 203);
    for (path, fields) in
        [("/shop/a", &[][..]), ("/shop/a", &[("X-Beta", "2")]), ("/a", &[("X-Beta", "1")])]
    {
        assert_eq!(get_with(at, path, fields).await.status, 200, "{path} {fields:?}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn value_of_the_expression_is_a_part_of_the_key() {
    let origin = origin().await;
    let lines = r#"cache_key = { expression = "request.cookies.plan == 'premium' ? 'p' : ''" }"#;
    let text = site(&origin, lines);
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    let premium = &[("Cookie", "a=b; plan=premium")][..];
    let other = &[("Cookie", "plan=free")][..];
    for (fields, hit) in [(premium, false), (other, false), (&[], true), (premium, true)] {
        assert_eq!(get_with(at, "/a", fields).await.is_hit(), hit, "{fields:?}");
        settled(&node).await;
    }
    let explained = format!("/explain?url=http://{HOST}/a&header=Cookie:plan%3Dpremium");
    let explained = admin_json(&node, &explained).await;
    assert_eq!(explained["url"], format!("expression=p http://{HOST}/a"));
    assert_eq!(explained["expressions"][0]["value"], "p");
    assert_eq!(explained["expressions"][0]["place"], "site[0].cache_key.expression");
    // An unsafe request invalidates all variants.
    let post = head_of("POST", "/a", &[("Content-Length", "0")]);
    assert_eq!(Wire::saying(at, post).await.answer_to("POST").await.status, 200);
    settled(&node).await;
    assert!(!get_with(at, "/a", premium).await.is_hit() && !get(at, "/a").await.is_hit());
    settled(&node).await;
}

#[tokio::test]
async fn requests_pass_the_cache_by_if_the_expression_holds_or_fails() {
    let origin = origin().await;
    let lines = r#"bypass_when = "int(request.query_params.level) > 3"
        no_store_when = "has(request.query_params.preview)""#;
    let text = site(&origin, lines);
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    for (path, hit) in [
        ("/a?level=1", [false, true]),
        ("/a?level=4", [false, false]),
        ("/a?level=x", [false, false]),
        ("/a?level=1&preview", [false, false]),
    ] {
        for expected in hit {
            assert_eq!(get(at, path).await.is_hit(), expected, "{path}");
            settled(&node).await;
        }
    }
    let counted = async {
        while metric(&node, "levada_expression_failures_total").await < 2.0 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(counted).await;
    let explained = admin_json(&node, &format!("/explain?url=http://{HOST}/a?level=x")).await;
    assert_eq!(explained["expressions"][0]["failure"], "the text is no whole number");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_find_the_same_route_and_the_same_key() {
    let origin = origin().await;
    let text = site(
        &origin,
        r#"[[site.route]]
        when = "request.headers.exists(n, n.startsWith('x-only-clients')) && size(request.headers) == 1 && source.address == '127.0.0.1' && request.scheme == 'http'"
        cache_key = { expression = "string(size(request.headers)) + request.headers['x-only-clients-send']" }"#,
    );
    let cluster = Cluster::start(3, origin.address, |settings| {
        let servers = settings.sites[0].servers.clone();
        settings.sites = sites(&text);
        settings.sites[0].routes.all.iter().for_each(|route| assert!(route.servers.is_none()));
        settings.sites[0].servers = servers;
    })
    .await;
    let fields = [("X-Only-Clients-Send", "7")];
    for n in 0..12 {
        let path = format!("/{n}");
        for redirector in 0..3 {
            let answer = get_with(cluster.client(redirector), &path, &fields).await;
            assert_eq!(answer.status, 200);
            cluster.settled().await;
        }
        assert_eq!(origin.hits(&path), 1, "one node keeps it for all, under one key: {path}");
        let url = format!("/explain?url=http://{HOST}{path}&header=X-Only-Clients-Send:7");
        let explained = admin_json(cluster.node(0), &url).await;
        assert_eq!(explained["url"], format!("expression=17 http://{HOST}{path}"));
    }
}
