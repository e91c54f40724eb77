//! Work for clients that have left ends: at the origin, at peers, for every protocol; and places at an origin are
//! never exceeded.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use levada_config::{MissLimits, Settings};
use tokio::io::AsyncWriteExt;

use crate::{http2, large, support::*};

/// An origin that answers nothing but [`ANSWERED`], and knows at every head which requests before it are still under
/// way.
#[derive(Clone, Default)]
struct Silent(Arc<Mutex<Asked>>);

#[derive(Default)]
struct Asked {
    connections: Vec<TcpStream>,
    heads: usize,
    /// The most requests under way at the same time.
    most: usize,
}

impl Silent {
    /// Origins that are counted as one.
    fn start(count: usize) -> (Self, Vec<SocketAddr>) {
        let silent = Self::default();
        let start = |_| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let (address, silent) = (listener.local_addr().unwrap(), silent.clone());
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let silent = silent.clone();
                    thread::spawn(move || silent.take(stream.unwrap()));
                }
            });
            address
        };
        let addresses = (0..count).map(start).collect();
        (silent, addresses)
    }

    fn take(&self, mut stream: TcpStream) {
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            let mut piece = [0; 4096];
            match stream.read(&mut piece) {
                Ok(0) | Err(_) => return,
                Ok(count) => head.extend_from_slice(&piece[..count]),
            }
        }
        stream.set_nonblocking(true).unwrap();
        let mut asked = self.0.lock().unwrap();
        asked.heads += 1;
        asked.connections.push(stream);
        let under_way = asked.under_way();
        asked.most = asked.most.max(under_way);
        if String::from_utf8_lossy(&head).contains(ANSWERED) {
            let mut stream = asked.connections.pop().unwrap();
            let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(answer.as_bytes()).unwrap();
        }
    }

    fn under_way(&self) -> usize {
        self.0.lock().unwrap().under_way()
    }

    fn heads(&self) -> usize {
        self.0.lock().unwrap().heads
    }
}

impl Asked {
    fn under_way(&mut self) -> usize {
        let is_open = |mut stream: &TcpStream| {
            // The body of a request may have come.
            loop {
                match stream.read(&mut [0; 4096]) {
                    Ok(1..) => {}
                    Ok(0) => return false,
                    Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
                }
            }
        };
        self.connections.retain(is_open);
        self.connections.len()
    }
}

async fn world(tweak: impl FnOnce(&mut Settings)) -> (Silent, levada_node::Running, SocketAddr) {
    let (silent, addresses) = Silent::start(1);
    let mut settings = single(&addresses);
    settings.listeners[0].h2c = true;
    tweak(&mut settings);
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    (silent, node, at)
}

const CLIENTS: usize = 10;
const ANSWERED: &str = "/answered/";

#[tokio::test]
async fn request_of_a_client_that_leaves_ends_at_the_origin() {
    let post = ("POST", &[("Content-Length", "5")][..], "hello");
    let cases = [
        ("GET", &[][..], ""),
        ("GET", &[("Range", "bytes=0-9")], ""),
        ("GET", &[("Cache-Control", "no-cache")], ""),
        post,
    ];
    for (cached, (method, fields, body)) in
        [true, false].into_iter().flat_map(|cached| cases.map(|case| (cached, case)))
    {
        let (silent, node, at) = world(|s| s.sites[0].handling.cache = cached).await;
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let request = head_of(method, &format!("/{number}"), fields) + body;
            let mut stream = tokio::net::TcpStream::connect(at).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            clients.push(stream);
        }
        eventually("all are at the origin", || silent.under_way() == CLIENTS).await;
        for (number, client) in clients.into_iter().enumerate() {
            if number % 2 == 0 {
                client.set_zero_linger().unwrap();
            }
        }
        eventually("none is at the origin", || silent.under_way() == 0).await;
        assert_eq!(silent.heads(), CLIENTS, "{method}, cached: {cached}");
        settled(&node).await;
    }
}

