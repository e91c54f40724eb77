//! The back-end: takes connections over and serves them like its own.

use std::{
    collections::HashMap,
    io,
    net::Shutdown,
    sync::{Arc, OnceLock},
    time::Duration,
};

use levada_http::{ConnectionEnd, ConnectionLimits, after};
use levada_net::{
    bpf::{BpfError, Guard, InputBlocker, unblock_input},
    client::{ClientSocket, ConnectionOwner, watched},
    dormant::DormancyWatch,
    handoff::{self, Connection},
    stop::Stop,
    tcp::TcpInfo,
};
use levada_types::Backoff;
use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::Instant,
};

use crate::handoff::{
    arrived::{ArrivedConnection, SilencedSocket},
    channel::{self, CONNECT_BACKOFF, FrameReceiver, FrameSender, Side},
    ending::FrontEndEnding,
    extraction::take_out,
    frame::Frame,
    handed_off::CountedConnection,
    head::{self, HeadRead},
    serve::Serve,
    settings::{AfterHandoff, HandoffBackendSettings, HandoffSettings},
};

/// The state of a back-end.
pub struct HandoffBackend {
    input_blocker: InputBlocker,
    guards: OnceLock<Vec<Guard>>,
    interfaces: Vec<String>,
    taking: HandoffBackendSettings,
    secret: String,
    places: Arc<Semaphore>,
}

/// Looks after the clients' connections, to find those whose client is gone.
type ClientWatch = Arc<DormancyWatch<ConnectionOwner>>;

/// The connections of a channel that wait for an answer of the front-end.
#[derive(Default)]
struct AskingConnections(Mutex<HashMap<u32, oneshot::Sender<bool>>>);

impl HandoffBackend {
    /// Blocks packets that arrive before their connections, so that the kernel does not answer them
    /// with a reset.
    ///
    /// # Errors
    /// When this process has no permission, or the kernel no support.
    pub fn start(
        settings: &HandoffSettings,
        taking: &HandoffBackendSettings,
        connections: usize,
    ) -> Result<Self, BpfError> {
        handoff::is_possible().map_err(BpfError::Repair)?;
        warn_of_time_wait();
        let backend = Self {
            input_blocker: InputBlocker::new()?,
            guards: OnceLock::new(),
            interfaces: settings.interfaces.clone(),
            taking: taking.clone(),
            secret: settings.secret.clone(),
            places: Arc::new(Semaphore::new(connections)),
        };
        match backend.guard() {
            Err(error @ BpfError::Taken { .. }) => {
                tracing::warn!(%error, "front-ends have to wait until one of them has ended");
            }
            done => done?,
        }
        Ok(backend)
    }

    fn guard(&self) -> Result<(), BpfError> {
        let guard = |device: &String| Guard::start(device, &self.taking.services);
        let guards = self.interfaces.iter().map(guard).collect::<Result<_, _>>()?;
        // Only one task attaches them.
        let _ = self.guards.set(guards);
        Ok(())
    }

    /// Waits until the guards are attached.
    async fn guarded(&self) {
        while self.guards.get().is_none() {
            tokio::time::sleep(CONNECT_BACKOFF).await;
            match self.guard() {
                Ok(()) => tracing::info!("front-ends can hand connections here from now on"),
                Err(error) => tracing::debug!(%error, "front-ends still have to wait"),
            }
        }
    }
}

/// Warns if the kernel keeps connections in TIME-WAIT: such a connection would block one with the same
/// two addresses that is handed over, and the front-end would proxy it.
fn warn_of_time_wait() {
    const SETTING: &str = "/proc/sys/net/ipv4/tcp_max_tw_buckets";
    if std::fs::read_to_string(SETTING).is_ok_and(|value| value.trim() != "0") {
        tracing::warn!(
            "net.ipv4.tcp_max_tw_buckets is not 0: a client that uses a port again within a minute \
             is proxied by the front-end"
        );
    }
}

