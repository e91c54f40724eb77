//! Changed header fields: `request_headers` and `response_headers`.

use levada_config::{AccessLog, LogFormat, TrustedProxies};

use crate::support::{
    Answer, Origin, Reply, alone, get, get_with, nodes::Cluster, nodes::sites, settled,
};

/// A site with these lines, after the origin.
fn site(origin: &Origin, lines: &str) -> String {
    format!("[[site]]\nhosts = 'a.test'\norigin = 'http://{}'\n{lines}", origin.address)
}

fn lines(answer: &Answer, name: &str) -> usize {
    answer.fields.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name)).count()
}

#[tokio::test]
async fn fields_are_set_added_and_removed_on_both_ways() {
    let origin = Origin::start().await;
    origin.otherwise(|_| {
        Reply::cached("x").with("Server", "secret/1.0").with("X-A", "old").with("X-B", "1")
    });
    let text = site(
        &origin,
        "request_headers.set = { 'X-Real-IP' = '{client}', 'X-Forwarded-Host' = 'front.test', X-C = '{header.x-none}' }
         request_headers.add = { 'X-D' = ['2', '{method}'] }
         request_headers.remove = ['X-Debug', 'X-Forwarded-For']
         response_headers.set = { 'X-A' = '{scheme}://{host}{uri}', 'X-Cache' = '{cache}' }
         response_headers.add = { 'X-B' = '2' }
         response_headers.remove = ['Server']",
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    let sent = [("X-Debug", "1"), ("X-C", "client"), ("X-D", "1")];
    let (first, second) =
        (get_with(at, "/p?q=1", &sent).await, get_with(at, "/p?q=1", &sent).await);
    let asked = &origin.asked("/p")[0];
    assert_eq!(asked.header("x-real-ip").as_deref(), Some("127.0.0.1"));
    assert_eq!(asked.header("x-forwarded-host").as_deref(), Some("front.test"));
    for gone in ["x-debug", "x-forwarded-for", "x-c"] {
        assert_eq!(asked.header(gone), None, "{gone}");
    }
    assert_eq!(asked.lines("x-d"), 2, "that of the client is in no key");
    for answer in [&first, &second] {
        assert_eq!(answer.field("x-a"), "http://a.test/p?q=1");
        assert_eq!((lines(answer, "x-b"), lines(answer, "server")), (2, 0));
        assert_eq!(answer.text(), "x");
    }
    assert_eq!((first.field("x-cache"), second.field("x-cache")), ("miss".into(), "hit".into()));
    assert_eq!(origin.total(), 1);
    settled(&node).await;
}

#[tokio::test]
async fn route_that_names_one_field_keeps_the_others_of_its_site() {
    let origin = Origin::start().await;
    origin.otherwise(|_| Reply::ok("x").with("X-Keep", "origin"));
    let text = format!(
        "[defaults]\nresponse_headers.set = {{ 'X-A' = 'defaults', 'X-Keep' = 'defaults' }}\n{}",
        site(
            &origin,
            "response_headers = { set = { 'X-B' = 'site' }, remove = ['X-C'] }
             [[site.route]]
             path = '/r/*'
             response_headers = { set = { 'x-b' = 'route {1}' }, keep = ['X-Keep'] }
             [[site.route]]
             path = '/gone'
             redirect = { to = '/here' }",
        )
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    let answer = get(at, "/").await;
    assert_eq!((answer.field("x-a"), answer.field("x-b")), ("defaults".into(), "site".into()));
    assert_eq!(answer.field("x-keep"), "defaults");
    let answer = get(at, "/r/7").await;
    assert_eq!((answer.field("x-a"), answer.field("x-b")), ("defaults".into(), "route 7".into()));
    assert_eq!(answer.field("x-keep"), "origin");
    assert_eq!(get(at, "/gone").await.field("x-a"), "defaults", "redirects as well");
    settled(&node).await;
}

#[tokio::test]
async fn errors_of_the_node_get_the_fields_too() {
    let origin = Origin::start().await;
    origin.otherwise(|_| Reply::hang_up());
    let text = site(&origin, "response_headers.set = { 'X-A' = '{cache}' }");
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    let answer = get(at, "/").await;
    assert_eq!((answer.status, answer.field("x-a").as_str()), (502, "miss"));
    settled(&node).await;
}

#[tokio::test]
async fn no_variable_lets_a_client_begin_another_field() {
    let origin = Origin::start().await;
    origin.otherwise(|_| Reply::ok("x"));
    let variables = [
        "client",
        "host",
        "scheme",
        "method",
        "uri",
        "path",
        "query",
        "request_id",
        "header.x-a",
        "header.user-agent",
        "cookie.c",
        "1",
    ];
    let set = |prefix: &str| {
        let fields = variables.iter().enumerate();
        let fields: Vec<String> =
            fields.map(|(at, name)| format!("'{prefix}{at}' = 'a{{{name}}}b'")).collect();
        fields.join(", ")
    };
    let text = site(
        &origin,
        &format!(
            "encoded_controls = true
             fetch_fields = ['*']
             [[site.route]]
             path = '/**'
             request_headers.set = {{ {} }}
             response_headers.set = {{ {}, 'R-C' = '{{cache}}' }}",
            set("Q-"),
            set("R-")
        ),
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    let evil = "%0d%0aX-Evil:1%0aX-Evil:2%00%0D%0A%0D%0Abody";
    let sent = [
        ("x-a", "1\tX-Evil: 1\u{85}"),
        ("user-agent", evil),
        ("cookie", "c=%0d%0aX-Evil:1\tx"),
        ("x-request-id", "x\tX-Evil: 1"),
    ];
    let answer = get_with(at, &format!("/{evil}?{evil}"), &sent).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "x"));
    assert_eq!(answer.header("x-evil"), None);
    let capture = answer.field("r-11");
    assert!(capture.contains("X-Evil:1 X-Evil:2"), "ends of lines are spaces: {capture:?}");
    let all: Vec<_> = origin.asked(&format!("/{evil}"));
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].header("x-evil"), None);
    assert!(all[0].header("q-11").unwrap().starts_with("a  X-Evil:1 X-Evil:2   "));
    let values = answer.fields.iter().map(|(_, value)| value.as_bytes());
    assert!(values.flatten().all(|byte: &u8| !byte.is_ascii_control()), "{:?}", answer.fields);
    settled(&node).await;
}

