//! The orders of `levada fleet` over HTTP: JSON, bearer tokens, and a description in OpenAPI.
//!
//! ```text
//! server ─ request ─ orders     a connection, a request that fits a route, the order that it is
//! routes ─ openapi              the list of routes, which serves and describes them
//! answer ─ progress             JSON; the steps of an order as lines of JSON
//! ```
//!
//! The server has no state of its own, and no rights beyond looking up tokens: each order is carried out in the state
//! of the fleet by the token of the one who gives it.

mod answer;
mod openapi;
mod orders;
mod progress;
mod request;
mod routes;
mod server;

pub use openapi::{description, table};
pub use server::{Certificate, ServeError, Server};
