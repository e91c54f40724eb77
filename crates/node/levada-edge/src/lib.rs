//! A request's way through a node: sockets around the policies and the cache. The process around it is in
//! levada-node.
//!
//! Start with `pipeline.rs`: the life of a request, top to bottom. It calls, in order:
//!
//! ```text
//! listener ─ connection                a socket becomes well-formed requests
//! quic                                 HTTP/3 at the same addresses (levada-http3 speaks it)
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
//! stand_in                             stale responses, and those of other nodes, while nobody answers
//! bypass                               responses for one request alone
//! compress                             coded copies, coded streams (levada-body codes)
//! subject                              the key and the class that a switch (levada-redirector) chooses by
//! effects ─ posted                     invalidation by relayed answers; answers to POST
//! respond ─ body ─ access_record       the response, and what is counted until its end
//! ```

mod access_record;
mod adjust;
mod admission;
pub mod body;
mod bypass;
mod cache;
pub mod client_connection;
mod compress;
pub mod connection;
mod crossing;
mod effects;
mod error_page;
mod files;
mod forward;
pub mod handoff;
mod identify;
mod large;
pub mod listener;
pub mod metrics;
pub mod node;
pub mod node_error;
mod pipeline;
pub mod quic;
pub mod request;
pub mod resource;
mod respond;
mod routes;
pub mod site_builder;
pub mod sites;
mod stand_in;
pub mod status;
pub mod subject;
mod tunnel;
