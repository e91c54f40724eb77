//! Nodes before origins over HTTP/2.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Frame;
use levada_config::{HealthCheck, Settings};
use levada_node::Running;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::{
    http2::{ask, fetch, h2c},
    support::{nodes::*, *},
};

/// An origin over HTTP/2, and what it was asked.
pub(crate) struct Http2Origin {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<(Method, String, HeaderMap)>>>,
    connections: Arc<AtomicUsize>,
}

impl Http2Origin {
    pub(crate) async fn start<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, connections) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicUsize>::default());
        let (log, count, serve) = (asked.clone(), connections.clone(), Arc::new(serve));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Relaxed);
                let (log, serve) = (log.clone(), serve.clone());
                tokio::spawn(async move {
                    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let (method, uri) = (request.method().clone(), request.uri().to_string());
                        log.lock().unwrap().push((method, uri, request.headers().clone()));
                        tokio::spawn(serve(request, respond));
                    }
                });
            }
        });
        Self { address, asked, connections }
    }

    fn asked(&self) -> Vec<(Method, String, HeaderMap)> {
        self.asked.lock().unwrap().clone()
    }
}

fn settings(origin: &Http2Origin) -> Settings {
    let mut settings = single(&[origin.address]);
    settings.listeners[0].h2c = true;
    settings.sites[0].servers.protocols.h2 = true;
    settings
}

async fn world(origin: &Http2Origin) -> (Running, SocketAddr) {
    let node = start(settings(origin)).await;
    let at = node.addresses.clients[0];
    (node, at)
}

fn ok() -> Response<()> {
    Response::new(())
}

/// The body of a request, and its trailers.
pub(crate) async fn whole(mut body: RecvStream) -> (Vec<u8>, Option<HeaderMap>) {
    let mut bytes = Vec::new();
    while let Some(Ok(piece)) = body.data().await {
        let _ = body.flow_control().release_capacity(piece.len());
        bytes.extend(piece);
    }
    (bytes, body.trailers().await.ok().flatten())
}

#[tokio::test]
async fn responses_are_stored_and_requests_share_a_connection() {
    let origin = Http2Origin::start(|request, mut respond| async move {
        let path = request.uri().path().to_owned();
        let head = Response::builder().header("cache-control", "max-age=60").body(()).unwrap();
        let mut body = respond.send_response(head, false).unwrap();
        body.send_data(path.into(), true).unwrap();
    })
    .await;
    let (node, at) = world(&origin).await;
    for n in 0..20 {
        let target = format!("/{n}?q");
        let answer = get(at, &target).await;
        assert_eq!((answer.status, answer.text()), (200, format!("/{n}")));
        assert!(get(at, &target).await.is_hit());
    }
    let asked = origin.asked();
    assert_eq!((asked.len(), origin.connections.load(Relaxed)), (20, 1));
    let (method, uri, headers) = &asked[0];
    assert_eq!((method, uri.as_str()), (&Method::GET, format!("http://{HOST}/0?q").as_str()));
    assert!(!headers.contains_key("host") && headers.contains_key("via"));
    settled(&node).await;
}

#[tokio::test]
async fn probes_ask_over_http2() {
    let origin = Http2Origin::start(|_, mut respond| async move {
        respond.send_response(ok(), true).unwrap();
    })
    .await;
    let mut settings = settings(&origin);
    settings.sites[0].servers.health =
        HealthCheck { path: Some("/health".to_owned()), ..watched() };
    let node = start(settings).await;
    let probed = || origin.asked().iter().filter(|(_, uri, _)| uri.ends_with("/health")).count();
    eventually("probes", || probed() > 2).await;
    assert_eq!(get(node.addresses.clients[0], "/a").await.status, 200);
}

#[tokio::test]
async fn bodies_and_trailers_pass_both_ways_over_http2() {
    let origin = Http2Origin::start(|request, mut respond| async move {
        let takes = request.headers().get("te").cloned();
        let (bytes, trailers) = whole(request.into_body()).await;
        let mut body = respond.send_response(ok(), false).unwrap();
        body.send_data(bytes.into(), false).unwrap();
        let mut back = trailers.unwrap_or_default();
        back.insert("grpc-te-was", takes.unwrap_or_else(|| "-".parse().unwrap()));
        body.send_trailers(back).unwrap();
    })
    .await;
    let (node, at) = world(&origin).await;
    let mut sender = h2c(at).await;
    let sum = HeaderMap::from_iter([("digest".parse().unwrap(), "42".parse().unwrap())]);
    let body = Frames([Frame::data(Bytes::from("hello")), Frame::trailers(sum)].into());
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://{HOST}/a"))
        .header("te", "trailers")
        .body(body.boxed())
        .unwrap();
    let response = within(sender.send_request(request)).await.unwrap();
    let collected = within(response.into_body().collect()).await.unwrap();
    let trailers = collected.trailers().cloned().unwrap();
    assert!(trailers["digest"] == "42" && trailers["grpc-te-was"] == "trailers", "{trailers:?}");
    assert_eq!(collected.to_bytes(), "hello");
    settled(&node).await;
}

/// The frames of a body, one after another.
struct Frames(VecDeque<Frame<Bytes>>);

