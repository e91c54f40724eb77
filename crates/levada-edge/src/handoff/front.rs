//! The front-end: it reads a request's head, chooses the back-end, and hands the connection over.
//!
//! ```text
//!        ┌─> a head ──> the policy's choice ──> steer, block_input, extract ──> Take
//!        │                    │ none                    │ cannot           │ refused, gone
//!        │                    v                         v                  v
//!        └──────────────── served here, as without handoff, for as many requests as have come
//! ```

use std::{
    net::{SocketAddr, TcpStream as Accepted},
    os::fd::AsFd,
    sync::Arc,
};

use levada_http1::ConnectionEnd;
use levada_net::{
    bpf::{BpfError, Hop, Steered, Steering, unblock_input},
    handoff::{self, Connection},
};
use parking_lot::Mutex;
use tokio::net::TcpStream;

use super::{
    arrived::ArrivedConnection,
    handed_off::HandedOffConnection,
    head::{self, HeadRead},
    link::BackendLink,
};
use crate::{
    connection::{self, ClientConnection, Door, OpenConnection},
    dormant::{self, ClientSocket},
    identify::identify,
    node::Node,
    resource::Resource,
    settings::{HandoffControl, HandoffSettings},
    sites::Site,
    switch::{Claim, Member, ServerTurn, Subject, Switch, claim, claim_now},
};

/// What a front-end needs to hand connections over.
pub(crate) struct Front {
    steering: Steering,
    settings: HandoffSettings,
    links: Mutex<Vec<Arc<BackendLink>>>,
}

/// Where a connection is.
enum ConnectionPlace {
    Here(ClientSocket),
    /// Between machines: nobody's socket, steered to where it is not.
    Between(Connection, Steered),
}

/// Who may answer a connection's next request.
pub(super) enum Responder {
    /// Whoever is chosen.
    Anywhere,
    /// This node: it was not taken.
    Here,
}

/// A request whose back-end is chosen.
pub(super) struct ChosenBackend {
    pub(super) link: Arc<BackendLink>,
    hop: Hop,
    pub(super) site: Arc<Site>,
    pub(super) switch: Arc<Switch>,
    pub(super) member: Arc<Member>,
    pub(super) turn: ServerTurn,
}

impl Front {
    /// Begins to steer.
    ///
    /// # Errors
    /// When this process may not, or the kernel cannot.
    pub(crate) fn start(settings: &HandoffSettings, connections: usize) -> Result<Self, BpfError> {
        handoff::is_possible().map_err(BpfError::Repair)?;
        let connections = u32::try_from(connections).unwrap_or(u32::MAX);
        let steering = Steering::start(&settings.interfaces, connections)?;
        Ok(Self { steering, settings: settings.clone(), links: Mutex::default() })
    }

    /// Reaches out for back-ends, so that the first connections find them.
    pub(crate) fn reach(&self, node: &Arc<Node>, controls: &[HandoffControl]) {
        for control in controls {
            let _ = self.link(node, *control).hop();
        }
    }

    /// Lets connections go that rest at back-ends; the node stops.
    pub(crate) fn end(&self) {
        let links = self.links.lock().clone();
        links.iter().for_each(|link| link.stop());
    }

    /// The link to a back-end. To be called within the runtime that is to tend it.
    fn link(&self, node: &Arc<Node>, to: HandoffControl) -> Arc<BackendLink> {
        let mut links = self.links.lock();
        if let Some(link) = links.iter().find(|link| link.is_to(to)) {
            return link.clone();
        }
        let link = BackendLink::new(to, self.settings.after, Arc::downgrade(node));
        tokio::spawn(link.clone().tend(self.settings.secret.clone()));
        links.push(link.clone());
        link
    }

