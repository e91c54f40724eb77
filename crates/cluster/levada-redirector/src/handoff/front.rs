//! The front-end: it reads a request's head, chooses the back-end, and hands the connection over.
//!
//! ```text
//!        ┌─> a head ──> the policy's choice ──> steer, block input, extract ──> Take
//!        │                    │ none                    │ cannot                │ refused, gone
//!        │                    v                         v                       v
//!        └──────────────── served here, as without handoff, for as many requests as have come
//! ```

use std::{
    net::{SocketAddr, TcpStream as Accepted},
    os::fd::AsFd,
    sync::Arc,
};

use levada_http::ConnectionEnd;
use levada_net::{
    bpf::{BpfError, Hop, Steered, Steering, unblock_input},
    client::{ClientSocket, OpenConnection, watched},
    handoff::{self, Connection},
};
use parking_lot::Mutex;
use tokio::net::TcpStream;

use crate::handoff::{
    arrived::ArrivedConnection,
    extraction::take_out,
    frame::Frame,
    handed_off::{CountedConnection, HandedOffConnection},
    head::{self, HeadRead},
    link::BackendLink,
    serve::{Choice, Serve, Turn},
    settings::{HandoffControl, HandoffSettings},
};

/// A front-end's means to hand connections over.
pub struct Front<S: Serve> {
    steering: Steering,
    settings: HandoffSettings,
    links: Mutex<Links<S>>,
}

struct Links<S: Serve> {
    all: Vec<Arc<BackendLink<S>>>,
    /// This node's last word to back-ends.
    ending: Option<Frame>,
}

/// The place of a connection.
enum ConnectionPlace {
    Here(ClientSocket),
    /// Between machines: no socket has it, and packets are steered to a host that does not know it.
    Between(Connection, Steered),
}

/// The side that may answer a connection's next request.
pub(crate) enum Responder {
    /// The server that the policy chooses.
    Anywhere,
    /// This node, because the back-end did not take the connection.
    Here,
}

/// A request whose back-end is chosen.
pub(crate) struct ChosenBackend<S: Serve> {
    pub(crate) link: Arc<BackendLink<S>>,
    hop: Hop,
    pub(crate) turn: Box<dyn Turn>,
}

impl<S: Serve> Front<S> {
    /// Begins to steer.
    ///
    /// # Errors
    /// When this process lacks the rights, or the kernel the means.
    pub fn start(settings: &HandoffSettings, connections: usize) -> Result<Self, BpfError> {
        handoff::is_possible().map_err(BpfError::Repair)?;
        let connections = u32::try_from(connections).unwrap_or(u32::MAX);
        let steering = Steering::start(&settings.interfaces, connections)?;
        let links = Mutex::new(Links { all: Vec::new(), ending: None });
        Ok(Self { steering, settings: settings.clone(), links })
    }

    /// The size from which a response is worth a handoff.
    pub fn min_size(&self) -> u64 {
        self.settings.min_size
    }

    /// Connects to back-ends, so that the first connections can be handed over.
    pub fn reach(&self, node: &Arc<S>, controls: &[HandoffControl]) {
        for control in controls {
            let _ = self.link(node, *control).hop();
        }
    }

    /// Lets the connections at back-ends end with their next answers: another process has taken over.
    pub(crate) fn leave(&self) {
        self.end_by(Frame::Leaving);
    }

    /// Closes the connections that are idle at back-ends, too: the node stops.
    pub(crate) fn stop(&self) {
        self.end_by(Frame::Stops);
    }

    fn end_by(&self, word: Frame) {
        let mut links = self.links.lock();
        links.all.iter().for_each(|link| link.end(word.clone()));
        links.ending = Some(word);
    }

    /// The link to a back-end. Call it within the runtime that is to run the link.
    fn link(&self, node: &Arc<S>, to: HandoffControl) -> Arc<BackendLink<S>> {
        let mut links = self.links.lock();
        if let Some(link) = links.all.iter().find(|link| link.is_to(to)) {
            return link.clone();
        }
        let link = BackendLink::new(to, self.settings.after, Arc::downgrade(node));
        if let Some(word) = &links.ending {
            link.end(word.clone());
        }
        tokio::spawn(link.clone().tend(self.settings.secret.clone()));
        links.all.push(link.clone());
        link
    }

