//! A front-end's side of the channel to one back-end: the connections handed over, and their events.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    io::ErrorKind,
    sync::{Arc, Weak},
    time::Duration,
};

use levada_http1::ConnectionEnd;
use levada_net::{
    bpf::{Hop, Steering},
    handoff::Connection,
};
use parking_lot::Mutex;
use tokio::{
    net::TcpStream,
    sync::Notify,
    time::{Instant, sleep},
};

use crate::{
    RETRY,
    channel::{self, FrameReceiver, FrameSender, Side},
    frame::{self, Frame},
    handed_off::{EventAction, HandedOffConnection, attend},
    serve::Serve,
    settings::{AfterHandoff, HandoffControl},
};

/// A back-end. Connections can be handed to it while there is a channel.
pub struct BackendLink<S: Serve> {
    to: HandoffControl,
    after: AfterHandoff,
    node: Weak<S>,
    state: Mutex<LinkState>,
    /// Notifies that the link is needed; until then there are no attempts to connect.
    wanted: Notify,
}

#[derive(Default)]
struct LinkState {
    open: Option<(Arc<FrameSender>, Hop)>,
    remote: HashMap<u32, RemoteConnection>,
    last: u32,
    /// A connection whose answer has begun, and when; later the link checks whether its client has
    /// received it.
    sample: Option<(u32, Instant)>,
    /// The number of samples in a row without an acknowledgement.
    unheard: u32,
    /// No connection is handed over until then.
    rests_until: Option<Instant>,
}

/// A connection at the back-end.
struct RemoteConnection {
    connection: Connection,
    /// Whether this node can take it back by itself: the back-end has not begun an answer.
    silent: bool,
    holder: EventHandler,
}

/// The handler of a connection's events.
enum EventHandler {
    /// The link itself.
    Link(Box<HandedOffConnection>),
    /// A task, which has a [`Lease`].
    Task(Arc<PendingEvents>),
}

/// A connection that a task handles.
pub(crate) struct Lease<S: Serve> {
    link: Arc<BackendLink<S>>,
    sender: Arc<FrameSender>,
    id: u32,
    events: Arc<PendingEvents>,
}

/// Events of one connection that have not been handled yet.
#[derive(Default)]
struct PendingEvents {
    event: Mutex<VecDeque<Event>>,
}

/// An event of a connection, reported by its back-end.
pub(crate) enum Event {
    /// The back-end refused it, or is gone without an answer: the connection is still this node's.
    Refused,
    /// The back-end cannot be heard any more, and reported nothing: the state of the connection is
    /// unknown.
    Vanished,
    /// The back-end is gone.
    Lost,
    /// All requests are answered.
    Idle,
    /// Another one is being answered.
    Resumes,
    /// The back-end asks which node answers this request.
    Asks(Vec<u8>),
    /// The back-end gives the connection back.
    GivenBack(Connection, Vec<u8>),
    /// The connection has ended.
    Ended,
}

impl<S: Serve> BackendLink<S> {
    pub(crate) fn new(to: HandoffControl, after: AfterHandoff, node: Weak<S>) -> Arc<Self> {
        Arc::new(Self { to, after, node, state: Mutex::default(), wanted: Notify::new() })
    }

    pub(crate) fn is_to(&self, control: HandoffControl) -> bool {
        self.to == control
    }

    /// The next hop for packets of connections at this back-end; `None` while there is no channel to
    /// it, or while clients do not receive its answers.
    pub(crate) fn hop(&self) -> Option<Hop> {
        let state = self.state.lock();
        if state.rests_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let hop = state.open.as_ref().map(|(_, hop)| *hop);
        if hop.is_none() {
            self.wanted.notify_one();
        }
        hop
    }

    /// Hands a connection over, at the next [flush](Self::flush) at the latest.
    ///
    /// # Errors
    /// When there is no channel any more.
    pub(crate) fn take(
        &self,
        handed_off: Box<HandedOffConnection>,
    ) -> Result<(), Box<HandedOffConnection>> {
        let mut state = self.state.lock();
        let Some((sender, _)) = state.open.clone() else { return Err(handed_off) };
        let mut id = state.last.wrapping_add(1);
        while state.remote.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        let write = |out: &mut Vec<u8>| {
            frame::write_take(out, id, self.after, &handed_off.connection, &handed_off.bytes);
        };
        if !sender.put(write) {
            return Err(handed_off);
        }
        state.last = id;
        let (connection, silent) = (handed_off.connection, true);
        state.remote.insert(
            id,
            RemoteConnection { connection, silent, holder: EventHandler::Link(handed_off) },
        );
        Ok(())
    }