/// Accepts channels of front-ends until the node stops.
pub async fn accept<S: Serve>(
    node: Arc<S>,
    backend: Arc<HandoffBackend>,
    listener: TcpListener,
    stop: Stop,
) {
    tokio::select! {
        () = backend.guarded() => {}
        () = stop.begun() => return,
    }
    let watch = node.watch(backend.taking.dormant_retries);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.begun() => return,
        };
        match accepted {
            Ok((stream, from)) => {
                let (node, backend, stop) = (node.clone(), backend.clone(), stop.clone());
                let watch = watch.clone();
                tokio::spawn(async move {
                    match channel::open(stream, Side::Back, &backend.secret).await {
                        Ok((sender, receiver)) => {
                            tracing::info!(front_end = %from, "a front-end hands connections here");
                            receive_frames(&node, &backend, watch, (sender, receiver), stop).await;
                        }
                        Err(error) => {
                            tracing::warn!(%from, %error, "no front-end of ours");
                        }
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a channel");
                tokio::time::sleep(CONNECT_BACKOFF).await;
            }
        }
    }
}

/// Reads the frames of a front-end until the channel ends. Connections with an answer go on then; the
/// others belong to the front-end.
async fn receive_frames<S: Serve>(
    node: &Arc<S>,
    backend: &Arc<HandoffBackend>,
    watch: Option<ClientWatch>,
    (sender, mut receiver): (Arc<FrameSender>, FrameReceiver),
    stop: Stop,
) {
    let asking = Arc::new(AskingConnections::default());
    let ending = Arc::new(FrontEndEnding::default());
    let connections = ending.clone().connections(&stop);
    let listen = async {
        loop {
            match receiver.receive().await {
                Ok(Frame::Take { id, after, connection, bytes }) => {
                    let call = FrameContext {
                        node,
                        backend,
                        watch: watch.as_ref(),
                        sender: &sender,
                        asking: &asking,
                        ending: &ending,
                        stop: &connections,
                    };
                    call.take(id, after, &connection, bytes);
                }
                Ok(Frame::Leaving) => ending.leaves(),
                Ok(Frame::Stops) => ending.stops(),
                Ok(Frame::Keep(id)) => asking.answer(id, true),
                Ok(Frame::GiveUp(id)) => asking.answer(id, false),
                Ok(_) => return io::Error::other("it says what only back-ends say"),
                Err(error) => return error,
            }
        }
    };
    let leave = async {
        tokio::select! {
            () = node.left() => {}
            () = stop.begun() => {}
        }
        // The connections alone keep this node from its end.
        drop(stop);
        sender.send(&Frame::Leaving);
        std::future::pending().await
    };
    let error = tokio::select! {
        error = listen => error,
        () = sender.pump() => io::ErrorKind::BrokenPipe.into(),
        () = sender.send_urgent() => io::ErrorKind::BrokenPipe.into(),
        never = leave => match never {},
    };
    tracing::info!(%error, "a front-end is gone");
    sender.close();
    // Connections that wait for an answer get none.
    asking.0.lock().clear();
}

impl AskingConnections {
    fn answer(&self, id: u32, keep: bool) {
        if let Some(asker) = self.0.lock().remove(&id) {
            let _ = asker.send(keep);
        }
    }
}

/// The context of a frame.
struct FrameContext<'a, S: Serve> {
    node: &'a Arc<S>,
    backend: &'a Arc<HandoffBackend>,
    watch: Option<&'a ClientWatch>,
    sender: &'a Arc<FrameSender>,
    asking: &'a Arc<AskingConnections>,
    ending: &'a Arc<FrontEndEnding>,
    stop: &'a Stop,
}

