//! A proxy with hyper that distributes requests over its upstreams by FDR.
//!
//! `cargo run --example hyper -- 127.0.0.1:8080 127.0.0.1:9001 127.0.0.1:9002` listens at the first
//! address and proxies to the others. Without arguments it starts two upstreams of its own, sends
//! some requests through the proxy, and prints which upstream answered how many.

#![allow(clippy::disallowed_methods, reason = "a driver has the clock that policies do not have")]

use std::{
    collections::BTreeMap,
    error::Error,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full, combinators::BoxBody};
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Frame, Incoming},
    client, header, server,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use levada_policy::{
    Cluster, Deployment, LoadTable, Node, Outstanding, PickContext, Policy, build,
};
use levada_types::{Key, Request as Asked, Rng, Timestamp};
use tokio::net::{TcpListener, TcpStream};

type AnyError = Box<dyn Error + Send + Sync>;
type AnyBody = BoxBody<Bytes, hyper::Error>;

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let mut addresses = std::env::args().skip(1);
    let Some(listen) = addresses.next() else {
        for (upstream, requests) in demonstrate(60).await? {
            println!("{upstream} answered {requests} requests");
        }
        return Ok(());
    };
    let upstreams = addresses.map(|a| a.parse()).collect::<Result<Vec<SocketAddr>, _>>()?;
    let listener = TcpListener::bind(listen).await?;
    let proxy = Arc::new(Proxy::new(upstreams)?);
    serve(listener, move |request| {
        let proxy = proxy.clone();
        async move { Ok(proxy.answer(request).await) }
    })
    .await?;
    Ok(())
}

/// A policy and the view that it decides on.
struct Proxy {
    upstreams: Vec<SocketAddr>,
    cluster: Cluster,
    policy: Mutex<(Box<dyn Policy>, Rng)>,
    start: Instant,
}

impl Proxy {
    fn new(upstreams: Vec<SocketAddr>) -> Result<Self, AnyError> {
        let nodes: Vec<Node> = upstreams.iter().map(|u| Node::new(&u.to_string())).collect();
        let loads = LoadTable::new(nodes.len());
        // Each upstream holds up to 200 requests; from this follows when FDR adds a replica.
        let deployment = Deployment { capacity: 200, ..Deployment::default() };
        let policy = build("fdr", &BTreeMap::new(), &deployment)?;
        Ok(Self {
            upstreams,
            cluster: Cluster::new(nodes, loads),
            policy: Mutex::new((policy, Rng::new(1))),
            start: Instant::now(),
        })
    }

    /// Picks an upstream and counts the request there, until the guard drops.
    fn pick(&self, url: &str) -> Option<(SocketAddr, Outstanding)> {
        let mut guard = self.policy.lock().ok()?;
        let (policy, rng) = &mut *guard;
        let since = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut context = PickContext { now: Timestamp(since), rng };
        let request = Asked::new(Key::of(url.as_bytes()));
        let node = policy.pick(&request, &self.cluster, &mut context)?.node;
        Some((self.upstreams[node.get()], self.cluster.loads().begin(node)))
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<AnyBody> {
        let host = request.headers().get(header::HOST).map_or(&b""[..], |host| host.as_bytes());
        let url = format!("{}{}", String::from_utf8_lossy(host), request.uri());
        let Some((upstream, outstanding)) = self.pick(&url) else {
            return status(StatusCode::SERVICE_UNAVAILABLE);
        };
        match forward(upstream, request).await {
            Ok(response) => {
                response.map(|body| Counted { body, _outstanding: outstanding }.boxed())
            }
            Err(_) => status(StatusCode::BAD_GATEWAY),
        }
    }
}

/// A body that counts its request as outstanding until it has ended.
struct Counted {
    body: Incoming,
    _outstanding: Outstanding,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }
}

async fn forward(
    upstream: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response<Incoming>, AnyError> {
    let stream = TcpStream::connect(upstream).await?;
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

fn status(status: StatusCode) -> Response<AnyBody> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response
}

/// Serves connections for as long as the program runs.
async fn serve<F, R>(listener: TcpListener, answer: F) -> io::Result<()>
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
    R: Future<Output = Result<Response<AnyBody>, AnyError>> + Send + 'static,
{
    loop {
        let (stream, _) = listener.accept().await?;
        let connection = server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service_fn(answer.clone()));
        tokio::spawn(connection);
    }
}

/// Sends requests for ten objects through a proxy with two upstreams. Returns the number of requests
/// that each upstream answered.
async fn demonstrate(requests: usize) -> Result<BTreeMap<SocketAddr, usize>, AnyError> {
    let mut upstreams = Vec::new();
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        upstreams.push(address);
        let body = move || Full::from(address.to_string()).map_err(|never| match never {}).boxed();
        tokio::spawn(serve(listener, move |_| async move { Ok(Response::new(body())) }));
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let proxy = Arc::new(Proxy::new(upstreams)?);
    let shared = proxy.clone();
    tokio::spawn(serve(listener, move |request| {
        let proxy = shared.clone();
        async move { Ok(proxy.answer(request).await) }
    }));
    let mut answered = BTreeMap::new();
    for number in 0..requests {
        let stream = TcpStream::connect(address).await?;
        let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::get(format!("/object-{}", number % 10))
            .header(header::HOST, "example.com")
            .body(Empty::<Bytes>::new())?;
        let body = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
        *answered.entry(String::from_utf8(body.to_vec())?.parse()?).or_default() += 1;
    }
    Ok(answered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_distributed_by_object() {
        let answered = demonstrate(60).await.unwrap();
        assert_eq!(answered.values().sum::<usize>(), 60);
        // Without load an object stays at its first node: each of ten objects was asked for six times.
        assert!(answered.values().all(|requests| requests % 6 == 0), "{answered:?}");
    }
}
