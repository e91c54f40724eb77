//! The pages of the admin listener.

use std::{
    io::{Read as _, Write as _},
    net::SocketAddr,
    process::{Command, Stdio},
};

use levada_config::Settings;

use crate::support::{nodes::*, *};

#[tokio::test]
async fn metrics_are_prometheus_text() {
    let origin = Origin::start().await;
    let node = start(single(&[origin.address])).await;
    let at = node.addresses.clients[0];
    get(at, "/a").await;
    settled(&node).await;
    get(at, "/a").await;
    get_with(at, "/a", &[("Host", "b.test")]).await;
    settled(&node).await;
    let openmetrics = [("Accept", "application/openmetrics-text; version=1.0.0")];
    let page = get_with(node.addresses.admin.unwrap(), "/metrics", &openmetrics).await.text();
    assert!(page.ends_with("# EOF\n"));
    for line in page.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let word = comment.split(' ').next().unwrap();
            assert!(["HELP", "TYPE", "UNIT", "EOF"].contains(&word), "{line}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect(line);
        assert!(series.starts_with("levada_") || series.starts_with("process_"), "{line}");
        value.parse::<f64>().expect(line);
        if let Some((_, labels)) = series.split_once('{') {
            let labels = labels.strip_suffix('}').expect(line);
            for label in labels.split("\",") {
                let (name, value) = label.split_once("=\"").expect(line);
                assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
                assert!(!value.contains("/a"), "no URL is a label: {line}");
            }
        }
    }
    assert!(page.contains("levada_http_requests_total{site=\"a.test\",listener=\"client\",code=\"200\",cache=\"hit\"} 1"));
    assert!(page.contains(
        "levada_http_requests_total{site=\"-\",listener=\"client\",code=\"421\",cache=\"none\"} 1"
    ));
    assert_eq!(metric(&node, "levada_http_requests_total").await, 3.0);
    assert_eq!(metric(&node, "levada_http_requests_in_flight").await, 0.0);
    assert_eq!(metric(&node, "levada_cache_objects").await, 1.0);
    assert_eq!(metric(&node, "levada_origin_response_bytes_total").await, 2.0);
}

#[tokio::test]
async fn promtool_finds_nothing_wrong_with_the_metrics() {
    if levada_skip::lacks("promtool", "prometheus") {
        return;
    }
    let (_origin, node, at) = alone(|_| {}).await;
    get(at, "/a").await;
    settled(&node).await;
    let page = admin(&node, "/metrics").await.text();
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = promtool.unwrap();
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let said = promtool.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&said.stderr) + String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && words.is_empty(), "{words}");
}

#[tokio::test]
async fn pages_tell_life_state_and_mistakes() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, |_| {}).await;
    let node = cluster.node(0);
    assert_eq!(admin(node, "/healthz").await.status, 200);
    assert_eq!(admin(node, "/readyz").await.status, 200);
    let status = admin_json(node, "/status").await;
    assert_eq!((status["name"].as_str(), status["in_flight"].as_i64()), (Some("n0"), Some(0)));
    assert_eq!(status["peers"].as_array().unwrap().len(), 2);
    assert_eq!(status["origins"][0]["address"], origin.address.to_string());
    for (target, code) in [
        ("/nowhere", 404),
        ("/explain", 400),
        ("/explain?url=nonsense", 400),
        ("/explain?url=http://b.test/", 400),
        ("/explain?url=%ff%00%", 400),
    ] {
        assert_eq!(admin(node, target).await.status, code, "{target}");
    }
    let at = node.addresses.admin.unwrap();
    let post = head_of("POST", "/status", &[("Content-Length", "0")]);
    assert_eq!(Wire::saying(at, post).await.answer().await.status, 405);
    // The public listener has none of these pages.
    assert_eq!(get(cluster.client(0), "/metrics").await.text(), "/metrics");
    cluster.settled().await;
}