    /// Hands a connection over that has just been accepted, if its request has arrived with it and
    /// nothing has to be waited for. The runtime never learns of such a connection. `bytes` receives
    /// the bytes that were read from it.
    ///
    /// The frame leaves when the link is flushed.
    ///
    /// # Errors
    /// When the connection has to be served by a task.
    pub fn at_once(
        &self,
        node: &Arc<S>,
        socket: Accepted,
        ends: Option<(SocketAddr, SocketAddr)>,
        bytes: &mut Vec<u8>,
        open: OpenConnection,
    ) -> Result<Arc<BackendLink<S>>, (Accepted, OpenConnection)> {
        let choice = match head::has_come(&socket, bytes, &node.limits()) {
            true => choose_now(node, bytes),
            false => None,
        };
        let Some(choice) = choice else { return Err((socket, open)) };
        let left = ends.map_or_else(|| handoff::ends(&socket), Ok);
        let left = left.and_then(|ends| leave(self, &socket, ends, bytes, true, choice.hop));
        match left {
            Ok(left) => {
                drop(socket);
                let link = choice.link.clone();
                let handed_off =
                    HandedOffConnection::new(node, left, std::mem::take(bytes), choice, open);
                if let Err(handed_off) = link.take(handed_off) {
                    node.metrics().handoff("refused");
                    let (node, stop) = (node.clone(), handed_off.stop().clone());
                    tokio::spawn(async move {
                        tokio::select! {
                            biased;
                            () = go_on(node, handed_off, Responder::Here) => {}
                            () = stop.cut() => {}
                        }
                    });
                }
                Ok(link)
            }
            Err(error) => {
                cannot_leave(node, &error);
                Err((socket, open))
            }
        }
    }
}

/// Serves a client's connection. Each request is handed over with the connection where that is
/// possible. `None` when a back-end has the connection.
pub async fn serve<S: Serve>(
    node: &Arc<S>,
    connection: &Arc<S::Connection>,
    stream: ClientSocket,
    bytes: Vec<u8>,
    open: OpenConnection,
) -> Option<ConnectionEnd> {
    let place = ConnectionPlace::Here(stream);
    serve_from(node, connection, place, bytes, open, Responder::Anywhere).await
}

/// Continues with a connection that a back-end had, or should have had.
pub(crate) async fn go_on<S: Serve>(
    node: Arc<S>,
    handed_off: Box<HandedOffConnection>,
    next: Responder,
) {
    let (state, steered, bytes, open) = handed_off.give_up();
    let _counted = CountedConnection::new(node.metrics());
    let connection = node.connection(open.client, None);
    let place = ConnectionPlace::Between(state, steered);
    if let Some(ending) = serve_from(&node, &connection, place, bytes, open, next).await {
        node.ended(&connection, ending);
    }
}

async fn serve_from<S: Serve>(
    node: &Arc<S>,
    connection: &Arc<S::Connection>,
    mut place: ConnectionPlace,
    mut bytes: Vec<u8>,
    mut open: OpenConnection,
    mut next: Responder,
) -> Option<ConnectionEnd> {
    loop {
        let came = match &place {
            ConnectionPlace::Here(stream) => {
                head::read(stream, &mut bytes, &node.limits(), &open.stop).await
            }
            ConnectionPlace::Between(..) => HeadRead::Head,
        };
        let choice = match (came, std::mem::replace(&mut next, Responder::Anywhere)) {
            (HeadRead::Over(ending), _) => return Some(ending),
            (HeadRead::Other, _) | (HeadRead::Head, Responder::Here) => None,
            (HeadRead::Head, Responder::Anywhere) => choose(node, &bytes).await,
        };
        if let Some(choice) = choice {
            (place, bytes, open) = hand_over(node, place, bytes, choice, open)?;
        }
        let stream = match place {
            ConnectionPlace::Here(stream) => stream,
            ConnectionPlace::Between(state, steered) => match come_back(node, &state, steered) {
                Ok(stream) => watched(stream, open.client, None).0,
                Err(error) => {
                    tracing::warn!(client = %open.client, %error, "a connection was lost between machines");
                    return Some(ConnectionEnd::Broken);
                }
            },
        };
        let (arrived, back) = ArrivedConnection::new(stream, bytes, None);
        match S::serve(node, connection, arrived, &open.stop).await {
            ConnectionEnd::Resting => {}
            ending => return Some(ending),
        }
        match back.take() {
            Some((stream, _)) => (place, bytes) = (ConnectionPlace::Here(stream), Vec::new()),
            None => return Some(ConnectionEnd::Broken),
        }
    }
}