    /// Sends the connections that were handed over.
    pub fn flush(&self) {
        let sender = self.state.lock().open.as_ref().map(|(sender, _)| sender.clone());
        if let Some(sender) = sender {
            sender.flush();
        }
    }

    /// Ends idle connections, and from now on every connection that becomes idle.
    pub(crate) fn stop(&self) {
        let idle = |remote: &RemoteConnection| matches!(&remote.holder, EventHandler::Link(held) if held.is_idle());
        let over: Vec<RemoteConnection> = {
            let mut state = self.state.lock();
            state.remote.extract_if(|_, remote| idle(remote)).map(|(_, remote)| remote).collect()
        };
        over.into_iter().for_each(RemoteConnection::end);
    }

    /// Keeps a channel to the back-end open while the link is needed.
    pub(crate) async fn tend(self: Arc<Self>, secret: String) {
        let (to, mut logged) = (self.to.to, LogHistory::default());
        loop {
            self.wanted.notified().await;
            let mut pause = RETRY;
            match self.reach(&secret).await {
                Ok((sender, mut receiver)) => {
                    let since = Instant::now();
                    // With the other settings, a client waits for frames.
                    if self.after == AfterHandoff::Stay {
                        receiver.gather();
                    }
                    if logged.is_new("") {
                        tracing::info!(back_end = %to, "connections can be handed off");
                    }
                    let error = tokio::select! {
                        error = self.listen(&mut receiver) => error,
                        () = sender.pump() => self.drain(&mut receiver).await,
                        never = self.watch_samples(&mut logged) => match never {},
                    };
                    if since.elapsed() > LASTING {
                        logged = LogHistory::default();
                    }
                    match logged.is_new(&error.to_string()) {
                        true => tracing::warn!(back_end = %to, %error, "{GONE}"),
                        false => tracing::debug!(back_end = %to, %error, "{GONE}"),
                    }
                    self.lose(&sender, &error);
                    if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::Other) {
                        pause = AFTER_VIOLATION;
                    }
                }
                Err(error) => match logged.is_new(&error.to_string()) {
                    true => tracing::warn!(back_end = %to, %error, "{UNREACHED}"),
                    false => tracing::debug!(back_end = %to, %error, "{UNREACHED}"),
                },
            }
            sleep(pause).await;
        }
    }

    /// Samples whether clients receive answers. A firewall may pass the channel but not the answers,
    /// whose source address is not the back-end's own.
    async fn watch_samples(&self, logged: &mut LogHistory) -> Infallible {
        let to = self.to.to;
        loop {
            sleep(SAMPLE_INTERVAL).await;
            if self.is_unheard() {
                match logged.is_new(UNHEARD) {
                    true => tracing::warn!(back_end = %to, "{UNHEARD}"),
                    false => tracing::debug!(back_end = %to, "{UNHEARD}"),
                }
            }
        }
    }

    /// Whether to pause handoffs for a while from now on.
    fn is_unheard(&self) -> bool {
        let mut state = self.state.lock();
        let Some((id, _)) =
            state.sample.take_if(|(_, since)| since.elapsed() >= ACKNOWLEDGE_TIMEOUT)
        else {
            return false;
        };
        // A connection that has ended, or has a task, was answered.
        let waits = |remote: &RemoteConnection| matches!(&remote.holder, EventHandler::Link(held) if !held.was_answered());
        if !state.remote.get(&id).is_some_and(waits) {
            state.unheard = 0;
            return false;
        }
        state.unheard += 1;
        if state.unheard < MAX_UNHEARD {
            return false;
        }
        // After the pause, one more sample suffices.
        state.unheard = MAX_UNHEARD - 1;
        state.rests_until = Some(Instant::now() + WHILE_UNHEARD);
        true
    }

    async fn reach(&self, secret: &str) -> std::io::Result<(Arc<FrameSender>, FrameReceiver)> {
        let hop = Steering::hop(self.to.addresses()).map_err(std::io::Error::other)?;
        let stream = tokio::time::timeout(RETRY * 3, TcpStream::connect(self.to.to)).await??;
        let (sender, receiver) = channel::open(stream, Side::Front, secret).await?;
        self.state.lock().open = Some((sender.clone(), hop));
        Ok((sender, receiver))
    }

    /// Handles the back-end's frames until the channel ends or a frame is impossible.
    async fn listen(self: &Arc<Self>, receiver: &mut FrameReceiver) -> std::io::Error {
        loop {
            let events = match receiver.receive().await {
                Ok(frame) => self.note(frame),
                Err(error) => return error,
            };
            if let Err(ProtocolViolation) = events {
                return std::io::Error::other("it says of a connection what cannot be");
            }
        }
    }

    /// Handles the frames that were sent before the channel closed: a back-end that has just begun an
    /// answer has reported so. Does not wait for a process that is gone.
    async fn drain(self: &Arc<Self>, receiver: &mut FrameReceiver) -> std::io::Error {
        let action = tokio::time::timeout(RETRY, self.listen(receiver)).await;
        action.unwrap_or_else(|_| ErrorKind::BrokenPipe.into())
    }

    fn note(self: &Arc<Self>, frame: Frame) -> Result<(), ProtocolViolation> {
        let (id, event) = match frame {
            Frame::Answers(id) => (id, None),
            Frame::Refused(id) => (id, Some(Event::Refused)),
            Frame::Idle(id) => (id, Some(Event::Idle)),
            Frame::Resumes(id) => (id, Some(Event::Resumes)),
            Frame::Asks { id, bytes } => (id, Some(Event::Asks(bytes))),
            Frame::GivenBack { id, connection, bytes } => {
                (id, Some(Event::GivenBack(connection, bytes)))
            }
            Frame::Ended(id) => (id, Some(Event::Ended)),
            Frame::Take { .. } | Frame::Keep(_) | Frame::GiveUp(_) => {
                return Err(ProtocolViolation);
            }
        };
        let mut state = self.state.lock();
        // This node has already released the connection.
        let Some(remote) = state.remote.get_mut(&id) else { return Ok(()) };
        remote.allows(event.as_ref())?;
        let Some(event) = event else {
            remote.speaks();
            state.sample.get_or_insert_with(|| (id, Instant::now()));
            return Ok(());
        };
        let action = match &mut remote.holder {
            EventHandler::Task(events) => return events.push(event),
            EventHandler::Link(handed_off) => handed_off.handle(event),
        };
        match action {
            EventAction::All => {}
            EventAction::Over => {
                let over = state.remote.remove(&id);
                drop(state);
                over.into_iter().for_each(RemoteConnection::end);
            }
            EventAction::Takes(event) => {
                let taken = remote.pass_to_task();
                let sender = state.open.as_ref().map(|(sender, _)| sender.clone());
                drop(state);
                if let (Some((handed_off, events)), Some(sender)) = (taken, sender) {
                    self.attend(
                        Lease { link: self.clone(), sender, id, events },
                        handed_off,
                        event,
                    );
                }
            }
        }
        Ok(())
    }

    fn attend(&self, lease: Lease<S>, handed_off: Box<HandedOffConnection>, event: Event) {
        let Some(node) = self.node.upgrade() else { return };
        let cut = handed_off.stop().clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = attend(node, lease, handed_off, event) => {}
                () = cut.cut() => {}
            }
        });
    }

    fn lose(self: &Arc<Self>, sender: &Arc<FrameSender>, error: &std::io::Error) {
        sender.close();
        // The back-end's process has ended, or has dropped its silent connections.
        let known = matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset);
        let lost = {
            let mut state = self.state.lock();
            (state.open, state.sample) = (None, None);
            std::mem::take(&mut state.remote)
        };
        self.wanted.notify_one();
        for (id, mut remote) in lost {
            let event = match remote.silent {
                true if known => Event::Refused,
                true => Event::Vanished,
                false => Event::Lost,
            };
            if let Some((handed_off, events)) = remote.pass_to_task() {
                let (link, sender) = (self.clone(), sender.clone());
                self.attend(Lease { link, sender, id, events }, handed_off, event);
            } else if let EventHandler::Task(events) = &remote.holder {
                events.event.lock().push_back(event);
            }
        }
    }
}

