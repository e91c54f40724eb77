//! Routes of a site: `[[site.route]]`.

use crate::support::{
    Origin, Reply, Wire, alone, get, get_with, head_of, nodes::Cluster, nodes::sites, settled,
};

/// A site with these lines, before the origin.
fn site(origin: &Origin, lines: &str) -> String {
    format!("[[site]]\nhosts = 'a.test'\norigin = 'http://{}'\n{lines}", origin.address)
}

#[tokio::test]
async fn route_has_cache_rules_of_its_own() {
    let origin = Origin::start().await;
    origin.otherwise(|asked| Reply::ok(asked.target.clone()));
    let text = site(
        &origin,
        "default_ttl = '1h'
         [[site.route]]
         path = '/api/**'
         cache = false
         [[site.route]]
         path = '/**'
         header = { 'X-Fresh' = true }
         fetch_fields = ['X-Fresh']
         default_ttl = '0s'",
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    for path in ["/a", "/api/a", "/api", "/%61pi/x"] {
        get(at, path).await;
        get(at, path).await;
    }
    assert_eq!(origin.hits("/a"), 1, "the site caches");
    assert_eq!((origin.hits("/api/a"), origin.hits("/api")), (2, 2), "the first route does not");
    assert_eq!(origin.hits("/%61pi/x"), 2, "an escape does not lead past a route");
    for _ in 0..2 {
        get_with(at, "/b", &[("x-fresh", "1")]).await;
    }
    assert_eq!(origin.hits("/b"), 2, "the second route gives no lifetime");
    settled(&node).await;
}

#[tokio::test]
async fn route_has_an_origin_of_its_own() {
    let (origin, other) = (Origin::start().await, Origin::start().await);
    origin.otherwise(|_| Reply::cached("site"));
    other.otherwise(|_| Reply::cached("route"));
    let text = site(
        &origin,
        &format!(
            "[[site.route]]\npath = '/api/**'\norigin = 'http://{}'\norigin_host = 'api.test'",
            other.address
        ),
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    assert_eq!(get(at, "/").await.text(), "site");
    assert_eq!(get(at, "/api/x").await.text(), "route");
    assert_eq!(other.asked("/api/x")[0].header("host").as_deref(), Some("api.test"));
    assert_eq!((origin.total(), other.total()), (1, 1));
    settled(&node).await;
}

#[tokio::test]
async fn first_route_that_matches_counts() {
    let origin = Origin::start().await;
    origin.otherwise(|_| Reply::ok("x"));
    let text = site(
        &origin,
        "[[site.route]]
         path = '/img/private/**'
         cache = false
         [[site.route]]
         path = '/img/**'
         default_ttl = '1h'",
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    for path in ["/img/private/a", "/img/a"] {
        get(at, path).await;
        get(at, path).await;
    }
    assert_eq!((origin.hits("/img/private/a"), origin.hits("/img/a")), (2, 1));
    settled(&node).await;
}

#[tokio::test]
async fn route_answers_with_a_redirect_or_a_fixed_response() {
    let origin = Origin::start().await;
    let text = site(
        &origin,
        "encoded_controls = true
         [[site.route]]
         path = '/old/**'
         redirect = { to = 'https://{host}/new/{1}?{query}', status = 308 }
         [[site.route]]
         path = '/robots.txt'
         respond = { body = 'none', content_type = 'text/x-robots' }
         [[site.route]]
         host = 'a.test'
         path_regex = '^/user/(?<id>[0-9]+)$'
         redirect = { to = '/u/{id}' }",
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    let answer = get(at, "/old/a%0d%0aX:b?q=1").await;
    assert_eq!(answer.status, 308);
    assert_eq!(answer.field("location"), "https://a.test/new/a%0D%0AX:b?q=1");
    assert_eq!(answer.header("x"), None);
    let answer = get(at, "/robots.txt").await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "none"));
    assert_eq!(answer.field("content-type"), "text/x-robots");
    let answer = get(at, "/user/7").await;
    assert_eq!((answer.status, answer.field("location").as_str()), (302, "/u/7"));
    assert_eq!(origin.total(), 0, "no server is asked");
    settled(&node).await;
}

#[tokio::test]
async fn nodes_of_a_cluster_find_the_same_route() {
    let (origin, other) = (Origin::start().await, Origin::start().await);
    origin.otherwise(|_| Reply::ok("site"));
    other.otherwise(|_| Reply::ok("route"));
    let text = site(
        &origin,
        &format!(
            "[[site.route]]
             path = '/gone'
             redirect = {{ to = '/here' }}
             [[site.route]]
             path = '/api/**'
             header = {{ 'X-Beta' = '1' }}
             client = '127.0.0.0/8'
             origin = 'http://{}'
             default_ttl = '1h'",
            other.address
        ),
    );
    let cluster = Cluster::start(2, origin.address, |settings| settings.sites = sites(&text)).await;
    let beta = [("x-beta", "1")];
    for number in 0..16 {
        let path = format!("/api/{number}");
        for node in [0, 1, 0, 1] {
            let answer = get_with(cluster.client(node), &path, &beta).await;
            assert_eq!(answer.text(), "route", "{path} at {node}");
        }
        assert_eq!(other.hits(&path), 1, "the cluster asks once for {path}");
    }
    assert_eq!(origin.total(), 0);
    for node in 0..2 {
        assert_eq!(get(cluster.client(node), "/gone").await.field("location"), "/here");
        assert_eq!(get(cluster.client(node), "/api/x").await.text(), "site");
    }
    cluster.settled().await;
}

#[tokio::test]
async fn route_has_rules_of_access_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=").unwrap();
    let (origin, other) = (Origin::start().await, Origin::start().await);
    other.otherwise(|_| Reply::cached("other"));
    let text = site(
        &origin,
        &format!(
            "default_ttl = '1h'
             max_body = '10B'
             [[site.route]]
             path = '/admin/open'
             basic_auth = 'off'
             [[site.route]]
             path = '/admin/**'
             basic_auth = {{ users_file = '{}' }}
             origin = 'http://{}'
             [[site.route]]
             path = '/inner/**'
             access = ['deny 127.0.0.0/8']",
            users.display(),
            other.address
        ),
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    let status = async |path: &str| get(at, path).await.status;
    assert_eq!((status("/").await, status("/inner/x").await), (200, 403));
    assert_eq!((status("/admin/x").await, status("/%61dmin//x").await), (401, 401));
    assert_eq!(status("/admin/open").await, 200);
    // ann:secret
    let known = [("Authorization", "Basic YW5uOnNlY3JldA==")];
    for _ in 0..2 {
        assert_eq!(get_with(at, "/admin/x", &known).await.text(), "other");
    }
    assert_eq!((other.total(), other.asked("/admin/x")[0].header("authorization")), (1, None));
    assert_eq!(status("/admin/x").await, 401, "though it is stored");
    let long = [("Content-Length", "11"), known[0]];
    let posts = async |path: &str| {
        let mut wire = Wire::saying(at, head_of("POST", path, &long)).await;
        wire.answer().await.status
    };
    assert_eq!(
        (posts("/").await, posts("/admin/x").await),
        (413, 413),
        "both have the site's bound"
    );
    settled(&node).await;
}

#[tokio::test]
async fn limit_counts_where_it_is_stated() {
    let origin = Origin::start().await;
    let text = site(
        &origin,
        "default_ttl = '1h'
         limit = [{ key = 'client', rate = '1r/m', burst = 2, nodelay = true }]
         [[site.route]]
         path = '/a/**'
         cache = false
         [[site.route]]
         path = '/b/**'
         [[site.route]]
         path = '/login'
         limit = [{ key = 'client', rate = '1r/m', nodelay = true }]
         [[site.route]]
         path = '/signup'
         limit = [{ key = 'client', rate = '1r/m', nodelay = true }]
         [[site.route]]
         path = '/free/**'
         limit = []",
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    let status = async |path: &str| get(at, path).await.status;
    for (path, expected) in [
        ("/login", 200),
        ("/login", 429),
        ("/signup", 200),
        ("/a/1", 200),
        ("/b/1", 200),
        ("/c", 200),
        ("/a/2", 429),
        ("/b/1", 429),
        ("/c", 429),
        ("/free/1", 200),
        ("/free/1", 200),
    ] {
        assert_eq!(status(path).await, expected, "{path}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn peer_does_not_apply_the_rules_of_a_route_again() {
    let origin = Origin::start().await;
    let text = site(
        &origin,
        "[[site.route]]
         path = '/a/**'
         limit = [{ key = 'client', rate = '1r/m', burst = 15, nodelay = true }]",
    );
    let cluster = Cluster::start(2, origin.address, |settings| settings.sites = sites(&text)).await;
    let mut by_peer = 0;
    for number in 0..16 {
        let answer = get(cluster.client(0), &format!("/a/{number}")).await;
        assert_eq!(answer.status, 200, "{number}");
        by_peer += u32::from(answer.field("via").contains("n1"));
    }
    assert!(by_peer > 0);
    assert_eq!(get(cluster.client(0), "/a/0").await.status, 429);
    for number in 0..16 {
        assert_eq!(get(cluster.client(1), &format!("/a/{number}")).await.status, 200, "{number}");
    }
    cluster.settled().await;
}
