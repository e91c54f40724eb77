//! `forward_auth`: a server that is asked whether a request may pass.

use crate::support::{
    Gate, Origin, Reply, Wire, alone, eventually, get, get_with, head_of,
    nodes::{Cluster, sites},
    settled,
};

/// A site whose requests this server is asked about.
fn site(origin: &Origin, server: &Origin, keys: &str) -> String {
    format!(
        "[[site]]
         hosts = 'a.test'
         origin = 'http://{}'
         forward_auth = {{ url = 'http://{}/verify?of=a', {keys} }}\n",
        origin.address, server.address
    )
}

/// A server that knows users by their cookie, and names them.
async fn by_cookie() -> Origin {
    let server = Origin::start().await;
    server.otherwise(|asked| match asked.header("cookie").as_deref() {
        Some("user=ann") => Reply::ok("").with("remote-user", "ann"),
        Some("user=bob") => Reply::ok("").with("remote-user", "bob").with("remote-group", "b"),
        Some("user=nameless") => Reply::ok("").status("204 No Content"),
        Some("user=old") => Reply::ok("log in anew").status("302 Found").with("location", "/login"),
        _ => Reply::ok("who are you?")
            .status("401 Unauthorized")
            .with("www-authenticate", "Bearer realm=\"a\"")
            .with("set-cookie", "try=1")
            .with("connection", "x-hop")
            .with("x-hop", "1"),
    });
    server
}

#[tokio::test]
async fn server_is_told_about_the_request_and_others_get_its_answer() {
    let (origin, server) = (Origin::start().await, by_cookie().await);
    let text = site(&origin, &server, "");
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    let asks = [
        ("Cookie", "user=ann"),
        ("X-Forwarded-For", "192.0.2.9"),
        ("X-Forwarded-Uri", "/free"),
        ("Content-Length", "3"),
        ("Range", "bytes=0-1"),
        ("Accept", "text/html"),
    ];
    let mut wire = Wire::saying(at, head_of("POST", "/a%20b?x=1", &asks) + "abc").await;
    assert_eq!(wire.answer().await.status, 200);
    assert_eq!(origin.asked("/a%20b")[0].body, b"abc");
    let asked = server.asked("/verify").remove(0);
    let field = |name: &str| asked.header(name).unwrap_or_default();
    assert_eq!((asked.method.as_str(), asked.target.as_str()), ("GET", "/verify?of=a"));
    assert_eq!(field("host"), server.address.to_string());
    assert_eq!(field("x-forwarded-method"), "POST");
    assert_eq!(field("x-forwarded-proto"), "http");
    assert_eq!(field("x-forwarded-host"), "a.test");
    assert_eq!(field("x-forwarded-uri"), "/a%20b?x=1");
    assert_eq!(field("x-forwarded-for"), "127.0.0.1");
    assert_eq!((field("accept").as_str(), field("cdn-loop").as_str()), ("text/html", "levada"));
    assert_eq!((asked.header("content-length"), asked.header("range")), (None, None));
    drop(wire);

    let refused = get(at, "/x").await;
    assert_eq!((refused.status, refused.text().as_str()), (401, "who are you?"));
    assert_eq!(refused.field("www-authenticate"), "Bearer realm=\"a\"");
    assert_eq!(refused.field("set-cookie"), "try=1");
    assert_eq!(refused.field("cache-control"), "no-store");
    assert_eq!(refused.header("x-hop"), None, "a field of the server's own connection");
    let moved = get_with(at, "/x", &[("Cookie", "user=old")]).await;
    assert_eq!((moved.status, moved.field("location").as_str()), (302, "/login"));
    assert_eq!(origin.hits("/x"), 0);
    assert_eq!(server.connections(), 1, "its connection is used again");
    settled(&node).await;
}

#[tokio::test]
async fn stored_response_is_for_those_whom_the_server_lets_pass() {
    let (origin, server) = (Origin::start().await, by_cookie().await);
    origin.otherwise(|_| Reply::cached("secret"));
    let keys = "request_headers = ['cookie']";
    let text =
        site(&origin, &server, keys) + "[[site.route]]\npath = '/open'\nforward_auth = 'off'";
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    for (cookie, status) in [("ann", 200), ("bob", 200), ("eve", 401), ("nameless", 200)] {
        let fields = [("Cookie", format!("user={cookie}")), ("Accept", "*/*".to_owned())];
        let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
        let answer = get_with(at, "/a", &fields).await;
        assert_eq!((answer.status, answer.text() == "secret"), (status, status == 200), "{cookie}");
    }
    assert_eq!((origin.hits("/a"), server.hits("/verify")), (1, 4));
    assert_eq!(server.asked("/verify")[0].header("accept"), None);
    assert_eq!((get(at, "/open").await.status, server.hits("/verify")), (200, 4));
    settled(&node).await;
}

