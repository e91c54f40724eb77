//! An authoritative DNS server that gives each client the nodes of its region.
//!
//! ```text
//!   wire     messages: a query as it came, a response as it is written
//!   zone     zones, from zone files
//!   route    which nodes a client gets: tables of networks, the nodes of this moment
//!   load     zones and tables from files
//!   dnssec   signatures and denials, made for each answer
//!   hot      names that are spread over more nodes
//!   redirect HTTP requests that are sent on to nodes
//!   answer   the answer to a query: a pure function of all of these; start here
//!   cookies, rate   clients that have shown their address, and the share of all others
//!   serve    UDP and TCP; zones and nodes are replaced while it runs
//! ```
//!
//! Everything but `serve` decides, without sockets, clocks and threads.

mod answer;
pub mod cookies;
pub mod dnssec;
mod hints;
pub mod hot;
pub mod load;
pub mod rate;
pub mod redirect;
pub mod route;
pub mod serve;
mod settings;
pub mod wire;
pub mod zone;

pub use answer::{AnswerRoom, Answered, Asked, World};
pub use settings::{DnsSettings, HttpListener};
