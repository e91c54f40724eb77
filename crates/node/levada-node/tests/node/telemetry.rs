//! Traces of requests, at servers that speak as collectors do.

use levada_config::{
    CollectorSettings, CollectorTargets, ExportSettings, Origin as OriginSetting, Settings,
    TrustedProxies,
};
use tokio::net::TcpListener;

use crate::support::{nodes::*, *};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

fn collector(server: OriginSetting, sample: f64) -> CollectorSettings {
    let (service, node) = ("levada".to_owned(), "n0".to_owned());
    CollectorSettings {
        server,
        targets: CollectorTargets::below("").unwrap(),
        headers: vec![("x-token".parse().unwrap(), "secret".parse().unwrap())],
        export: ExportSettings { sample, metrics_interval: None, event_log: false, service, node },
    }
}

fn traced(collector_at: std::net::SocketAddr, sample: f64) -> impl Fn(&mut Settings) {
    move |settings| settings.telemetry = Some(collector(at(&collector_at), sample))
}

fn this_machine() -> TrustedProxies {
    TrustedProxies { addresses: "127.0.0.0/8".parse().unwrap(), proxy_protocol: false }
}

/// The trace and the span of a field.
fn parts(field: &str) -> (&str, &str) {
    let parts: Vec<_> = field.split('-').collect();
    assert_eq!((parts.len(), parts[0], parts[3]), (4, "00", "01"), "{field}");
    (parts[1], parts[2])
}

#[tokio::test]
async fn trace_of_a_client_goes_through_two_nodes_to_the_origin_and_to_the_collector() {
    let (origin, spans) = (Origin::start().await, Origin::start().await);
    spans.on("/v1/traces", Reply::ok(""));
    let cluster = Cluster::start(2, origin.address, |settings| {
        traced(spans.address, 0.0)(settings);
        settings.trusted = vec![this_machine()];
    })
    .await;
    let field = format!("00-{TRACE}-{SPAN}-01");
    let mut asked = 0;
    for number in 0..20 {
        let head = head_of("GET", &format!("/{number}"), &[("traceparent", &field)]);
        assert_eq!(Wire::saying(cluster.client(0), head).await.answer().await.status, 200);
        let sent = origin.asked(&format!("/{number}"));
        let field = sent[0].header("traceparent").unwrap().to_owned();
        let (trace, span) = parts(&field);
        assert_eq!(trace, TRACE);
        assert_ne!(span, SPAN, "the span of the try");
        asked += sent.len();
    }
    assert_eq!(asked, 20);
    let exported = async |node| metric(cluster.node(node), "levada_spans_exported_total").await;
    // Each of the 20 has 7 spans or more, some of them at the other node.
    within(async { while exported(0).await + exported(1).await < 140.0 {} }).await;
    assert!(exported(0).await > 0.0 && exported(1).await > 0.0);
    let messages = spans.asked("/v1/traces");
    assert_eq!(messages[0].header("content-type").unwrap(), "application/x-protobuf");
    assert_eq!(messages[0].header("x-token").unwrap(), "secret");
}

#[tokio::test]
async fn request_that_is_not_traced_goes_on_as_it_came() {
    let (origin, spans) = (Origin::start().await, Origin::start().await);
    let (node, _) = {
        let mut settings = single(&[origin.address]);
        traced(spans.address, 0.0)(&mut settings);
        settings.trusted = vec![this_machine()];
        world(settings).await
    };
    let at = node.addresses.clients[0];
    let field = format!("00-{TRACE}-{SPAN}-00");
    let head = head_of("GET", "/said", &[("traceparent", &field)]);
    assert_eq!(Wire::saying(at, head).await.answer().await.status, 200);
    assert_eq!(origin.asked("/said")[0].header("traceparent").unwrap(), field);
    get(at, "/unsaid").await;
    assert!(origin.asked("/unsaid")[0].header("traceparent").is_none());
    assert_eq!(spans.total(), 0);
}

#[tokio::test]
async fn trace_of_a_client_that_is_not_trusted_is_ignored_by_all_nodes() {
    let (origin, spans) = (Origin::start().await, Origin::start().await);
    let cluster = Cluster::start(2, origin.address, traced(spans.address, 0.0)).await;
    let field = format!("00-{TRACE}-{SPAN}-01");
    for number in 0..20 {
        let fields = [("traceparent", &*field), ("tracestate", "a=b")];
        let head = head_of("GET", &format!("/{number}"), &fields);
        assert_eq!(Wire::saying(cluster.client(0), head).await.answer().await.status, 200);
        let sent = &origin.asked(&format!("/{number}"))[0];
        assert_eq!((sent.header("traceparent"), sent.header("tracestate")), (None, None));
    }
    cluster.settled().await;
    assert_eq!(spans.total(), 0);
}

#[tokio::test]
async fn spans_leave_secrets_of_the_query_out() {
    let (origin, spans) = (Origin::start().await, Origin::start().await);
    spans.on("/v1/traces", Reply::ok(""));
    let mut settings = single(&[origin.address]);
    traced(spans.address, 1.0)(&mut settings);
    let node = start(settings).await;
    get(node.addresses.clients[0], "/a?shown=1&token=hidden").await;
    assert_eq!(origin.asked("/a")[0].target, "/a?shown=1&token=hidden");
    within(async { while metric(&node, "levada_spans_exported_total").await == 0.0 {} }).await;
    let message = spans.asked("/v1/traces")[0].body.clone();
    let text = String::from_utf8_lossy(&message);
    assert!(text.contains("shown=1&token=REDACTED") && !text.contains("hidden"), "{text}");
}

#[tokio::test]
async fn collector_that_hangs_holds_up_no_request() {
    // Connections are made by the system, and nobody reads.
    let hangs = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_origin, node, at) = alone(traced(hangs.local_addr().unwrap(), 1.0)).await;
    let mut wire = Wire::to(at).await;
    for _ in 0..3000 {
        wire.send(head_of("GET", "/", &[])).await;
        assert_eq!(wire.answer().await.status, 200);
    }
    assert_eq!(metric(&node, "levada_spans_exported_total").await, 0.0);
    assert!(metric(&node, "levada_spans_dropped_total").await > 0.0);
    settled(&node).await;
}
