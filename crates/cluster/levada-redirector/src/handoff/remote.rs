//! The connections at a back-end that were handed over by one channel, and their events.

use std::{
    collections::{HashMap, VecDeque},
    io::ErrorKind,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use levada_http::ConnectionEnd;
use levada_net::{bpf::Hop, handoff::Connection};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::handoff::{
    channel::{FrameReceiver, FrameSender},
    frame::{self, Frame},
    handed_off::{EventAction, HandedOffConnection, attend},
    serve::Serve,
    settings::{AfterHandoff, HandoffControl},
};

/// A channel to one process of a back-end.
pub(crate) struct OpenChannel<S: Serve> {
    to: HandoffControl,
    /// The next hop for packets of connections there.
    pub(crate) hop: Hop,
    pub(crate) sender: Arc<FrameSender>,
    node: Weak<S>,
    state: Mutex<ChannelState>,
    /// Set when no connection is handed over by it any more.
    retired: AtomicBool,
    /// Notifies the two who wait for it that it is retired, or that the last connection has left since.
    changed: Notify,
}

#[derive(Default)]
struct ChannelState {
    remote: HashMap<u32, RemoteConnection>,
    last: u32,
    /// A connection whose answer has started, and when; later the link checks whether its client has
    /// received it.
    sample: Option<(u32, Instant)>,
}

/// A connection at the back-end.
struct RemoteConnection {
    connection: Connection,
    /// Whether this node can take it back by itself: the back-end has not started an answer.
    silent: bool,
    holder: EventHandler,
}

/// The handler of a connection's events.
enum EventHandler {
    /// The task that reads the channel.
    Channel(Box<HandedOffConnection>),
    /// A task, which has a [`Lease`].
    Task(Arc<PendingEvents>),
}

/// A connection that a task handles.
pub(crate) struct Lease<S: Serve> {
    channel: Arc<OpenChannel<S>>,
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

impl<S: Serve> OpenChannel<S> {
    pub(crate) fn new(
        to: HandoffControl,
        hop: Hop,
        sender: Arc<FrameSender>,
        node: Weak<S>,
    ) -> Arc<Self> {
        let (state, retired) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { to, hop, sender, node, state, retired, changed: Notify::new() })
    }

    /// Hands a connection over when the channel is flushed.
    ///
    /// # Errors
    /// When the channel has ended, or is retired.
    pub(crate) fn take(
        &self,
        after: AfterHandoff,
        handed_off: Box<HandedOffConnection>,
    ) -> Result<(), Box<HandedOffConnection>> {
        let mut state = self.state.lock();
        if self.is_retired() {
            return Err(handed_off);
        }
        let mut id = state.last.wrapping_add(1);
        while state.remote.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        let write = |out: &mut Vec<u8>| {
            frame::write_take(out, id, after, &handed_off.connection, &handed_off.bytes);
        };
        if !self.sender.put(write) {
            return Err(handed_off);
        }
        state.last = id;
        let (connection, silent) = (handed_off.connection, true);
        state.remote.insert(
            id,
            RemoteConnection { connection, silent, holder: EventHandler::Channel(handed_off) },
        );
        Ok(())
    }

    /// Hands no more connections over, and sends those that wait to be sent.
    fn retire(&self) {
        let _taking = self.state.lock();
        self.retired.store(true, Relaxed);
        self.sender.flush();
        self.changed.notify_waiters();
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    /// Returns when the channel is retired.
    pub(crate) async fn retired(&self) {
        self.until(|| self.is_retired()).await;
    }

    /// Returns when the channel is retired and no connection is left there.
    pub(crate) async fn is_over(&self) {
        self.until(|| self.is_retired() && self.state.lock().remote.is_empty()).await;
    }

    async fn until(&self, holds: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if holds() {
                return;
            }
            changed.await;
        }
    }

    /// Forgets a connection.
    fn forget(&self, state: &mut ChannelState, id: u32) -> Option<RemoteConnection> {
        let forgotten = state.remote.remove(&id);
        if state.remote.is_empty() && self.is_retired() {
            self.changed.notify_waiters();
        }
        forgotten
    }

    /// Whether a client has received something of an answer that began this long ago, if it is time to look.
    pub(crate) fn sample(&self, age: Duration) -> Option<bool> {
        let mut state = self.state.lock();
        let (id, _) = state.sample.take_if(|(_, since)| since.elapsed() >= age)?;
        // A connection that has ended, or has a task, was answered.
        let waits = |remote: &RemoteConnection| matches!(&remote.holder, EventHandler::Channel(held) if !held.was_answered());
        Some(!state.remote.get(&id).is_some_and(waits))
    }

    /// Handles the back-end's frames until the channel ends or a frame is impossible.
    pub(crate) async fn listen(self: &Arc<Self>, receiver: &mut FrameReceiver) -> std::io::Error {
        loop {
            let noted = match receiver.receive().await {
                Ok(Frame::Leaving) => {
                    self.retire();
                    Ok(())
                }
                Ok(frame) => self.note(frame),
                Err(error) => return error,
            };
            if let Err(ProtocolViolation) = noted {
                return std::io::Error::other("it says of a connection what cannot be");
            }
        }
    }

    /// Handles the frames that were sent before the channel closed: a back-end that has just started an
    /// answer has reported so. Does not wait for a process that is gone.
    pub(crate) async fn drain(self: &Arc<Self>, receiver: &mut FrameReceiver) -> std::io::Error {
        let action = tokio::time::timeout(LAST_FRAMES_TIMEOUT, self.listen(receiver)).await;
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
            Frame::Leaving => return Ok(()),
            Frame::Take { .. } | Frame::Keep(_) | Frame::GiveUp(_) | Frame::Stops => {
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
            EventHandler::Channel(handed_off) => handed_off.handle(event),
        };
        match action {
            EventAction::All => {}
            EventAction::Over => {
                let over = self.forget(&mut state, id);
                drop(state);
                over.into_iter().for_each(RemoteConnection::end);
            }
            EventAction::Takes(event) => {
                let taken = remote.pass_to_task();
                drop(state);
                if let Some((handed_off, events)) = taken {
                    let lease = Lease { channel: self.clone(), id, events };
                    self.attend(lease, handed_off, event);
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

    /// Gives up all connections there: the channel has ended.
    pub(crate) fn lose(self: &Arc<Self>, error: &std::io::Error) {
        self.sender.close();
        // The back-end's process has ended, or has dropped its silent connections.
        let known = matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset);
        let lost = {
            let mut state = self.state.lock();
            self.retired.store(true, Relaxed);
            state.sample = None;
            std::mem::take(&mut state.remote)
        };
        for (id, mut remote) in lost {
            let event = match remote.silent {
                true if known => Event::Refused,
                true => Event::Vanished,
                false => Event::Lost,
            };
            if let Some((handed_off, events)) = remote.pass_to_task() {
                let lease = Lease { channel: self.clone(), id, events };
                self.attend(lease, handed_off, event);
            } else if let EventHandler::Task(events) = &remote.holder {
                events.event.lock().push_back(event);
            }
        }
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
        if let EventHandler::Channel(handed_off) = &mut self.holder {
            handed_off.is_answered();
        }
    }

    /// Passes the connection to a task, if none has it yet.
    fn pass_to_task(&mut self) -> Option<(Box<HandedOffConnection>, Arc<PendingEvents>)> {
        let events = match &self.holder {
            EventHandler::Channel(_) => Arc::<PendingEvents>::default(),
            EventHandler::Task(_) => return None,
        };
        match std::mem::replace(&mut self.holder, EventHandler::Task(events.clone())) {
            EventHandler::Channel(handed_off) => Some((handed_off, events)),
            EventHandler::Task(_) => None,
        }
    }

    /// Ends its record.
    fn end(self) {
        if let EventHandler::Channel(handed_off) = self.holder {
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
    /// Returns the connection to the channel; gives it back when an event has arrived meanwhile.
    pub(crate) fn leave(
        &self,
        handed_off: Box<HandedOffConnection>,
    ) -> Option<(Box<HandedOffConnection>, Event)> {
        let mut state = self.channel.state.lock();
        let event = self.events.event.lock().pop_front();
        match (event, self.remote(&mut state)) {
            (Some(event), _) => Some((handed_off, event)),
            (None, Some(remote)) => {
                remote.holder = EventHandler::Channel(handed_off);
                None
            }
            // An event precedes every removal.
            (None, None) => Some((handed_off, Event::Lost)),
        }
    }

    /// Forgets the connection.
    pub(crate) fn end(&self) {
        let mut state = self.channel.state.lock();
        if self.remote(&mut state).is_some() {
            self.channel.forget(&mut state, self.id);
        }
    }

    /// The connection's entry.
    fn remote<'a>(&self, state: &'a mut ChannelState) -> Option<&'a mut RemoteConnection> {
        let own = |remote: &&mut RemoteConnection| matches!(&remote.holder, EventHandler::Task(events) if Arc::ptr_eq(events, &self.events));
        state.remote.get_mut(&self.id).filter(own)
    }

    /// Tells the back-end to answer the request that it asked about.
    pub(crate) fn keep(&self) {
        self.channel.sender.send(&Frame::Keep(self.id));
    }

    /// Tells the back-end to give the connection back.
    pub(crate) fn give_up(&self) {
        self.channel.sender.send(&Frame::GiveUp(self.id));
    }

    /// The back-end that has the connection.
    pub(crate) fn control(&self) -> HandoffControl {
        self.channel.to
    }
}

/// The most unhandled events of one connection: an answer's end, the next request's begin and end, the
/// connection's end. A back-end that sends more floods this node.
const MAX_EVENTS: usize = 64;
/// The timeout for the frames that came before the end of a channel: they are in the socket already.
const LAST_FRAMES_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
pub(crate) mod tests {
    use std::net::IpAddr;

    use http::Request;
    use levada_http::{ConnectionEnd, ConnectionLimits};
    use levada_net::{
        bpf::Steering, client::ConnectionOwner, dormant::DormancyWatch, handoff::Window, stop::Stop,
    };

    use super::*;
    use crate::handoff::{ArrivedConnection, Choice, Front, HandoffMetrics, SilencedSocket};

    /// A node that is gone: only the frames say so.
    pub(crate) struct NoNode;

    impl Serve for NoNode {
        type Connection = ();

        fn front(&self) -> Option<&Front<Self>> {
            None
        }

        async fn left(&self) {}

        fn limits(&self) -> ConnectionLimits {
            unreachable!("the node is gone")
        }

        fn metrics(&self) -> &Arc<HandoffMetrics> {
            unreachable!("the node is gone")
        }

        fn watch(&self, _: Option<u8>) -> Option<Arc<DormancyWatch<ConnectionOwner>>> {
            None
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

    /// A channel with one connection at the back-end, with id 7, that a task handles.
    async fn channel() -> (Arc<OpenChannel<NoNode>>, Arc<PendingEvents>) {
        let to = HandoffControl { to: "127.0.0.1:1".parse().unwrap(), also: None };
        let hop = Steering::hop([IpAddr::from([127, 0, 0, 1])]).unwrap();
        let channel = OpenChannel::new(to, hop, FrameSender::of_nobody().await, Weak::new());
        let events = Arc::<PendingEvents>::default();
        let (connection, holder) = (connection(40_000), EventHandler::Task(events.clone()));
        channel
            .state
            .lock()
            .remote
            .insert(7, RemoteConnection { connection, silent: true, holder });
        (channel, events)
    }

    #[tokio::test]
    async fn a_back_end_that_says_what_cannot_be_lies() {
        let given = |port| Frame::GivenBack { id: 7, connection: connection(port), bytes: vec![] };
        let asks = Frame::Asks { id: 7, bytes: vec![] };
        let (channel, _) = channel().await;
        for early in [Frame::Idle(7), Frame::Resumes(7), Frame::Ended(7), asks, given(40_000)] {
            assert!(channel.note(early.clone()).is_err(), "{early:?} before it has spoken");
        }
        assert!(channel.note(Frame::Answers(7)).is_ok());
        for late in [Frame::Answers(7), Frame::Refused(7), given(40_001), Frame::Keep(7)] {
            assert!(channel.note(late.clone()).is_err(), "{late:?} after it has spoken");
        }
        assert!(channel.note(given(40_000)).is_ok());
    }

    #[tokio::test]
    async fn a_flood_is_a_violation_and_an_unknown_connection_is_ignored() {
        let (channel, events) = channel().await;
        assert!(channel.note(Frame::Answers(7)).is_ok());
        let noted = (0..).take_while(|_| channel.note(Frame::Idle(7)).is_ok()).count();
        assert_eq!((noted, events.event.lock().len()), (MAX_EVENTS, MAX_EVENTS));
        assert!(channel.note(Frame::Ended(8)).is_ok());
    }

    #[tokio::test]
    async fn channel_that_is_retired_takes_nothing_and_is_over_without_connections() {
        let (channel, _) = channel().await;
        assert!(channel.note(Frame::Answers(7)).is_ok());
        let is_over = || tokio::time::timeout(Duration::ZERO, channel.is_over());
        assert!(is_over().await.is_err());
        channel.retire();
        channel.retired().await;
        assert!(is_over().await.is_err(), "a connection is left there");
        assert!(channel.forget(&mut channel.state.lock(), 7).is_some());
        channel.is_over().await;
    }
}