#[tokio::test]
async fn explanation_agrees_with_what_happens() {
    let origin = Origin::start().await;
    for name in ["ring_hash", "hrw", "maglev", "fdr"] {
        let cluster = Cluster::start(4, origin.address, |settings| {
            settings.sites[0].servers.policy = policy(name);
        })
        .await;
        for n in 0..12 {
            let target = format!("/{name}/{n}?q=%20x&y");
            let encoded = format!("http://{HOST}{target}").replace('%', "%25").replace('&', "%26");
            let told = admin_json(cluster.node(1), &format!("/explain?url={encoded}")).await;
            assert_eq!(told["url"], format!("http://{HOST}{target}"));
            let answer = get(cluster.client(1), &target).await;
            let hop = answer.field("proxy-status");
            let node = told["node"].as_str().unwrap();
            match node {
                "n1" => assert_eq!(hop, ""),
                _ => assert!(hop.contains(&format!("next-hop=\"{node}\"")), "{node}: {hop}"),
            }
        }
        cluster.settled().await;
    }
}

#[tokio::test]
async fn explaining_changes_nothing() {
    let origin = Origin::start().await;
    // Two requests at once make a node busy: the object's set of nodes grows, and stays.
    let cluster = Cluster::start(4, origin.address, |settings| {
        let busy = levada_policy::ParameterValue::Integer(1);
        settings.sites[0].servers.policy.parameters.insert("busy".to_owned(), busy);
    })
    .await;
    let gate = Gate::new();
    origin.on("/known", Reply::cached("known").after(&gate));
    let mut held = Vec::new();
    for count in 1..=3 {
        held.push(Wire::saying(cluster.client(0), head_of("GET", "/known", &[])).await);
        eventually("it is held", || cluster.node(0).counts().in_flight == count).await;
    }
    gate.open();
    for wire in &mut held {
        assert_eq!(wire.answer().await.text(), "known");
    }
    cluster.settled().await;
    let (node, asked) = (cluster.node(0), origin.total());
    let known = format!("/explain?url=http://{HOST}/known");
    let before = (
        admin_json(node, &known).await,
        metric(node, "levada_policy_tracked_objects").await,
        metric(node, "levada_policy_decisions_total").await,
    );
    assert_eq!(before.1, 1.0, "one object is known");
    for n in 0..100 {
        admin_json(node, &known).await;
        admin_json(node, &format!("/explain?url=http://{HOST}/new/{n}")).await;
    }
    let after = (
        admin_json(node, &known).await,
        metric(node, "levada_policy_tracked_objects").await,
        metric(node, "levada_policy_decisions_total").await,
    );
    assert_eq!(before, after);
    assert_eq!(origin.total(), asked);
}

/// A node with an admin listener that is changed by `tweak`.
async fn administered(tweak: impl FnOnce(&mut Settings)) -> levada_node::Running {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    tweak(&mut settings);
    start(settings).await
}

/// The status of an order.
async fn order(node: &levada_node::Running, target: &str, token: Option<&str>) -> u16 {
    let shown = token.map(|token| format!("Bearer {token}")).unwrap_or_default();
    let mut fields = vec![("Content-Type", "application/json"), ("Content-Length", "2")];
    if token.is_some() {
        fields.push(("Authorization", &shown));
    }
    let head = head_of("POST", target, &[&fields[..], &[("Host", "localhost")]].concat());
    let request = head + "{}";
    Wire::saying(node.addresses.admin.unwrap(), request).await.answer().await.status
}