#[tokio::test]
async fn variant_is_that_of_the_fields_which_the_origin_got() {
    let origin = Origin::start().await;
    origin.otherwise(|asked| {
        let group = asked.header("x-group").unwrap_or_default();
        Reply::cached(group).with("Vary", "X-Group")
    });
    let text = site(&origin, "request_headers.set = { 'X-Group' = '{cookie.group}' }");
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    for _ in 0..2 {
        for group in ["a", "b"] {
            let sent = [("cookie", &*format!("group={group}")), ("x-group", "stated")];
            assert_eq!(get_with(at, "/", &sent).await.text(), group);
        }
    }
    assert_eq!(origin.total(), 2);
    settled(&node).await;
}

#[tokio::test]
async fn credentials_of_the_node_do_not_keep_a_response_out_of_the_cache() {
    let origin = Origin::start().await;
    origin.otherwise(|asked| Reply::cached(asked.header("authorization").unwrap_or_default()));
    let text = site(
        &origin,
        "request_headers.set = { Authorization = 'Basic own' }
         [[site.route]]
         path = '/theirs'
         request_headers.set = { Authorization = 'Bearer {cookie.token}' }",
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    for _ in 0..2 {
        assert_eq!(get(at, "/").await.text(), "Basic own");
    }
    assert_eq!(origin.hits("/"), 1);
    for token in ["one", "two"] {
        let sent = [("cookie", &*format!("token={token}"))];
        assert_eq!(get_with(at, "/theirs", &sent).await.text(), format!("Bearer {token}"));
    }
    settled(&node).await;
}

#[tokio::test]
async fn identifier_of_a_request_is_made_unless_a_trusted_proxy_states_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    for trusts in [false, true] {
        let origin = Origin::start().await;
        origin.otherwise(|_| Reply::ok("x"));
        let text = site(
            &origin,
            "[[site.route]]
             path = '/plain'
             [[site.route]]
             path = '/**'
             response_headers.set = { 'X-Request-Id' = '{request_id}' }",
        );
        let (_, node, at) = alone(|settings| {
            settings.sites = sites(&text);
            settings.access_log = Some(AccessLog::to_file(path.clone(), LogFormat::json()));
            if trusts {
                let addresses = "127.0.0.0/8".parse().unwrap();
                settings.trusted = vec![TrustedProxies { addresses, proxy_protocol: false }];
            }
        })
        .await;
        let sent = [("x-request-id", "stated-7")];
        let (id, other) =
            (get_with(at, "/a", &sent).await.field("x-request-id"), get(at, "/b").await);
        let seen = origin.asked("/a")[0].header("x-request-id");
        assert_eq!(seen.as_deref(), Some(&*id), "the origin gets it");
        assert_eq!(id == "stated-7", trusts);
        let made = other.field("x-request-id");
        assert!(made.len() == 32 && made.bytes().all(|b| b.is_ascii_hexdigit()) && made != id);
        assert_eq!(get(at, "/plain").await.header("x-request-id"), None);
        assert_eq!(origin.asked("/plain")[0].header("x-request-id"), None, "nothing uses it");
        settled(&node).await;
        node.stop().await;
        let log = std::fs::read_to_string(&path).unwrap();
        assert!(log.contains(&format!("\"request_id\":\"{id}\"")), "{log}");
    }
}

