//! `[limits]`: bounds on the work and memory of clients, servers and requests.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::{As, Rate, Size, Time};

/// Bounds on the work and memory of clients, servers and requests.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Requests that this node can hold at once as a server; beyond it, peers and clients get 503. One client has
    /// as many as are free at most: half of them, or a third if another client does the same. An IPv6 network
    /// of 64 bits is one client. Requests with a body count by themselves, as many again. The policies' busy
    /// thresholds are derived from it.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub capacity: u32,
    /// Bytes per second that this node serves as a server: its own hits and fills, not responses that it
    /// passes on from a peer. Unlimited by default.
    #[schemars(extend("examples" = ["40Mbit/s"]))]
    #[serde(with = "As::<Option<Rate>>")]
    pub serve_rate: Option<u64>,
    /// Client connections at once, shared by clients as `capacity` is. Further ones of a client are closed at
    /// once; those beyond the number wait to be accepted, and for each of them one without a request is closed. The
    /// node raises its limit of open files as far as it may, and warns if that is below twice this number. See
    /// docs/operate/limits.md.
    #[schemars(range(min = 1, max = 10_000_000))]
    #[serde(with = "As::<u32>")]
    pub connections: usize,
    /// Connections that have switched to WebSocket, on all sites together, shared by clients as `capacity` is. A
    /// stream of HTTP/2 or HTTP/3 counts as one. Further ones get 503.
    #[schemars(range(max = 10_000_000))]
    pub tunnels: u32,
    /// Time in which these connections end when the node drains or stops, each at a random moment, so that not
    /// all clients come back at once. A stop takes half of `drain_timeout` at most. See docs/operate/websocket.md.
    #[schemars(extend("x-maximum" = "1d"))]
    #[serde(with = "As::<Time>")]
    pub tunnel_grace: Duration,
    /// Bound on the resident memory of the process. Near it, the memory tier shrinks, each client has few requests
    /// and connections, and fetches do not begin; at the bound, all clients are turned away. `cache.memory` can be
    /// half of it. At least 64 MiB, most of which an idle node needs. Three quarters of the memory of the machine, or
    /// of the control group, by default. See docs/operate/memory.md.
    #[schemars(extend("examples" = ["2GiB"]))]
    #[serde(with = "As::<Option<Size>>")]
    pub memory: Option<u64>,
    /// Time from the first byte of a request's head to its last.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    #[serde(with = "As::<Time>")]
    pub head_timeout: Duration,
    /// Time that a connection without a request stays open.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    #[serde(with = "As::<Time>")]
    pub idle_timeout: Duration,
    /// Time that this node waits for a request's body. Bytes that come renew it, at `body_min_rate`.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    #[serde(with = "As::<Time>")]
    pub body_timeout: Duration,
    /// Least rate of a request's body while this node waits for it: so many bytes renew a second of
    /// `body_timeout`.
    #[schemars(extend("x-maximum" = "1MiB/s"))]
    #[serde(with = "As::<Rate>")]
    pub body_min_rate: u64,
    /// Time that this node waits for a client to take more of its response. Bytes that the client acknowledges
    /// meanwhile renew it, at `send_min_rate`.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    #[serde(with = "As::<Time>")]
    pub send_timeout: Duration,
    /// Least rate of a client that is waited for: so many acknowledged bytes renew a second of `send_timeout`.
    #[schemars(extend("x-maximum" = "1MiB/s"))]
    #[serde(with = "As::<Rate>")]
    pub send_min_rate: u64,
    /// Largest size of a request's head.
    #[schemars(extend("x-minimum" = "8KiB", "x-maximum" = "1MiB"))]
    #[serde(with = "As::<Size>")]
    pub head_size: u64,
    /// Most header fields of a request.
    #[schemars(range(min = 1, max = 10_000))]
    #[serde(with = "As::<u32>")]
    pub header_count: usize,
    /// Time to connect to an origin or peer.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    #[serde(with = "As::<Time>")]
    pub connect_timeout: Duration,
    /// Time from a request sent to an origin or peer to the head of its response.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    #[serde(with = "As::<Time>")]
    pub response_timeout: Duration,
    /// Time between two pieces of a response's body from an origin or peer.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    #[serde(with = "As::<Time>")]
    pub response_body_timeout: Duration,
    /// Connections to one origin or peer.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[serde(with = "As::<u32>")]
    pub server_connections: usize,
    /// Requests that may wait for a connection to one origin, and requests that may wait for the window
    /// of a large file (docs/operate/large-files.md).
    #[schemars(range(max = 1_000_000))]
    #[serde(with = "As::<u32>")]
    pub queue: usize,
    /// Time that a request may wait for a connection, or for a window.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    #[serde(with = "As::<Time>")]
    pub queue_timeout: Duration,
    /// Tries of one request, with the first.
    #[schemars(range(min = 1, max = 10))]
    pub tries: u32,
    /// Retry budget: retries as a part of all requests (0.2 is one in five), plus ten per second.
    #[schemars(range(min = 0, max = 1))]
    pub retry_budget: f64,
    /// Nodes of this network that a request may pass (RFC 8586, `CDN-Loop`).
    #[schemars(range(min = 1, max = 16))]
    #[serde(with = "As::<u32>")]
    pub max_hops: usize,
    /// Time that a stop waits for running requests.
    #[schemars(extend("x-maximum" = "1d"))]
    #[serde(with = "As::<Time>")]
    pub drain_timeout: Duration,
    /// Running downloads that a drain ends per second. The other nodes must be able to take their clients.
    /// See docs/operate/anycast.md.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub drain_rate: u32,
    /// Threads that compress responses at once. The default is half of the cores.
    #[schemars(range(min = 1, max = 1024))]
    #[serde(with = "As::<Option<u32>>")]
    pub compress_workers: Option<usize>,
    /// Responses that wait to be compressed. When they are so many, further ones go out as they are.
    #[schemars(range(max = 100_000))]
    #[serde(with = "As::<u32>")]
    pub compress_queue: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            capacity: 3072,
            serve_rate: None,
            connections: 10_000,
            tunnels: 10_000,
            tunnel_grace: Duration::from_secs(10),
            memory: None,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(30),
            body_min_rate: 500,
            send_timeout: Duration::from_secs(60),
            send_min_rate: 500,
            head_size: 32 << 10,
            header_count: 100,
            connect_timeout: Duration::from_secs(3),
            response_timeout: Duration::from_secs(60),
            response_body_timeout: Duration::from_secs(60),
            server_connections: 1024,
            queue: 1024,
            queue_timeout: Duration::from_secs(5),
            tries: 3,
            retry_budget: 0.2,
            max_hops: 3,
            drain_timeout: Duration::from_secs(30),
            drain_rate: 50,
            compress_workers: None,
            compress_queue: 64,
        }
    }
}