impl<S: Serve> FrameContext<'_, S> {
    /// Takes a connection over, or refuses it.
    fn take(&self, id: u32, after: AfterHandoff, connection: &Connection, bytes: Vec<u8>) {
        match self.restore(connection) {
            Ok((place, stream)) => {
                let client = connection.client.ip();
                let (stream, entry) = watched(stream, client, self.watch);
                let silenced = SilencedSocket::new(id, self.sender.clone(), self.ending.clone());
                let taken = TakenConnection {
                    id,
                    after,
                    node: self.node.clone(),
                    backend: self.backend.clone(),
                    sender: self.sender.clone(),
                    asking: self.asking.clone(),
                    connection: self.node.connection(client, Some(silenced.clone())),
                    silenced,
                    _counted: CountedConnection::new(self.node.metrics()),
                };
                let (stop, cut) = (self.stop.clone(), self.stop.clone());
                let given_up = GivenUp { id, sender: Some(self.sender.clone()) };
                // Boxed: on its way to the runtime it would be copied ten times, and it has 6 KB.
                let task = tokio::spawn(Box::pin(async move {
                    tokio::select! {
                        biased;
                        () = taken.serve(stream, bytes, stop) => {}
                        () = cut.cut() => {}
                    }
                    given_up.disarm();
                    drop(place);
                }));
                entry.about.is_served_by(&task);
            }
            Err(error) => {
                tracing::info!(client = %connection.client, %error, "a connection was not taken");
                self.sender.send(&Frame::Refused(id));
            }
        }
    }

    fn restore(&self, connection: &Connection) -> io::Result<(OwnedSemaphorePermit, TcpStream)> {
        let refuse = |why| Err(io::Error::other(why));
        if !self.backend.taking.services.contains(&connection.service) {
            return refuse("it is of a service that is not taken here");
        }
        if self.stop.has_begun() {
            return refuse("this node is stopping");
        }
        let Ok(place) = self.backend.places.clone().try_acquire_owned() else {
            return refuse("as many connections are open as may be");
        };
        let socket = handoff::restore(connection, &self.backend.input_blocker)?;
        Ok((place, TcpStream::from_std(socket)?))
    }
}

/// Tells the front-end of the end of a connection that was given up as dormant: its task is aborted, and with it
/// the socket is closed by a reset. Such a connection has been answered.
struct GivenUp {
    id: u32,
    /// `None` if it was not given up.
    sender: Option<Arc<FrameSender>>,
}

impl GivenUp {
    /// The task has come to its own end.
    fn disarm(mut self) {
        self.sender = None;
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        if let Some(sender) = &self.sender {
            sender.send_soon(&Frame::Ended(self.id));
        }
    }
}

/// A connection that was taken over.
struct TakenConnection<S: Serve> {
    id: u32,
    after: AfterHandoff,
    node: Arc<S>,
    backend: Arc<HandoffBackend>,
    sender: Arc<FrameSender>,
    asking: Arc<AskingConnections>,
    connection: Arc<S::Connection>,
    silenced: Arc<SilencedSocket>,
    _counted: CountedConnection,
}

/// The node that answers a request.
enum AnswerAt {
    Here(ClientSocket),
    /// The front-end has the connection.
    Given,
}

impl<S: Serve> TakenConnection<S> {
    async fn serve(self, stream: ClientSocket, bytes: Vec<u8>, stop: Stop) {
        let (mut arrived, mut back) =
            ArrivedConnection::new(stream, bytes, Some(self.silenced.clone()));
        loop {
            let ending = tokio::select! {
                biased;
                ending = S::serve(&self.node, &self.connection, arrived, &stop) => ending,
                () = self.is_lost() => ConnectionEnd::Broken,
            };
            if !self.spoke() {
                // Dropped silently: the front-end goes on with it.
                drop(back.take());
                self.sender.send(&Frame::Refused(self.id));
                return;
            }
            let Some((stream, is_shut)) = back.take() else { break };
            if ending != ConnectionEnd::Resting {
                part(&stream, is_shut, &self.node.limits()).await;
                break;
            }
            self.sender.send_soon(&Frame::Idle(self.id));
            let mut bytes = Vec::new();
            let came = head::read(&stream, &mut bytes, &self.node.limits(), &stop).await;
            if matches!(came, HeadRead::Over(_)) || bytes.is_empty() {
                part(&stream, false, &self.node.limits()).await;
                break;
            }
            let next = match came {
                HeadRead::Head => self.next(stream, &mut bytes).await,
                _ => {
                    self.sender.send_soon(&Frame::Resumes(self.id));
                    AnswerAt::Here(stream)
                }
            };
            match next {
                AnswerAt::Given => return,
                AnswerAt::Here(stream) => {
                    (arrived, back) = ArrivedConnection::new(stream, bytes, None)
                }
            }
        }
        self.sender.send_soon(&Frame::Ended(self.id));
    }

