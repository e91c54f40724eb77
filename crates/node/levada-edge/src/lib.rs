//! A Levada node: sockets around the policies and the cache.
//!
//! Start with `pipeline.rs`: the life of a request, top to bottom. It calls, in order:
//!
//! ```text
//! listener ─ connection ─ guard        a socket becomes well-formed requests
//! dormant ─ drain ─ route              connections whose client is gone, or must move
//! tunnel                               connections that switch to WebSocket (levada-http moves the bytes)
//! handoff                              connections to a back-end, or from a front-end
//! admission                            for clients, for the node itself, or refused
//! identify ─ routes                    site, route, object, key
//! crossing                             who may pass, and how much of it (levada-access decides)
//! adjust                               changed header fields (levada-rules says which)
//! error_page                           bodies of errors
//! pipeline                             the node that serves it (levada-redirector decides, levada-cluster knows the nodes)
//! large                                large files in pieces, through the cluster (levada-fetch decides)
//! cache: lookup                        stored responses (levada-store) that may be used (levada-cache)
//! cache: fill ─ fetch ─ forward        one fetch per object (levada-body), in turn, from origins (levada-upstream sends)
//! bypass                               responses for one request alone
//! compress                             coded copies, coded streams (levada-body codes)
//! subject                              the key and the class that a switch (levada-redirector) chooses by
//! effects ─ posted                     invalidation by relayed answers; answers to POST
//! respond ─ body ─ access_record       the response, and what is counted until its end
//! ```

mod access_record;
mod adjust;
mod admin;
mod admission;
mod body;
mod bypass;
mod cache;
mod client_connection;
mod clock;
mod compress;
mod connection;
mod crossing;
mod effects;
mod error_page;
mod explain;
mod expressions;
mod files;
mod forward;
mod handoff;
mod identify;
mod large;
mod listener;
mod listeners;
mod members;
mod metrics;
mod node;
mod open_tunnel;
mod page;
mod pipeline;
mod quic;
mod reload;
mod request;
mod resource;
mod respond;
mod route;
mod routes;
mod run;
mod site_builder;
mod sites;
mod start_error;
mod status;
mod subject;
mod tend;
mod tunnel;
mod upgrade;
mod watch;

pub use levada_control::Counts;
pub use levada_control::status::explain_settings as explain;
pub use levada_control::upgrade::{Addresses, Predecessor};
pub use levada_tls::pem::TlsError;
pub use run::{Running, check, run};
pub use start_error::StartError;
