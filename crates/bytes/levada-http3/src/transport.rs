//! A connection of quinn as h3 uses it, with the guard in between ([`crate::frames`]).

use std::{
    collections::VecDeque,
    pin::{Pin, pin},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf, Bytes};
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use http::{HeaderMap, StatusCode};
use hyper::ext::Protocol;
use levada_http::{
    InterimWay,
    wakeups::{TASK, Wakeups},
};
use parking_lot::Mutex;
use quinn::{ConnectionError, ReadError, VarInt, WriteError, Written};

use crate::{
    code::{Code, Fault},
    fields::PseudoFields,
    frames::{DATA, Frames, HeadBytes, frame_header},
    uni::{QpackStreams, UniStream},
};

/// A connection of a client.
pub(crate) struct Transport {
    connection: quinn::Connection,
    /// Brings the streams of requests that have come, until the connection ends.
    accepting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    came: Arc<Mutex<VecDeque<BothEnds>>>,
    accepting_uni: Option<Accepting<quinn::RecvStream>>,
    /// Unidirectional streams that are not h3's, or not known yet.
    uni: Vec<UniStream>,
    uni_gate: Gate,
    qpack: QpackStreams,
    opening: Option<Accepting<quinn::SendStream>>,
    accepted: Accepted,
    heads: Arc<HeadBytes>,
    longest_head: usize,
}

type BothEnds = (quinn::SendStream, quinn::RecvStream);

type Accepting<T> = Pin<Box<dyn Future<Output = Result<T, ConnectionError>> + Send>>;

/// The streams of requests that h3 has accepted, in their order.
pub(crate) type Accepted = Arc<Mutex<VecDeque<Arc<RequestLine>>>>;

/// The stream of a request, as its request knows it, outside h3.
#[derive(Debug)]
pub(crate) struct RequestLine {
    pub(crate) id: u64,
    send: Mutex<quinn::SendStream>,
    /// Bytes of the response that were taken for sending.
    taken: AtomicU64,
    /// The fault for which the guard has ended it.
    fault: OnceLock<Fault>,
    pseudo: OnceLock<PseudoFields>,
    /// The part of a request that may outlive its stream.
    hints: Arc<HintQueue>,
}

/// Interim responses that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct HintQueue(Mutex<Hints>);

#[derive(Debug, Default)]
struct Hints {
    waiting: VecDeque<(StatusCode, HeaderMap)>,
    sender: Option<Waker>,
}

/// Bytes of a response with which no stream that was stopped takes much of the room for all responses.
const SHORT: u64 = 8 << 10;
/// Interim responses that may wait. They are hints: more of them are dropped.
const MOST_HINTS: usize = 8;

impl InterimWay for HintQueue {
    fn pass(&self, status: StatusCode, headers: HeaderMap) {
        let mut hints = self.0.lock();
        if hints.waiting.len() < MOST_HINTS {
            hints.waiting.push_back((status, headers));
            if let Some(sender) = hints.sender.take() {
                sender.wake();
            }
        }
    }
}

impl RequestLine {
    /// Ends both directions of the stream at once.
    pub(crate) fn reset(&self, code: Code) {
        // It may have ended already.
        let _ = self.send.lock().reset(code.into());
    }

    /// Returns when the client has all of the response, or does not want it any more; `true` in the first case.
    pub(crate) fn settled(&self) -> impl Future<Output = bool> + Send + use<> {
        let stopped = self.send.lock().stopped();
        async { matches!(stopped.await, Ok(None)) }
    }

    /// Whether the client has all of the response, or knows of its end.
    pub(crate) fn is_settled(&self) -> bool {
        // quinn forgets such a stream.
        self.send.lock().priority().is_err()
    }

    /// Whether the response takes little room until the client has it.
    pub(crate) fn is_short(&self) -> bool {
        self.taken.load(Relaxed) <= SHORT
    }