/// The messages logged about a back-end since it last worked for some time: attempts are made every
/// second and must not be logged as often.
#[derive(Default)]
struct LogHistory(Vec<String>);

impl LogHistory {
    fn is_new(&mut self, text: &str) -> bool {
        if self.0.iter().any(|logged| logged == text) {
            return false;
        }
        if self.0.len() >= MAX_LOGGED {
            self.0.clear();
        }
        self.0.push(text.to_owned());
        true
    }
}

/// A back-end that knows the secret sent an impossible frame.
struct ProtocolViolation;

impl RemoteConnection {
    /// Whether the event is possible in this state; `None` is the begin of the first answer.
    fn allows(&self, event: Option<&Event>) -> Result<(), ProtocolViolation> {
        let possible = match event {
            None | Some(Event::Refused) => self.silent,
            Some(Event::GivenBack(connection, _)) => {
                let ends = (connection.service, connection.client);
                !self.silent && ends == (self.connection.service, self.connection.client)
            }
            Some(_) => !self.silent,
        };
        if possible { Ok(()) } else { Err(ProtocolViolation) }
    }

    fn speaks(&mut self) {
        self.silent = false;
        if let EventHandler::Link(handed_off) = &mut self.holder {
            handed_off.is_answered();
        }
    }

    /// Passes the connection to a task, if none has it yet.
    fn pass_to_task(&mut self) -> Option<(Box<HandedOffConnection>, Arc<PendingEvents>)> {
        let events = match &self.holder {
            EventHandler::Link(_) => Arc::<PendingEvents>::default(),
            EventHandler::Task(_) => return None,
        };
        match std::mem::replace(&mut self.holder, EventHandler::Task(events.clone())) {
            EventHandler::Link(handed_off) => Some((handed_off, events)),
            EventHandler::Task(_) => None,
        }
    }