#[tokio::test]
async fn fields_of_the_answer_replace_those_of_the_client_and_keep_users_apart() {
    let (origin, server) = (Origin::start().await, by_cookie().await);
    origin.otherwise(|asked| {
        Reply::cached(format!("for {}", asked.header("remote-user").unwrap_or_default()))
    });
    let text = site(&origin, &server, "copy_headers = ['Remote-User', 'Remote-Group']");
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    let forged = [("Remote-User", "root"), ("Remote-Group", "wheel")];
    for (cookie, expected) in
        [("user=ann", "for ann"), ("user=bob", "for bob"), ("user=nameless", "for ")]
    {
        for hit in [false, true] {
            let answer = get_with(at, "/a", &[("Cookie", cookie), forged[0], forged[1]]).await;
            assert_eq!((answer.text().as_str(), answer.is_hit()), (expected, hit));
            settled(&node).await;
        }
    }
    let asked = origin.asked("/a");
    let groups: Vec<_> = asked.iter().map(|asked| asked.header("remote-group")).collect();
    assert_eq!(groups, [None, Some("b".to_owned()), None]);
    settled(&node).await;
}

#[tokio::test]
async fn peer_gets_the_fields_and_does_not_ask_again() {
    let (origin, server) = (Origin::start().await, by_cookie().await);
    origin.otherwise(|asked| {
        Reply::cached(format!("for {}", asked.header("remote-user").unwrap_or_default()))
    });
    let text = site(&origin, &server, "copy_headers = ['Remote-User']");
    let cluster = Cluster::start(2, origin.address, |settings| settings.sites = sites(&text)).await;
    let mut by_peer = 0;
    for number in 0..12 {
        for cookie in ["user=ann", "user=bob", "user=ann"] {
            let fields = [("Cookie", cookie), ("Remote-User", "root")];
            let answer = get_with(cluster.client(0), &format!("/{number}"), &fields).await;
            assert_eq!(answer.text(), cookie.replace("user=", "for "));
            by_peer += u32::from(answer.field("via").contains("n1"));
            cluster.settled().await;
        }
        assert_eq!(origin.hits(&format!("/{number}")), 2, "one for each user");
    }
    assert!(by_peer > 0);
    assert_eq!(server.hits("/verify"), 36);
}

#[tokio::test]
async fn nobody_passes_while_the_server_does_not_answer() {
    let (origin, server) = (Origin::start().await, Origin::start().await);
    let gate = Gate::new();
    server.otherwise(move |asked| {
        let user = |value: &str| {
            format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nRemote-User: {value}\r\n\r\n")
        };
        match asked.header("x-kind").as_deref() {
            Some("late") => Reply::ok("").after(&gate),
            Some("none") => Reply::hang_up(),
            Some("long") => Reply::ok(vec![b'x'; (256 << 10) + 1]).status("403 Forbidden"),
            Some("garbage") => Reply::raw("SSH-2.0-x\r\n"),
            Some("return") => Reply::raw(user("a\rX-Admin: 1")),
            Some("zero") => Reply::raw(user("a\0b")),
            Some("folded") => Reply::raw(user("a\r\n X-Admin: 1")),
            Some("line") => Reply::raw(user("a\nX-Admin: 1")),
            _ => Reply::ok(""),
        }
    });
    let keys = "copy_headers = ['remote-user'], timeout = '300ms'";
    let open = "[[site.route]]\npath = '/open/**'\ncache = false\nforward_auth = { url = 'http://127.0.0.1:9', \
                fail_open = true, copy_headers = ['remote-user'] }";
    let text = site(&origin, &server, keys) + open;
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    assert_eq!(get(at, "/a").await.status, 200);
    for kind in ["late", "none", "long", "garbage", "return", "zero"] {
        let answer = get_with(at, "/a", &[("X-Kind", kind)]).await;
        assert_eq!(answer.status, 503, "{kind}");
        assert_eq!(answer.field("cache-control"), "no-store");
    }
    for kind in ["folded", "line"] {
        get_with(at, &format!("/{kind}"), &[("X-Kind", kind)]).await;
        for asked in origin.asked(&format!("/{kind}")) {
            assert_eq!(asked.header("x-admin"), None, "{kind}");
        }
    }
    let answer = get_with(at, "/open/a", &[("Remote-User", "root")]).await;
    assert_eq!(answer.status, 200);
    assert_eq!(origin.asked("/open/a")[0].header("remote-user"), None);
    assert_eq!(origin.hits("/a"), 1);
    drop(server);
    eventually("the server is gone", || std::net::TcpStream::connect(text_address(&text)).is_err())
        .await;
    assert_eq!(get(at, "/a").await.status, 503, "though it is stored");
    settled(&node).await;
}

/// The address in the URL of `forward_auth`.
fn text_address(text: &str) -> std::net::SocketAddr {
    let (_, rest) = text.split_once("url = 'http://").unwrap();
    rest.split_once('/').unwrap().0.parse().unwrap()
}

#[tokio::test]
async fn question_that_comes_back_ends() {
    let origin = Origin::start().await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = format!(
        "[[site]]\nhosts = '*'\norigin = 'http://{}'\nforward_auth = {{ url = 'http://{port}/a' }}",
        origin.address
    );
    let (_, node, at) = alone(|settings| {
        settings.sites = sites(&text);
        settings.listeners[0].address = port;
    })
    .await;
    assert_eq!(get(at, "/a").await.status, 508);
    assert_eq!(origin.total(), 0);
    settled(&node).await;
}
