//! QUIC under HTTP/3: early data, addresses, paths that lose packets, and the ends of connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Buf as _;
use tokio::net::UdpSocket;

use crate::{
    http3::{World, world},
    support::{
        nodes::{admin, metric},
        quic::{Client, PacketPath, Trusting, Way, answer, closed, head, request},
        *,
    },
};

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

/// A client's first connection, from which it has a ticket.
async fn ticket(world: &World) {
    let mut client = world.trusting.connect(world.at).await;
    assert_eq!(client.get("/first").await.status, 200);
    client.connection.close(0x100u32.into(), b"");
    client.endpoint.wait_idle().await;
}

#[tokio::test]
async fn early_requests_are_answered_if_safe_and_others_wait_for_the_handshake() {
    let world = world(|_| {}).await;
    ticket(&world).await;
    let (mut client, accepted) = world.trusting.early(world.at).await;
    let got = client.get("/early").await;
    assert!(within(accepted).await, "0-RTT was accepted");
    assert_eq!(got.status, 200);
    assert_eq!(world.origin.asked("/early")[0].header("early-data").unwrap(), "1");
    assert_eq!(metric(&world.node, "levada_quic_early_requests_total").await, 1.0);
    client.get("/late").await;
    assert!(world.origin.asked("/late")[0].header("early-data").is_none());
    drop(client);
    ticket(&world).await;
    // The node's packets do not come, so that the handshake is never complete.
    let path = PacketPath::to(world.at, Box::new(|way, _| way == Way::ToNode)).await;
    let (mut client, _) = world.trusting.early(path.address).await;
    let mut stream = client.send(request("POST", "/unsafe")).await;
    within(stream.finish()).await.unwrap();
    let early = || metric(&world.node, "levada_quic_early_requests_total");
    while early().await < 2.0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(world.origin.asked("/unsafe").is_empty());
    client.connection.close(0u32.into(), b"");
    drop((stream, client, path));
}

#[tokio::test]
async fn replayed_early_data_is_not_read() {
    let world = world(|_| {}).await;
    ticket(&world).await;
    let path = PacketPath::to(world.at, Box::new(|_, _| true)).await;
    let (mut client, accepted) = world.trusting.early(path.address).await;
    assert_eq!(client.get("/early").await.status, 200);
    assert!(within(accepted).await);
    client.connection.close(0x100u32.into(), b"");
    client.endpoint.wait_idle().await;
    let handshakes = || metric(&world.node, "levada_quic_connections");
    while handshakes().await > 0.0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // An attacker sends the recorded packets again, after the connection has been forgotten.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let replayer = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for packet in path.kept() {
        replayer.send_to(&packet, world.at).await.unwrap();
    }
    let mut bytes = [0; 2048];
    within(replayer.recv_from(&mut bytes)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.origin.asked("/early").len(), 1);
    assert_eq!(metric(&world.node, "levada_quic_early_requests_total").await, 1.0);
}

