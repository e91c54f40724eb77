//! Access to a node, and its limits.
//!
//! ```text
//! access           a site's rules at work: one decision for each request, at the node that met its client
//! address_list     allow and deny, by address and country
//! basic_auth       users and passwords (password: the forms of their hashes)
//! client_network   the client that a request counts for
//! client_shares    a bounded number of places that clients share
//! connection_places  the places of clients' connections
//! concurrency      how many requests of one key are served at once
//! cors             pages of other origins that may use a site
//! country          the country of an address
//! fields           header fields of this CDN's own
//! forward_auth     a server that is asked whether a request may pass
//! limit_key        the keys by which limits tell requests apart
//! max_forwards     how many more proxies an OPTIONS request may pass
//! memory_bound     the bound on the resident memory, and who is turned away near it
//! pace             a rate of bytes that many bodies share
//! pass             redirects to another node that only this cluster can make
//! peer_places      connections at the listener for peers, before and after their proof
//! process          figures of the process, and its memory within the bound
//! rate             how often requests of one key may come
//! referers         pages that may embed a site's files
//! silent_places    connections that have shown nothing yet, and which of them gives way to a newcomer
//! signed           signed URLs: tokens (RFC 9246), and links with a digest and an end
//! site_access      the rules of a site and of its routes, with the state that they share
//! trust            which connections may state for whom they speak
//! ```
//!
//! No part of it but `forward_auth` waits for a network. What takes long (the hash of a password) goes to a thread for blocking
//! calls.

pub mod access;
pub mod address_list;
pub mod basic_auth;
pub mod cdn_loop;
pub mod client_network;
pub mod client_shares;
pub mod concurrency;
pub mod connection_places;
pub mod cors;
pub mod country;
pub mod dormant;
pub mod fields;
pub mod forward_auth;
pub mod given_up;
pub mod limit_key;
pub mod max_forwards;
pub mod memory_bound;
pub mod pace;
pub mod pass;
pub mod password;
pub mod peer_places;
pub mod process;
pub mod rate;
pub mod referers;
pub mod request_id;
pub mod round_trips;
pub mod signed;
pub mod silent_places;
pub mod site_access;
pub mod trust;
