//! A lane: one of the parallel connections that fetch a file. It sends the requests that
//! `levada_fetch::resume` chooses, and reports their results.

mod silence;
mod spare;

use std::time::Duration;

use bytes::Bytes;
use http::{Response, header};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Limited};
use levada_fetch::{
    Algorithm,
    resume::{After, Ask, Next, Place, Trouble, Verdict},
};
use tokio::time::{Instant, sleep, timeout};

use self::spare::Spare;
use super::{
    ConnectionReport, DisconnectReason, GetError, content_disposition,
    head::{answer, fields, redirected},
    transfer::ActiveTransfer,
};
use crate::connect::{ConnectError, HttpConnection, ResponseBody};

/// One of the connections that fetch in parallel.
pub(super) struct Lane<'a> {
    work: &'a ActiveTransfer<'a>,
    id: u32,
    link: Option<HttpConnection>,
    spare: Spare<'a>,
    /// Whether the spare connection has replaced one that was only silent.
    has_doubted: bool,
    /// How many handshakes were cut.
    cuts: u32,
    /// The index of the last connection in the history, and the time of its last byte.
    before: Option<(Option<usize>, Instant)>,
}

impl<'a> Lane<'a> {
    pub(super) fn new(work: &'a ActiveTransfer<'a>, id: u32) -> Self {
        Self {
            work,
            id,
            link: None,
            spare: Spare::default(),
            has_doubted: false,
            cuts: 0,
            before: None,
        }
    }

    /// Runs until this lane has no more work.
    pub(super) async fn run(mut self) -> Result<(), GetError> {
        loop {
            let next = self.work.ask(self.id);
            let Next::Ask(ask) = next else { break };
            match self.exchange(&ask).await? {
                After::Again(pause) if pause.is_zero() => {}
                After::Again(pause) => sleep(pause).await,
                After::Retire => break,
                After::Failed(trouble) => return Err(trouble.into()),
            }
        }
        if let Some(link) = self.link {
            self.work.client.keep(link);
        }
        Ok(())
    }

    /// Sends one request and handles its response.
    async fn exchange(&mut self, ask: &Ask) -> Result<After, GetError> {
        let begun = Instant::now();
        let (response, mut link) = match self.answer(ask).await? {
            SendResult::Response(response, link) => (response, link),
            SendResult::Silence(link, ended) => {
                self.record(&link, begun, begun, 0, ended, Progressed::default());
                self.work.route_moved();
                return Ok(self.work.state.lock().resume.on_end(self.id, false));
            }
            SendResult::Cut => {
                self.work.route_moved();
                return Ok(self.work.state.lock().resume.on_end(self.id, false));
            }
            SendResult::Outage(error) => {
                let after = self.work.state.lock().resume.on_outage(self.id, None);
                return match after {
                    After::Failed(Trouble::Outage) => Err(error.into()),
                    after => Ok(after),
                };
            }
        };
        let status = response.status().as_u16();
        let verdict = self.judge(&response);
        match verdict {
            Verdict::Read => {}
            verdict => {
                let now = Instant::now();
                self.record(
                    &link,
                    begun,
                    now,
                    status,
                    DisconnectReason::Refused,
                    Progressed::default(),
                );
                return match verdict {
                    Verdict::Retire => Ok(After::Retire),
                    Verdict::Failed(trouble) => Err(trouble.into()),
                    Verdict::Unavailable => self.unavailable(&response),
                    _ => Ok(After::Again(Duration::ZERO)),
                };
            }
        }
        if self.work.is_long() {
            self.work.save()?;
        }
        {
            let state = &mut *self.work.state.lock();
            state.flight.connected(link.round_trip);
            if state.lanes > 1 && state.resume.takes_more_lanes() {
                self.work.more.notify_one();
            }
        }
        let mut progressed = Progressed::default();
        let opened = link.opened;
        let read =
            self.read(response.into_body(), opened, opened.max(begun), &mut progressed).await;
        let ended = *read.as_ref().unwrap_or(&DisconnectReason::Refused);
        let last = progressed.last.unwrap_or(begun);
        self.record(&link, begun, last, status, ended, progressed);
        read?;
        match ended {
            DisconnectReason::Complete => {
                link.used = true;
                // Once the route stays, windows may grow again.
                let is_useful = !link.is_limited || self.work.state.lock().is_restless();
                self.link = is_useful.then_some(link);
            }
            DisconnectReason::Reset | DisconnectReason::EarlyClose | DisconnectReason::Stall => {
                self.work.route_moved();
            }
            _ => {}
        }
        Ok(self.work.state.lock().resume.on_end(self.id, ended == DisconnectReason::Complete))
    }

