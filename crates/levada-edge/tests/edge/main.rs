//! Whole nodes: real sockets on loopback, origins that misbehave, hostile clients.
//!
//! A test whose node lives to the test's end asserts there that all its counts are zero again: no count
//! leaks.

mod support;

mod access;
mod admin;
mod bad_origin;
mod cache;
mod cache_rules;
mod cluster;
mod coded;
mod compress;
mod counters;
mod countries;
mod discovery;
mod disk;
#[cfg(target_os = "linux")]
mod dormant;
mod drain;
mod error_pages;
mod expressions;
mod failover;
mod forward_auth;
mod headers;
mod health;
mod hostile;
mod http2;
mod in_files;
mod input;
mod interim;
mod isolation;
mod large;
mod memory;
mod misses;
mod nginx;
mod parts;
mod passing;
mod peers_change;
mod purge;
mod purge_log;
mod ranges;
mod reload;
mod reload_all;
mod resting;
mod rewrites;
mod routes;
mod same_judge;
mod sharing;
mod splice;
mod stale;
mod stated_client;
mod static_files;
mod status;
mod stopping;
mod switch;
mod trust;
mod unix;
mod unstorable;
mod upload;
mod upstream;