    /// Where interim responses wait to be sent.
    pub(crate) fn hints(&self) -> Arc<HintQueue> {
        self.hints.clone()
    }

    /// The next interim response.
    pub(crate) fn poll_hint(&self, cx: &mut Context<'_>) -> Poll<(StatusCode, HeaderMap)> {
        let mut hints = self.hints.0.lock();
        if let Some(hint) = hints.waiting.pop_front() {
            return Poll::Ready(hint);
        }
        hints.sender = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the head has the pseudo fields of a request.
    pub(crate) fn fits(&self, is_connect: bool) -> bool {
        self.pseudo.get().is_some_and(|pseudo| pseudo.fit(is_connect))
    }

    /// The protocol of an extended CONNECT.
    pub(crate) fn protocol(&self) -> Option<Protocol> {
        self.pseudo.get()?.protocol()
    }

    /// The code for the end of the stream if its head did not pass.
    pub(crate) fn fault(&self) -> Option<Code> {
        match self.fault.get() {
            Some(Fault::Stream(code) | Fault::Connection(code, _)) => Some(*code),
            None => None,
        }
    }

    /// Writes as much of these bytes as the client takes.
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        bytes: &mut [Bytes],
    ) -> Poll<Result<Written, WriteError>> {
        let mut send = self.send.lock();
        pin!(send.write_chunks(bytes)).poll(cx)
    }

    /// Ends the direction to the client behind all that was written.
    pub(crate) fn finish(&self) {
        // It may have ended already.
        let _ = self.send.lock().finish();
    }

    /// Writes a frame without copying its payload. `written` counts the bytes that were taken.
    pub(crate) async fn write(
        &self,
        mut bytes: [Bytes; 2],
        written: &AtomicU64,
    ) -> Result<(), WriteError> {
        let mut next = 0;
        while next < bytes.len() {
            let taken = std::future::poll_fn(|cx| self.poll_write(cx, &mut bytes[next..])).await?;
            written.fetch_add(taken.bytes as u64, Relaxed);
            self.taken.fetch_add(taken.bytes as u64, Relaxed);
            next += taken.chunks;
        }
        Ok(())
    }
}

/// A DATA frame.
pub(crate) fn data_frame(payload: Bytes) -> [Bytes; 2] {
    [frame_header(DATA as u8, payload.len()), payload]
}

impl Transport {
    /// `longest_head` bounds an encoded head.
    pub(crate) fn new(connection: quinn::Connection, longest_head: usize) -> (Self, Accepted) {
        let (accepted, came) = (Accepted::default(), Arc::<Mutex<VecDeque<_>>>::default());
        let (accepting, bring) = (connection.clone(), came.clone());
        let accepting = Box::pin(async move {
            while let Ok(stream) = accepting.accept_bi().await {
                bring.lock().push_back(stream);
            }
        });
        let transport = Self {
            connection,
            accepting: Some(accepting),
            came,
            accepting_uni: None,
            uni: Vec::new(),
            uni_gate: Gate::new(),
            qpack: QpackStreams::default(),
            opening: None,
            accepted: accepted.clone(),
            heads: Arc::default(),
            longest_head,
        };
        (transport, accepted)
    }

