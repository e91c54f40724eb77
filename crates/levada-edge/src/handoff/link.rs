//! A front-end's side of the channel to one back-end: what was handed there, and what became of it.

use std::{
    collections::{HashMap, VecDeque},
    io::ErrorKind,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

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

use super::{
    RETRY,
    channel::{self, Receiver, Sender, Side},
    frame::Frame,
};
use crate::settings::{After, Control};

/// A back-end that connections can be handed to while there is a channel to it.
pub(crate) struct Link {
    to: Control,
    after: After,
    state: Mutex<State>,
    /// Somebody wants it; until then nobody tries again and again to reach it.
    wanted: Notify,
}

#[derive(Default)]
struct State {
    open: Option<(Arc<Sender>, Hop)>,
    leases: HashMap<u32, Arc<Told>>,
    last: u32,
}

/// A connection that a back-end has, until this is dropped.
pub(super) struct Lease {
    link: Arc<Link>,
    sender: Arc<Sender>,
    id: u32,
    told: Arc<Told>,
}

/// What the back-end said of one connection and nobody has heard yet.
struct Told {
    connection: Connection,
    news: Mutex<VecDeque<News>>,
    /// Whether the connection can be had back without the back-end: it has not spoken.
    silent: AtomicBool,
    heard: Notify,
}

/// What a back-end says of a connection.
pub(super) enum News {
    /// It was not taken, or nothing was said and the back-end is gone: it is still ours.
    Refused,
    /// Nothing was heard of it, and the back-end cannot be heard any more; what it does is not known.
    Vanished,
    /// The back-end is gone.
    Lost,
    /// All requests are answered.
    Rests,
    /// Another one is being answered.
    Begins,
    /// Who is to answer this one?
    Asks(Vec<u8>),
    /// Here it is.
    GivenBack(Connection, Vec<u8>),
    /// It is over.
    Ended,
}

impl Link {
    pub(super) fn new(to: Control, after: After) -> Arc<Self> {
        Arc::new(Self { to, after, state: Mutex::default(), wanted: Notify::new() })
    }

    pub(super) fn is_to(&self, control: Control) -> bool {
        self.to == control
    }

    /// Where packets go that are for what this back-end has; `None` while there is no channel to it.
    pub(super) fn hop(&self) -> Option<Hop> {
        self.wanted.notify_one();
        self.state.lock().open.as_ref().map(|(_, hop)| *hop)
    }

    /// Hands a connection over, with what its client has sent.
    pub(super) fn take(self: &Arc<Self>, connection: Connection, bytes: &[u8]) -> Option<Lease> {
        let told = Arc::new(Told {
            connection,
            news: Mutex::default(),
            silent: AtomicBool::new(true),
            heard: Notify::new(),
        });
        let mut state = self.state.lock();
        let (sender, _) = state.open.clone()?;
        let mut id = state.last.wrapping_add(1);
        while state.leases.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        state.last = id;
        state.leases.insert(id, told.clone());
        drop(state);
        let lease = Lease { link: self.clone(), sender, id, told };
        let take = Frame::Take { id, after: self.after, connection, bytes: bytes.to_vec() };
        lease.sender.say(&take).then_some(lease)
    }

    /// Keeps a channel to the back-end for as long as somebody wants it.
    pub(super) async fn tend(self: Arc<Self>, secret: String) {
        let (to, mut said) = (self.to.to, Said::default());
        loop {
            self.wanted.notified().await;
            let mut pause = RETRY;
            match self.reach(&secret).await {
                Ok((sender, mut receiver)) => {
                    let since = Instant::now();
                    // Elsewhere, a client waits for what is said.
                    if self.after == After::Stay {
                        receiver.gather();
                    }
                    if said.is_news("") {
                        tracing::info!(back_end = %to, "connections can be handed off");
                    }
                    let error = tokio::select! {
                        error = self.listen(&mut receiver) => error,
                        () = sender.pump() => ErrorKind::BrokenPipe.into(),
                    };
                    if since.elapsed() > LASTING {
                        said = Said::default();
                    }
                    match said.is_news(&error.to_string()) {
                        true => tracing::warn!(back_end = %to, %error, "{GONE}"),
                        false => tracing::debug!(back_end = %to, %error, "{GONE}"),
                    }
                    self.lose(&sender, &error);
                    if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::Other) {
                        pause = AFTER_LIE;
                    }
                }
                Err(error) => match said.is_news(&error.to_string()) {
                    true => tracing::warn!(back_end = %to, %error, "{UNREACHED}"),
                    false => tracing::debug!(back_end = %to, %error, "{UNREACHED}"),
                },
            }
            sleep(pause).await;
        }
    }

    async fn reach(&self, secret: &str) -> std::io::Result<(Arc<Sender>, Receiver)> {
        let hop = Steering::hop(self.to.addresses()).map_err(std::io::Error::other)?;
        let stream = tokio::time::timeout(RETRY * 3, TcpStream::connect(self.to.to)).await??;
        let (sender, receiver) = channel::open(stream, Side::Front, secret).await?;
        self.state.lock().open = Some((sender.clone(), hop));
        Ok((sender, receiver))
    }

    /// Hears what the back-end says, until it says nothing more or what cannot be.
    async fn listen(&self, receiver: &mut Receiver) -> std::io::Error {
        loop {
            let told = match receiver.hear().await {
                Ok(frame) => self.note(frame),
                Err(error) => return error,
            };
            if let Err(Lie) = told {
                return std::io::Error::other("it says of a connection what cannot be");
            }
        }
    }

    fn note(&self, frame: Frame) -> Result<(), Lie> {
        let (id, news) = match frame {
            Frame::Speaks(id) => (id, None),
            Frame::Refused(id) => (id, Some(News::Refused)),
            Frame::Rests(id) => (id, Some(News::Rests)),
            Frame::Begins(id) => (id, Some(News::Begins)),
            Frame::Asks { id, bytes } => (id, Some(News::Asks(bytes))),
            Frame::GivenBack { id, connection, bytes } => {
                (id, Some(News::GivenBack(connection, bytes)))
            }
            Frame::Ended(id) => (id, Some(News::Ended)),
            Frame::Take { .. } | Frame::Keep(_) | Frame::GiveUp(_) => return Err(Lie),
        };
        // Of what is not here any more, somebody here has let go.
        let told = self.state.lock().leases.get(&id).cloned();
        told.map_or(Ok(()), |told| told.note(news))
    }

    fn lose(&self, sender: &Arc<Sender>, error: &std::io::Error) {
        sender.close();
        // Its process has ended, or has let go of whatever was silent.
        let known = matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset);
        let leases = {
            let mut state = self.state.lock();
            state.open = None;
            std::mem::take(&mut state.leases)
        };
        leases.values().for_each(|told| told.lose(known));
    }
}

