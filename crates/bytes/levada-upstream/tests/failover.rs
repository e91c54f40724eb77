//! Servers that accept requests and answer none.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use levada_observe::metrics::Registry;
use levada_types::Timestamp;
use levada_upstream::{
    Address, Change, Clock, Group, HealthCheck, RequestBody, Retries, RetryBudget, SendError,
    Server, ServerBounds, ServerFailure, ServerKind, UpstreamHead, UpstreamMetrics,
    UpstreamResponse, WatchedServer, Wire, send, watch,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

#[derive(Clone)]
struct Watched(Arc<Server>, Arc<HealthCheck>);

impl WatchedServer for Watched {
    const KIND: ServerKind = ServerKind::Origin;

    fn server(&self) -> &Arc<Server> {
        &self.0
    }

    fn check(&self) -> &HealthCheck {
        &self.1
    }

    /// Is always lost.
    async fn probe(&self) -> bool {
        std::future::pending().await
    }

    fn changed(&self, _change: Change) {}

    fn counts_answers(&self) -> bool {
        true
    }
}

impl Watched {
    async fn at(address: SocketAddr) -> Self {
        let bounds = ServerBounds {
            connections: 10,
            queue: 0,
            queue_timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(20),
            response_timeout: Duration::from_secs(20),
        };
        let address = Address::Tcp { host: address.ip().to_string(), port: address.port() };
        let server = Server::new("s".into(), address, Wire::default(), bounds, 1);
        Self(server, Arc::default())
    }

    /// A server that answers every request with this text, or none.
    async fn start(text: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut read = [0; 4096];
                    while let Ok(1..) = stream.read(&mut read).await {
                        let Some(text) = text else { continue };
                        let answer = format!(
                            "HTTP/1.1 200 OK\r\nServer: {text}\r\nContent-Length: 0\r\n\r\n"
                        );
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        Self::at(address).await
    }

    fn goes_down(&self) {
        let changes = [0; 2].map(|_| self.0.health.probed(false, &self.1, Timestamp::ZERO));
        assert_eq!(changes[1], Change::Down);
    }
}

/// The servers one after another.
struct InOrder {
    servers: std::vec::IntoIter<Watched>,
    caller_answers: bool,
}

impl Group for InOrder {
    type Server = Watched;
    type Held = ();

    fn next(&mut self) -> Result<(Watched, ()), ServerFailure> {
        self.servers.next().map(|server| (server, ())).ok_or(ServerFailure::AllDown)
    }

    fn answered(&mut self, _: Watched, (): (), _: &mut UpstreamResponse) {}

    fn caller_answers(&self) -> bool {
        self.caller_answers
    }
}

async fn ask(
    servers: &[&Watched],
    head: &UpstreamHead,
    (asks_beside, caller_answers): (bool, bool),
) -> Result<UpstreamResponse, SendError> {
    let servers = servers.iter().copied().cloned().collect::<Vec<_>>().into_iter();
    let retries = Retries {
        tries: 3,
        budget: &RetryBudget::new(0.0),
        resends_unsent: false,
        asks_beside,
        clock: Clock::start(),
        metrics: &UpstreamMetrics::registered(&mut Registry::default()),
    };
    let mut group = InOrder { servers, caller_answers };
    send(&mut group, &retries, head, RequestBody::None).await
}

fn server_of(response: Result<UpstreamResponse, SendError>) -> String {
    response.unwrap().headers()["server"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn another_server_is_asked_beside_one_that_is_late() {
    let (silent, good) = (Watched::start(None).await, Watched::start(Some("good")).await);
    let head = UpstreamHead::get("/");
    assert_eq!(server_of(ask(&[&silent, &good], &head, (true, false)).await), "good");
    // The late server is remembered: three such requests in a row eject it.
    assert!(silent.0.health.is_up());
    for _ in 0..2 {
        assert_eq!(server_of(ask(&[&silent, &good], &head, (true, false)).await), "good");
    }
    assert!(!silent.0.health.is_up());
}

#[tokio::test]
async fn late_server_is_left_when_the_caller_answers_instead() {
    let silent = Watched::start(None).await;
    let left = ask(&[&silent], &UpstreamHead::get("/"), (true, true)).await;
    assert_eq!(left.err().unwrap().failure, ServerFailure::Late);
}

#[tokio::test]
async fn request_leaves_a_server_that_is_declared_down() {
    let (silent, good) = (Watched::start(None).await, Watched::start(Some("good")).await);
    for (servers, caller_answers) in [(vec![&silent, &good], false), (vec![&silent], true)] {
        let head = UpstreamHead::get("/");
        let asking = ask(&servers, &head, (false, caller_answers));
        let fails = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            silent.goes_down();
        };
        let (answer, ()) = tokio::join!(asking, fails);
        match caller_answers {
            false => assert_eq!(server_of(answer), "good"),
            true => assert_eq!(answer.err().unwrap().failure, ServerFailure::WentDown),
        }
        let check = &silent.1;
        let changes = [0; 2].map(|_| silent.0.health.probed(true, check, Timestamp::ZERO));
        assert_eq!(changes[1], Change::Up);
    }
}

#[tokio::test]
async fn request_that_may_not_be_repeated_stays_where_it_is() {
    let (silent, good) = (Watched::start(None).await, Watched::start(Some("good")).await);
    let head = UpstreamHead { method: http::Method::POST, ..UpstreamHead::get("/") };
    let servers = [&silent, &good];
    let asking = ask(&servers, &head, (true, false));
    let fails = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        silent.goes_down();
        tokio::time::sleep(Duration::from_secs(4)).await;
    };
    tokio::select! {
        _ = asking => panic!("it was sent to another server"),
        () = fails => {}
    }
}

#[tokio::test]
async fn server_is_up_as_long_as_a_body_comes_from_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut server = Watched::at(listener.local_addr().unwrap()).await;
    let (interval, timeout) = (Duration::from_millis(20), Duration::from_millis(500));
    server.1 = Arc::new(HealthCheck { interval, timeout, ..HealthCheck::default() });
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = b"HTTP/1.1 200 OK\r\nServer: slow\r\nContent-Length: 1000\r\n\r\n";
        stream.write_all(head).await.unwrap();
        for _ in 0..40 {
            stream.write_all(b"piece").await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        std::future::pending::<()>().await;
    });
    let mut response = ask(&[&server], &UpstreamHead::get("/"), (false, false)).await.ok().unwrap();
    let watching = tokio::spawn(watch(server.clone(), Clock::start()));
    for _ in 0..30 {
        let piece = std::future::poll_fn(|cx| response.body_mut().poll_frame(cx)).await;
        assert!(piece.unwrap().is_ok() && server.0.health.is_up());
    }
    // The rest of the body is not read any more.
    server.0.health.down().await;
    watching.abort();
}
