//! The pages of the admin listener.

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
    let page = admin(&node, "/metrics").await.text();
    assert!(page.ends_with("# EOF\n"));
    for line in page.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let word = comment.split(' ').next().unwrap();
            assert!(["HELP", "TYPE", "UNIT", "EOF"].contains(&word), "{line}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect(line);
        assert!(series.starts_with("levada_"), "{line}");
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
    assert_eq!(metric(&node, "levada_http_requests_total").await, 3.0);
    assert_eq!(metric(&node, "levada_http_requests_in_flight").await, 0.0);
    assert_eq!(metric(&node, "levada_cache_objects").await, 1.0);
    assert_eq!(metric(&node, "levada_origin_response_bytes_total").await, 2.0);
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
            settings.sites[0].policy = policy(name);
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
        settings.sites[0].policy.parameters.insert("busy".to_owned(), busy);
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
