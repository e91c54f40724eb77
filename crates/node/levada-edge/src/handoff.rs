//! The node as TCP handoff sees it: it chooses servers of a switch, and serves the requests that stay here.

use std::{
    net::{IpAddr, Ipv4Addr, TcpListener},
    sync::Arc,
};

use http::{Request, header::UPGRADE};
use levada_access::dormant;
use levada_access::fields::FORWARDED_PROTO;
use levada_cluster::orders::METHOD;
use levada_http::{ConnectionEnd, ConnectionLimits};
use levada_net::{client::ConnectionOwner, dormant::DormancyWatch, stop::Stop};
use levada_redirector::handoff::{
    self, ArrivedConnection, Choice, Front, HandoffMetrics, Serve, SilencedSocket, Turn,
};
use levada_redirector::{Claim, Member, ServerTurn, Sizes, Switch};
use levada_types::Key;
use levada_upstream::{Clock, Subject};
use tokio::task::AbortHandle;

use crate::{
    client_connection::{ClientConnection, ListenerKind},
    connection,
    identify::Identifier,
    node::Node,
    sites::Site,
    subject::{count_fallback, subject},
};

/// Takes in connections that front-ends hand over, when the node serves clients. `None`: it is no back-end.
pub fn accept(node: &Arc<Node>, listener: TcpListener, stop: &Stop) -> Option<AbortHandle> {
    let (node, backend, stop) = (node.clone(), node.backend.clone()?, stop.clone());
    let accepting = async move {
        if !node.serves(&stop).await {
            return;
        }
        if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
            handoff::accept(node, backend, listener, stop).await;
        }
    };
    Some(tokio::spawn(accepting).abort_handle())
}

/// Starts the front-end of the node when a back-end of a switch can be reached, and ends it with the node.
pub fn tend(node: &Arc<Node>, stop: &Stop) {
    let sites = node.sites.load();
    let switches = sites.iter().filter_map(|site| site.switch.as_ref());
    let controls = switches.flat_map(|switch| switch.controls()).collect();
    tokio::spawn(handoff::tend(node.clone(), |node| &node.front, controls, stop.clone()));
}

impl Serve for Node {
    type Connection = ClientConnection;

    fn front(&self) -> Option<&Front<Self>> {
        self.front.get()
    }

    async fn left(&self) {
        self.drain.left().await;
    }

    fn limits(&self) -> ConnectionLimits {
        self.settings().limits.of_connection()
    }

    fn metrics(&self) -> &Arc<HandoffMetrics> {
        &self.metrics.handoffs
    }

    fn watch(&self, retries: Option<u8>) -> Option<Arc<DormancyWatch<ConnectionOwner>>> {
        let connections = self.metrics.connections.clone();
        let ended = move || connections.ended(ConnectionEnd::Dormant);
        dormant::watch(&self.given_up, &self.memory, retries, ended)
    }

    fn connection(
        &self,
        client: IpAddr,
        silenced: Option<Arc<SilencedSocket>>,
    ) -> Arc<ClientConnection> {
        ClientConnection::handed_over(client, silenced)
    }

    async fn serve(
        node: &Arc<Self>,
        connection: &Arc<ClientConnection>,
        arrived: ArrivedConnection,
        stop: &Stop,
    ) -> ConnectionEnd {
        connection::http1_once(node, connection, arrived, stop).await
    }

    fn ended(&self, connection: &ClientConnection, ending: ConnectionEnd) {
        connection::ended(&self.metrics, connection.client, ending);
    }

    async fn choose(&self, head: Request<()>) -> Option<Choice> {
        let (site, switch, subject) = self.to_be_moved(head)?;
        let key = subject.key;
        let claimed = switch.claim(&site.decider, subject, &self.forwarder.sizes).await?;
        Some(choice(self, site, key, claimed))
    }

    fn choose_now(&self, head: Request<()>) -> Option<Choice> {
        let (site, switch, subject) = self.to_be_moved(head)?;
        let key = subject.key;
        let claimed = switch.claim_now(&site.decider, subject, &self.forwarder.sizes)?;
        Some(choice(self, site, key, claimed))
    }
}

impl Node {
    /// The switch that a request goes to, unless its response is known to be too small for a handoff.
    fn to_be_moved(&self, head: Request<()>) -> Option<(Arc<Site>, Arc<Switch>, Subject)> {
        let least = self.front.get()?.min_size();
        let found = switched(&self.identifier.load(), head)?;
        let is_small =
            least > 0 && self.forwarder.sizes.get(found.2.key).is_some_and(|size| size < least);
        (!is_small).then_some(found)
    }
}

/// The switch that a request goes to, if the request can be handed over.
fn switched(
    identifier: &Identifier,
    mut head: Request<()>,
) -> Option<(Arc<Site>, Arc<Switch>, Subject)> {
    // The head has not passed the trust boundary.
    head.headers_mut().remove(FORWARDED_PROTO);
    // The rules of a route are carried out here.
    let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let listener = ListenerKind::Client { tls: false };
    let routed = identifier.identify(listener, nobody, &head).ok()?;
    if routed.has_rules() {
        return None;
    }
    let switch = routed.site.switch.as_ref().filter(|_| !routed.handling.cache)?.clone();
    // The rules of access hold at this node, request by request.
    if !switch.hands_over() || routed.has_access() {
        return None;
    }
    let (parts, ()) = head.into_parts();
    // Requests about the front-end itself, and those that change the protocol, stay here.
    if parts.method.as_str() == METHOD
        || parts.uri.path() == "*"
        || parts.headers.contains_key(UPGRADE)
    {
        return None;
    }
    let resource = routed.identified(nobody, &parts);
    let (subject, part) = subject(&resource, &parts, &parts.headers);
    count_fallback(&resource.site, part);
    Some((resource.site.clone(), switch, subject))
}

fn choice(node: &Node, site: Arc<Site>, key: Key, claim: Claim) -> Choice {
    let Claim { member, control, turn } = claim;
    let (clock, turn) = (node.clock, Some(turn));
    let learns = node.front.get().is_some_and(|front| front.min_size() > 0);
    let sizes = learns.then(|| (node.forwarder.sizes.clone(), key));
    Choice { control, turn: Box::new(SwitchTurn { clock, site, member, turn, sizes }) }
}

/// The requests of one connection at a server of a switch.
struct SwitchTurn {
    clock: Clock,
    site: Arc<Site>,
    member: Arc<Member>,
    /// `None` while no request is under way.
    turn: Option<ServerTurn>,
    /// Where the size of the first response is noted, if it decides about handoffs.
    sizes: Option<(Arc<Sizes>, Key)>,
}

impl Turn for SwitchTurn {
    fn handed_over(&self) {
        self.site.count();
    }

    fn acknowledged(&mut self, bytes: u64) {
        if let Some((sizes, key)) = &self.sizes {
            sizes.learn(*key, bytes);
        }
    }

    fn end(&mut self) {
        if let Some(turn) = self.turn.take() {
            turn.end_elsewhere();
            self.member.server.health.served();
        }
    }

    fn again(&mut self) {
        self.turn = ServerTurn::again(self.clock, &self.site.decider, &self.member);
    }

    fn lose(&mut self) {
        self.turn = None;
    }
}