#[tokio::test]
async fn clients_prove_their_address_when_many_handshakes_are_under_way() {
    let world = world(|_| {}).await;
    // Senders whose addresses are not theirs: they never see what the node answers.
    let spoofed = PacketPath::to(world.at, Box::new(|way, _| way == Way::ToNode)).await;
    let mut begun = Vec::new();
    while metric(&world.node, "levada_quic_retries_total").await == 0.0 {
        // The path holds no more packets at once, and loses some on a busy machine.
        begun.extend((0..20).map(|_| world.trusting.begin(spoofed.address)));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (came, sent) = spoofed.bytes();
    assert!(sent <= 3 * came, "{sent} bytes for {came}");
    let mut client = world.trusting.connect(world.at).await;
    assert_eq!(client.get("/a").await.status, 200, "after a proof");
    drop(begun);
}

#[tokio::test]
async fn an_address_that_stays_silent_gets_at_most_three_times_what_it_sent() {
    // A certificate that goes out at once, and one that is longer than what may go out.
    for repeated in [0, 12] {
        let world = world(|settings| {
            settings.limits.head_timeout = Duration::from_secs(4);
            let path = &settings.listeners[0].tls[0].certificate;
            let certificate = std::fs::read_to_string(path).unwrap();
            std::fs::write(path, certificate.repeat(1 + repeated)).unwrap();
        })
        .await;
        // Packets of 1250 bytes: three times as many are no whole number of the node's packets.
        let mut transport = quinn::TransportConfig::default();
        transport.initial_mtu(1250).min_mtu(1250);
        let trusting = world.trusting.clone().transport(transport);
        let first_only = |way, number| way == Way::ToNode && number == 0;
        let path = PacketPath::to(world.at, Box::new(first_only)).await;
        let begun = trusting.begin(path.address);
        while metric(&world.node, "levada_quic_handshakes_failed_total").await == 0.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(begun);
        let (came, (_, sent)) = (path.kept()[0].len(), path.bytes());
        assert_eq!(came, 1250);
        assert!((2 * came..=3 * came).contains(&sent), "{sent} bytes for {came}");
        // The held-back datagrams come when the address is proved.
        let (endpoint, connection) = trusting.raw(world.at).await;
        let mut client = Client::over(endpoint, connection).await;
        assert_eq!(client.get("/a").await.status, 200);
    }
}

#[tokio::test]
async fn unknown_versions_are_negotiated_and_noise_is_ignored() {
    let world = world(|_| {}).await;
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for noise in [&b""[..], b"\0", &[0x40; 30], &[0xff; 1200], &[0xc0, 0, 0, 0, 1, 0xff]] {
        client.send_to(noise, world.at).await.unwrap();
    }
    let mut packet = vec![0; 1200];
    packet[..23].copy_from_slice(b"\xc0\x1a\x2a\x3a\x4a\x08destinat\x08sourceid");
    client.send_to(&packet, world.at).await.unwrap();
    let mut bytes = [0; 2048];
    loop {
        let (length, _) = within(client.recv_from(&mut bytes)).await.unwrap();
        let answer = &bytes[..length];
        // Version 0, the ids turned round, and the versions that there are.
        if answer[0] & 0x80 != 0 && answer[1..5] == [0; 4] && answer[5..14] == *b"\x08sourceid" {
            assert!(answer[23..].chunks(4).any(|version| version == [0, 0, 0, 1]), "{answer:x?}");
            break;
        }
    }
    let mut client = world.trusting.connect(world.at).await;
    assert_eq!(client.get("/a").await.status, 200);
}

#[tokio::test]
async fn connection_goes_on_from_another_address_in_the_middle_of_a_body() {
    let world = world(|_| {}).await;
    let gate = Gate::new();
    let body = pattern(4 << 20);
    let (first, rest) = body.split_at(1 << 20);
    let pieces =
        vec![Piece::Bytes(first.to_vec()), Piece::Gate(gate.clone()), Piece::Bytes(rest.to_vec())];
    let length = body.len().to_string();
    world.origin.on("/long", Reply::ok("").with("content-length", &length).pieces(pieces));
    let mut client = world.trusting.connect(world.at).await;
    let mut stream = client.send(request("GET", "/long")).await;
    within(stream.finish()).await.unwrap();
    assert_eq!(head(&mut stream).await.unwrap().status(), 200);
    let mut got = Vec::new();
    while got.len() < first.len() {
        let mut data = within(stream.recv_data()).await.unwrap().unwrap();
        got.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    let before = client.endpoint.local_addr().unwrap();
    client.endpoint.rebind(std::net::UdpSocket::bind("127.0.0.2:0").unwrap()).unwrap();
    assert_ne!(client.endpoint.local_addr().unwrap(), before);
    gate.open();
    while let Some(mut data) = within(stream.recv_data()).await.unwrap() {
        got.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    assert!(got == body, "{}", got.len());
    client.get("/after").await;
    let for_client = world.origin.asked("/after")[0].header("x-forwarded-for").unwrap().to_owned();
    assert_eq!(for_client, "127.0.0.2");
    assert_eq!(metric(&world.node, "levada_quic_migrations_total").await, 1.0);
    drop((stream, client));
    settled(&world.node).await;
}

#[tokio::test]
async fn connection_goes_on_when_a_router_gives_its_client_another_port() {
    let world = world(|_| {}).await;
    let body = pattern(8 << 20);
    world.origin.on("/long", Reply::cached(body.clone()));
    let path = PacketPath::to(world.at, Box::new(|_, _| true)).await;
    let mut client = world.trusting.connect(path.address).await;
    let mut stream = client.send(request("GET", "/long")).await;
    within(stream.finish()).await.unwrap();
    assert_eq!(head(&mut stream).await.unwrap().status(), 200);
    let mut got = Vec::new();
    while let Some(mut data) = within(stream.recv_data()).await.unwrap() {
        let before = got.len() >> 21;
        got.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        if got.len() >> 21 > before {
            path.rebind();
        }
    }
    assert!(got == body, "{}", got.len());
    drop((stream, client));
    settled(&world.node).await;
}

#[tokio::test]
async fn client_whose_route_has_moved_is_given_up_and_forgotten() {
    let world = world(|_| {}).await;
    let gate = Gate::new();
    let pieces = vec![
        Piece::Bytes(pattern(1000)),
        Piece::Gate(gate.clone()),
        Piece::Bytes(pattern(100_000)),
    ];
    world.origin.on("/long", Reply::ok("").with("content-length", "101000").pieces(pieces));
    let moved = Arc::new(AtomicBool::new(false));
    let route = moved.clone();
    // The node's packets still come to the client.
    let rule = move |way, _| way == Way::ToClient || !route.load(Relaxed);
    let path = PacketPath::to(world.at, Box::new(rule)).await;
    let mut client = world.trusting.connect(path.address).await;
    let mut stream = client.send(request("GET", "/long")).await;
    within(stream.finish()).await.unwrap();
    assert_eq!(head(&mut stream).await.unwrap().status(), 200);
    moved.store(true, Relaxed);
    gate.open();
    let given_up = "levada_connections_ended_total{reason=\"dormant\"} 1";
    while !admin(&world.node, "/metrics").await.text().contains(given_up) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    while metric(&world.node, "levada_quic_connections").await > 0.0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop((stream, client));
}

#[tokio::test]
async fn responses_that_a_client_stops_leave_their_room_to_others() {
    let world = world(|_| {}).await;
    // The node can take all of it at once, and the client takes little.
    world.origin.on("/large", Reply::cached(pattern(1 << 20)));
    let mut narrow = quinn::TransportConfig::default();
    narrow.stream_receive_window(10_000u32.into());
    let (endpoint, connection) = world.trusting.clone().transport(narrow).raw(world.at).await;
    let mut client = Client::over(endpoint, connection).await;
    for _ in 0..8 {
        let mut stream = client.send(request("GET", "/large")).await;
        within(stream.finish()).await.unwrap();
        assert_eq!(head(&mut stream).await.unwrap().status(), 200);
        stream.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
    }
    assert_eq!(client.get("/small").await.status, 200);
}

/// Pseudorandom and the same in each run.
pub(crate) fn lost(number: usize) -> bool {
    let mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) % 10 < 3
}

#[tokio::test]
async fn bodies_arrive_whole_though_three_packets_of_ten_are_lost() {
    let world = world(|_| {}).await;
    let body = pattern(500_000);
    world.origin.on("/a", Reply::cached(body.clone()));
    let path = PacketPath::to(world.at, Box::new(|_, number| !lost(number))).await;
    let mut client = world.trusting.connect(path.address).await;
    let mut stream = client.send(request("POST", "/up")).await;
    for piece in body[..100_000].chunks(10_000) {
        let piece = bytes::Bytes::copy_from_slice(piece);
        tokio::time::timeout(4 * PATIENCE, stream.send_data(piece)).await.unwrap().unwrap();
    }
    within(stream.finish()).await.unwrap();
    assert_eq!(answer(&mut stream).await.unwrap().status, 200);
    assert!(world.origin.asked("/up")[0].body == body[..100_000]);
    let got = tokio::time::timeout(4 * PATIENCE, client.get("/a")).await.unwrap();
    assert!(got.body == body, "{}", got.body.len());
    client.connection.close(0x100u32.into(), b"");
    drop(stream);
    settled(&world.node).await;
    while metric(&world.node, "levada_quic_packets_lost_total").await == 0.0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn client_that_takes_nothing_is_given_up_and_so_is_one_without_requests() {
    let world = world(|settings| {
        settings.limits.send_timeout = Duration::from_millis(800);
        settings.limits.idle_timeout = Duration::from_secs(2);
    })
    .await;
    world.origin.on("/large", Reply::cached(pattern(8 << 20)));
    let mut narrow = quinn::TransportConfig::default();
    narrow.stream_receive_window(10_000u32.into()).keep_alive_interval(Some(PATIENCE / 100));
    let trusting = Trusting::new(&world.authority.path()).transport(narrow);
    let mut client = trusting.connect(world.at).await;
    let mut stream = client.send(request("GET", "/large")).await;
    within(stream.finish()).await.unwrap();
    assert_eq!(closed(&client.connection).await, Some(0x100), "it keeps asking, and reads nothing");
    let mut client = trusting.connect(world.at).await;
    assert_eq!(client.get("/a").await.status, 200);
    assert_eq!(closed(&client.connection).await, Some(0x100), "it keeps the connection alive");
    let ended = admin(&world.node, "/metrics").await.text();
    for reason in ["send-timeout", "idle-timeout"] {
        let series = format!("levada_connections_ended_total{{reason=\"{reason}\"}} 1");
        assert!(ended.contains(&series), "{reason}: {ended}");
    }
    settled(&world.node).await;
}

#[tokio::test]
async fn connections_beyond_the_bound_are_refused() {
    let world = world(|settings| settings.limits.connections = 4).await;
    let mut kept = Vec::new();
    let refused = loop {
        let (endpoint, connecting) = world.trusting.begin(world.at);
        match within(connecting).await {
            Ok(connection) => kept.push((endpoint, connection)),
            Err(error) => break error,
        }
        assert!(kept.len() <= 4);
    };
    let is_refusal = matches!(&refused, quinn::ConnectionError::ConnectionClosed(closed)
        if closed.error_code == quinn::TransportErrorCode::CONNECTION_REFUSED);
    assert!(is_refusal && !kept.is_empty(), "{refused:?}");
    assert!(metric(&world.node, "levada_connections_refused_total").await >= 1.0);
    drop(kept);
}

#[tokio::test]
async fn draining_node_ends_connections_after_a_request() {
    let world = world(|_| {}).await;
    let mut client = world.trusting.connect(world.at).await;
    assert_eq!(client.get("/a").await.status, 200);
    let json = [("Content-Type", "application/json"), ("Content-Length", "2")];
    let order = head_of("POST", "/drain", &json) + "{}";
    let to = world.node.addresses.admin.unwrap();
    assert_eq!(Wire::saying(to, order).await.answer().await.status, 200);
    assert_eq!(closed(&client.connection).await, Some(0x100));
    // A client that connects now is served, and then its connection ends.
    let mut client = world.trusting.connect(world.at).await;
    assert_eq!(client.get("/b").await.status, 200);
    assert_eq!(closed(&client.connection).await, Some(0x100));
    settled(&world.node).await;
}

#[tokio::test]
async fn reload_renews_certificates_and_switches_http3_off_and_on() {
    let authority = secure::Authority::new();
    let (old, new) = (authority.issue(&[HOST]), authority.issue(&["new.test", HOST]));
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.listeners[0].tls = vec![old];
    settings.listeners[0].http3 = true;
    let (node, file) = nodes::world(settings.clone()).await;
    let port = node.addresses.clients[0];
    let trusting = Trusting::new(&authority.path());
    let mut first = trusting.connect(port).await;
    let shown = |connection: &quinn::Connection| {
        let identity = connection.peer_identity().unwrap();
        let chain = identity.downcast::<Vec<rustls::pki_types::CertificateDer<'static>>>();
        chain.unwrap()[0].to_vec()
    };
    let before = shown(&first.connection);
    settings.listeners[0].tls = vec![new];
    *file.lock().unwrap() = Ok(settings.clone());
    assert_eq!(nodes::reload(&node).await.status, 200);
    let fresh = Trusting::new(&authority.path());
    let second = fresh.connect(port).await;
    assert_ne!(shown(&second.connection), before);
    assert_eq!(first.get("/a").await.status, 200, "open connections go on");
    settings.listeners[0].http3 = false;
    *file.lock().unwrap() = Ok(settings.clone());
    assert_eq!(nodes::reload(&node).await.status, 200);
    let (_endpoint, connecting) = trusting.begin(port);
    let off = tokio::time::timeout(Duration::from_millis(300), connecting).await;
    assert!(!matches!(off, Ok(Ok(_))), "{off:?}");
    assert_eq!(first.get("/b").await.status, 200);
    settings.listeners[0].http3 = true;
    *file.lock().unwrap() = Ok(settings);
    assert_eq!(nodes::reload(&node).await.status, 200);
    assert_eq!(trusting.connect(port).await.get("/c").await.status, 200);
    drop((first, second));
    settled(&node).await;
}