    /// Hands a connection over that has only just been accepted, if its request has come along and nothing
    /// need be waited for: it then never is known to the runtime. What was read of it is in `bytes`.
    ///
    /// What is handed over leaves when the link is flushed.
    ///
    /// # Errors
    /// When it is to be served as one that takes time.
    pub(crate) fn at_once(
        &self,
        node: &Arc<Node>,
        socket: Accepted,
        ends: Option<(SocketAddr, SocketAddr)>,
        bytes: &mut Vec<u8>,
        guest: OpenConnection,
    ) -> Result<Arc<BackendLink>, (Accepted, OpenConnection)> {
        let choice = match head::has_come(&socket, bytes, &node.settings.limits) {
            true => choose_now(node, bytes),
            false => None,
        };
        let Some(choice) = choice else { return Err((socket, guest)) };
        let left = ends.map_or_else(|| handoff::ends(&socket), Ok);
        let left = left.and_then(|ends| leave(self, &socket, ends, bytes, true, choice.hop));
        match left {
            Ok(left) => {
                drop(socket);
                let link = choice.link.clone();
                let handed_off =
                    HandedOffConnection::new(node, left, std::mem::take(bytes), choice, guest);
                if let Err(handed_off) = link.take(handed_off) {
                    node.metrics.handoff("refused");
                    connection::spawn(
                        handed_off.stop().clone(),
                        go_on(node.clone(), handed_off, Responder::Here),
                    );
                }
                Ok(link)
            }
            Err(error) => {
                unfit(node, &error);
                Err((socket, guest))
            }
        }
    }
}

/// Serves a client's connection: by handing it over when that can be, for each request anew. Nothing is
/// returned when a back-end has it.
pub(crate) async fn serve(
    node: &Arc<Node>,
    client_connection: &Arc<ClientConnection>,
    stream: ClientSocket,
    bytes: Vec<u8>,
    guest: OpenConnection,
) -> Option<ConnectionEnd> {
    serve_from(
        node,
        client_connection,
        ConnectionPlace::Here(stream),
        bytes,
        guest,
        Responder::Anywhere,
    )
    .await
}

/// Goes on with a connection that a back-end had, or was to have.
pub(super) async fn go_on(node: Arc<Node>, handed_off: Box<HandedOffConnection>, next: Responder) {
    let (connection, steered, bytes, guest) = handed_off.give_up();
    let client = connection.client.ip();
    let place = ConnectionPlace::Between(connection, steered);
    connection::resume(&node, client, async |client_connection| {
        serve_from(&node, client_connection, place, bytes, guest, next).await
    })
    .await;
}

async fn serve_from(
    node: &Arc<Node>,
    client_connection: &Arc<ClientConnection>,
    mut place: ConnectionPlace,
    mut bytes: Vec<u8>,
    mut guest: OpenConnection,
    mut next: Responder,
) -> Option<ConnectionEnd> {
    loop {
        let came = match &place {
            ConnectionPlace::Here(stream) => {
                head::read(stream, &mut bytes, &node.settings.limits, &guest.stop).await
            }
            ConnectionPlace::Between(..) => HeadRead::Head,
        };
        let choice = match (came, std::mem::replace(&mut next, Responder::Anywhere)) {
            (HeadRead::Over(ending), _) => return Some(ending),
            (HeadRead::Other, _) | (HeadRead::Head, Responder::Here) => None,
            (HeadRead::Head, Responder::Anywhere) => choose(node, &bytes).await,
        };
        if let Some(choice) = choice {
            (place, bytes, guest) = hand_over(node, place, bytes, choice, guest)?;
        }
        let stream = match place {
            ConnectionPlace::Here(stream) => stream,
            ConnectionPlace::Between(connection, steered) => {
                match come_back(&connection, steered) {
                    Ok(stream) => dormant::seat(stream, client_connection.client, None).0,
                    Err(error) => {
                        tracing::warn!(client = %client_connection.client, %error, "a connection was lost on its way");
                        return Some(ConnectionEnd::Broken);
                    }
                }
            }
        };
        let (arrived, nest) = ArrivedConnection::new(stream, bytes, None);
        match connection::http1_once(node, client_connection, arrived, &guest.stop).await {
            ConnectionEnd::Resting => {}
            ending => return Some(ending),
        }
        match nest.take() {
            Some(stream) => (place, bytes) = (ConnectionPlace::Here(stream), Vec::new()),
            None => return Some(ConnectionEnd::Broken),
        }
    }
}

/// The back-end for a request, if it can be handed over at all.
pub(super) async fn choose(node: &Arc<Node>, bytes: &[u8]) -> Option<ChosenBackend> {
    let (asked, switch, subject) = wanted(node, bytes)?;
    let claimed = claim(node, &asked.site, &switch, subject).await?;
    chosen(node, asked, switch, claimed)
}