#[tokio::test]
async fn one_key_gives_requests_identifiers_that_origins_clients_and_errors_have() {
    let origin = Origin::start().await;
    origin.otherwise(|_| Reply::ok("x"));
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("error.html");
    std::fs::write(&page, "<p>{request_id}, again {request_id}</p>").unwrap();
    let text = site(
        &origin,
        &format!(
            "request_id = true
             [[site.route]]
             path = '/plain'
             request_id = false
             [[site.route]]
             path = '/page'
             error_pages = {{ 502 = {{ file = '{}' }} }}",
            page.display()
        ),
    );
    let (_, node, at) = alone(|settings| {
        settings.sites = sites(&text);
        let addresses = "127.0.0.0/8".parse().unwrap();
        settings.trusted = vec![TrustedProxies { addresses, proxy_protocol: false }];
    })
    .await;
    let sent = [("x-request-id", "stated-7")];
    assert_eq!(get_with(at, "/a", &sent).await.field("x-request-id"), "stated-7");
    assert_eq!(origin.asked("/a")[0].header("x-request-id").as_deref(), Some("stated-7"));
    let made = get(at, "/b").await.field("x-request-id");
    assert_eq!(origin.asked("/b")[0].header("x-request-id").as_deref(), Some(&*made));
    assert_eq!(get(at, "/plain").await.header("x-request-id"), None);

    drop(origin);
    let failed = get_with(at, "/failed", &sent).await;
    assert_eq!((failed.status, &*failed.field("x-request-id")), (502, "stated-7"));
    assert!(failed.text().ends_with("\nrequest stated-7\n"), "{}", failed.text());
    let page = get_with(at, "/page", &sent).await;
    assert_eq!(page.text(), "<p>stated-7, again stated-7</p>");
    let wild = get_with(at, "/page", &[("x-request-id", "<b>")]).await;
    assert_eq!((&*wild.field("x-request-id"), &*wild.text()), ("<b>", "<p>-, again -</p>"));
    settled(&node).await;
}

#[tokio::test]
async fn peers_get_requests_unchanged_and_only_one_node_changes_the_response() {
    let origin = Origin::start().await;
    origin.otherwise(|_| Reply::cached("x"));
    let text = site(
        &origin,
        "request_headers.add = { 'X-Asked' = '{header.x-a} {request_id}' }
         response_headers.add = { 'X-Answered' = '{request_id}' }",
    );
    let cluster = Cluster::start(2, origin.address, |settings| settings.sites = sites(&text)).await;
    for number in 0..16 {
        let path = format!("/{number}");
        let answer = get_with(cluster.client(number % 2), &path, &[("x-a", "1")]).await;
        assert_eq!(lines(&answer, "x-answered"), 1);
        let asked = &origin.asked(&path)[0];
        assert_eq!(asked.lines("x-asked"), 1);
        let expected = format!("1 {}", answer.field("x-answered"));
        assert_eq!(asked.header("x-asked"), Some(expected), "the identifier is kept");
    }
    cluster.settled().await;
}

#[tokio::test]
async fn values_can_be_expressions() {
    let origin = Origin::start().await;
    origin.otherwise(|_| Reply::cached("x"));
    let text = site(
        &origin,
        r#"request_headers.set = { 'X-Kind' = "{= request.path.endsWith('.jpg') ? 'image' : 'other'}" }
         response_headers.set = { 'X-Size' = "{= size(request.query)}-{= {'1': 'beta'}[request.headers['x-beta']]}", 'X-Evil' = "{= request.headers['x-evil']}" }"#,
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    let fields = [("X-Beta", "1"), ("X-Evil", "a\tb")];
    let answer = get_with(at, "/a.jpg?abc", &fields).await;
    assert_eq!(origin.asked("/a.jpg")[0].header("x-kind").as_deref(), Some("image"));
    assert_eq!(answer.header("x-size").as_deref(), Some("3-beta"));
    assert_eq!(answer.header("x-evil").as_deref(), Some("a b"));
    // No such name in the map: the expression fails, and its value is empty.
    assert_eq!(get_with(at, "/b?", &[]).await.header("x-size").as_deref(), Some("0-"));
    settled(&node).await;
}
