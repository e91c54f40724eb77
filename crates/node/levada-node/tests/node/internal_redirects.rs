//! Internal redirects: `reroute`, `files.else`, errors that a route answers.

use std::{fs, net::SocketAddr};

use levada_node::Running;

use crate::support::{
    Origin, Reply, Wire, alone, get, get_with, head_of,
    nodes::{Cluster, admin_json, sites},
    settled,
};

/// An origin that says what it is asked for.
async fn origin() -> Origin {
    let origin = Origin::start().await;
    origin.otherwise(|asked| Reply::cached(format!("{} {}", asked.method, asked.target)));
    origin
}

async fn node(text: &str) -> (Running, SocketAddr) {
    let text = text.to_owned();
    let (_, node, at) = alone(move |settings| settings.sites = sites(&text)).await;
    (node, at)
}

#[tokio::test]
async fn request_goes_on_with_another_path_or_at_a_named_route() {
    let origin = origin().await;
    let (node, at) = node(&format!(
        "[[site]]
         hosts = 'a.test'
         origin = 'http://{}'
         default_ttl = '1h'
         [[site.route]]
         path = '/old/**'
         reroute = '/new/{{1}}'
         [[site.route]]
         path = '/one/**'
         reroute = '/old/{{1}}?from=one'
         [[site.route]]
         path = '/app/**'
         reroute = '@app'
         [[site.route]]
         path = '/new/**'
         response_headers = {{ set = {{ X-Route = 'new' }} }}
         [[site.route]]
         name = 'app'
         internal = true
         rewrite = '/index.php'
         response_headers = {{ set = {{ X-Route = 'app' }} }}
         [[site.route]]
         path = '/endless/**'
         reroute = '/endless/{{1}}x'",
        origin.address
    ))
    .await;
    for (asked, sent, route) in [
        ("/old/a?q=1", "GET /new/a?q=1", "new"),
        ("/one/a?q=1", "GET /new/a?from=one", "new"),
        ("/new/b", "GET /new/b", "new"),
        ("/app/x?q", "GET /index.php?q", "app"),
        ("/other", "GET /other", ""),
    ] {
        let answer = get(at, asked).await;
        assert_eq!((answer.text().as_str(), answer.field("x-route").as_str()), (sent, route));
    }
    assert_eq!(get(at, "/endless/a").await.status, 508);
    // Both are one object: the URL after the redirect is the key.
    assert!(get(at, "/new/a?q=1").await.is_hit());
    let explained = admin_json(&node, "/explain?url=http%3A%2F%2Fa.test%2Fone%2Fa").await;
    assert_eq!(explained["route"]["name"], "4", "{explained}");
    assert_eq!(
        explained["route"]["way"],
        serde_json::json!([
            "route 2: reroute, on with /old/a?from=one at route 1",
            "route 1: reroute, on with /new/a?from=one at route 4"
        ])
    );
    settled(&node).await;
}

#[tokio::test]
async fn purge_of_the_clients_url_finds_what_the_redirect_stored() {
    let origin = origin().await;
    let text = format!(
        "[[site]]
         hosts = 'a.test'
         origin = 'http://{}'
         default_ttl = '1h'
         [[site.route]]
         path = '/old/**'
         reroute = '/new/{{1}}'",
        origin.address
    );
    let (_, node, at) = alone(|settings| {
        settings.sites = sites(&text);
        settings.purge.access.token = Some("a token of some length".to_owned());
    })
    .await;
    for path in ["/old/a", "/old/a"] {
        get(at, path).await;
    }
    assert_eq!(origin.hits("/new/a"), 1);
    let purge = head_of("PURGE", "/old/a", &[("authorization", "Bearer a token of some length")]);
    let answer = Wire::saying(at, purge).await.answer().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    get(at, "/old/a").await;
    assert_eq!(origin.hits("/new/a"), 2);
    settled(&node).await;
}

#[tokio::test]
async fn request_without_a_file_goes_on_where_the_directory_says() {
    let origin = origin().await;
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in [("a.txt", "file"), ("docs/index.html", "docs"), ("bare/x", "x")] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let text = |to: &str| {
        format!(
            "[[site]]
             hosts = 'a.test'
             origin = 'http://{}'
             [[site.route]]
             name = 'static'
             files = {{ root = '{}', else = '{to}' }}
             response_headers = {{ set = {{ X-Route = 'static' }} }}
             basic_auth = 'off'
             [[site.route]]
             name = 'app'
             internal = true
             rewrite = '/index.php{{?query}}'
             [[site.route]]
             path = '/a*'
             strip_prefix = '/a'
             files = {{ root = '{}' }}",
            origin.address,
            dir.path().display(),
            dir.path().display(),
        )
    };
    let (running, at) = node(&text("@app")).await;
    for (asked, answer) in [
        ("/a.txt", "file"),
        ("/docs/", "docs"),
        ("/none?q=1", "GET /index.php?q=1"),
        ("/bare/", "GET /index.php"),
        ("/.git/config", "GET /index.php"),
    ] {
        assert_eq!(get(at, asked).await.text(), answer, "{asked}");
    }
    // A directory with an index gets its slash, one without goes on.
    assert_eq!(get(at, "/docs").await.status, 301);
    assert_eq!(get(at, "/bare").await.text(), "GET /index.php");
    assert_eq!(get(at, "/a.txt").await.field("x-route"), "static");
    assert_eq!(get(at, "/none").await.header("x-route"), None, "fields are those of the route");
    let post = Wire::saying(at, head_of("POST", "/form", &[("content-length", "0")])).await;
    assert_eq!({ post }.answer().await.text(), "POST /index.php");
    let explained = admin_json(&running, "/explain?url=http%3A%2F%2Fa.test%2Fnone").await;
    assert_eq!(explained["route"]["name"], "app", "{explained}");
    assert_eq!(
        explained["route"]["way"],
        serde_json::json!(["route static: no file, on with /none at route app"])
    );
    settled(&running).await;
    let (running, at) = node(&text("next")).await;
    assert_eq!(get(at, "/none?q=1").await.text(), "GET /none?q=1", "no route but the site");
    settled(&running).await;
    let (running, at) = node(&text("/a.txt?from={path}")).await;
    assert_eq!(get(at, "/none").await.text(), "file");
    settled(&running).await;
}

