//! A front-end's side of one back-end: the channel by which connections are handed to it now.
//!
//! A back-end whose process is about to end says so. Its channel stays until the connections there have ended;
//! others are handed over by a new channel, to the process that listens now.

use std::{
    convert::Infallible,
    io::ErrorKind,
    sync::{Arc, Weak},
    time::Duration,
};

use levada_net::bpf::{Hop, Steering};
use parking_lot::Mutex;
use tokio::{
    net::TcpStream,
    sync::Notify,
    time::{Instant, sleep},
};

use crate::handoff::{
    channel::{self, CONNECT_BACKOFF, CONNECT_TIMEOUT, FrameReceiver, Side},
    frame::Frame,
    handed_off::HandedOffConnection,
    remote::OpenChannel,
    serve::Serve,
    settings::{AfterHandoff, HandoffControl},
};

/// A back-end. Connections can be handed to it while there is a channel.
pub struct BackendLink<S: Serve> {
    to: HandoffControl,
    after: AfterHandoff,
    node: Weak<S>,
    state: Mutex<LinkState<S>>,
    logged: Mutex<LogHistory>,
    /// Notifies that the link is needed; until then there are no attempts to connect.
    wanted: Notify,
}

struct LinkState<S: Serve> {
    open: Option<Arc<OpenChannel<S>>>,
    /// Channels to processes of the back-end that take no more connections.
    former: Vec<Weak<OpenChannel<S>>>,
    /// This node's last word, for every channel.
    ending: Option<Frame>,
    /// The number of clients in a row that have acknowledged nothing of their answers.
    unheard: u32,
    /// No connection is handed over until then.
    rests_until: Option<Instant>,
}

impl<S: Serve> Default for LinkState<S> {
    fn default() -> Self {
        Self { open: None, former: Vec::new(), ending: None, unheard: 0, rests_until: None }
    }
}

impl<S: Serve> BackendLink<S> {
    pub(crate) fn new(to: HandoffControl, after: AfterHandoff, node: Weak<S>) -> Arc<Self> {
        let (state, logged) = (Mutex::default(), Mutex::default());
        Arc::new(Self { to, after, node, state, logged, wanted: Notify::new() })
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
        let open = state.open.as_ref().filter(|channel| !channel.is_retired());
        let hop = open.map(|channel| channel.hop);
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
        match self.open() {
            Some(channel) => channel.take(self.after, handed_off),
            None => Err(handed_off),
        }
    }

    /// Sends the connections that were handed over. A channel that is retired has sent them.
    pub fn flush(&self) {
        if let Some(channel) = self.open() {
            channel.sender.flush();
        }
    }

    fn open(&self) -> Option<Arc<OpenChannel<S>>> {
        self.state.lock().open.clone()
    }

    /// Tells the back-end that this node ends.
    pub(crate) fn end(&self, word: Frame) {
        let mut state = self.state.lock();
        let former = state.former.iter().filter_map(Weak::upgrade);
        for channel in former.chain(state.open.clone()) {
            channel.sender.send(&word);
        }
        state.ending = Some(word);
    }

    /// Keeps a channel to the back-end open while the link is needed.
    pub(crate) async fn tend(self: Arc<Self>, secret: String) {
        let to = self.to.to;
        loop {
            self.wanted.notified().await;
            let since = Instant::now();
            let pause = match self.reach(&secret).await {
                Ok((channel, receiver)) => {
                    let served = tokio::spawn(self.clone().serve(channel.clone(), receiver));
                    tokio::select! {
                        pause = served => pause.unwrap_or(CONNECT_BACKOFF),
                        () = channel.retired() => {
                            tracing::info!(back_end = %to, "the back-end's process takes no more connections");
                            self.release(&channel);
                            CONNECT_BACKOFF.saturating_sub(since.elapsed())
                        }
                    }
                }
                Err(error) => {
                    match self.logged.lock().is_new(&error.to_string()) {
                        true => tracing::warn!(back_end = %to, %error, "{UNREACHED}"),
                        false => tracing::debug!(back_end = %to, %error, "{UNREACHED}"),
                    }
                    CONNECT_BACKOFF
                }
            };
            sleep(pause).await;
        }
    }