    /// Reads the unidirectional streams. Ready with that of control.
    fn poll_uni(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RecvSide, ConnectionErrorIncoming>> {
        loop {
            let connection = self.connection.clone();
            let accept = || Box::pin(async move { connection.accept_uni().await }) as Accepting<_>;
            let accepting = self.accepting_uni.get_or_insert_with(accept);
            let Poll::Ready(accepted) = accepting.as_mut().poll(cx) else { break };
            self.accepting_uni = None;
            self.uni.push(UniStream::new(accepted.map_err(connection_error)?));
        }
        let mut at = 0;
        while at < self.uni.len() {
            match self.uni[at].poll(cx, &mut self.qpack) {
                Poll::Pending => at += 1,
                Poll::Ready(Ok(None)) => drop(self.uni.swap_remove(at)),
                Poll::Ready(Ok(Some(kind))) => {
                    let stream = self.uni.swap_remove(at).into_inner();
                    return Poll::Ready(Ok(RecvSide::control(&self.connection, stream, kind)));
                }
                Poll::Ready(Err(Fault::Stream(_))) => drop(self.uni.swap_remove(at)),
                Poll::Ready(Err(Fault::Connection(code, why))) => {
                    self.connection.close(code.into(), why.as_bytes());
                    return Poll::Ready(Err(closed_here()));
                }
            }
        }
        Poll::Pending
    }
}

/// A source that rarely has something to read. h3 polls it with every other event; here it is looked at when it was woken.
#[derive(Clone, Debug)]
struct Gate {
    wakeups: Arc<Wakeups>,
    waker: Waker,
}

impl Gate {
    fn new() -> Self {
        let wakeups = Arc::<Wakeups>::default();
        wakeups.note(TASK);
        Self { waker: wakeups.waker(TASK), wakeups }
    }

    fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.wakeups.register(cx.waker());
        if !self.wakeups.take_task() {
            return Poll::Pending;
        }
        let polled = poll(&mut Context::from_waker(&self.waker));
        if polled.is_ready() {
            self.wakeups.note(TASK);
        }
        polled
    }
}

impl quic::Connection<Bytes> for Transport {
    type RecvStream = RecvSide;
    type OpenStreams = Unopened;

    /// h3 gets the control stream only: it does not read the streams of QPACK, and stops all others.
    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RecvSide, ConnectionErrorIncoming>> {
        let gate = self.uni_gate.clone();
        gate.poll(cx, |cx| self.poll_uni(cx))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BothSides, ConnectionErrorIncoming>> {
        let mut came = self.came.lock().pop_front();
        if came.is_none()
            && let Some(accepting) = &mut self.accepting
        {
            if accepting.as_mut().poll(cx).is_ready() {
                self.accepting = None;
            }
            came = self.came.lock().pop_front();
        }
        let Some((send, recv)) = came else {
            let ended = self.accepting.is_none().then(|| self.connection.close_reason()).flatten();
            return ended.map_or(Poll::Pending, |error| Poll::Ready(Err(connection_error(error))));
        };
        let line = Arc::new(RequestLine {
            id: send.id().into(),
            send: Mutex::new(send),
            taken: AtomicU64::new(0),
            fault: OnceLock::new(),
            pseudo: OnceLock::new(),
            hints: Arc::default(),
        });
        self.accepted.lock().push_back(line.clone());
        let recv = RecvSide {
            id: recv.id(),
            stream: recv,
            connection: self.connection.clone(),
            frames: Frames::of_request(self.longest_head),
            passed: VecDeque::new(),
            heads: self.heads.clone(),
            line: Some(line.clone()),
            gate: None,
            ended: false,
        };
        let send = SendSide { stream: SendStream::Request(line), writing: None };
        Poll::Ready(Ok(BothSides { send, recv }))
    }

    fn opener(&self) -> Unopened {
        Unopened(self.connection.clone())
    }
}

impl quic::OpenStreams<Bytes> for Transport {
    type BidiStream = BothSides;
    type SendStream = SendSide;

    fn poll_open_bidi(
        &mut self,
        _cx: &mut Context<'_>,
    ) -> Poll<Result<BothSides, StreamErrorIncoming>> {
        Poll::Ready(Err(never_opened()))
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<SendSide, StreamErrorIncoming>> {
        let connection = self.connection.clone();
        let open = || Box::pin(async move { connection.open_uni().await }) as Accepting<_>;
        let opened = ready!(self.opening.get_or_insert_with(open).as_mut().poll(cx));
        self.opening = None;
        let stream = opened.map_err(|error| StreamErrorIncoming::ConnectionErrorIncoming {
            connection_error: connection_error(error),
        })?;
        Poll::Ready(Ok(SendSide { stream: SendStream::Own(stream), writing: None }))
    }

    fn close(&mut self, code: h3::error::Code, reason: &[u8]) {
        close(&self.connection, code, reason);
    }
}

/// Streams that a server does not open: pushes and WebTransport.
pub(crate) struct Unopened(quinn::Connection);

impl quic::OpenStreams<Bytes> for Unopened {
    type BidiStream = BothSides;
    type SendStream = SendSide;