#[tokio::test]
async fn another_route_answers_in_the_place_of_an_error() {
    let origin = Origin::start().await;
    origin.otherwise(|asked| match asked.target.as_str() {
        "/down" => Reply::hang_up(),
        "/fallback?for=1" => Reply::ok("for one"),
        target if target.starts_with("/fallback") => {
            Reply::ok(format!("{} {target}", asked.method))
        }
        _ => Reply::ok("none").status("404 Not Found"),
    });
    let (running, at) = node(&format!(
        "[[site]]
         hosts = 'a.test'
         origin = 'http://{}'
         [site.error_pages]
         404 = {{ to = '@fallback', status = 'answer' }}
         502 = {{ to = '/fallback?for=1' }}
         [[site.route]]
         name = 'fallback'
         internal = true
         rewrite = '/fallback{{path}}'
         response_headers = {{ set = {{ X-Route = 'fallback' }} }}
         [[site.route]]
         path = '/fixed/**'
         error_pages = {{ 404 = {{ to = '@fallback', status = 203 }} }}
         [[site.route]]
         path = '/out/**'
         error_pages = {{ 404 = {{ to = '@login', status = 'answer' }} }}
         [[site.route]]
         name = 'login'
         internal = true
         redirect = {{ to = '/login?from={{path}}', status = 303 }}
         [[site.route]]
         path = '/deep/**'
         error_pages = {{ 404 = {{ to = '@deep', status = 'answer' }} }}
         [[site.route]]
         name = 'deep'
         internal = true",
        origin.address
    ))
    .await;
    for (asked, status, text, route) in [
        ("/gone", 200, "GET /fallback/gone", "fallback"),
        ("/down", 502, "for one", ""),
        ("/fixed/a", 203, "GET /fallback/fixed/a", "fallback"),
        ("/out/a", 303, "", ""),
        // The error of the answer is the end, although its route has a page for it.
        ("/deep/a", 404, "none", ""),
    ] {
        let answer = get_with(at, asked, &[("range", "bytes=0-0")]).await;
        let got = (answer.status, answer.text(), answer.field("x-route"));
        assert_eq!(got, (status, text.to_owned(), route.to_owned()), "{asked}");
    }
    assert_eq!(get(at, "/out/a").await.field("location"), "/login?from=/out/a");
    // The body of the request is gone with the first try.
    let post = head_of("POST", "/gone", &[("content-length", "3")]) + "abc";
    assert_eq!(Wire::saying(at, post).await.answer().await.status, 404);
    settled(&running).await;
}

#[tokio::test]
async fn nodes_of_a_cluster_agree_on_where_a_request_has_gone() {
    let origin = origin().await;
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "[[site]]
         hosts = 'a.test'
         origin = 'http://{}'
         default_ttl = '1h'
         [[site.route]]
         path = '/old/**'
         reroute = '/new/{{1}}'
         [[site.route]]
         path = '/new/**'
         add_prefix = '/bucket'
         [[site.route]]
         files = {{ root = '{}', else = '@app' }}
         [[site.route]]
         name = 'app'
         internal = true
         add_prefix = '/app'",
        origin.address,
        dir.path().display(),
    );
    let cluster = Cluster::start(3, origin.address, |settings| settings.sites = sites(&text)).await;
    for number in 0..12 {
        for node in [0, 1, 2] {
            let at = cluster.client(node);
            let sent = format!("GET /bucket/new/{number}");
            assert_eq!(get(at, &format!("/old/{number}")).await.text(), sent);
            let sent = format!("GET /app/x/{number}");
            assert_eq!(get(at, &format!("/x/{number}")).await.text(), sent);
        }
        assert_eq!(origin.hits(&format!("/bucket/new/{number}")), 1, "the cluster asks once");
        assert_eq!(origin.hits(&format!("/app/x/{number}")), 1, "the cluster asks once");
    }
    cluster.settled().await;
}
