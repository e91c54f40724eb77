//! Clients that hold what others need: one with too many connections and streams whose responses it never reads, and
//! many that leave, or never come to an end.

use std::{
    net::{Ipv4Addr, SocketAddr},
    thread,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use levada_testbed::cluster::origin::SILENT;
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    sync::oneshot,
    time::{Instant, sleep, sleep_until, timeout_at},
};

use super::{client, cluster::Cluster, load::HOST_NAME, stage::Stage};

/// Requests large objects over many connections to one node, and reads nothing.
pub(super) async fn readers(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    let (at, end) = (cluster.doors[0].clients, stage.end);
    let targets: Vec<_> = (0..CONNECTIONS).map(|number| large(stage, number)).collect();
    apart(end, move || join_all(targets.into_iter().map(move |target| unread(at, target)))).await
}

/// Opens many streams without a window to one node.
pub(super) async fn streams(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    let (at, end) = (cluster.doors[0].clients, stage.end);
    let targets: Vec<_> = (0..STREAMS).map(|number| any(stage, number)).collect();
    apart(end, move || join_all((0..H2_CONNECTIONS).map(move |_| stalled(at, targets.clone()))))
        .await
}

/// Asks for objects that the origin never sends, from many addresses, and leaves: again and again.
pub(super) async fn abandoned(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    let (at, end) = (cluster.doors[0].clients, stage.end);
    apart(end, move || async move {
        for round in 0.. {
            let crowd = crowd(at, |client| silent(round * CLIENTS + client)).await;
            sleep(HELD).await;
            drop(crowd);
        }
    })
    .await
}

/// Sends bodies from many addresses, a byte per second each.
pub(super) async fn uploads(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    let (at, end) = (cluster.doors[0].clients, stage.end);
    apart(end, move || async move {
        let mut crowd = crowd(at, upload).await;
        loop {
            join_all(crowd.iter_mut().flatten().map(|stream| stream.write_all(b"x"))).await;
            sleep(BYTE_INTERVAL).await;
        }
    })
    .await
}

/// Asks for WebSocket from many addresses, at paths where the origin does not answer.
pub(super) async fn handshakes(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    let (at, end) = (cluster.doors[0].clients, stage.end);
    apart(end, move || crowd(at, handshake)).await
}

/// A request that the origin never answers.
pub(super) fn silent(number: usize) -> String {
    format!("GET {SILENT}{number} HTTP/1.1\r\nHost: {HOST_NAME}\r\n\r\n")
}

/// The head of a request with a body. Half of them have a short one.
pub(super) fn upload(number: usize) -> String {
    let length = if number.is_multiple_of(2) { 1_000 } else { 1_000_000 };
    format!("POST /{number} HTTP/1.1\r\nHost: {HOST_NAME}\r\nContent-Length: {length}\r\n\r\n")
}

/// A handshake of WebSocket that the origin never answers.
pub(super) fn handshake(number: usize) -> String {
    format!(
        "GET {SILENT}{number} HTTP/1.1\r\nHost: {HOST_NAME}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

/// Clients with addresses of their own, each with its own words. The node may refuse some.
async fn crowd(at: SocketAddr, words: impl Fn(usize) -> String) -> Vec<std::io::Result<TcpStream>> {
    let client = |number: usize| {
        let words = words(number);
        async move {
            let mut stream = connect_from(number, at).await?;
            stream.write_all(words.as_bytes()).await?;
            Ok(stream)
        }
    };
    join_all((0..CLIENTS).map(client)).await
}

/// A connection from one of many addresses.
pub(super) async fn connect_from(number: usize, at: SocketAddr) -> std::io::Result<TcpStream> {
    let [high, low] = (number as u16).to_be_bytes();
    let from = SocketAddr::from(([127, 66, high, low], 0));
    client::small(at, Some(from))?.connect(at).await
}

/// Opens connections on a thread of their own, where they do not delay the load, and holds them until
/// the row is over.
pub(super) async fn apart<F: Future>(
    end: Instant,
    open: impl FnOnce() -> F + Send + 'static,
) -> anyhow::Result<()> {
    let hostile = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let holding = async {
                let _open = open().await;
                sleep_until(end).await;
            };
            let _ = timeout_at(end, holding).await;
        });
        anyhow::Ok(())
    };
    let (done, ended) = oneshot::channel();
    thread::Builder::new().name("hostile".to_owned()).spawn(move || done.send(hostile()))?;
    ended.await?
}

/// A connection with a request whose response is never read. The node may refuse it.
async fn unread(at: SocketAddr, target: String) -> std::io::Result<TcpStream> {
    let mut stream = connect(at).await?;
    let head = format!("GET {target} HTTP/1.1\r\nHost: {HOST_NAME}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    Ok(stream)
}

/// A connection with these requests, whose responses have no window.
async fn stalled(at: SocketAddr, targets: Vec<String>) -> anyhow::Result<impl Sized> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(0);
    let stream = TokioIo::new(connect(at).await?);
    let (sender, connection) = builder.handshake::<_, Empty<Bytes>>(stream).await?;
    tokio::spawn(connection);
    let asked = targets.into_iter().map(|target| {
        let mut sender = sender.clone();
        async move {
            let uri = format!("http://{HOST_NAME}{target}");
            let request = Request::get(uri).body(Empty::new())?;
            // The node may refuse the stream.
            anyhow::Ok(sender.send_request(request).await?)
        }
    });
    let responses = join_all(asked.collect::<Vec<_>>()).await;
    Ok((sender, responses))
}

/// A connection from an address of its own, which is not trusted.
async fn connect(at: SocketAddr) -> std::io::Result<TcpStream> {
    client::small(at, Some(SocketAddr::from((HOSTILE, 0))))?.connect(at).await
}

/// One of the large objects.
fn large(stage: &Stage<'_>, number: usize) -> String {
    let all = stage.objects;
    all.get(all.count() - 1 - number % LARGE).map(|object| object.target()).unwrap_or_default()
}

/// An object of any size.
fn any(stage: &Stage<'_>, number: usize) -> String {
    let all = stage.objects;
    all.get(number * 7 % all.count()).map(|object| object.target()).unwrap_or_default()
}

const CLIENTS: usize = 600;
/// The time until a client that is not answered leaves.
const HELD: Duration = Duration::from_millis(500);
pub(super) const BYTE_INTERVAL: Duration = Duration::from_secs(1);
const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
const CONNECTIONS: usize = 500;
const LARGE: usize = 4;
const H2_CONNECTIONS: usize = 32;
const STREAMS: usize = 100;