    /// The response to `ask`, after redirects.
    async fn answer(&mut self, ask: &Ask) -> Result<SendResult, GetError> {
        let request = self.work.request;
        let mut uri = self.work.state.lock().location.clone();
        let mut hops = 0;
        let mut fresh = false;
        loop {
            let mut link = match self.link.take().filter(|link| link.is_to(&uri) && !fresh) {
                Some(link) => link,
                None => match self.connection(&uri, fresh).await {
                    Ok(link) => link,
                    Err(error) if error.is_cut() && self.expects_answer() => {
                        return Ok(SendResult::Cut);
                    }
                    Err(error) if error.is_outage() => return Ok(SendResult::Outage(error)),
                    Err(error) => return Err(error.into()),
                },
            };
            let fields = fields(request, &uri, ask);
            let proxy = self.work.client.settings.proxy.as_ref();
            let limit = request.stall.unwrap_or(HEAD_TIMEOUT);
            let opened = link.opened;
            let waited = self.wait(opened, None, limit, link.get(&uri, &fields, proxy)).await;
            let mut response = match waited {
                Some(Ok(response)) => response,
                // A kept connection may have been closed in the meantime, which is not an error.
                Some(Err(_)) if link.used => {
                    self.work.route_moved();
                    fresh = true;
                    continue;
                }
                Some(Err(error)) => {
                    return Ok(SendResult::Silence(link, error.reason()));
                }
                None => return Ok(SendResult::Silence(link, DisconnectReason::Stall)),
            };
            match response.status().as_u16() {
                301 | 302 | 303 | 307 | 308 => {
                    let to = redirected(&uri, &response, request.digest.is_some())?;
                    hops += 1;
                    if hops > request.redirects {
                        return Err(GetError::Redirects(request.redirects, to));
                    }
                    if drained(response.body_mut()).await {
                        link.used = true;
                        if link.is_to(&to) {
                            self.link = Some(link);
                        } else {
                            self.work.client.keep(link);
                        }
                    }
                    uri = to;
                    fresh = false;
                }
                // The targets of redirects may be valid for a limited time only.
                401 | 403 | 404 | 410 if hops == 0 && uri != request.url => {
                    uri = request.url.clone();
                    // At most once: from here on `uri` is the URL, or a new target.
                    hops = 1;
                }
                _ => {
                    self.work.client.heard(&link, response.headers());
                    self.work.state.lock().location = uri;
                    return Ok(SendResult::Response(response, link));
                }
            }
        }
    }

    /// Passes the head to the state machine.
    fn judge(&self, response: &Response<ResponseBody>) -> Verdict {
        let answer = answer(response);
        let state = &mut *self.work.state.lock();
        let verdict = state.resume.on_answer(self.id, &answer);
        if verdict == Verdict::Read {
            if answer.version.digest.is_some() {
                state.hasher.add(Algorithm::Sha256);
            }
            if self.work.request.server_names && state.name.is_none() {
                let value = response.headers().get(header::CONTENT_DISPOSITION);
                let value = value.and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
                state.name = value.and_then(content_disposition);
            }
        }
        verdict
    }

    fn unavailable(&self, response: &Response<ResponseBody>) -> Result<After, GetError> {
        let pause = response.headers().get(header::RETRY_AFTER);
        let pause = pause.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let pause = pause.map(Duration::from_secs);
        match self.work.state.lock().resume.on_outage(self.id, pause) {
            After::Failed(Trouble::Outage) => {
                Err(GetError::Unavailable { status: response.status().as_u16() })
            }
            after => Ok(after),
        }
    }

