//! The parts that the converters of other configurations share.
//!
//! ```text
//! text ──► tree ──► statements with places
//!                        │ one row of a table each (rows)
//!                        ▼
//!                      gate        the fate of each: what is not converted may close its place
//!            ┌───────────┴───────────┐
//!            ▼                       ▼
//!   Plan (tables of levada.toml)   Ledger (the fate of each statement)
//!            └───────────┬───────────┘
//!                        ▼
//!                   Conversion
//!
//! vocabulary, matchers, pool   how Levada says what others say
//! comparisons                  texts that are compared with parts of requests
//! decisions                    rules that run one after the other, as routes of which the first counts
//! variables, units             names, times and sizes
//! ```
//!
//! The languages have their tables and their walks in the crates `levada-convert`, `levada-convert-haproxy` and
//! `levada-convert-caddy`.

pub mod comparisons;
pub mod conversion;
pub mod decisions;
pub mod files;
pub mod gate;
pub mod ledger;
pub mod matchers;
pub mod plan;
pub mod pool;
pub mod rows;
pub mod table;
pub mod tree;
pub mod units;
pub mod variables;
pub mod vocabulary;