#[tokio::test]
async fn fetch_goes_on_until_its_last_client_leaves() {
    let (silent, node, at) = world(|_| {}).await;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        clients.push(Wire::saying(at, head_of("GET", "/a", &[])).await);
        eventually("it waits", || node.counts().in_service as usize == number + 1).await;
    }
    while clients.len() > 1 {
        clients.remove(0);
        eventually("it has left", || node.counts().in_service as usize == clients.len()).await;
        assert_eq!((silent.under_way(), silent.heads()), (1, 1));
    }
    clients.clear();
    eventually("none is at the origin", || silent.under_way() == 0).await;
    assert_eq!(silent.heads(), 1);
    settled(&node).await;
}

#[tokio::test]
async fn stream_of_http2_that_is_reset_ends_at_the_origin() {
    for cached in [true, false] {
        let (silent, node, at) = world(|s| s.sites[0].handling.cache = cached).await;
        let mut client = http2::h2c(at).await;
        let ask = |number| client.send_request(http2::ask(&format!("/{number}")));
        let asked: Vec<_> = (0..CLIENTS).map(ask).map(tokio::spawn).collect();
        eventually("all are at the origin", || silent.under_way() == CLIENTS).await;
        for (left, one) in asked.into_iter().enumerate() {
            one.abort();
            eventually("one has left", || silent.under_way() == CLIENTS - 1 - left).await;
        }
        assert_eq!(silent.heads(), CLIENTS);
        settled(&node).await;
    }
}

#[tokio::test]
async fn stream_of_http3_that_is_cancelled_ends_at_the_origin() {
    let authority = secure::Authority::new();
    for whole in [true, false] {
        let (silent, node, at) = world(|settings| {
            settings.listeners[0].tls = vec![authority.issue(&[HOST])];
            settings.listeners[0].http3 = true;
        })
        .await;
        let mut client = quic::Trusting::new(&authority.path()).connect(at).await;
        let mut streams = Vec::new();
        for number in 0..CLIENTS {
            let mut stream = client.send(quic::request("GET", &format!("/{number}"))).await;
            within(stream.finish()).await.unwrap();
            streams.push(stream);
        }
        eventually("all are at the origin", || silent.under_way() == CLIENTS).await;
        match whole {
            true => client.connection.close(0_u32.into(), b""),
            false => {
                for stream in &mut streams {
                    stream.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
                }
            }
        }
        eventually("none is at the origin", || silent.under_way() == 0).await;
        assert_eq!(silent.heads(), CLIENTS);
        settled(&node).await;
    }
}

#[tokio::test]
async fn departure_is_passed_on_to_a_peer() {
    let (silent, addresses) = Silent::start(1);
    let cluster = nodes::Cluster::start(2, addresses[0], |_| {}).await;
    let mut clients = Vec::new();
    for number in 0..2 * CLIENTS {
        let request = head_of("GET", &format!("/{number}"), &[]);
        clients.push(Wire::saying(cluster.client(0), request).await);
    }
    eventually("all are at the origin", || silent.under_way() == 2 * CLIENTS).await;
    assert!(cluster.node(1).counts().in_service > 0, "the peer serves none of them");
    clients.clear();
    eventually("none is at the origin", || silent.under_way() == 0).await;
    assert_eq!(silent.heads(), 2 * CLIENTS);
    cluster.settled().await;
}

#[tokio::test]
async fn server_of_forward_auth_is_not_asked_for_clients_that_have_left() {
    let (silent, addresses) = Silent::start(1);
    let text = format!(
        "[[site]]
         hosts = 'a.test'
         origin = 'http://{0}'
         forward_auth = {{ url = 'http://{0}/verify' }}",
        addresses[0]
    );
    let (_, node, at) = alone(|settings| settings.sites = nodes::sites(&text)).await;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let request = head_of("GET", &format!("/{number}"), &[]);
        clients.push(Wire::saying(at, request).await);
    }
    eventually("all are asked about", || silent.under_way() == CLIENTS).await;
    clients.clear();
    eventually("none is asked about", || silent.under_way() == 0).await;
    assert_eq!(silent.heads(), CLIENTS);
    settled(&node).await;
}