    fn poll_open_bidi(
        &mut self,
        _cx: &mut Context<'_>,
    ) -> Poll<Result<BothSides, StreamErrorIncoming>> {
        Poll::Ready(Err(never_opened()))
    }

    fn poll_open_send(
        &mut self,
        _cx: &mut Context<'_>,
    ) -> Poll<Result<SendSide, StreamErrorIncoming>> {
        Poll::Ready(Err(never_opened()))
    }

    fn close(&mut self, code: h3::error::Code, reason: &[u8]) {
        close(&self.0, code, reason);
    }
}

fn close(connection: &quinn::Connection, code: h3::error::Code, reason: &[u8]) {
    connection.close(VarInt::from_u64(code.value()).unwrap_or(VarInt::MAX), reason);
}

/// The stream of a request.
pub(crate) struct BothSides {
    send: SendSide,
    recv: RecvSide,
}

/// The side of a stream that this node writes.
pub(crate) struct SendSide {
    stream: SendStream,
    writing: Option<WriteBuf<Bytes>>,
}

enum SendStream {
    Request(Arc<RequestLine>),
    Own(quinn::SendStream),
}

impl SendStream {
    fn with<T>(&mut self, act: impl FnOnce(&mut quinn::SendStream) -> T) -> T {
        match self {
            Self::Request(line) => act(&mut line.send.lock()),
            Self::Own(stream) => act(stream),
        }
    }
}

impl quic::SendStream<Bytes> for SendSide {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        if let Some(data) = &mut self.writing {
            while data.has_remaining() {
                let written =
                    self.stream.with(|stream| Pin::new(stream).poll_write(cx, data.chunk()));
                data.advance(ready!(written).map_err(write_error)?);
            }
        }
        self.writing = None;
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if self.writing.is_some() {
            return Err(StreamErrorIncoming::Unknown("the last frame is not written".into()));
        }
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        let finished = self.stream.with(quinn::SendStream::finish);
        Poll::Ready(finished.map_err(|error| StreamErrorIncoming::Unknown(Box::new(error))))
    }

    fn reset(&mut self, code: u64) {
        let code = VarInt::from_u64(code).unwrap_or(VarInt::MAX);
        // It may have ended already.
        let _ = self.stream.with(|stream| stream.reset(code));
    }

    fn send_id(&self) -> StreamId {
        match &self.stream {
            SendStream::Request(line) => stream_id(line.id),
            SendStream::Own(stream) => stream_id(stream.id().into()),
        }
    }
}

/// The side of a stream that the client writes.
pub(crate) struct RecvSide {
    id: quinn::StreamId,
    stream: quinn::RecvStream,
    connection: quinn::Connection,
    frames: Frames,
    passed: VecDeque<Bytes>,
    heads: Arc<HeadBytes>,
    /// Of a request.
    line: Option<Arc<RequestLine>>,
    /// Of the control stream.
    gate: Option<Gate>,
    ended: bool,
}

impl RecvSide {
    /// The client's control stream, whose type was `kind` in its encoding.
    fn control(connection: &quinn::Connection, stream: quinn::RecvStream, kind: Bytes) -> Self {
        Self {
            id: stream.id(),
            stream,
            connection: connection.clone(),
            frames: Frames::of_control(),
            passed: VecDeque::from([kind]),
            heads: Arc::default(),
            line: None,
            gate: Some(Gate::new()),
            ended: false,
        }
    }

