//! `[limits]`: bounds on the work and memory of clients, servers and requests.

use crate::settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::count;
use crate::text::{Rate, Size, Time};

/// Bounds on the work and memory of clients, servers and requests.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Requests that this node can hold at once as a server; beyond it, peers and clients get 503. One client has
    /// as many as are free at most: half of them, or a third if another client does the same. An IPv6 network
    /// of 64 bits is one client. The policies' busy thresholds are derived from it.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub capacity: u32,
    /// Bytes per second that this node serves as a server: its own hits and fills, not responses that it
    /// passes on from a peer. Unlimited by default.
    #[schemars(extend("examples" = ["40Mbit/s"]))]
    pub serve_rate: Option<Rate>,
    /// Client connections at once, shared by clients as `capacity` is. Further ones of a client are closed at
    /// once; those beyond the number wait to be accepted. The node raises its limit of open files as far as it
    /// may, and warns if that is below twice this number.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub connections: u32,
    /// Connections that have switched to WebSocket, on all sites together, shared by clients as `capacity` is. A
    /// stream of HTTP/2 or HTTP/3 counts as one. Further ones get 503.
    #[schemars(range(max = 10_000_000))]
    pub tunnels: u32,
    /// Time in which these connections end when the node drains or stops, each at a random moment, so that not
    /// all clients come back at once. A stop takes half of `drain_timeout` at most. See docs/operate/websocket.md.
    #[schemars(extend("x-maximum" = "1d"))]
    pub tunnel_grace: Time,
    /// Bound on the resident memory of the process. Near it, the memory tier shrinks, each client has few requests
    /// and connections, and fetches do not begin; at the bound, all clients are turned away. `cache.memory` can be
    /// half of it. At least 64 MiB, most of which an idle node needs. Three quarters of the memory of the machine, or
    /// of the control group, by default. See docs/operate/memory.md.
    #[schemars(extend("examples" = ["2GiB"]))]
    pub memory: Option<Size>,
    /// Time from the first byte of a request's head to its last.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub head_timeout: Time,
    /// Time that a connection without a request stays open.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    pub idle_timeout: Time,
    /// Time that this node waits for a request's body. Bytes that come renew it, at `body_min_rate`.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    pub body_timeout: Time,
    /// Least rate of a request's body while this node waits for it: so many bytes renew a second of
    /// `body_timeout`.
    #[schemars(extend("x-maximum" = "1MiB/s"))]
    pub body_min_rate: Rate,
    /// Time that this node waits for a client to take more of its response. Bytes that the client acknowledges
    /// meanwhile renew it, at `send_min_rate`.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    pub send_timeout: Time,
    /// Least rate of a client that is waited for: so many acknowledged bytes renew a second of `send_timeout`.
    #[schemars(extend("x-maximum" = "1MiB/s"))]
    pub send_min_rate: Rate,
    /// Largest size of a request's head.
    #[schemars(extend("x-minimum" = "8KiB", "x-maximum" = "1MiB"))]
    pub head_size: Size,
    /// Most header fields of a request.
    #[schemars(range(min = 1, max = 10_000))]
    pub header_count: u32,
    /// Time to connect to an origin or peer.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub connect_timeout: Time,
    /// Time from a request sent to an origin or peer to the head of its response.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    pub response_timeout: Time,
    /// Time between two pieces of a response's body from an origin or peer.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    pub response_body_timeout: Time,
    /// Connections to one origin or peer.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub server_connections: u32,
    /// Requests that may wait for a connection to one origin or peer, and requests that may wait for the window
    /// of a large file (docs/operate/large-files.md).
    #[schemars(range(max = 1_000_000))]
    pub queue: u32,
    /// Time that a request may wait for a connection, or for a window.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub queue_timeout: Time,
    /// Tries of one request, with the first.
    #[schemars(range(min = 1, max = 10))]
    pub tries: u32,
    /// Retry budget: retries as a part of all requests (0.2 is one in five), plus ten per second.
    #[schemars(range(min = 0, max = 1))]
    pub retry_budget: f64,
    /// Nodes of this network that a request may pass (RFC 8586, `CDN-Loop`).
    #[schemars(range(min = 1, max = 16))]
    pub max_hops: u32,
    /// Time that a stop waits for running requests.
    #[schemars(extend("x-maximum" = "1d"))]
    pub drain_timeout: Time,
    /// Running downloads that a drain ends per second. The other nodes must be able to take their clients.
    /// See docs/operate/anycast.md.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub drain_rate: u32,
    /// Threads that compress responses at once. The default is half of the cores.
    #[schemars(range(min = 1, max = 1024))]
    pub compress_workers: Option<u32>,
    /// Responses that wait to be compressed. When they are so many, further ones go out as they are.
    #[schemars(range(max = 100_000))]
    pub compress_queue: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let edge = settings::Limits::default();
        Self {
            capacity: edge.capacity,
            serve_rate: edge.serve_rate.map(Rate),
            connections: count(edge.connections),
            tunnels: edge.tunnels,
            tunnel_grace: Time(edge.tunnel_grace),
            memory: edge.memory.map(Size),
            head_timeout: Time(edge.head_timeout),
            idle_timeout: Time(edge.idle_timeout),
            body_timeout: Time(edge.body_timeout),
            body_min_rate: Rate(edge.body_min_rate),
            send_timeout: Time(edge.send_timeout),
            send_min_rate: Rate(edge.send_min_rate),
            head_size: Size(edge.head_size as u64),
            header_count: count(edge.header_count),
            connect_timeout: Time(edge.connect_timeout),
            response_timeout: Time(edge.response_timeout),
            response_body_timeout: Time(edge.response_body_timeout),
            server_connections: count(edge.server_connections),
            queue: count(edge.queue),
            queue_timeout: Time(edge.queue_timeout),
            tries: edge.tries,
            retry_budget: edge.retry_budget,
            max_hops: count(edge.max_hops),
            drain_timeout: Time(edge.drain_timeout),
            drain_rate: edge.drain_rate,
            compress_workers: edge.compress_workers.map(count),
            compress_queue: count(edge.compress_queue),
        }
    }
}

impl From<&Limits> for settings::Limits {
    fn from(file: &Limits) -> Self {
        Self {
            capacity: file.capacity,
            serve_rate: file.serve_rate.map(|Rate(bytes)| bytes),
            connections: file.connections as usize,
            tunnels: file.tunnels,
            tunnel_grace: file.tunnel_grace.0,
            memory: file.memory.map(|Size(bytes)| bytes),
            head_timeout: file.head_timeout.0,
            idle_timeout: file.idle_timeout.0,
            body_timeout: file.body_timeout.0,
            body_min_rate: file.body_min_rate.0,
            send_timeout: file.send_timeout.0,
            send_min_rate: file.send_min_rate.0,
            head_size: file.head_size.0 as usize,
            header_count: file.header_count as usize,
            connect_timeout: file.connect_timeout.0,
            response_timeout: file.response_timeout.0,
            response_body_timeout: file.response_body_timeout.0,
            server_connections: file.server_connections as usize,
            queue: file.queue as usize,
            queue_timeout: file.queue_timeout.0,
            tries: file.tries,
            retry_budget: file.retry_budget,
            max_hops: file.max_hops as usize,
            drain_timeout: file.drain_timeout.0,
            drain_rate: file.drain_rate,
            compress_workers: file.compress_workers.map(|workers| workers as usize),
            compress_queue: file.compress_queue as usize,
        }
    }
}
