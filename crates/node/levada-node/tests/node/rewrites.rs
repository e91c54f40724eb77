//! Rewritten paths, and maintenance.

use crate::support::{
    Origin, Reply, Wire, alone, connect_from, get, get_with, head_of, nodes::Cluster, nodes::sites,
    settled,
};

/// A site with these lines, after the origin.
fn site(origin: &Origin, lines: &str) -> String {
    format!("[[site]]\nhosts = 'a.test'\norigin = 'http://{}'\n{lines}", origin.address)
}

const ROUTES: &str = "default_ttl = '1h'
    [[site.route]]
    path = '/api/**'
    strip_prefix = '/api'
    [[site.route]]
    path = '/static/**'
    add_prefix = '/bucket'
    [[site.route]]
    path_regex = '^/user/(?<id>[^/]+)$'
    rewrite = '/profile?id={id}'
    [[site.route]]
    path = '/both/**'
    strip_prefix = '/both'
    add_prefix = '/v2'";

#[tokio::test]
async fn origin_is_asked_with_the_rewritten_path() {
    let origin = Origin::start().await;
    origin.otherwise(|asked| Reply::ok(asked.target.clone()));
    let text = site(&origin, ROUTES);
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    for (asked, sent) in [
        ("/api/users?page=2", "/users?page=2"),
        ("/api", "/"),
        ("/api/../api/x", "/x"),
        ("/static/a.css", "/bucket/static/a.css"),
        ("/x/../static//y", "/bucket/static/y"),
        ("/user/7?x=1", "/profile?id=7"),
        ("/user/7%26admin=1", "/profile?id=7%26admin%3D1"),
        ("/both/a%20b", "/v2/a%20b"),
        ("/other", "/other"),
    ] {
        assert_eq!(get(at, asked).await.text(), sent, "{asked}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn rewritten_url_is_the_key() {
    let origin = Origin::start().await;
    origin.otherwise(|asked| Reply::cached(asked.target.clone()));
    let text = site(&origin, ROUTES);
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    for path in ["/api/a", "/a", "/api/%61"] {
        get(at, path).await;
    }
    assert_eq!((origin.hits("/a"), origin.hits("/%61")), (1, 1), "URLs of one target share it");
    assert!(get_with(at, "/api/a", &[("range", "bytes=0-0")]).await.is_hit());
    settled(&node).await;
}

#[tokio::test]
async fn nodes_of_a_cluster_rewrite_once() {
    let origin = Origin::start().await;
    origin.otherwise(|asked| Reply::ok(asked.target.clone()));
    let text = site(
        &origin,
        "default_ttl = '1h'\n[[site.route]]\npath = '/api/**'\nstrip_prefix = '/api'",
    );
    let cluster = Cluster::start(2, origin.address, |settings| settings.sites = sites(&text)).await;
    for number in 0..16 {
        for node in [0, 1] {
            let answer = get(cluster.client(node), &format!("/api/api/{number}")).await;
            assert_eq!(answer.text(), format!("/api/{number}"));
        }
        assert_eq!(origin.hits(&format!("/api/{number}")), 1, "the cluster asks once");
    }
    cluster.settled().await;
}

#[tokio::test]
async fn explanation_shows_what_is_changed() {
    let origin = Origin::start().await;
    let lines = "strip_prefix = '/api'\nresponse_headers.remove = ['Server']\nmaintenance = true";
    let (_, node, _) = alone(|settings| settings.sites = sites(&site(&origin, lines))).await;
    let mut settings = crate::support::nodes::single(&[]);
    settings.sites = sites(&site(&origin, lines));
    let asked = levada_node::explain::ExplainedRequest::new("http://a.test/api/x");
    let explained = levada_node::explain::explain_settings(&settings, &asked).unwrap();
    assert_eq!(explained.url, "http://a.test/x");
    let words = explained.route.unwrap().handling;
    for word in [
        "under maintenance: 503 Service Unavailable",
        "/api stripped from the path that the origin gets",
        "response field server removed",
    ] {
        assert!(words.iter().any(|own| own == word), "{word}: {words:?}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn maintenance_answers_all_clients_but_those_that_are_allowed() {
    let origin = Origin::start().await;
    origin.otherwise(|_| Reply::cached("x"));
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    std::fs::write(&page, "<p>soon").unwrap();
    let text = site(
        &origin,
        &format!(
            "maintenance = {{ file = '{}', retry_after = '2m', allow = ['127.0.0.7'] }}
             [[site.route]]
             path = '/open'
             maintenance = false
             [[site.route]]
             path = '/plain'
             maintenance = true",
            page.display()
        ),
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    let answer = get(at, "/").await;
    assert_eq!((answer.status, answer.text().as_str()), (503, "<p>soon"));
    assert_eq!(answer.field("retry-after"), "120");
    assert_eq!(answer.field("content-type"), "text/html; charset=utf-8");
    let mut head = Wire::to(at).await;
    head.send(head_of("HEAD", "/", &[])).await;
    let answer = head.answer_to("HEAD").await;
    assert_eq!((answer.status, answer.field("content-length").as_str()), (503, "7"));
    let answer = get(at, "/plain").await;
    assert_eq!(answer.text(), "503 Service Unavailable: maintenance\n");
    assert_eq!(origin.total(), 0);
    assert_eq!(get(at, "/open").await.status, 200);
    let mut allowed = Wire::over(connect_from(7, at).await);
    allowed.send(head_of("GET", "/", &[])).await;
    assert_eq!(allowed.answer().await.status, 200);
    settled(&node).await;
}