    /// Reads a body as far as it is needed.
    async fn read(
        &mut self,
        mut body: ResponseBody,
        opened: Instant,
        begun: Instant,
        progressed: &mut Progressed,
    ) -> Result<DisconnectReason, GetError> {
        loop {
            let asked = Instant::now();
            let limit = self.work.state.lock().stall.limit();
            let data = match self.wait(opened, Some(begun), limit, body.frame()).await {
                Some(None) => return Ok(DisconnectReason::Complete),
                Some(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => data,
                    Err(_trailers) => continue,
                },
                Some(Some(Err(error))) => {
                    if self.spare.is_some() {
                        self.work.state.lock().flight.doubted(Instant::now(), false);
                    }
                    return Ok(error.reason());
                }
                None => {
                    self.has_doubted = self.spare.is_some();
                    if !self.has_doubted {
                        self.work.state.lock().stall.failed();
                    }
                    return Ok(DisconnectReason::Stall);
                }
            };
            let now = Instant::now();
            if progressed.last.is_none() {
                self.resumed(now);
            }
            self.judge_doubt(now, now.duration_since(begun));
            progressed.last = Some(now);
            let length = data.len();
            let wanted = self.take(data, now.duration_since(asked), progressed)?;
            if !wanted {
                return Ok(if ends_here(&mut body).await {
                    DisconnectReason::Complete
                } else {
                    DisconnectReason::Cut
                });
            }
            self.work.client.pace.spent(length).await;
        }
    }

    /// Writes bytes to the file; returns whether more are needed.
    fn take(
        &self,
        mut data: Bytes,
        waited: Duration,
        progressed: &mut Progressed,
    ) -> Result<bool, GetError> {
        let state = &mut *self.work.state.lock();
        state.stall.succeeded(waited);
        state.flight.received(Instant::now(), data.len());
        while !data.is_empty() {
            match state.resume.place(self.id, data.len()) {
                Place::Cut => return Ok(false),
                Place::Write(offset, length) => {
                    let bytes = data.split_to(length);
                    progressed.from.get_or_insert(offset);
                    state.target.write(offset, &bytes)?;
                    state.hasher.rewind(offset);
                    state.hasher.offer(offset, &bytes);
                    state.resume.on_written(self.id, length);
                    progressed.bytes += length as u64;
                }
                Place::Compare(offset, length) => {
                    progressed.from.get_or_insert(offset);
                    let equal = state.target.equal(offset, &data[..length])?;
                    state.hasher.offer(offset, &data[..equal]);
                    state.resume.on_equal(self.id, equal);
                    data = data.split_off(equal);
                    if equal < length {
                        match state.resume.on_different(self.id) {
                            Verdict::Read => {}
                            Verdict::Failed(trouble) => return Err(trouble.into()),
                            _ => return Ok(false),
                        }
                    }
                }
            }
        }
        let known = state.resume.known();
        self.work.progress.set(known.total, known.held.bytes());
        Ok(!state.resume.has_all(self.id))
    }

    /// Records the first byte after a silence.
    fn resumed(&mut self, now: Instant) {
        if let Some((place, silent)) = self.before.take() {
            self.work.state.lock().history.lost(place, now.duration_since(silent));
        }
    }

    fn record(
        &mut self,
        link: &HttpConnection,
        begun: Instant,
        last: Instant,
        status: u16,
        ended: DisconnectReason,
        progressed: Progressed,
    ) {
        let connection = ConnectionReport {
            lane: self.id,
            address: link.address.to_string(),
            protocol: link.protocol(),
            reused: link.used,
            begun: begun.duration_since(self.work.begun).as_secs_f64(),
            from: progressed.from.unwrap_or(0),
            status,
            bytes: progressed.bytes,
            ended,
            lost: 0.0,
        };
        let place = self.work.state.lock().history.add(connection);
        // Silence lasts from the last byte on, over all connections without any byte.
        if progressed.last.is_some() || self.before.is_none() {
            self.before = Some((place, last));
        }
    }
}

/// The result of sending a request.
enum SendResult {
    Response(Response<ResponseBody>, HttpConnection),
    /// The connection ended before a response.
    Silence(HttpConnection, DisconnectReason),
    /// The connection ended before a request could be sent.
    Cut,
    Outage(ConnectError),
}

/// The progress that a connection made.
#[derive(Default)]
struct Progressed {
    from: Option<u64>,
    bytes: u64,
    last: Option<Instant>,
}

/// Whether the body has ended; HTTP/2 may signal this in a frame of its own.
pub(super) async fn ends_here(body: &mut ResponseBody) -> bool {
    if body.is_end_stream() {
        return true;
    }
    body.size_hint().exact() == Some(0) && drained(body).await
}

/// Reads the rest of a short unwanted body, so that its connection can be reused.
async fn drained(body: &mut ResponseBody) -> bool {
    matches!(timeout(DRAIN_TIMEOUT, Limited::new(body, MOST_DRAINED).collect()).await, Ok(Ok(_)))
}

/// How long a response may take to begin.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the rest of a body may take that is read so that its connection can be used again.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
const MOST_DRAINED: usize = 64 << 10;
