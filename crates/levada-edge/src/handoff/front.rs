//! The front-end: it reads a request's head, chooses the back-end, and hands the connection over.
//!
//! ```text
//!        ┌─> a head ──> the policy's choice ──> steer, deafen, extract ──> Take
//!        │                    │ none                    │ cannot           │ refused, gone
//!        │                    v                         v                  v
//!        └──────────────── served here, as without handoff, for as many requests as have come
//! ```

use std::{sync::Arc, time::Duration};

use levada_net::{
    bpf::{BpfError, Hop, Steered, Steering, undeafen},
    handoff::{self, Connection},
};
use parking_lot::Mutex;
use tokio::net::TcpStream;

use super::{
    arrived::Arrived,
    channel::LEASE,
    head::{self, Came},
    link::{Lease, Link, News},
};
use crate::{
    connection::{self, Door, Visit},
    dormant::{self, Stream},
    guard::Ending,
    identify::identify,
    node::Node,
    settings::{Control, Handoff},
    sites::Site,
    stop::Stop,
    switch::{Member, Subject, Switch, Turn, claim},
};

/// What a front-end needs to hand connections over.
pub(crate) struct Front {
    steering: Steering,
    settings: Handoff,
    links: Mutex<Vec<Arc<Link>>>,
}

/// Where a connection is.
enum Place {
    Here(Stream),
    /// Between machines: nobody's socket, steered to where it is not.
    Between(Connection, Steered),
}

/// A request whose back-end is chosen.
struct Choice {
    link: Arc<Link>,
    hop: Hop,
    site: Arc<Site>,
    switch: Arc<Switch>,
    member: Arc<Member>,
    turn: Turn,
}

/// What became of a connection that was handed over.
enum Handed {
    /// It ended there.
    Over(Ending),
    /// It came back, with a request's head.
    Back(Place, Vec<u8>),
    /// It was not taken.
    Failed(Place, Vec<u8>),
}

/// How long packets are still steered to a back-end that cannot be heard any more: if only its channel
/// is gone, its answers go on.
const GRACE: Duration = Duration::from_secs(5);
/// How long after it was heard last by a back-end, at the latest, the front-end knows by the clients'
/// acknowledgements what that has begun to answer.
const AFTER_LEASE: Duration = LEASE.saturating_add(Duration::from_millis(500));

impl Front {
    /// Begins to steer.
    ///
    /// # Errors
    /// When this process may not, or the kernel cannot.
    pub(crate) fn start(settings: &Handoff, connections: usize) -> Result<Self, BpfError> {
        handoff::is_possible().map_err(BpfError::Repair)?;
        let connections = u32::try_from(connections).unwrap_or(u32::MAX);
        let steering = Steering::start(&settings.interfaces, connections)?;
        Ok(Self { steering, settings: settings.clone(), links: Mutex::default() })
    }

    /// Reaches out for back-ends, so that the first connections find them.
    pub(crate) fn reach(&self, controls: &[Control]) {
        for control in controls {
            let _ = self.link(*control).hop();
        }
    }

    /// The link to a back-end. To be called within the runtime that is to tend it.
    pub(crate) fn link(&self, to: Control) -> Arc<Link> {
        let mut links = self.links.lock();
        if let Some(link) = links.iter().find(|link| link.is_to(to)) {
            return link.clone();
        }
        let link = Link::new(to, self.settings.after);
        tokio::spawn(link.clone().tend(self.settings.secret.clone()));
        links.push(link.clone());
        link
    }
}

/// Serves a client's connection: by handing it over when that can be, for each request anew.
pub(crate) async fn serve(
    node: &Arc<Node>,
    front: &Front,
    visit: &Arc<Visit>,
    stream: Stream,
    stop: &Stop,
) -> Ending {
    let (mut place, mut bytes) = (Place::Here(stream), Vec::new());
    loop {
        let came = match &place {
            Place::Here(stream) => {
                head::read(stream, &mut bytes, &node.settings.limits, stop).await
            }
            Place::Between(..) => Came::Head,
        };
        let choice = match came {
            Came::Over(ending) => return ending,
            Came::Other => None,
            Came::Head => choose(node, front, &bytes).await,
        };
        if let Some(choice) = choice {
            match hand_over(node, front, place, bytes, choice, stop).await {
                Handed::Over(ending) => return ending,
                Handed::Back(back, read) => {
                    (place, bytes) = (back, read);
                    continue;
                }
                Handed::Failed(back, read) => (place, bytes) = (back, read),
            }
        }
        let stream = match place {
            Place::Here(stream) => stream,
            Place::Between(connection, steered) => match come_back(&connection, steered) {
                Ok(stream) => dormant::seat(stream, visit.client, None).0,
                Err(error) => {
                    tracing::warn!(client = %visit.client, %error, "a connection was lost on its way");
                    return Ending::Broken;
                }
            },
        };
        let (arrived, nest) = Arrived::new(stream, bytes, None);
        match connection::http1_once(node, visit, arrived, stop).await {
            Ending::Resting => {}
            ending => return ending,
        }
        match nest.take() {
            Some(stream) => (place, bytes) = (Place::Here(stream), Vec::new()),
            None => return Ending::Broken,
        }
    }
}

