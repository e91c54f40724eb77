//! TCP handoff (ASPLOS'98, Sec. 5): a front-end hands connections to back-ends, which answer the
//! clients directly. docs/operate/handoff.md says what operators set up,
//! docs/decisions/0009 why it is done so.
//!
//! ```text
//! serve       the node behind it: chooses back-ends, serves the requests that stay
//! front       the front-end: reads a head, chooses, hands over, serves the rest by itself
//! handed      the connections that an accept loop hands over, sent together
//! handed_off  a connection that a back-end has, as the front-end keeps it
//! front_end   a node's front-end: when it begins to hand connections over, and how it ends
//! link        the front-end's side of one back-end: the channel that is used now
//! remote      the connections that were handed over by one channel
//! backend     the back-end's side
//! ending      how far the end of a front-end has come, as the back-end knows it
//! extraction  takes a connection out of its socket
//! channel     authenticated frames in order
//! frame       the messages
//! head        a request's head, read before its server is chosen
//! arrived     a connection with bytes that were read already, silent until it is answered
//! ```

mod arrived;
mod backend;
mod channel;
mod ending;
mod extraction;
mod frame;
mod front;
mod front_end;
mod handed;
mod handed_off;
mod head;
mod link;
mod metrics;
mod remote;
mod serve;
mod settings;

pub use arrived::{ArrivedConnection, SilencedSocket};
pub use backend::{HandoffBackend, accept};
pub use front::{Front, serve};
pub use front_end::{FrontEnd, tend};
pub use handed::HandedConnections;
pub use link::BackendLink;
pub use metrics::HandoffMetrics;
pub use serve::{Choice, Serve, Turn};
pub use settings::{
    AfterHandoff, BREAK_EVEN, HandoffBackendSettings, HandoffControl, HandoffSettings,
};

/// The parser of frames, for fuzzing and tests only.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::handoff::frame::{BadFrame, Frame};
}
