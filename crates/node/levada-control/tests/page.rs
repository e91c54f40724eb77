//! A page over real connections: its files, its stream, and viewers of every kind.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use levada_cluster::events::{EventKind, Events};
use levada_control::page::{
    Hello, MOST_VIEWERS, Orders, Page, PageBody, SeenNode, Shown, Snapshot, Stalled,
};
use levada_control::status::{NodeStatus, Sample, SetSize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// A small world: one node that counts how often it is looked at.
#[derive(Default)]
struct World {
    events: Events,
    looks: AtomicU64,
    /// Bytes that a snapshot has more.
    ballast: usize,
}

impl Shown for World {
    fn hello(&self, orders: Orders) -> Hello {
        Hello { kind: "node", name: "n1".to_owned(), version: "0.0.0", orders }
    }

    fn snapshot(&self) -> Pin<Box<dyn Future<Output = Snapshot> + Send + '_>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let status = NodeStatus { name: "n1".to_owned(), ..NodeStatus::default() };
        let address = "x".repeat(self.ballast);
        let node = SeenNode { address, up: true, status: Some(status), ..SeenNode::default() };
        Box::pin(async { Snapshot::now(Some("n1".to_owned()), vec![node]) })
    }

    fn history(&self) -> BTreeMap<String, Vec<Sample>> {
        BTreeMap::from([("n1".to_owned(), vec![Sample::default()])])
    }

    fn set_sizes(&self) -> BTreeMap<String, Vec<SetSize>> {
        BTreeMap::from([("http://a.test/hot".to_owned(), vec![(1_000, 2)])])
    }

    fn events(&self) -> &Events {
        &self.events
    }
}

/// Serves the page of `world`; everything else is plain text.
async fn serve(world: Arc<World>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let page = Arc::new(Page::new(world));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let page = page.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let page = page.clone();
                async move {
                    let other = || http::Response::new(PageBody::Whole("plain\n".into()));
                    Ok::<_, Infallible>(page.answer(&request, Orders::Here).unwrap_or_else(other))
                }
            });
            let stream = TokioIo::new(Stalled::new(stream));
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(stream, service),
            );
        }
    });
    address
}

/// A connection that has sent a request for `target`.
async fn asking(address: SocketAddr, target: &str, fields: &str) -> Wire {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    Wire { stream, read: String::new() }
}

struct Wire {
    stream: TcpStream,
    read: String,
}

impl Wire {
    /// Reads until `text` has come, and returns everything so far.
    async fn until(&mut self, text: &str) -> &str {
        let reading = async {
            let mut buffer = vec![0; 1 << 16];
            let mut looked = 0;
            while !self.read[looked..].contains(text) {
                // Only the end is new, and everything is ASCII.
                looked = self.read.len().saturating_sub(text.len());
                let length = self.stream.read(&mut buffer).await.unwrap();
                assert_ne!(length, 0, "closed before `{text}`: {}", self.read);
                self.read += &String::from_utf8_lossy(&buffer[..length]);
            }
        };
        let done = tokio::time::timeout(Duration::from_secs(20), reading).await;
        assert!(done.is_ok(), "no `{text}` in {}", self.read);
        &self.read
    }
}

#[tokio::test]
async fn browser_gets_the_page_and_a_program_gets_text() {
    let address = serve(Arc::default()).await;
    let html = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
    let mut browser = asking(address, "/", html).await;
    let page = browser.until("</html>").await;
    assert!(page.contains("default-src 'none'; script-src 'self'"), "{page}");
    assert!(page.contains("x-content-type-options: nosniff"), "{page}");
    assert!(page.contains("referrer-policy: no-referrer"), "{page}");
    let tag = page.split("etag: ").nth(1).unwrap().split('\r').next().unwrap().to_owned();
    let known = format!("{html}If-None-Match: {tag}\r\n");
    let mut again = asking(address, "/", &known).await;
    assert!(again.until("\r\n\r\n").await.starts_with("HTTP/1.1 304"));
    assert!(asking(address, "/", "Accept: */*\r\n").await.until("plain").await.contains("200 OK"));
    assert!(asking(address, "/page/no.js", "").await.until("plain").await.contains("200 OK"));
}