/// The back-end for a request. `None` if the request cannot be handed over.
pub(crate) async fn choose<S: Serve>(node: &Arc<S>, bytes: &[u8]) -> Option<ChosenBackend<S>> {
    let head = head::parse(bytes, &node.limits())?;
    chosen(node, node.choose(head).await?)
}

/// The back-end for a request whose turn it is at once.
fn choose_now<S: Serve>(node: &Arc<S>, bytes: &[u8]) -> Option<ChosenBackend<S>> {
    let head = head::parse(bytes, &node.limits())?;
    chosen(node, node.choose_now(head)?)
}

fn chosen<S: Serve>(node: &Arc<S>, choice: Choice) -> Option<ChosenBackend<S>> {
    let link = node.front()?.link(node, choice.control?);
    let hop = link.hop()?;
    choice.turn.handed_over();
    Some(ChosenBackend { link, hop, turn: choice.turn })
}

/// Hands a connection to a back-end. If that is not possible, the connection is returned: where it
/// was, or between machines.
fn hand_over<S: Serve>(
    node: &Arc<S>,
    place: ConnectionPlace,
    mut bytes: Vec<u8>,
    choice: ChosenBackend<S>,
    open: OpenConnection,
) -> Option<(ConnectionPlace, Vec<u8>, OpenConnection)> {
    let left = match place {
        ConnectionPlace::Here(stream) => {
            let Some(front) = node.front() else {
                return Some((ConnectionPlace::Here(stream), bytes, open));
            };
            let left = handoff::ends(stream.stream());
            let left = left.and_then(|ends| {
                leave(front, stream.stream(), ends, &mut bytes, false, choice.hop)
            });
            match left {
                // The drop of `stream` closes the socket, which sends nothing.
                Ok(left) => left,
                Err(error) => {
                    cannot_leave(node, &error);
                    return Some((ConnectionPlace::Here(stream), bytes, open));
                }
            }
        }
        ConnectionPlace::Between(state, steered) => {
            if steered.turn(choice.hop).is_err() {
                return Some((ConnectionPlace::Between(state, steered), bytes, open));
            }
            (state, steered)
        }
    };
    let link = choice.link.clone();
    match link.take(HandedOffConnection::new(node, left, bytes, choice, open)) {
        Ok(()) => {
            link.flush();
            None
        }
        Err(handed_off) => {
            node.metrics().handoff("refused");
            let (state, steered, bytes, open) = handed_off.give_up();
            Some((ConnectionPlace::Between(state, steered), bytes, open))
        }
    }
}

fn cannot_leave<S: Serve>(node: &Arc<S>, error: &std::io::Error) {
    tracing::debug!(%error, "proxying: this connection cannot be handed off");
    node.metrics().handoff("unfit");
}

/// Takes a connection out of its socket. On an error the connection stays as it was.
fn leave<S: Serve>(
    front: &Front<S>,
    socket: &impl AsFd,
    (service, client): (SocketAddr, SocketAddr),
    bytes: &mut Vec<u8>,
    first: bool,
    hop: Hop,
) -> std::io::Result<(Connection, Steered)> {
    // Steer first: packets that the client sends from now on belong to the back-end, which drops them
    // until it has the connection. If they were dropped here, each would cost a retransmission timeout,
    // and there would be more of them.
    let steered = front.steering.steer(service, client, hop)?;
    front.steering.input_blocker().block_input(socket)?;
    match take_out(socket, (service, client), bytes, first) {
        Ok(mut connection) => {
            let largest = front.settings.max_segment.unwrap_or(u16::MAX);
            connection.segment = connection.segment.min(largest);
            if let Err(error) = steered.expect(connection.receive_next) {
                tracing::debug!(%error, "a late copy of its SYN would cut this connection");
            }
            Ok((connection, steered))
        }
        Err(error) => {
            drop(steered);
            unblock_input(socket)?;
            Err(error)
        }
    }
}

/// Puts a connection into a socket of this machine.
fn come_back<S: Serve>(
    node: &Arc<S>,
    connection: &Connection,
    steered: Steered,
) -> std::io::Result<TcpStream> {
    let front = node.front().ok_or(std::io::ErrorKind::NotConnected)?;
    let socket = handoff::restore(connection, front.steering.input_blocker())?;
    handoff::activate(&socket)?;
    drop(steered);
    TcpStream::from_std(socket)
}