    /// Reads on until something may pass.
    fn poll_passed(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        loop {
            if let Some(bytes) = self.passed.pop_front() {
                return Poll::Ready(Ok(Some(bytes)));
            }
            if self.ended {
                return Poll::Ready(Ok(None));
            }
            let read = ready!(pin!(self.stream.read_chunk(usize::MAX, true)).poll(cx));
            let Self { frames, passed, heads, .. } = self;
            let judged = match read.map_err(read_error)? {
                Some(chunk) => frames.feed(chunk.bytes, passed, heads),
                None => {
                    self.ended = true;
                    frames.end()
                }
            };
            if let Err(fault) = judged {
                return Poll::Ready(Err(self.refuse(fault)));
            }
            if let (Some(line), Some(pseudo)) = (&self.line, self.frames.pseudo) {
                // Only the first of several counts.
                let _ = line.pseudo.set(pseudo);
            }
        }
    }

    /// Ends the stream, or the connection.
    fn refuse(&mut self, fault: Fault) -> StreamErrorIncoming {
        self.ended = true;
        if let Some(line) = &self.line {
            let _ = line.fault.set(fault);
        }
        match fault {
            Fault::Stream(code) => {
                let _ = self.stream.stop(code.into());
                StreamErrorIncoming::StreamTerminated { error_code: code.into() }
            }
            Fault::Connection(code, why) => {
                self.connection.close(code.into(), why.as_bytes());
                StreamErrorIncoming::ConnectionErrorIncoming { connection_error: closed_here() }
            }
        }
    }
}

impl quic::RecvStream for RecvSide {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        match self.gate.clone() {
            Some(gate) => gate.poll(cx, |cx| self.poll_passed(cx)),
            None => self.poll_passed(cx),
        }
    }

    fn stop_sending(&mut self, code: u64) {
        let _ = self.stream.stop(VarInt::from_u64(code).unwrap_or(VarInt::MAX));
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.id.into())
    }
}

impl Drop for RecvSide {
    fn drop(&mut self) {
        self.frames.forget(&self.heads);
        if !self.ended {
            // The rest of the request is not needed (RFC 9114 Sec. 4.1).
            let _ = self.stream.stop(Code::NO_ERROR.into());
        }
    }
}

impl quic::BidiStream<Bytes> for BothSides {
    type SendStream = SendSide;
    type RecvStream = RecvSide;

    fn split(self) -> (SendSide, RecvSide) {
        (self.send, self.recv)
    }
}

impl quic::RecvStream for BothSides {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.recv.poll_data(cx)
    }

    fn stop_sending(&mut self, code: u64) {
        self.recv.stop_sending(code);
    }

    fn recv_id(&self) -> StreamId {
        self.recv.recv_id()
    }
}

impl quic::SendStream<Bytes> for BothSides {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, code: u64) {
        self.send.reset(code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

fn stream_id(id: u64) -> StreamId {
    id.try_into().unwrap_or_else(|_| unreachable!("QUIC has no larger stream ids than HTTP/3"))
}

fn never_opened() -> StreamErrorIncoming {
    StreamErrorIncoming::Unknown("a server opens no streams for requests".into())
}

fn closed_here() -> ConnectionErrorIncoming {
    ConnectionErrorIncoming::Undefined(Arc::new(ConnectionError::LocallyClosed))
}

fn connection_error(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(closed) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: closed.error_code.into() }
        }
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        other => ConnectionErrorIncoming::Undefined(Arc::new(other)),
    }
}

fn lost(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error: connection_error(error) }
}

fn read_error(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(code) => StreamErrorIncoming::StreamTerminated { error_code: code.into() },
        ReadError::ConnectionLost(error) => lost(error),
        other => StreamErrorIncoming::Unknown(Box::new(other)),
    }
}

fn write_error(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(code) => {
            StreamErrorIncoming::StreamTerminated { error_code: code.into() }
        }
        WriteError::ConnectionLost(error) => lost(error),
        other => StreamErrorIncoming::Unknown(Box::new(other)),
    }
}
