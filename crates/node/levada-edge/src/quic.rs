//! HTTP/3 at the listeners for clients, by `levada_http3`.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use levada_access::{client_shares::ClientPlace, memory_bound::MemoryPressure};
use levada_http::{ConnectionEnd, ConnectionLimits};
use levada_http3::{PreparedEndpoint, QuicMetrics, RequestBody, Serve, TunnelStream, UNPROVEN};
use levada_net::stop::Stop;
use levada_observe::metrics::CpuMetrics;
use levada_types::Key;
use levada_upstream::{ClientBody, OtherBodyError};
use tokio::{runtime::Handle, sync::OwnedSemaphorePermit, task::AbortHandle};

use crate::{
    body::ResponseBody,
    client_connection::{ClientConnection, ListenerKind, Who},
    connection::{self, ListenerRole},
    listener,
    node::Node,
    pipeline, tunnel,
};

/// Accepts connections at this endpoint, when the node serves clients.
pub fn accept(
    endpoint: PreparedEndpoint,
    node: &Arc<Node>,
    role: &Arc<ListenerRole>,
    workers: &[Handle],
    stop: &Stop,
) -> Option<AbortHandle> {
    let config = role.http3.as_ref()?.config.clone();
    let first = workers.first()?;
    let served = Arc::new(QuicListener { node: node.clone(), role: role.clone() });
    let (node, workers, stop) = (node.clone(), workers.to_vec(), stop.clone());
    let accepting = async move {
        if !node.serves(&stop).await {
            return;
        }
        let patience = node.settings().limits.drain_timeout;
        endpoint.accept(served, config, workers, stop, patience).await;
    };
    Some(first.spawn(accepting).abort_handle())
}

/// The node behind one listener.
struct QuicListener {
    node: Arc<Node>,
    role: Arc<ListenerRole>,
}

impl Serve for QuicListener {
    type Connection = ClientConnection;
    type Body = ResponseBody;
    /// Among all connections, and among those of its client.
    type Place = (OwnedSemaphorePermit, Option<ClientPlace>);
    type Tunnel = tunnel::Opened;

    fn limits(&self) -> ConnectionLimits {
        self.node.settings().limits.of_connection()
    }

    fn dormant_retries(&self) -> Option<u8> {
        self.role.dormant_retries
    }

    fn asks_for_proof(&self, under_way: usize) -> bool {
        under_way >= UNPROVEN || self.node.memory.pressure() != MemoryPressure::None
    }

    fn place(&self, client: IpAddr) -> Option<Self::Place> {
        let Ok(place) = self.role.places.clone().try_acquire_owned() else {
            self.node.metrics.connections_refused.inc();
            return None;
        };
        // A proxy that states its clients does so over TCP.
        if self.node.trust.load().announces(client) {
            return None;
        }
        Some((place, listener::share(&self.node, &self.role, client)?))
    }

    fn connection(&self, client: IpAddr) -> Arc<ClientConnection> {
        let listener = ListenerKind::Client { tls: true };
        let who = Who { client, is_peer: false, certified: None, alt_svc: None };
        ClientConnection::new(listener, who, false, Arc::default())
    }

    async fn serve(
        self: &Arc<Self>,
        connection: &Arc<ClientConnection>,
        request: Request<RequestBody>,
    ) -> Response<ResponseBody> {
        let boxed =
            |body: RequestBody| ClientBody::Other(Box::pin(body.map_err(OtherBodyError::from)));
        pipeline::serve(&self.node, connection, request.map(boxed)).await
    }

    fn opened(&self, response: &mut Response<ResponseBody>) -> Option<tunnel::Opened> {
        tunnel::opened(response)
    }

    async fn run(&self, opened: tunnel::Opened, client: TunnelStream, stop: &Stop) {
        tunnel::run(&self.node, opened, client, Vec::new(), stop).await;
    }

    fn cpu(&self) -> &CpuMetrics {
        &self.node.metrics.cpu
    }

    async fn drained(&self) {
        self.node.drain.begun().await;
    }

    async fn left(&self) {
        self.node.drain.left().await;
    }

    fn given_up(&self, connection: &ClientConnection) {
        let key = Key(connection.last_key.load(Relaxed));
        self.node.given_up.note(connection.client, key);
    }

    fn ended(&self, client: IpAddr, ending: ConnectionEnd) {
        connection::ended(&self.node.metrics, client, ending);
    }

    fn metrics(&self) -> &QuicMetrics {
        &self.node.metrics.quic
    }
}