impl hyper::body::Body for Frames {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

#[tokio::test]
async fn trailers_pass_both_ways_over_http1() {
    let origin = Origin::start().await;
    let end = "0\r\ndigest: 42\r\nconnection: x\r\n\r\n";
    let head =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: digest\r\n\r\n5\r\nhello\r\n";
    origin.on("/a", Reply::raw(format!("{head}{end}")));
    let node = start(single(&[origin.address])).await;
    let at = node.addresses.clients[0];
    let fields = [("TE", "trailers"), ("Connection", "TE"), ("Transfer-Encoding", "chunked")];
    let post = head_of("POST", "/a", &fields) + "2\r\nhi\r\n0\r\ndigest: 1\r\n\r\n";
    let mut wire = Wire::saying(at, post).await;
    let answer = wire.head().await;
    assert_eq!((answer.status, answer.field("trailer")), (200, "digest".to_owned()));
    let rest = "5\r\nhello\r\n0\r\ndigest: 42\r\n\r\n";
    assert_eq!(String::from_utf8(wire.take(rest.len()).await).unwrap(), rest);
    let asked = &origin.asked("/a")[0];
    let field = |name| asked.header(name).unwrap();
    assert_eq!((field("te"), field("connection")), ("trailers".to_owned(), "te".to_owned()));
    settled(&node).await;
}

#[tokio::test]
async fn client_that_goes_away_cancels_its_stream_at_the_origin() {
    let (gone, mut goes) = mpsc::unbounded_channel();
    let origin = Http2Origin::start(move |request, mut respond| {
        let gone = gone.clone();
        async move {
            if request.uri().path() == "/answers" {
                let mut body = respond.send_response(ok(), false).unwrap();
                body.send_data("first".into(), false).unwrap();
                let reason = std::future::poll_fn(|cx| body.poll_reset(cx)).await.unwrap();
                gone.send(reason).unwrap();
                return;
            }
            let reason = std::future::poll_fn(|cx| respond.poll_reset(cx)).await.unwrap();
            gone.send(reason).unwrap();
        }
    })
    .await;
    let (node, at) = world(&origin).await;
    for path in ["/answers", "/waits"] {
        let mut sender = h2c(at).await;
        let mut request = ask(path);
        *request.method_mut() = Method::POST;
        let asking = tokio::time::timeout(Duration::from_millis(200), sender.send_request(request));
        drop(asking.await);
        assert_eq!(within(goes.recv()).await, Some(h2::Reason::CANCEL), "{path}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn hints_of_an_origin_over_http2_reach_the_client() {
    let origin = Http2Origin::start(|_, mut respond| async move {
        let hints = Response::builder().status(103).header("link", "</a.css>; rel=preload");
        respond.send_informational(hints.body(()).unwrap()).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut body = respond.send_response(ok(), false).unwrap();
        body.send_data("hi".into(), true).unwrap();
    })
    .await;
    let (node, at) = world(&origin).await;
    let mut wire = Wire::saying(at, head_of("GET", "/a", &[])).await;
    let hints = wire.head().await;
    assert_eq!((hints.status, hints.field("link")), (103, "</a.css>; rel=preload".to_owned()));
    assert_eq!(wire.answer().await.text(), "hi");
    // A client over HTTP/2 gets the response without them.
    assert_eq!(fetch(&mut h2c(at).await, ask("/b")).await, (200, "hi".into()));
    settled(&node).await;
}

#[tokio::test]
async fn body_that_an_origin_resets_is_cut_whatever_the_reason() {
    for reason in [h2::Reason::NO_ERROR, h2::Reason::CANCEL, h2::Reason::INTERNAL_ERROR] {
        let origin = Http2Origin::start(move |_, mut respond| async move {
            let head = Response::builder().header("cache-control", "max-age=60").body(()).unwrap();
            let mut body = respond.send_response(head, false).unwrap();
            body.send_data("half".into(), false).unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            body.send_reset(reason);
        })
        .await;
        let (node, at) = world(&origin).await;
        for _ in 0..2 {
            let answer = get(at, "/a").await;
            assert!(!answer.whole, "{reason:?}: {answer:?}");
        }
        settled(&node).await;
    }
}

#[tokio::test]
async fn origin_of_another_protocol_is_a_bad_gateway_that_says_so() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.sites[0].servers.protocols.h2 = true;
    let node = start(settings).await;
    let answer = get(node.addresses.clients[0], "/a").await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY.as_u16());
    assert!(answer.text().contains("does not speak HTTP/2"), "{}", answer.text());
    settled(&node).await;
}

#[tokio::test]
async fn upload_that_a_client_resets_is_never_a_whole_request() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.listeners[0].h2c = true;
    let node = start(settings).await;
    for reason in [h2::Reason::NO_ERROR, h2::Reason::CANCEL] {
        let stream = TcpStream::connect(node.addresses.clients[0]).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder().method(Method::POST).uri(format!("http://{HOST}/a"));
        let mut sender = within(sender.ready()).await.unwrap();
        let (response, mut body) = sender.send_request(request.body(()).unwrap(), false).unwrap();
        let heads = origin.heads();
        body.send_data("half".into(), false).unwrap();
        eventually("the head arrives", || origin.heads() > heads).await;
        body.send_reset(reason);
        assert!(within(response).await.is_err());
        settled(&node).await;
        assert_eq!(origin.asked("/a").len(), 0, "{reason:?}");
    }
}
