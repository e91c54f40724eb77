//! The rules of a site: which route a request takes.
//!
//! This crate uses no clock, socket, file or thread. The driver shows it a [`RequestFacts`], and
//! carries out what the rules say.
//!
//! ```text
//! facts ──► NormalPath     the path that rules compare: decoded, without dot segments
//! route ──► RouteTable     the first route whose Conditions hold, found by an index
//!           Conditions     path (PathPattern, PathRegex), host, method, fields, query, cookies, client
//! ```

mod conditions;
mod facts;
mod normal_path;
mod pattern;
mod prefixes;
mod table;

pub use conditions::{Condition, Conditions, FieldPattern};
pub use facts::{RequestFacts, Scheme};
pub use normal_path::normal_path;
pub use pattern::{PathPattern, PathRegex, PatternError, TextPattern};
pub use table::{RouteTable, TableError};
