//! Connections between two requests that are far apart: they need little memory, and clients notice nothing.

use std::{net::SocketAddr, time::Duration};

use levada_config::Limits;
use levada_node::Running;
use tokio::net::TcpSocket;

use crate::support::{nodes, *};

/// A node with listeners without and with TLS, and its origin.
async fn world(limits: Limits) -> (Origin, Running, SocketAddr, SocketAddr, secure::Authority) {
    let authority = secure::Authority::new();
    let origin = Origin::start().await;
    origin.on("/a", Reply::cached("alpha"));
    let mut settings = single(&[origin.address]);
    let mut over_tls = settings.listeners[0].clone();
    over_tls.tls = vec![authority.issue(&["a.test"])];
    settings.listeners.push(over_tls);
    settings.limits = limits;
    let node = start(settings).await;
    get(node.addresses.clients[0], "/a").await;
    let (plain, tls) = (node.addresses.clients[0], node.addresses.clients[1]);
    (origin, node, plain, tls, authority)
}

async fn connections(plain: SocketAddr, tls: SocketAddr, trusts: &secure::Authority) -> [Wire; 2] {
    let over_tls = secure::connect(tls, "a.test", &trusts.path(), &["http/1.1"], None).await;
    [Wire::to(plain).await, Wire::over(over_tls.unwrap())]
}

async fn metric_reaches(node: &Running, series: &str, value: f64) {
    within(async {
        loop {
            let page = nodes::admin(node, "/metrics").await.text();
            let line = page.lines().find_map(|line| line.strip_prefix(series));
            if line.is_some_and(|rest| rest.trim().parse() == Ok(value)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

async fn rest(node: &Running, wires: f64) {
    metric_reaches(node, "levada_connections_resting ", wires).await;
}

#[tokio::test]
async fn requests_after_a_rest_are_answered_whole_or_in_parts() {
    let (_origin, node, plain, tls, authority) = world(Limits::default()).await;
    let mut wires = connections(plain, tls, &authority).await;
    let head = head_of("GET", "/a", &[]);
    // Before the first request as well.
    rest(&node, 2.0).await;
    for wire in &mut wires {
        wire.send(head.repeat(3)).await;
        for _ in 0..3 {
            assert_eq!(wire.answer().await.text(), "alpha");
        }
    }
    rest(&node, 2.0).await;
    for wire in &mut wires {
        wire.send(&head[..9]).await;
    }
    rest(&node, 0.0).await;
    for wire in &mut wires {
        wire.send(&head[9..]).await;
        assert!(wire.answer().await.is_hit());
    }
    rest(&node, 2.0).await;
    drop(wires);
    metric_reaches(&node, "levada_connections_ended_total{reason=\"closed\"} ", 2.0).await;
    metric_reaches(&node, "levada_connections ", 0.0).await;
    rest(&node, 0.0).await;
    settled(&node).await;
}

#[tokio::test]
async fn idle_connections_give_way_to_new_clients_at_the_bound() {
    let limits = Limits { connections: 8, ..Limits::default() };
    let (_origin, node, plain, tls, _authority) = world(limits).await;
    // One client has half of the places at most.
    let connect = async |client: u8, to: SocketAddr| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, client], 0))).unwrap();
        Wire::over(within(socket.connect(to)).await.unwrap())
    };
    // Half of them have had an answer, the others say nothing.
    let (mut idle, mut new) = (Vec::new(), Vec::new());
    for client in 2..6 {
        let mut wire = connect(client, plain).await;
        wire.send(head_of("GET", "/a", &[])).await;
        assert_eq!(wire.answer().await.text(), "alpha");
        idle.extend([wire, connect(client + 100, tls).await]);
    }
    for client in 10..18 {
        let mut wire = connect(client, plain).await;
        wire.send(head_of("GET", "/a", &[])).await;
        assert_eq!(wire.answer().await.text(), "alpha");
        new.push(wire);
    }
    let page = nodes::admin(&node, "/metrics").await.text();
    assert!(page.contains("levada_connections_ended_total{reason=\"gave-way\"}"), "{page}");
    drop((idle, new));
    settled(&node).await;
}

#[tokio::test]
async fn idle_time_goes_on_through_a_rest() {
    let limits = Limits { idle_timeout: Duration::from_secs(3), ..Limits::default() };
    let (_origin, node, plain, tls, authority) = world(limits).await;
    let mut wires = connections(plain, tls, &authority).await;
    for wire in &mut wires {
        wire.send(head_of("GET", "/a", &[])).await;
        assert_eq!(wire.answer().await.text(), "alpha");
    }
    rest(&node, 2.0).await;
    for mut wire in wires {
        assert_eq!(wire.rest().await, b"");
    }
    metric_reaches(&node, "levada_connections_ended_total{reason=\"idle-timeout\"} ", 2.0).await;
    metric_reaches(&node, "levada_connections ", 0.0).await;
}

#[tokio::test]
async fn a_drain_and_a_stop_end_connections_that_rest() {
    let (_origin, node, plain, tls, authority) = world(Limits::default()).await;
    for stops in [false, true] {
        let mut wires = connections(plain, tls, &authority).await;
        for wire in &mut wires {
            wire.send(head_of("GET", "/a", &[])).await;
            assert_eq!(wire.answer().await.text(), "alpha");
        }
        rest(&node, 2.0).await;
        let json = [("Content-Type", "application/json"), ("Content-Length", "2")];
        let drain = head_of("POST", "/drain", &json) + "{}";
        let undo = head_of("POST", "/drain?undo", &json) + "{}";
        let admin = node.addresses.admin.unwrap();
        if stops {
            within(node.stop()).await;
            for mut wire in wires {
                assert_eq!(wire.rest().await, b"");
            }
            return;
        }
        assert_eq!(Wire::saying(admin, drain).await.answer().await.status, 200);
        for mut wire in wires {
            assert_eq!(wire.rest().await, b"");
        }
        assert_eq!(Wire::saying(admin, undo).await.answer().await.status, 200);
    }
}