#[tokio::test]
async fn stream_begins_with_the_state_and_goes_on_with_events() {
    let world = Arc::new(World::default());
    world.events.tell(EventKind::Reloaded, "before");
    let address = serve(world.clone()).await;
    let mut viewer = asking(address, "/live", "").await;
    viewer.until("event: snapshot").await;
    world.events.tell(EventKind::PeerDown, "as it happens");
    let all = viewer.until("as it happens").await.to_owned();
    let sets = "\"sets\":{\"http://a.test/hot\":[[1000,2]]}";
    let order =
        ["retry: ", "event: hello", "event: history", sets, "before", "event: snapshot", "as it"];
    let places: Vec<_> = order.iter().map(|text| all.find(text).expect(text)).collect();
    assert!(places.is_sorted(), "{all}");
    let id = all.rsplit("id: ").next().unwrap().split('\n').next().unwrap().to_owned();
    // After a break, it goes on behind the last event, by the field or by the query.
    world.events.tell(EventKind::PeerUp, "in the break");
    for (target, field) in [
        ("/live".to_owned(), format!("Last-Event-ID: {id}\r\n")),
        (format!("/live?after={id}"), String::new()),
    ] {
        let mut back = asking(address, &target, &field).await;
        let all = back.until("event: snapshot").await;
        assert!(all.contains("in the break") && !all.contains("as it happens"), "{all}");
    }
    // The id of another process says nothing about these events.
    let mut other = asking(address, "/live", "Last-Event-ID: 1-2\r\n").await;
    assert!(other.until("event: snapshot").await.contains("as it happens"));
}

#[tokio::test]
async fn nothing_is_computed_while_nobody_watches() {
    let world = Arc::new(World::default());
    let address = serve(world.clone()).await;
    assert_eq!(world.looks.load(Ordering::Relaxed), 0);
    let mut viewer = asking(address, "/live", "").await;
    viewer.until("event: snapshot").await;
    drop(viewer);
    // It ends by itself: two looks in a row, more than a second apart, find the same count.
    let mut before = 0;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let looks = world.looks.swap(0, Ordering::Relaxed);
        if looks == 0 && before == 0 {
            return;
        }
        before = looks;
    }
    panic!("snapshots are made for nobody");
}

#[tokio::test]
async fn one_viewer_too_many_is_told_to_come_later() {
    let address = serve(Arc::default()).await;
    let mut viewers = Vec::new();
    for _ in 0..MOST_VIEWERS {
        let mut viewer = asking(address, "/live", "").await;
        viewer.until("event: hello").await;
        viewers.push(viewer);
    }
    let mut refused = asking(address, "/live", "").await;
    let answer = refused.until("close one of them").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 10"), "{answer}");
    viewers.pop();
    // Its place is free as soon as the node has noticed.
    for _ in 0..200 {
        let mut next = asking(address, "/live", "").await;
        if next.until("\r\n\r\n").await.starts_with("HTTP/1.1 200") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("a place that is left stays taken");
}

#[tokio::test]
async fn viewer_that_does_not_read_holds_up_nobody_and_is_let_go() {
    let world = Arc::new(World { ballast: 1 << 20, ..World::default() });
    let address = serve(world.clone()).await;
    let mut still = asking(address, "/live", "").await;
    still.until("event: hello").await;
    let mut reader = asking(address, "/live", "").await;
    reader.until("event: snapshot").await;
    // More events than the system and its queue have room for, while the other viewer gets each one.
    for number in 0..400 {
        world.events.tell(EventKind::Purged, format!("number {number}, {}", "y".repeat(40_000)));
        reader.until(&format!("number {number},")).await;
        reader.read.clear();
    }
    // When it reads again, its stream has an end (the last chunk, RFC 9112 Sec. 7.1).
    still.until("\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn page_of_another_site_gets_no_stream() {
    let address = serve(Arc::default()).await;
    for site in ["cross-site", "same-site"] {
        let field = format!("Sec-Fetch-Site: {site}\r\n");
        let mut wire = asking(address, "/live", &field).await;
        assert!(wire.until("\r\n\r\n").await.starts_with("HTTP/1.1 403"), "{site}");
    }
    let mut own = asking(address, "/live", "Sec-Fetch-Site: same-origin\r\n").await;
    own.until("event: hello").await;
}