#[tokio::test]
async fn pieces_of_a_large_file_end_with_their_client() {
    let origin = Origin::start().await;
    let (whole, gate) = (large::body(40 * large::PIECE, 0), Gate::new());
    let opens = gate.clone();
    origin.script("/a", move |asked| {
        let reply = large::ranged(asked, &whole, "\"v1\"");
        let first = large::range_of(asked, whole.len() as u64).map(|range| range.start);
        if first.is_some_and(|first| first > 0) { reply.after(&opens) } else { reply }
    });
    let mut settings = single(&[origin.address]);
    settings.sites[0].large = Some(large::in_pieces());
    settings.listeners[0].h2c = true;
    let node = start(settings).await;
    // Within a response over HTTP/1, a client that has gone shows when bytes are sent to it.
    let mut client = http2::h2c(node.addresses.clients[0]).await;
    let response = within(client.send_request(http2::ask("/a"))).await.unwrap();
    assert_eq!(response.status(), 200);
    eventually("pieces are at the origin", || node.counts().misses > 1).await;
    let asked = origin.heads();
    drop(response);
    settled(&node).await;
    assert_eq!(origin.heads(), asked, "no further piece is asked for");
    gate.open();
}

/// Requests of clients with addresses of their own until each has its status.
async fn statuses(at: SocketAddr, clients: usize) -> Vec<u16> {
    let ask = |number: usize| async move {
        let mut wire = Wire::over(connect_from(2 + number as u8, at).await);
        wire.send(head_of("GET", &format!("/{number}"), &[])).await;
        wire.answer().await.status
    };
    let asked: Vec<_> = (0..clients).map(ask).map(tokio::spawn).collect();
    let mut statuses = Vec::new();
    for one in asked {
        statuses.push(within(one).await.unwrap());
    }
    statuses
}

#[tokio::test]
async fn origin_never_has_more_than_its_places() {
    for (origins, at_once) in [(1, 3), (2, 3), (2, 1)] {
        let (silent, addresses) = Silent::start(origins);
        let mut settings = single(&addresses);
        // A head is late after half of it: a second origin is asked then, and after it.
        settings.limits.response_timeout = Duration::from_secs(1);
        let wait = Duration::from_secs(60);
        settings.sites[0].servers.misses = MissLimits { at_once, queue: 1000, wait };
        let node = start(settings).await;
        let statuses = statuses(node.addresses.clients[0], 8).await;
        assert!(statuses.iter().all(|status| [502, 503, 504].contains(status)), "{statuses:?}");
        assert!(silent.heads() >= 8, "{} of 8 came to the origin", silent.heads());
        assert_eq!(silent.0.lock().unwrap().most, at_once, "{origins} origins");
        settled(&node).await;
    }
}

#[tokio::test]
async fn late_requests_have_left_the_origin_before_known_clients_come() {
    const PLACES: usize = 4;
    let (silent, node, at) = world(|settings| {
        let wait = Duration::from_secs(60);
        settings.sites[0].servers.misses = MissLimits { at_once: PLACES, queue: 100, wait };
    })
    .await;
    let known = async |number: usize| {
        let mut wire = Wire::over(connect_from(200, at).await);
        wire.send(head_of("GET", &format!("{ANSWERED}{number}"), &[])).await;
        wire.answer().await.status
    };
    assert_eq!(known(0).await, 404);
    let mut crowd = Vec::new();
    for client in 2..52 {
        let mut wire = Wire::over(connect_from(client, at).await);
        wire.send(head_of("GET", &format!("/{client}"), &[])).await;
        crowd.push(wire);
    }
    eventually("all places are taken", || silent.under_way() == PLACES).await;
    for number in 1..10 {
        assert_eq!(known(number).await, 404);
    }
    assert_eq!(silent.0.lock().unwrap().most, PLACES);
    drop(crowd);
    settled(&node).await;
}
