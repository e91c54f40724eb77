//! Servers that a node sends requests to: origins, peers, the servers of a switch.
//!
//! ```text
//!   send ── Group: the next server, retries, budget, outcomes
//!     │
//!   Server::exchange ── FairQueue ── Pool, connect ── levada-http or http2
//!     │
//!   Inbound: the body of the response, with its ResponseGuard ── Relay: goes on elsewhere
//! ```
//!
//! [`send`] is the one retry loop: it tries the servers of a [`Group`] until one answers, and asks a
//! second one when a server is late.
//! [`Server::exchange`] sends one request to one server. [`watch`] keeps the [`Health`] of a server.
//!
//! The crate does not choose servers: a [`Group`] does, which the caller implements. It does not know
//! sites, caches or configuration files: it is handed addresses, bounds and health checks.

mod budget;
mod client_body;
mod clock;
mod collector;
mod connect;
mod distance;
mod failure;
mod fault;
mod group;
mod guard;
mod head_time;
mod health;
mod http2;
mod inbound;
mod inbound_error;
mod known_clients;
mod metrics;
mod notices;
mod origin;
mod origin_queues;
mod paced;
mod peer_proof;
mod piece;
mod pool;
mod probes;
mod queue;
mod relay;
mod request;
mod request_body;
mod server;
mod server_kind;
mod silence;
mod stall;
mod switched;
mod tries;

pub use budget::RetryBudget;
pub use client_body::{ClientBody, ClientBodyError, OtherBody, OtherBodyError};
pub use clock::Clock;
pub use collector::{CollectorSettings, CollectorTargets};
pub use connect::{Address, ServerProtocols, Wire};
pub use distance::RoundTrips;
pub use failure::{REFUSED, STRANGER, ServerFailure};
pub use group::{Group, Retries, SendError, send};
pub use guard::ResponseGuard;
pub use health::{
    Change, FirstLooks, Health, HealthCheck, WatchedServer, report_outcome, watch, watch_in_turn,
};
pub use inbound::{Inbound, UpstreamResponse};
pub use inbound_error::InboundError;
pub use known_clients::KnownClients;
pub use levada_net::proxy_protocol::ProxyVersion;
pub use metrics::UpstreamMetrics;
pub use notices::WaitNotices;
pub use origin::Origin;
pub use origin_queues::{OriginPlaces, OriginQueues};
pub use paced::{PacedPlace, PacedQueue};
pub use peer_proof::PeerProof;
pub use piece::Piece;
pub use pool::set_worker;
pub use probes::SharedProbes;
pub use queue::{AdmittedRequest, FairQueue, QueueCounts};
pub use relay::{AskedRest, NoRest, Relay, Rest};
pub use request::{AtNode, Subject, UpstreamHead};
pub use request_body::{BodyBound, RequestBody, Upload, UploadError};
pub use server::{Server, ServerBounds};
pub use server_kind::ServerKind;
pub use silence::Silence;
pub use switched::{ServerEnd, TunnelHold};