/// The same if it is its turn at once.
fn choose_now(node: &Arc<Node>, bytes: &[u8]) -> Option<ChosenBackend> {
    let (asked, switch, subject) = wanted(node, bytes)?;
    let claimed = claim_now(node, &asked.site, &switch, subject)?;
    chosen(node, asked, switch, claimed)
}

/// What a request asks for, if it can be handed over.
fn wanted(node: &Node, bytes: &[u8]) -> Option<(Resource, Arc<Switch>, Subject)> {
    let request = head::parse(bytes, &node.settings.limits)?;
    let asked = identify(node, Door::Client { tls: false }, &request).ok()?;
    let switch = asked.site.switch.as_ref().filter(|_| !asked.site.settings.cache)?;
    if !switch.hands_over() {
        return None;
    }
    let (parts, ()) = request.into_parts();
    // What is about the front-end itself, or changes what is spoken.
    if parts.method.as_str() == crate::purge::door::METHOD
        || parts.uri.path() == "*"
        || parts.headers.contains_key(http::header::UPGRADE)
    {
        return None;
    }
    let (subject, switch) = (Subject::of(&asked, &parts, &parts.headers), switch.clone());
    Some((asked, switch, subject))
}

fn chosen(
    node: &Arc<Node>,
    asked: Resource,
    switch: Arc<Switch>,
    (member, control, turn): Claim,
) -> Option<ChosenBackend> {
    let link = node.front.as_ref()?.link(node, control?);
    let hop = link.hop()?;
    asked.site.count();
    Some(ChosenBackend { link, hop, site: asked.site, switch, member, turn })
}

/// Has a back-end take a connection. When that cannot be, it is returned: where it was, or between
/// machines.
fn hand_over(
    node: &Arc<Node>,
    place: ConnectionPlace,
    mut bytes: Vec<u8>,
    choice: ChosenBackend,
    guest: OpenConnection,
) -> Option<(ConnectionPlace, Vec<u8>, OpenConnection)> {
    let left = match place {
        ConnectionPlace::Here(stream) => {
            let Some(front) = &node.front else {
                return Some((ConnectionPlace::Here(stream), bytes, guest));
            };
            let left = handoff::ends(stream.stream());
            let left = left.and_then(|ends| {
                leave(front, stream.stream(), ends, &mut bytes, false, choice.hop)
            });
            match left {
                // Closed by its drop, it says nothing.
                Ok(left) => left,
                Err(error) => {
                    unfit(node, &error);
                    return Some((ConnectionPlace::Here(stream), bytes, guest));
                }
            }
        }
        ConnectionPlace::Between(connection, steered) => {
            if steered.turn(choice.hop).is_err() {
                return Some((ConnectionPlace::Between(connection, steered), bytes, guest));
            }
            (connection, steered)
        }
    };
    let link = choice.link.clone();
    match link.take(HandedOffConnection::new(node, left, bytes, choice, guest)) {
        Ok(()) => {
            link.flush();
            None
        }
        Err(handed_off) => {
            node.metrics.handoff("refused");
            let (connection, steered, bytes, guest) = handed_off.give_up();
            Some((ConnectionPlace::Between(connection, steered), bytes, guest))
        }
    }
}

fn unfit(node: &Node, error: &std::io::Error) {
    tracing::debug!(%error, "proxying: this connection cannot be handed off");
    node.metrics.handoff("unfit");
}

/// Takes a connection out of its socket. When that cannot be, it goes on as it was.
fn leave(
    front: &Front,
    socket: &impl AsFd,
    (service, client): (SocketAddr, SocketAddr),
    bytes: &mut Vec<u8>,
    first: bool,
    hop: Hop,
) -> std::io::Result<(Connection, Steered)> {
    // First of all: what the client sends from here on is for the back-end, which drops it until
    // it has the connection. Dropped here, it would cost a timeout as well, and more of it would be.
    let steered = front.steering.steer(service, client, hop)?;
    front.steering.block_input(socket)?;
    match super::take_out(socket, (service, client), bytes, first) {
        Ok(connection) => Ok((connection, steered)),
        Err(error) => {
            drop(steered);
            unblock_input(socket)?;
            Err(error)
        }
    }
}

/// Puts a connection into a socket of this machine.
fn come_back(connection: &Connection, steered: Steered) -> std::io::Result<TcpStream> {
    let socket = handoff::restore(connection)?;
    handoff::activate(&socket)?;
    drop(steered);
    TcpStream::from_std(socket)
}
