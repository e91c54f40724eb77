//! The node behind HTTP/3: it answers the requests, and knows the limits of clients.

use std::{error::Error, net::IpAddr, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use levada_http::{ConnectionEnd, ConnectionLimits};
use levada_net::stop::Stop;
use levada_observe::metrics::CpuMetrics;

use crate::{RequestBody, TunnelStream, metrics::QuicMetrics};

/// A node that answers requests over HTTP/3.
pub trait Serve: Send + Sync + Sized + 'static {
    /// The node's own record of a client's connection.
    type Connection: Send + Sync + 'static;
    /// The place of a connection, which is taken as long as the value lives.
    type Place: Send + 'static;
    /// The body of a response.
    type Body: Body<Data = Bytes, Error: Error> + Send + Unpin + 'static;

    /// A tunnel that a response opens.
    type Tunnel: Send + 'static;

    /// The limits of a client's connection.
    fn limits(&self) -> ConnectionLimits;

    /// The repetitions that a client may leave unanswered before its connection is given up; `None` if it may leave all
    /// of them until the connection is idle for too long.
    fn dormant_retries(&self) -> Option<u8>;

    /// Whether clients have to prove their address first, with so many handshakes under way.
    fn asks_for_proof(&self, under_way: usize) -> bool;

    /// The place of a connection of this client; `None` if there is none.
    fn place(&self, client: IpAddr) -> Option<Self::Place>;

    /// A record of a client's connection.
    fn connection(&self, client: IpAddr) -> Arc<Self::Connection>;

    /// Answers a request.
    fn serve(
        self: &Arc<Self>,
        connection: &Arc<Self::Connection>,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// The tunnel that the response to an extended CONNECT opens, if it does.
    fn opened(&self, response: &mut Response<Self::Body>) -> Option<Self::Tunnel>;

    /// Moves the bytes of a tunnel until its end, which begins at the stop.
    fn run(
        &self,
        tunnel: Self::Tunnel,
        client: TunnelStream,
        stop: &Stop,
    ) -> impl Future<Output = ()> + Send;

    /// Where the CPU time of connections is counted.
    fn cpu(&self) -> &CpuMetrics;

    /// Returns when the node drains: connections end after their next request.
    fn drained(&self) -> impl Future<Output = ()> + Send;

    /// Returns when another process serves in the place of this one.
    fn left(&self) -> impl Future<Output = ()> + Send;

    /// A connection is given up: its client answers nothing.
    fn given_up(&self, connection: &Self::Connection);

    /// A connection has ended.
    fn ended(&self, client: IpAddr, ending: ConnectionEnd);

    /// The counters.
    fn metrics(&self) -> &QuicMetrics;
}
