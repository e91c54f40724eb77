//! The node behind a handoff: it chooses back-ends, and serves the requests that stay with it.

use std::{net::IpAddr, sync::Arc};

use http::Request;
use levada_http::{ConnectionEnd, ConnectionLimits};
use levada_net::{client::ConnectionOwner, dormant::DormancyWatch, stop::Stop};

use crate::handoff::{
    ArrivedConnection, Front, HandoffMetrics, SilencedSocket, settings::HandoffControl,
};

/// The node that hands connections over, or takes them.
pub trait Serve: Send + Sync + Sized + 'static {
    /// The node's own record of a client's connection.
    type Connection: Send + Sync + 'static;

    /// The node's front-end, if it hands connections over now.
    fn front(&self) -> Option<&Front<Self>>;

    /// Returns when another process has taken over from this one.
    fn left(&self) -> impl Future<Output = ()> + Send;

    /// The limits of a client's connection.
    fn limits(&self) -> ConnectionLimits;

    /// The counters of the node.
    fn metrics(&self) -> &Arc<HandoffMetrics>;

    /// Begins to watch connections that were taken over for clients that are gone, if that is configured. Called
    /// within the runtime.
    fn watch(&self, retries: Option<u8>) -> Option<Arc<DormancyWatch<ConnectionOwner>>>;

    /// A record of a client's connection; with `silenced` of one that a front-end has handed over.
    fn connection(
        &self,
        client: IpAddr,
        silenced: Option<Arc<SilencedSocket>>,
    ) -> Arc<Self::Connection>;

    /// Serves the requests that have arrived on a connection. The socket can be had again when they
    /// are answered; if it can go on then, the result is [`ConnectionEnd::Resting`].
    fn serve(
        node: &Arc<Self>,
        connection: &Arc<Self::Connection>,
        arrived: ArrivedConnection,
        stop: &Stop,
    ) -> impl Future<Output = ConnectionEnd> + Send;

    /// A connection that was served here has ended.
    fn ended(&self, connection: &Self::Connection, ending: ConnectionEnd);

    /// Chooses the back-end for a request when it is the request's turn. `None` if it must be proxied.
    fn choose(&self, head: Request<()>) -> impl Future<Output = Option<Choice>> + Send;

    /// Chooses the back-end only if it is the request's turn at once.
    fn choose_now(&self, head: Request<()>) -> Option<Choice>;
}

/// A chosen back-end.
pub struct Choice {
    /// Where connections are handed to it. `None` if none can be.
    pub control: Option<HandoffControl>,
    /// The request's turn at it.
    pub turn: Box<dyn Turn>,
}

/// A connection's requests at a back-end, as the node's policy counts them. Dropped, a request that
/// is under way counts as broken off.
pub trait Turn: Send {
    /// The request is handed over.
    fn handed_over(&self);
    /// The client has acknowledged so many bytes of the answer to the first request, with its head.
    fn acknowledged(&mut self, bytes: u64);
    /// The back-end has answered the request.
    fn end(&mut self);
    /// The back-end answers another request.
    fn again(&mut self);
    /// The outcome of the request will not be known.
    fn lose(&mut self);
}