    async fn reach(&self, secret: &str) -> std::io::Result<(Arc<OpenChannel<S>>, FrameReceiver)> {
        let hop = Steering::hop(self.to.addresses()).map_err(std::io::Error::other)?;
        let stream =
            tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(self.to.to)).await??;
        let (sender, receiver) = channel::open(stream, Side::Front, secret).await?;
        let channel = OpenChannel::new(self.to, hop, sender, self.node.clone());
        let mut state = self.state.lock();
        if let Some(word) = &state.ending {
            channel.sender.send(word);
        }
        state.open = Some(channel.clone());
        Ok((channel, receiver))
    }

    /// Handles the frames of a channel until it ends. Returns how long not to open another one.
    async fn serve(
        self: Arc<Self>,
        channel: Arc<OpenChannel<S>>,
        mut receiver: FrameReceiver,
    ) -> Duration {
        let (to, since) = (self.to.to, Instant::now());
        // With the other settings, a client waits for frames.
        if self.after == AfterHandoff::Stay {
            receiver.gather();
        }
        if self.logged.lock().is_new("") {
            tracing::info!(back_end = %to, "connections can be handed off");
        }
        let error = tokio::select! {
            error = channel.listen(&mut receiver) => error,
            () = channel.sender.pump() => channel.drain(&mut receiver).await,
            () = channel.is_over() => {
                // The socket is closed with its last owner.
                self.release(&channel);
                channel.sender.close();
                return Duration::ZERO;
            }
            never = self.watch_samples(&channel) => match never {},
        };
        let mut logged = self.logged.lock();
        if since.elapsed() > LASTING {
            *logged = LogHistory::default();
        }
        match !channel.is_retired() && logged.is_new(&error.to_string()) {
            true => tracing::warn!(back_end = %to, %error, "{GONE}"),
            false => tracing::debug!(back_end = %to, %error, "{GONE}"),
        }
        drop(logged);
        self.release(&channel);
        channel.lose(&error);
        match error.kind() {
            ErrorKind::InvalidData | ErrorKind::Other => VIOLATION_BACKOFF,
            _ => CONNECT_BACKOFF,
        }
    }

    /// Hands nothing over by this channel any more, but by another one.
    fn release(&self, channel: &Arc<OpenChannel<S>>) {
        let mut state = self.state.lock();
        if state.open.take_if(|open| Arc::ptr_eq(open, channel)).is_some() {
            state.former.retain(|former| former.strong_count() > 0);
            state.former.push(Arc::downgrade(channel));
        }
        self.wanted.notify_one();
    }

    /// Samples whether clients receive answers. A firewall may pass the channel but not the answers,
    /// whose source address is not the back-end's own.
    async fn watch_samples(&self, channel: &OpenChannel<S>) -> Infallible {
        let to = self.to.to;
        loop {
            sleep(SAMPLE_INTERVAL).await;
            if self.is_unheard(channel) {
                match self.logged.lock().is_new(UNHEARD) {
                    true => tracing::warn!(back_end = %to, "{UNHEARD}"),
                    false => tracing::debug!(back_end = %to, "{UNHEARD}"),
                }
            }
        }
    }

    /// Whether to pause handoffs for a while from now on.
    fn is_unheard(&self, channel: &OpenChannel<S>) -> bool {
        let Some(heard) = channel.sample(ACKNOWLEDGE_TIMEOUT) else { return false };
        let mut state = self.state.lock();
        if heard {
            state.unheard = 0;
            return false;
        }
        state.unheard += 1;
        if state.unheard < MAX_UNHEARD {
            return false;
        }
        // After the pause, one more sample suffices.
        state.unheard = MAX_UNHEARD - 1;
        state.rests_until = Some(Instant::now() + UNHEARD_BACKOFF);
        true
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

const MAX_LOGGED: usize = 16;
/// How long a channel must have been open for its end to be logged again.
const LASTING: Duration = Duration::from_secs(10);
/// The pause after a protocol violation: connections handed to this back-end were delayed.
const VIOLATION_BACKOFF: Duration = Duration::from_secs(60);
/// The interval of samples, and how long a client may take to acknowledge the begin of an answer.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// A round trip of any path, and one retransmission.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(2);
/// One client may have vanished; for so many in a row a firewall is the likelier cause.
const MAX_UNHEARD: u32 = 3;
/// Requests are proxied for so long before the path is tried again.
const UNHEARD_BACKOFF: Duration = Duration::from_secs(60);
const UNHEARD: &str = "proxying: clients do not get what this back-end answers; \
    is a firewall in the way of what it sends from the service's address?";
const GONE: &str = "proxying: the back-end is gone";
const UNREACHED: &str = "proxying: connections cannot be handed to this back-end";

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::handoff::remote::tests::NoNode;

    const SECRET: &str = "0123456789abcdef";

    #[tokio::test]
    async fn channel_of_a_back_end_that_leaves_without_connections_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = HandoffControl { to: listener.local_addr().unwrap(), also: None };
        let link = BackendLink::<NoNode>::new(to, AfterHandoff::Stay, Weak::new());
        let back = async {
            let (stream, _) = listener.accept().await.unwrap();
            channel::open(stream, Side::Back, SECRET).await.unwrap()
        };
        let (front, (sender, mut at_back)) = tokio::join!(link.reach(SECRET), back);
        let (channel, receiver) = front.unwrap();
        // The first write of a socket may have to wait for the driver.
        tokio::spawn(async move {
            sender.send(&Frame::Leaving);
            sender.pump().await;
        });
        link.clone().serve(channel, receiver).await;
        let end = tokio::time::timeout(CONNECT_TIMEOUT, at_back.receive()).await;
        let end = end.expect("the channel is closed").unwrap_err();
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    }
}
