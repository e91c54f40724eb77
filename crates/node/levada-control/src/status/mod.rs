//! The state of a node for operators, pages and peers, as types that both sides of a conversation
//! use.
//!
//! ```text
//! node_status  the state of a node at one moment
//! switched     the servers of a site's switch
//! event        what happens: the last events, and those that come
//! history      the last 15 minutes, second by second
//! latency      times of responses in buckets
//! popular      the objects that clients request most, by a sample
//! set_sizes    sizes of the sets of hot objects, over the last two minutes
//! text         the state as text on one screen
//! watch        turns what a node sees from one look to the next into events
//! cluster      asks the peers for their states
//! ```
//!
//! The crate does not know sockets or sites. A node fills the types, keeps its [`events`](levada_cluster::events), [`History`] and
//! [`PopularObjects`], and serves them.

mod cluster;
mod history;
mod latency;
mod node_status;
mod popular;
mod set_sizes;
mod switched;
pub mod text;
mod watch;

pub use cluster::{ClusterNode, STATUS_PATH, ask_cluster};
pub use history::{History, Sample, Totals};
pub use latency::{LatencyBuckets, LatencyCounts};
pub use node_status::{
    CertificateStatus, DrainStatus, HotObject, NodeStatus, PieceSource, RouteSummary, ServerStatus,
    TransferStatus,
};
pub use popular::{PopularObject, PopularObjects};
pub use set_sizes::{SetSize, SetSizes};
pub use switched::{SwitchedServer, SwitchedSite, drain_server};
pub use watch::{RefusalWatch, RouteWatch, ServerWatch, SetWatch, Watched};