/// The back-end for a request, if it can be handed over at all.
async fn choose(node: &Arc<Node>, front: &Front, bytes: &[u8]) -> Option<Choice> {
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
    let subject = Subject::of(&asked, &parts, &parts.headers);
    let (member, control, turn) = claim(node, &asked.site, switch, subject).await?;
    let link = front.link(control?);
    let hop = link.hop()?;
    asked.site.count();
    Some(Choice { link, hop, switch: switch.clone(), site: asked.site.clone(), member, turn })
}

async fn hand_over(
    node: &Arc<Node>,
    front: &Front,
    place: Place,
    mut bytes: Vec<u8>,
    choice: Choice,
    stop: &Stop,
) -> Handed {
    let (connection, steered) = match place {
        Place::Here(stream) => match leave(front, stream, &mut bytes, choice.hop) {
            Ok(left) => left,
            Err((stream, error)) => {
                tracing::debug!(%error, "proxying: this connection cannot be handed off");
                node.metrics.handoff("unfit");
                return Handed::Failed(Place::Here(stream), bytes);
            }
        },
        Place::Between(connection, steered) => {
            if steered.turn(choice.hop).is_err() {
                return Handed::Failed(Place::Between(connection, steered), bytes);
            }
            (connection, steered)
        }
    };
    let Some(lease) = choice.link.take(connection, &bytes) else {
        node.metrics.handoff("refused");
        return Handed::Failed(Place::Between(connection, steered), bytes);
    };
    let _counted = node.metrics.handed_over();
    follow(node, front, &lease, choice, (connection, steered), bytes, stop).await
}

/// Takes a connection out of its socket. When that cannot be, it goes on as it was.
fn leave(
    front: &Front,
    stream: Stream,
    bytes: &mut Vec<u8>,
    hop: Hop,
) -> Result<(Connection, Steered), (Stream, std::io::Error)> {
    let socket = stream.stream();
    let left = handoff::ends(socket).and_then(|(service, client)| {
        // First of all: what the client sends from here on is for the back-end, which drops it until
        // it has the connection. Dropped here, it would cost a timeout as well, and more of it would be.
        let steered = front.steering.steer(service, client, hop)?;
        front.steering.deafen(socket)?;
        match super::take_out(socket, (service, client), bytes) {
            Ok(connection) => Ok((connection, steered)),
            Err(error) => {
                drop(steered);
                undeafen(socket)?;
                Err(error)
            }
        }
    });
    // Closed by its drop, it says nothing.
    left.map_err(|error| (stream, error))
}

/// Follows a connection until it is over there, or here again.
async fn follow(
    node: &Arc<Node>,
    front: &Front,
    lease: &Lease,
    choice: Choice,
    (connection, steered): (Connection, Steered),
    bytes: Vec<u8>,
    stop: &Stop,
) -> Handed {
    let Choice { site, switch, member, turn, .. } = choice;
    let mut turn = Some(turn);
    loop {
        let news = tokio::select! {
            biased;
            news = lease.news() => news,
            // Idle connections are not waited for, wherever they are.
            () = stop.begun(), if turn.is_none() => return Handed::Over(Ending::Finished),
        };
        let news = match news {
            News::Vanished => {
                tokio::time::sleep(AFTER_LEASE).await;
                News::Refused
            }
            news => news,
        };
        match news {
            // A back-end whose channel has broken off may have spoken, and not have been heard.
            News::Refused if !was_answered(&connection, &steered) => {
                node.metrics.handoff("refused");
                return Handed::Failed(Place::Between(connection, steered), bytes);
            }
            News::Refused | News::Vanished | News::Lost => {
                node.metrics.handoff("lost");
                drop(turn);
                tokio::time::sleep(GRACE).await;
                return Handed::Over(Ending::Broken);
            }
            News::Rests => {
                turn.take().into_iter().for_each(Turn::end_elsewhere);
                switch.served(&member);
            }
            News::Begins => turn = Turn::again(node, &site, &member),
            News::Asks(head) => match choose(node, front, &head).await {
                Some(next) if lease.is_at(&next.link) => {
                    turn = Some(next.turn);
                    lease.keep();
                }
                _ => lease.give_up(),
            },
            News::GivenBack(connection, bytes) => {
                node.metrics.handoff("given-back");
                return Handed::Back(Place::Between(connection, steered), bytes);
            }
            News::Ended => {
                if let Some(turn) = turn {
                    turn.end_elsewhere();
                    switch.served(&member);
                }
                node.metrics.handoff("ended");
                return Handed::Over(Ending::Finished);
            }
        }
    }
}

/// Whether the client has acknowledged anything of an answer since the connection left.
fn was_answered(connection: &Connection, steered: &Steered) -> bool {
    let acknowledged = steered.acknowledged().ok().flatten();
    let further = |to: u32| to.wrapping_sub(connection.send_next) as i32 > 0;
    acknowledged.is_some_and(further)
}

/// Puts a connection into a socket of this machine.
fn come_back(connection: &Connection, steered: Steered) -> std::io::Result<TcpStream> {
    let socket = handoff::restore(connection)?;
    handoff::speak(&socket)?;
    drop(steered);
    TcpStream::from_std(socket)
}