    fn end(self) {
        if let EventHandler::Link(handed_off) = self.holder {
            handed_off.end(ConnectionEnd::Finished);
        }
    }
}

impl PendingEvents {
    fn push(&self, event: Event) -> Result<(), ProtocolViolation> {
        let mut waiting = self.event.lock();
        if waiting.len() >= MAX_EVENTS {
            return Err(ProtocolViolation);
        }
        waiting.push_back(event);
        Ok(())
    }
}

impl<S: Serve> Lease<S> {
    /// Returns the connection to the link; gives it back when an event has arrived meanwhile.
    pub(crate) fn leave(
        &self,
        handed_off: Box<HandedOffConnection>,
    ) -> Option<(Box<HandedOffConnection>, Event)> {
        let mut state = self.link.state.lock();
        let event = self.events.event.lock().pop_front();
        match (event, self.remote(&mut state)) {
            (Some(event), _) => Some((handed_off, event)),
            (None, Some(remote)) => {
                remote.holder = EventHandler::Link(handed_off);
                None
            }
            // An event precedes every removal.
            (None, None) => Some((handed_off, Event::Lost)),
        }
    }

    /// Forgets the connection.
    pub(crate) fn end(&self) {
        let mut state = self.link.state.lock();
        if self.remote(&mut state).is_some() {
            state.remote.remove(&self.id);
        }
    }

    /// The connection's entry, unless another channel uses its id for another connection.
    fn remote<'a>(&self, state: &'a mut LinkState) -> Option<&'a mut RemoteConnection> {
        let own = |remote: &&mut RemoteConnection| matches!(&remote.holder, EventHandler::Task(events) if Arc::ptr_eq(events, &self.events));
        state.remote.get_mut(&self.id).filter(own)
    }

    /// Tells the back-end to answer the request that it asked about.
    pub(crate) fn keep(&self) {
        self.sender.send(&Frame::Keep(self.id));
    }

    /// Tells the back-end to give the connection back.
    pub(crate) fn give_up(&self) {
        self.sender.send(&Frame::GiveUp(self.id));
    }

    pub(crate) fn is_at(&self, link: &Arc<BackendLink<S>>) -> bool {
        Arc::ptr_eq(&self.link, link)
    }
}