#[tokio::test]
async fn order_needs_the_token_where_there_is_one() {
    let with_token = |s: &mut Settings| s.admin.as_mut().unwrap().token = Some("secret".into());
    let node = administered(with_token).await;
    for target in ["/drain", "/drain?undo", "/reload", "/purge", "/servers/drain?server=x"] {
        assert_eq!(order(&node, target, None).await, 401, "{target}");
        assert_eq!(order(&node, target, Some("guess")).await, 401, "{target}");
    }
    assert_eq!(admin(&node, "/readyz").await.status, 200, "it does not drain");
    assert_eq!(order(&node, "/drain", Some("secret")).await, 200);
    assert_eq!(admin(&node, "/readyz").await.status, 503);
    assert_ne!(order(&node, "/purge", Some("secret")).await, 401);
    // The token for purges is for purges only.
    let node = administered(|settings| {
        with_token(settings);
        settings.purge.access.token = Some("for purges".into());
    })
    .await;
    assert_ne!(order(&node, "/purge", Some("for purges")).await, 401);
    assert_eq!(order(&node, "/purge", Some("secret")).await, 401);
    assert_eq!(order(&node, "/drain", Some("for purges")).await, 401);
}

/// The status and the text of an answer to a process of another user.
fn order_of_another_user(at: SocketAddr, target: &'static str) -> (u16, String) {
    // Another user, in this thread only, for the rest of its life.
    let asking = std::thread::spawn(move || {
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534)).unwrap();
        let mut stream = std::net::TcpStream::connect(at).unwrap();
        let fields = [("Host", "localhost"), ("Content-Type", "application/json")];
        let fields = [&fields[..], &[("Content-Length", "13"), ("Connection", "close")]].concat();
        stream
            .write_all((head_of("POST", target, &fields) + "{\"all\": true}").as_bytes())
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = asking.join().unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_token_another_user_of_this_machine_gives_no_orders() {
    if !rustix::process::geteuid().is_root() {
        levada_skip::skipped("another user needs root");
        return;
    }
    let node = administered(|_| {}).await;
    let at = node.addresses.admin.unwrap();
    for target in ["/drain", "/reload", "/purge", "/upgrade", "/servers/drain?server=x"] {
        let (status, answer) = order_of_another_user(at, target);
        assert_eq!(status, 403, "{target}: {answer}");
        assert!(answer.contains("set `token_file` in [admin]"), "{answer}");
    }
    assert_eq!(admin(&node, "/readyz").await.status, 200, "it does not drain");
    assert_eq!(metric(&node, "levada_purges_total").await, 0.0);
    assert_eq!(order(&node, "/drain", None).await, 200, "its own user");
    // With a token, the token decides.
    let node = administered(|s| s.purge.access.token = Some("for purges".into())).await;
    assert_eq!(order_of_another_user(node.addresses.admin.unwrap(), "/purge").0, 401);
}

#[tokio::test]
async fn web_page_of_another_name_gets_nothing() {
    let node = administered(|settings| {
        settings.admin.as_mut().unwrap().hosts = vec!["node.test".into()];
    })
    .await;
    let at = node.addresses.admin.unwrap();
    for target in ["/status", "/metrics", "/healthz"] {
        assert_eq!(get_with(at, target, &[("Host", "rebound.test:9180")]).await.status, 421);
        assert_eq!(get_with(at, target, &[("Host", "node.test:9180")]).await.status, 200);
        assert_eq!(get_with(at, target, &[("Host", "localhost")]).await.status, 200);
    }
}

#[tokio::test]
async fn metrics_can_have_an_address_of_their_own() {
    let node = administered(|s| s.metrics = Some("127.0.0.1:0".parse().unwrap())).await;
    let at = node.addresses.metrics.unwrap();
    for (target, status) in [("/metrics", 200), ("/healthz", 200), ("/readyz", 200)] {
        assert_eq!(get(at, target).await.status, status, "{target}");
    }
    for target in ["/", "/status", "/drain", "/explain?url=http://a.test/"] {
        assert_eq!(get(at, target).await.status, 404, "{target}");
    }
    let drain = head_of("POST", "/drain", &[("Content-Type", "application/json")]);
    assert_eq!(Wire::saying(at, drain).await.answer().await.status, 404);
    assert_eq!(admin(&node, "/readyz").await.status, 200);
}