/// What the log has of a back-end since it was last of use for some time: what is tried every second must
/// not be told as often.
#[derive(Default)]
struct Said(Vec<String>);

impl Said {
    fn is_news(&mut self, text: &str) -> bool {
        if self.0.iter().any(|said| said == text) {
            return false;
        }
        if self.0.len() >= MOST_SAID {
            self.0.clear();
        }
        self.0.push(text.to_owned());
        true
    }
}

/// A back-end that knows the secret, and says what it cannot mean.
struct Lie;

impl Told {
    fn note(&self, news: Option<News>) -> Result<(), Lie> {
        let silent = self.silent.load(Relaxed);
        let possible = match &news {
            None | Some(News::Refused) => silent,
            Some(News::GivenBack(connection, _)) => {
                let ends = (connection.service, connection.client);
                !silent && ends == (self.connection.service, self.connection.client)
            }
            Some(_) => !silent,
        };
        if !possible {
            return Err(Lie);
        }
        match news {
            None => {
                self.silent.store(false, Relaxed);
                Ok(())
            }
            Some(news) => self.push(news),
        }
    }

    fn push(&self, news: News) -> Result<(), Lie> {
        let mut waiting = self.news.lock();
        if waiting.len() >= MOST_NEWS {
            return Err(Lie);
        }
        waiting.push_back(news);
        drop(waiting);
        self.heard.notify_one();
        Ok(())
    }