    /// Finds the node that answers the next request; gives the connection back if it is another one.
    async fn next(&self, stream: ClientSocket, bytes: &mut Vec<u8>) -> AnswerAt {
        let goes = match self.after {
            AfterHandoff::Stay => false,
            AfterHandoff::Back => true,
            AfterHandoff::On => match self.ask(bytes).await {
                Some(true) => return AnswerAt::Here(stream),
                Some(false) => true,
                None => false,
            },
        };
        if goes && !self.sender.is_closed() {
            match self.leave(stream, bytes) {
                Ok(connection) => {
                    let (id, bytes) = (self.id, std::mem::take(bytes));
                    self.sender.send(&Frame::GivenBack { id, connection, bytes });
                    return AnswerAt::Given;
                }
                Err((stream, error)) => {
                    tracing::debug!(%error, "a connection stays: it cannot be given back");
                    self.sender.send_soon(&Frame::Resumes(self.id));
                    return AnswerAt::Here(stream);
                }
            }
        }
        self.sender.send_soon(&Frame::Resumes(self.id));
        AnswerAt::Here(stream)
    }

    /// Asks the front-end whether this node answers the request. `None` when it is gone.
    async fn ask(&self, bytes: &[u8]) -> Option<bool> {
        let (answer, answered) = oneshot::channel();
        self.asking.0.lock().insert(self.id, answer);
        let ask = Frame::Asks { id: self.id, bytes: bytes.to_vec() };
        if !self.sender.send(&ask) {
            self.asking.0.lock().remove(&self.id);
        }
        answered.await.ok()
    }

    fn leave(
        &self,
        stream: ClientSocket,
        bytes: &mut Vec<u8>,
    ) -> Result<Connection, (ClientSocket, io::Error)> {
        let socket = stream.stream();
        let left = self.backend.input_blocker.block_input(socket).and_then(|()| {
            let left = take_out(socket, handoff::ends(socket)?, bytes, false);
            if left.is_err() {
                unblock_input(socket)?;
            }
            left
        });
        left.map_err(|error| (stream, error))
    }

    fn spoke(&self) -> bool {
        self.silenced.spoke()
    }

    async fn is_lost(&self) {
        self.silenced.is_lost().await;
    }
}

/// Closes this side, and returns when the client has received everything and closed its own, or has taken too
/// little of it for too long. Until then the client's acknowledgements must arrive here: the front-end steers them
/// until it learns of the end, and afterwards would answer them with a reset.
async fn part(stream: &ClientSocket, is_shut: bool, limits: &ConnectionLimits) {
    let socket = stream.stream();
    if !is_shut {
        let _ = socket2::SockRef::from(socket).shutdown(Shutdown::Write);
    }
    let (mut left, mut looked, mut acknowledged) = (limits.send.time, Instant::now(), None);
    let (mut scratch, mut looks, mut waits) = ([0; 1024], 0, None);
    // Most clients close their side at once, and one look is enough.
    let _ = tokio::time::timeout(LOOK_INTERVAL.longest(), socket.readable()).await;
    loop {
        let ended = loop {
            match socket.try_read(&mut scratch) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break false,
                // A reset.
                Err(_) => return,
            }
        };
        let Ok(info) = TcpInfo::of(socket) else { return };
        // Bytes that a reset left unsent are never sent.
        if info.closed {
            return;
        }
        let now = Instant::now();
        let before = acknowledged.replace(info.acknowledged).unwrap_or(info.acknowledged);
        left = limits
            .send
            .earned(left.saturating_sub(now - looked), info.acknowledged.saturating_sub(before));
        looked = now;
        let has_all = info.unacked == 0 && info.unsent == 0;
        if has_all && waits.is_none() {
            waits = Some(after(CLOSE_TIMEOUT));
        }
        let until = waits.unwrap_or(now + left);
        if (has_all && ended) || now >= until {
            return;
        }
        // The kernel does not notify about the last acknowledgement.
        looks += 1;
        match ended {
            true => tokio::time::sleep(LOOK_INTERVAL.after(looks)).await,
            false => drop(
                tokio::time::timeout_at(
                    until.min(after(LOOK_INTERVAL.longest())),
                    socket.readable(),
                )
                .await,
            ),
        }
    }
}

/// How long a client that has received everything may take to close its side.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval of checks whether a client has received everything.
const LOOK_INTERVAL: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(250));
