//! Configurations of Caddy, and what Levada says in their place.
//!
//! ```text
//! Caddyfile ──► words ──► directives, imports in their places ─┐
//! JSON of `caddy adapt` ──► the same directives (json) ────────┤
//!                                                              ▼
//!                            options ──► keys of the node    sites: addresses, hosts
//!                                                              │ directives in Caddy's order
//!                                                              ▼
//!                                              Decisions: routes of which the first counts
//! ```
//!
//! Caddy runs handlers one after the other until one answers; a node takes one route.
//! `levada_conversion::decisions` makes the one of the other.

mod matchers;
mod parse;
mod texts;