    fn lose(&self, known: bool) {
        let news = match self.silent.load(Relaxed) {
            true if known => News::Refused,
            true => News::Vanished,
            false => News::Lost,
        };
        let mut waiting = self.news.lock();
        waiting.push_back(news);
        drop(waiting);
        self.heard.notify_one();
    }
}

impl Lease {
    /// What the back-end says next.
    pub(super) async fn news(&self) -> News {
        loop {
            let next = self.told.news.lock().pop_front();
            match next {
                Some(news) => return news,
                None => self.told.heard.notified().await,
            }
        }
    }

    /// Has the back-end answer the request that it asked about.
    pub(super) fn keep(&self) {
        self.sender.say(&Frame::Keep(self.id));
    }

    /// Wants the connection back.
    pub(super) fn give_up(&self) {
        self.sender.say(&Frame::GiveUp(self.id));
    }

    pub(super) fn is_at(&self, link: &Arc<Link>) -> bool {
        Arc::ptr_eq(&self.link, link)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.link.state.lock();
        // Another channel may have given the name to another connection.
        if state.leases.get(&self.id).is_some_and(|told| Arc::ptr_eq(told, &self.told)) {
            state.leases.remove(&self.id);
        }
    }
}

/// What can have happened to a connection before anybody has looked: an answer's end, the next request's
/// beginning and end, the connection's end. A back-end that says more than that floods.
const MOST_NEWS: usize = 64;
const MOST_SAID: usize = 16;
/// How long a channel must have been there for its end to be news again.
const LASTING: Duration = Duration::from_secs(10);
/// Whoever says what cannot be is not trusted again soon: what was handed to it was late.
const AFTER_LIE: Duration = Duration::from_secs(60);
const GONE: &str = "proxying: the back-end is gone";
const UNREACHED: &str = "proxying: connections cannot be handed to this back-end";

#[cfg(test)]
mod tests {
    use levada_net::handoff::Window;

    use super::*;

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

    /// A link with one connection at its back-end, by the name 7.
    fn link() -> (Arc<Link>, Arc<Told>) {
        let to = Control { to: "127.0.0.1:1".parse().unwrap(), also: None };
        let link = Link::new(to, After::On);
        let told = Arc::new(Told {
            connection: connection(40_000),
            news: Mutex::default(),
            silent: AtomicBool::new(true),
            heard: Notify::new(),
        });
        link.state.lock().leases.insert(7, told.clone());
        (link, told)
    }

    #[test]
    fn a_back_end_that_says_what_cannot_be_lies() {
        let given = |port| Frame::GivenBack { id: 7, connection: connection(port), bytes: vec![] };
        let asks = Frame::Asks { id: 7, bytes: vec![] };
        let (link, _) = link();
        for early in [Frame::Rests(7), Frame::Begins(7), Frame::Ended(7), asks, given(40_000)] {
            assert!(link.note(early.clone()).is_err(), "{early:?} before it has spoken");
        }
        assert!(link.note(Frame::Speaks(7)).is_ok());
        for late in [Frame::Speaks(7), Frame::Refused(7), given(40_001), Frame::Keep(7)] {
            assert!(link.note(late.clone()).is_err(), "{late:?} after it has spoken");
        }
        assert!(link.note(given(40_000)).is_ok());
    }

    #[test]
    fn a_back_end_that_floods_lies_and_of_a_stranger_nothing_is_heard() {
        let (link, told) = link();
        assert!(link.note(Frame::Speaks(7)).is_ok());
        let said = (0..).take_while(|_| link.note(Frame::Rests(7)).is_ok()).count();
        assert_eq!((said, told.news.lock().len()), (MOST_NEWS, MOST_NEWS));
        assert!(link.note(Frame::Ended(8)).is_ok());
    }
}
