//! The clients: they use all nodes, keep connections open, verify every byte, and try another address
//! of the site when one fails.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{HeaderMap, HeaderName, StatusCode};
use levada_client::command::content::Verifier;
use levada_testbed::cluster::client::{
    BodyEnd, Connection, IdleConnections, Reader, connect, fields, request,
};
use tokio::time::Instant;

use super::{
    catalog::{Catalog, Object},
    config::HOST_NAME,
};

/// All clients.
pub(super) struct Clients {
    nodes: Vec<Door>,
    turn: AtomicUsize,
    catalog: Arc<Catalog>,
}

/// One address of the site.
struct Door {
    name: String,
    address: SocketAddr,
    idle: IdleConnections,
    /// The end of the time in which clients avoid it, because connecting failed.
    avoided: Mutex<Option<Instant>>,
}

/// A request that got the right body.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServedBy {
    /// The node that served it from its store or fetched it.
    pub(super) by: Option<usize>,
    pub(super) bytes: u64,
}

/// Why a request did not get the right body.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// No connection, or a connection that broke before the end of the body.
    Broken(String),
    /// An error page.
    Status(StatusCode),
    /// Bytes other than the origin's, or fewer.
    WrongBody,
    /// No data for too long.
    Timeout,
    /// More concurrent requests than the clients can hold.
    TooMany,
}

impl Trouble {
    pub(super) fn as_str(&self) -> String {
        match self {
            Self::Broken(_) => "connection broken".to_owned(),
            Self::Status(status) => format!("status {}", status.as_u16()),
            Self::WrongBody => "wrong body".to_owned(),
            Self::Timeout => "timeout".to_owned(),
            Self::TooMany => "too many at once".to_owned(),
        }
    }
}

/// The result of a request, and the number of further tries.
pub(super) struct Ending {
    pub(super) result: Result<ServedBy, Trouble>,
    pub(super) retries: u64,
}

impl Clients {
    pub(super) fn new(nodes: &[(String, SocketAddr)], catalog: Arc<Catalog>) -> Self {
        let door = |(name, address): &(String, SocketAddr)| Door {
            name: name.clone(),
            address: *address,
            idle: IdleConnections::default(),
            avoided: Mutex::default(),
        };
        Self { nodes: nodes.iter().map(door).collect(), turn: AtomicUsize::new(0), catalog }
    }

    /// One request by one client: at the next node in turn, and at another node if the connection
    /// breaks, like a client that knows several addresses. It tries again at most twice: the first
    /// break may come from a peer that died behind the first node, and the second try may reach that
    /// peer itself.
    pub(super) async fn request(&self, object: u32) -> Ending {
        let object = self.catalog.object(object);
        let mut tried = Vec::new();
        loop {
            let node = self.next(&tried);
            let retries = tried.len() as u64;
            match self.ask(node, object).await {
                Err(Trouble::Broken(_)) if tried.len() < RETRIES => tried.push(node),
                result => return Ending { result, retries },
            }
        }
    }

    /// The next node in turn that has not been tried. An unreachable address is left out for a
    /// while.
    fn next(&self, tried: &[usize]) -> usize {
        let now = Instant::now();
        let turn = self.turn.fetch_add(1, Relaxed);
        let all = (0..self.nodes.len()).map(|step| (turn + step) % self.nodes.len());
        let rest = || all.clone().filter(|node| !tried.contains(node));
        let reachable = rest().find(|node| !self.nodes[*node].is_avoided(now));
        reachable.or_else(|| rest().next()).unwrap_or(turn % self.nodes.len())
    }

    async fn ask(&self, node: usize, object: &Object) -> Result<ServedBy, Trouble> {
        let timeout = OBJECT_TIMEOUT + Duration::from_secs(object.size / SLOWEST);
        let exchange = tokio::time::timeout(timeout, self.exchange(&self.nodes[node], object));
        exchange.await.unwrap_or(Err(Trouble::Timeout))
    }

    async fn exchange(&self, door: &Door, object: &Object) -> Result<ServedBy, Trouble> {
        let mut connection = door.connection().await?;
        let mut fields = fields(HOST_NAME);
        let visitor = format!("192.0.2.{}", NEXT_VISITOR.fetch_add(1, Relaxed));
        fields.extend(visitor.parse().map(|visitor| (VISITOR, visitor)));
        let asked = request(&object.target, &fields);
        let response = connection.send_request(asked).await.map_err(broken)?;
        let (status, by) = (response.status(), self.server(response.headers()));
        let mut verifier = Verifier::new(object.key);
        let mut reader = Reader::new(f64::INFINITY, Duration::MAX);
        match reader.receive(response, |piece| verifier.take(piece)).await {
            BodyEnd::Broken(error) => return Err(broken(error)),
            BodyEnd::Whole | BodyEnd::Stalled => door.idle.keep(connection).await,
        }
        match status {
            StatusCode::OK if verifier.is_whole(object.size) => {
                Ok(ServedBy { by, bytes: verifier.bytes() })
            }
            StatusCode::OK => Err(Trouble::WrongBody),
            status => Err(Trouble::Status(status)),
        }
    }

    /// The node that served the request: the first member of `Cache-Status` (RFC 9211), the cache
    /// nearest to the origin.
    fn server(&self, headers: &HeaderMap) -> Option<usize> {
        let status = headers.get("cache-status")?.to_str().ok()?;
        let name = status.split([';', ',']).next()?.trim().trim_matches('"');
        self.nodes.iter().position(|door| door.name == name)
    }
}

impl Door {
    fn is_avoided(&self, now: Instant) -> bool {
        let avoided = self.avoided.lock().unwrap_or_else(PoisonError::into_inner);
        avoided.is_some_and(|until| until > now)
    }

    /// The most recently used idle connection, or a new one.
    async fn connection(&self) -> Result<Connection, Trouble> {
        if let Some(kept) = self.idle.take() {
            return Ok(kept);
        }
        connect(self.address).await.map_err(|error| {
            let until = Instant::now() + AVOIDANCE;
            *self.avoided.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
            Trouble::Broken(error.to_string())
        })
    }
}

/// The field with the address that a request is for, and the last part of the next one.
const VISITOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static NEXT_VISITOR: AtomicU8 = AtomicU8::new(0);

fn broken(error: hyper::Error) -> Trouble {
    Trouble::Broken(error.to_string())
}

/// The timeout for a small object. A large object may take longer, at [`SLOWEST`] bytes per second.
pub(super) const OBJECT_TIMEOUT: Duration = Duration::from_secs(15);
const SLOWEST: u64 = 64 << 10;

/// Further tries of one request, each at another node.
const RETRIES: usize = 2;

/// Time that clients avoid an address after a failed connection.
const AVOIDANCE: Duration = Duration::from_secs(1);