/// The most unhandled events of one connection: an answer's end, the next request's begin and end, the
/// connection's end. A back-end that sends more floods this node.
const MAX_EVENTS: usize = 64;
const MAX_LOGGED: usize = 16;
/// How long a channel must have been open for its end to be logged again.
const LASTING: Duration = Duration::from_secs(10);
/// The pause after a protocol violation: connections handed to this back-end were delayed.
const AFTER_VIOLATION: Duration = Duration::from_secs(60);
/// The interval of samples, and how long a client may take to acknowledge the begin of an answer.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(2);
/// One client may have vanished; for so many in a row a firewall is the likelier cause.
const MAX_UNHEARD: u32 = 3;
const WHILE_UNHEARD: Duration = Duration::from_secs(60);
const UNHEARD: &str = "proxying: clients do not get what this back-end answers; \
    is a firewall in the way of what it sends from the service's address?";
const GONE: &str = "proxying: the back-end is gone";
const UNREACHED: &str = "proxying: connections cannot be handed to this back-end";

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use http::Request;
    use levada_http1::ConnectionLimits;
    use levada_net::{handoff::Window, stop::Stop};

    use super::*;
    use crate::{ArrivedConnection, Choice, Front, Observe, SilencedSocket};

    /// A node that is gone: the link is told by frames alone.
    struct NoNode;

    impl Serve for NoNode {
        type Connection = ();

        fn front(&self) -> Option<&Front<Self>> {
            None
        }

        fn limits(&self) -> ConnectionLimits {
            unreachable!("the node is gone")
        }

        fn observer(&self) -> Arc<dyn Observe> {
            unreachable!("the node is gone")
        }

        fn connection(&self, _: IpAddr, _: Option<Arc<SilencedSocket>>) -> Arc<()> {
            Arc::new(())
        }

        async fn serve(
            _: &Arc<Self>,
            _: &Arc<()>,
            _: ArrivedConnection,
            _: &Stop,
        ) -> ConnectionEnd {
            ConnectionEnd::Broken
        }

        fn ended(&self, (): &(), _: ConnectionEnd) {}

        async fn choose(&self, _: Request<()>) -> Option<Choice> {
            None
        }

        fn choose_now(&self, _: Request<()>) -> Option<Choice> {
            None
        }
    }

    fn connection(port: u16) -> Connection {
        Connection {
            service: "10.9.9.9:80".parse().unwrap(),
            client: format!("10.0.1.2:{port}").parse().unwrap(),
            send_next: 1,
            receive_next: 2,
            segment: 1460,
            scale: None,
            sack: true,
            timestamp: None,
            window: Window::default(),
        }
    }

    /// A link with one connection at its back-end, with id 7, that a task handles.
    fn link() -> (Arc<BackendLink<NoNode>>, Arc<PendingEvents>) {
        let to = HandoffControl { to: "127.0.0.1:1".parse().unwrap(), also: None };
        let link = BackendLink::new(to, AfterHandoff::On, Weak::new());
        let events = Arc::<PendingEvents>::default();
        let (connection, holder) = (connection(40_000), EventHandler::Task(events.clone()));
        link.state.lock().remote.insert(7, RemoteConnection { connection, silent: true, holder });
        (link, events)
    }

    #[test]
    fn a_back_end_that_says_what_cannot_be_lies() {
        let given = |port| Frame::GivenBack { id: 7, connection: connection(port), bytes: vec![] };
        let asks = Frame::Asks { id: 7, bytes: vec![] };
        let (link, _) = link();
        for early in [Frame::Idle(7), Frame::Resumes(7), Frame::Ended(7), asks, given(40_000)] {
            assert!(link.note(early.clone()).is_err(), "{early:?} before it has spoken");
        }
        assert!(link.note(Frame::Answers(7)).is_ok());
        for late in [Frame::Answers(7), Frame::Refused(7), given(40_001), Frame::Keep(7)] {
            assert!(link.note(late.clone()).is_err(), "{late:?} after it has spoken");
        }
        assert!(link.note(given(40_000)).is_ok());
    }

    #[test]
    fn a_flood_is_a_violation_and_an_unknown_connection_is_ignored() {
        let (link, events) = link();
        assert!(link.note(Frame::Answers(7)).is_ok());
        let noted = (0..).take_while(|_| link.note(Frame::Idle(7)).is_ok()).count();
        assert_eq!((noted, events.event.lock().len()), (MAX_EVENTS, MAX_EVENTS));
        assert!(link.note(Frame::Ended(8)).is_ok());
    }
}
