//! The rules of an HTTP cache: which responses may be stored, how long they are fresh, when they
//! may be reused, and which are evicted first.
//!
//! This crate uses no clock, socket, file or thread. The driver passes in header fields and `now`,
//! and carries out the decision. The driver also decides which bytes are stored under which key;
//! this crate only decides which request fields belong to that key.
//!
//! # The life of a request
//!
//! ```text
//! request ──► RequestCacheFields::of                   directives; whether it has a condition, a range
//!             is_cache_method             GET and HEAD; others are forwarded (then invalidated())
//!             strip_request               removes hop-by-hop fields
//! lookup  ──► Vary::matches               selects the variant of the key
//!             serve(freshness, ..)        Fresh │ Stale{why} │ Validate │ GatewayTimeout
//! hit     ──► Validators::evaluate        if asked.conditional: Send │ NotModified │ ForOrigin
//!             RangeSet::of, if_range      if asked.range; then RangeSet::resolve(length) -> Parts
//!             Freshness::age              Age; CacheStatus::append_to
//! miss    ──► make_conditional            the request that validates the stored response
//! response ─► may_store(exchange, rules)  Storable{freshness, vary, strip} │ NoStore
//!             strip_response, strip_fields
//! 304     ──► Validators::selected_by     then update_stored, and may_store of the result
//! error   ──► serve_instead_of_error      stale-if-error, or the origin is unreachable
//! ```
//!
//! # Data to keep with a stored response
//!
//! - [`Freshness`]: plain numbers; a hit is decided from them without reading a header field.
//!   [`Freshness::to_bytes`] is its form on disk.
//! - [`Vary`] and the result of [`Vary::key`] for the request.
//! - [`Validators`]: entity tag and date, parsed once.
//! - The header fields, except those that [`strip_response`] and [`Storable::strip`] remove.
//!
//! After a 304, call [`update_stored`], and then [`may_store`] with an [`OriginExchange`] that has the
//! stored status, the updated fields and the times of the 304.
//!
//! # Eviction
//!
//! [`eviction::EVICTIONS`] lists the algorithms, which implement one trait, for the edge's two
//! tiers and the simulator. [`Doorkeeper`] rejects objects that are requested only once. [`disk_room`] says what
//! the disk tier has room for.
//!
//! # Standards
//!
//! RFC 9111 (caching), RFC 9110 (semantics: validators, conditions, ranges), RFC 5861 (stale
//! windows), RFC 8246 (`immutable`), RFC 9213 (targeted directives), RFC 9211 (`Cache-Status`).
#![doc = include_str!("../README.md")]

mod cache_control;
mod cache_status;
mod date;
pub mod disk_room;
mod doorkeeper;
pub mod eviction;
mod freshness;
mod groups;
mod hop;
mod invalidate;
mod origin_exchange;
mod range;
mod request_fields;
mod rules;
mod serve;
mod status_ttl;
mod storable;
mod targeted;
#[cfg(test)]
mod testing;
mod uses;
mod validate;
mod vary;

pub use cache_control::{
    DirectiveScope, MAX_SECONDS, RequestDirectives, ResponseDirectives, parse_seconds,
};
pub use cache_status::{CACHE_STATUS, CacheName, CacheStatus, ForwardReason};
pub use date::parse_date;
pub use doorkeeper::Doorkeeper;
pub use freshness::{Freshness, Lifetime, LifetimeSource, is_heuristically_cacheable};
pub use groups::strings;
pub use hop::{is_hop_by_hop, join_cookies, strip_fields, strip_request, strip_response};
pub use invalidate::{invalidated, is_safe, resolve};
pub use origin_exchange::OriginExchange;
pub use range::{ContentRange, MAX_RANGES, Multipart, RangeParts, RangeSet, RangeSpec};
pub use request_fields::RequestCacheFields;
pub use rules::{CacheRules, CookieStorage, IgnoredFields};
pub use serve::{
    OriginFailure, ServeDecision, Staleness, is_error, serve, serve_instead_of_error, serve_missing,
};
pub use status_ttl::{StatusTtl, Statuses};
pub use storable::{NoStore, Storable, may_store, may_store_part, may_store_post};
pub use targeted::{EffectiveDirectives, TARGETS, strip_own_target};
pub use uses::Uses;
pub use validate::{
    CONDITIONAL, Condition, ETag, Precondition, Validators, belongs_in_304, has_condition,
    has_precondition, head_confirms, is_cache_method, make_conditional, not_modified_fields,
    update_stored,
};
pub use vary::{MAX_VARY_FIELDS, Vary, VaryError};
