//! One file's story: [`Client::get`] opens what is on disk, lets lanes fetch, verifies, and gives the file
//! its name. [`Lane`]s ask what `levada_fetch::resume` tells them to ask, and report what came of it.

use std::{collections::BTreeSet, future::Future, pin::Pin, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::{HeaderMap, HeaderName, HeaderValue, Response, Uri, header};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use levada_cache::ContentRange;
use levada_fetch::{
    Algorithm, Patience, Timeout,
    resume::{
        After, Answer, AnswerPart, Ask, FileVersion, Known, Next, Place, Resume, ResumeSettings,
        Trouble, Verdict,
    },
};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use super::{
    Connection, Ended, GetError, GetReport, GetRequest, Progress, content_disposition,
    report::History,
    target::{Target, TargetError},
};
use crate::{
    Client, Hasher,
    connect::{ConnectError, Link},
    digest::repr_digest,
    proxy, redirect,
};

impl Client {
    /// Fetches a file. What has come is kept when that fails, so that the same call goes on later.
    ///
    /// # Errors
    /// When the file is not there, complete; the report tells how far it came.
    pub async fn get(
        &self,
        request: &GetRequest,
        progress: &Progress,
    ) -> (GetReport, Result<(), GetError>) {
        let begun = Instant::now();
        let mut report = GetReport {
            url: request.url.to_string(),
            path: request.path.clone(),
            ..GetReport::default()
        };
        let url = request.url.to_string();
        let opened = Target::open(&request.path, &url, request.adopt, request.restart);
        let result = match opened {
            Ok((target, known)) => {
                report.held_before = known.held.bytes();
                let work = Work::new(self, request, progress, target, known, begun);
                let result = work.run().await;
                work.conclude(result, &mut report)
            }
            Err(error) => Err(error.into()),
        };
        report.complete = result.is_ok();
        report.error = result.as_ref().err().map(ToString::to_string);
        report.seconds = begun.elapsed().as_secs_f64();
        (report, result)
    }
}

/// A transfer that is under way.
struct Work<'a> {
    client: &'a Client,
    request: &'a GetRequest,
    progress: &'a Progress,
    begun: Instant,
    /// All lanes run in one task: nobody ever waits for this.
    state: Mutex<State>,
    /// Further lanes may be of use.
    more: Notify,
}

struct State {
    resume: Resume,
    target: Target,
    hasher: Hasher,
    history: History,
    stall: Timeout,
    /// Where redirects have led.
    location: Uri,
    name: Option<String>,
}

impl<'a> Work<'a> {
    fn new(
        client: &'a Client,
        request: &'a GetRequest,
        progress: &'a Progress,
        target: Target,
        known: Known,
        begun: Instant,
    ) -> Self {
        let settings = ResumeSettings {
            pieces: if request.connections > 1 { request.pieces } else { 1 },
            least_piece: request.least_piece,
            digest_known: request.digest.is_some(),
            length: request.length,
            retries: request.retries,
            hopeless: request.hopeless,
            ..ResumeSettings::default()
        };
        let algorithms: Vec<Algorithm> = request.digest.iter().map(|d| d.algorithm()).collect();
        let patience = match request.stall {
            Some(time) => {
                Patience { factor: 0.0, first: time, least: time, most: time, ..Patience::PAPER }
            }
            None => PATIENCE,
        };
        progress.set(known.total, known.held.bytes());
        Self {
            client,
            request,
            progress,
            begun,
            state: Mutex::new(State {
                resume: Resume::new(settings, known),
                target,
                hasher: Hasher::new(&algorithms),
                history: History::default(),
                stall: Timeout::new(patience),
                location: request.url.clone(),
                name: None,
            }),
            more: Notify::new(),
        }
    }

    /// Fetches until the file is complete and verified, the time is over, or someone says stop.
    async fn run(&self) -> Result<(), GetError> {
        let limit = self.request.max_time.unwrap_or(Duration::MAX);
        tokio::select! {
            result = self.fetch_and_verify() => result,
            () = self.progress.until_stopped() => Err(GetError::Stopped),
            () = sleep(limit) => Err(GetError::TooLong(limit)),
            result = self.save_now_and_then() => result,
        }
    }

    async fn fetch_and_verify(&self) -> Result<(), GetError> {
        loop {
            self.fetch().await?;
            if self.verify().await? {
                return Ok(());
            }
            let after = self.state.lock().resume.on_wrong_digest();
            if let After::Failed(trouble) = after {
                return Err(trouble.into());
            }
        }
    }

    /// Runs lanes until every byte is here.
    async fn fetch(&self) -> Result<(), GetError> {
        type Running<'b> = Pin<Box<dyn Future<Output = (u32, Result<(), GetError>)> + Send + 'b>>;
        let mut running: FuturesUnordered<Running<'_>> = FuturesUnordered::new();
        let mut at_work = BTreeSet::new();
        let mut wanted = 1;
        loop {
            for id in 0..wanted {
                if at_work.insert(id) {
                    running.push(Box::pin(async move { (id, Lane::new(self, id).run().await) }));
                }
            }
            wanted = 0;
            tokio::select! {
                ended = running.next() => match ended {
                    Some((id, result)) => {
                        at_work.remove(&id);
                        result?;
                    }
                    None if self.state.lock().resume.is_complete() => return Ok(()),
                    // The last lane left work to others that were gone by then.
                    None => wanted = 1,
                },
                () = self.more.notified() => wanted = self.request.connections,
            }
        }
    }

    /// Whether the file is what it should be. Without a digest to compare with, it is.
    async fn verify(&self) -> Result<bool, GetError> {
        let (hasher, file, length, expected) = {
            let mut state = self.state.lock();
            let told = state.resume.known().version.digest.as_deref();
            let told = told.and_then(levada_fetch::Digest::parse);
            let expected: Vec<_> = self.request.digest.into_iter().chain(told).collect();
            for digest in &expected {
                state.hasher.add(digest.algorithm());
            }
            let hasher = std::mem::replace(&mut state.hasher, Hasher::new(&[]));
            let length = state.resume.known().total.unwrap_or(0);
            (hasher, state.target.file()?, length, expected)
        };
        if hasher.is_idle() {
            return Ok(true);
        }
        let algorithms: Vec<_> = expected.iter().map(|digest| digest.algorithm()).collect();
        let hashing = tokio::task::spawn_blocking(move || hasher.finish(&file, length)).await;
        let found = hashing
            .map_err(std::io::Error::other)
            .flatten()
            .map_err(|why| TargetError::Io { path: self.request.path.clone(), why })?;
        self.state.lock().hasher = Hasher::new(&algorithms);
        Ok(expected.iter().all(|digest| found.contains(digest)))
    }

    /// Keeps the state file fresh, and syncs what it speaks of from time to time.
    async fn save_now_and_then(&self) -> Result<(), GetError> {
        let mut last_sync = Instant::now();
        loop {
            sleep(SAVE_EVERY).await;
            self.save()?;
            if last_sync.elapsed() >= SYNC_EVERY {
                let (file, held) = {
                    let state = self.state.lock();
                    (state.target.file()?, state.resume.known().held.clone())
                };
                let synced = tokio::task::spawn_blocking(move || file.sync_data()).await;
                if matches!(synced, Ok(Ok(()))) {
                    self.state.lock().target.set_synced(held);
                }
                last_sync = Instant::now();
            }
        }
    }

    fn save(&self) -> Result<(), TargetError> {
        let state = &mut *self.state.lock();
        state.target.save(state.resume.known())
    }

    /// Whether the file is worth a state from its first byte on: then there is room for one when the disk
    /// is full.
    fn is_long(&self) -> bool {
        let state = self.state.lock();
        state.resume.known().total.is_none_or(|total| total >= LONG)
    }

    /// Gives the file its name, or keeps what can be of use later.
    fn conclude(
        self,
        result: Result<(), GetError>,
        report: &mut GetReport,
    ) -> Result<(), GetError> {
        let State { resume, mut target, history, location, name, .. } = self.state.into_inner();
        let known = resume.known();
        report.length = known.total;
        report.held = known.held.bytes();
        report.discarded = resume.discarded();
        report.restarts = resume.restarts();
        report.connections = history.connections;
        report.connections_total = history.total;
        report.lost_seconds = history.lost.as_secs_f64();
        report.redirected_to = (location != self.request.url).then(|| location.to_string());
        match result {
            Ok(()) => {
                let verified = self.request.digest.map(|digest| digest.to_string());
                report.verified = verified.or_else(|| known.version.digest.clone());
                // So that a name that is taken costs nothing but the name.
                let _ = name.as_ref().map(|_| target.save(known));
                let length = known.total.unwrap_or(0);
                report.path = target.finish(length, name.as_deref(), self.request.fsync)?;
                Ok(())
            }
            Err(GetError::Trouble(Trouble::WrongDigest)) => {
                report.held = 0;
                target.remove();
                result
            }
            Err(_) if known.held.bytes() == 0 => {
                target.remove();
                result
            }
            Err(_) => {
                // On a full disk the state of a second ago has to do.
                let _ = target.save(known);
                result
            }
        }
    }
}

/// One of the connections that fetch at the same time.
struct Lane<'a> {
    work: &'a Work<'a>,
    id: u32,
    link: Option<Link>,
    /// The place in the history of the last connection, and when it fell silent.
    before: Option<(Option<usize>, Instant)>,
}

impl<'a> Lane<'a> {
    fn new(work: &'a Work<'a>, id: u32) -> Self {
        Self { work, id, link: None, before: None }
    }

    /// Works until there is nothing left to do for this lane.
    async fn run(mut self) -> Result<(), GetError> {
        loop {
            let next = self.work.state.lock().resume.ask(self.id);
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

    /// One request, and what comes of it.
    async fn exchange(&mut self, ask: &Ask) -> Result<After, GetError> {
        let begun = Instant::now();
        let (response, mut link) = match self.answer(ask).await? {
            Heard::Response(response, link) => (response, link),
            Heard::Silence(link, ended) => {
                self.record(&link, begun, begun, 0, ended, Progressed::default());
                return Ok(self.work.state.lock().resume.on_end(self.id, false));
            }
            Heard::Outage(error) => {
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
                self.record(&link, begun, now, status, Ended::Refused, Progressed::default());
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
        if self.work.request.connections > 1 && self.work.state.lock().resume.takes_more_lanes() {
            self.work.more.notify_one();
        }
        let mut progressed = Progressed::default();
        let read = self.read(response.into_body(), &mut progressed).await;
        let ended = *read.as_ref().unwrap_or(&Ended::Refused);
        let last = progressed.last.unwrap_or(begun);
        self.record(&link, begun, last, status, ended, progressed);
        read?;
        if ended == Ended::Complete {
            link.used = true;
            self.link = Some(link);
        }
        Ok(self.work.state.lock().resume.on_end(self.id, ended == Ended::Complete))
    }

    /// The response to `ask`, wherever redirects lead.
    async fn answer(&mut self, ask: &Ask) -> Result<Heard, GetError> {
        let request = self.work.request;
        let mut uri = self.work.state.lock().location.clone();
        let mut hops = 0;
        let mut fresh = false;
        loop {
            let mut link = match self.link.take().filter(|link| link.is_to(&uri) && !fresh) {
                Some(link) => link,
                None => match self.work.client.link(&uri, fresh).await {
                    Ok(link) => link,
                    Err(error) if error.is_outage() => return Ok(Heard::Outage(error)),
                    Err(error) => return Err(error.into()),
                },
            };
            let fields = fields(request, &uri, ask);
            let proxy = self.work.client.settings.proxy.as_ref();
            let limit = request.stall.unwrap_or(HEAD_LIMIT);
            let mut response = match timeout(limit, link.get(&uri, &fields, proxy)).await {
                Ok(Ok(response)) => response,
                // A connection that was kept may be gone by now: that is nobody's fault.
                Ok(Err(_)) if link.used => {
                    fresh = true;
                    continue;
                }
                Ok(Err(error)) => return Ok(Heard::Silence(link, Ended::of(&error))),
                Err(_) => return Ok(Heard::Silence(link, Ended::Stall)),
            };
            match response.status().as_u16() {
                301 | 302 | 303 | 307 | 308 => {
                    let known = request.digest.is_some();
                    let to = redirect::target(&uri, response.headers(), known);
                    let to = to.map_err(|stop| match stop {
                        redirect::Stop::Nowhere => GetError::Nowhere(uri.clone()),
                        redirect::Stop::Insecure(to) => GetError::Insecure(to),
                    })?;
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
                // Places that redirects lead to may hold for a while only.
                401 | 403 | 404 | 410 if hops == 0 && uri != request.url => {
                    uri = request.url.clone();
                    // Not more often than once: from here on `uri` is the URL, or a new place.
                    hops = 1;
                }
                _ => {
                    self.work.state.lock().location = uri;
                    return Ok(Heard::Response(response, link));
                }
            }
        }
    }

    /// Tells the state machine of the head.
    fn judge(&self, response: &Response<Incoming>) -> Verdict {
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

    fn unavailable(&self, response: &Response<Incoming>) -> Result<After, GetError> {
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

    /// Reads a body, as far as it is wanted.
    async fn read(
        &mut self,
        mut body: Incoming,
        progressed: &mut Progressed,
    ) -> Result<Ended, GetError> {
        loop {
            let asked = Instant::now();
            let limit = self.work.state.lock().stall.limit();
            let data = match timeout(limit, body.frame()).await {
                Ok(None) => return Ok(Ended::Complete),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => data,
                    Err(_trailers) => continue,
                },
                Ok(Some(Err(error))) => return Ok(Ended::of(&error)),
                Err(_) => {
                    self.work.state.lock().stall.failed();
                    return Ok(Ended::Stall);
                }
            };
            let now = Instant::now();
            if progressed.last.is_none() {
                self.resumed(now);
            }
            progressed.last = Some(now);
            let length = data.len();
            let wanted = self.take(data, now.duration_since(asked), progressed)?;
            if !wanted {
                return Ok(if ends_here(&mut body).await { Ended::Complete } else { Ended::Cut });
            }
            self.work.client.pace.spent(length).await;
        }
    }

    /// Puts bytes where they belong; tells whether more are wanted.
    fn take(
        &self,
        mut data: Bytes,
        waited: Duration,
        progressed: &mut Progressed,
    ) -> Result<bool, GetError> {
        let state = &mut *self.work.state.lock();
        state.stall.succeeded(waited);
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

    /// The first byte after a silence.
    fn resumed(&mut self, now: Instant) {
        if let Some((place, silent)) = self.before.take() {
            self.work.state.lock().history.lost(place, now.duration_since(silent));
        }
    }

    fn record(
        &mut self,
        link: &Link,
        begun: Instant,
        last: Instant,
        status: u16,
        ended: Ended,
        progressed: Progressed,
    ) {
        let connection = Connection {
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
        // Silence lasts from the last byte, however many connections bring none.
        if progressed.last.is_some() || self.before.is_none() {
            self.before = Some((place, last));
        }
    }
}

/// What came back for a request.
enum Heard {
    Response(Response<Incoming>, Link),
    /// The connection ended before an answer.
    Silence(Link, Ended),
    Outage(ConnectError),
}

/// What a connection brought.
#[derive(Default)]
struct Progressed {
    from: Option<u64>,
    bytes: u64,
    last: Option<Instant>,
}

/// The fields of a request. Secrets go to the server that the user has named, not to where it redirects.
fn fields(request: &GetRequest, uri: &Uri, ask: &Ask) -> Vec<(HeaderName, HeaderValue)> {
    let mut fields = vec![
        (header::USER_AGENT, HeaderValue::from_static(AGENT)),
        (header::ACCEPT, HeaderValue::from_static("*/*")),
        (header::ACCEPT_ENCODING, HeaderValue::from_static("identity")),
        (HeaderName::from_static("want-repr-digest"), HeaderValue::from_static("sha-256=1")),
    ];
    if let Some((start, end)) = ask.range {
        let end = end.map(|end| (end - 1).to_string()).unwrap_or_default();
        if let Ok(range) = HeaderValue::try_from(format!("bytes={start}-{end}")) {
            fields.push((header::RANGE, range));
        }
    }
    if let Some(Ok(validator)) = ask.if_range.as_ref().map(HeaderValue::try_from) {
        fields.push((header::IF_RANGE, validator));
    }
    // A Levada node that keeps pieces of another version then uses none of them.
    if let Some(Ok(digest)) = request.digest.map(|digest| HeaderValue::try_from(digest.to_string()))
    {
        fields.push((HeaderName::from_static("levada-digest"), digest));
    }
    let own = redirect::same_origin(uri, &request.url);
    let user = proxy::basic(uri).or_else(|| proxy::basic(&request.url).filter(|_| own));
    fields.extend(user.map(|credentials| (header::AUTHORIZATION, credentials)));
    for (name, value) in &request.headers {
        let secret = [header::AUTHORIZATION, header::COOKIE].contains(name);
        if own || !secret {
            fields.retain(|(known, _)| known != name || own_field(known));
            fields.push((name.clone(), value.clone()));
        }
    }
    fields
}

/// Fields that a user cannot set: the transfer depends on them.
fn own_field(name: &HeaderName) -> bool {
    [header::RANGE, header::IF_RANGE].contains(name)
}

/// The head of a response, as the state machine reads it.
fn answer(response: &Response<Incoming>) -> Answer {
    let headers = response.headers();
    let status = response.status().as_u16();
    let part = match status {
        416 => headers.get(header::CONTENT_RANGE).and_then(ContentRange::parse),
        _ => ContentRange::of_part(headers),
    };
    Answer {
        status,
        length: response.body().size_hint().exact(),
        part: part.map(|part| AnswerPart { range: part.range, total: part.length }),
        version: version(headers),
    }
}

fn version(headers: &HeaderMap) -> FileVersion {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let etag = text(header::ETAG).map(str::trim).filter(|etag| etag.starts_with('"'));
    let strong = etag.map(str::to_owned).or_else(|| strong_date(headers));
    let digest = HeaderName::from_static("repr-digest");
    let encoding = text(header::CONTENT_ENCODING).map(str::trim);
    FileVersion {
        strong: strong.into_iter().collect(),
        digest: text(digest).and_then(repr_digest).map(|digest| digest.to_string()),
        encoding: encoding.filter(|e| !e.eq_ignore_ascii_case("identity")).map(str::to_owned),
    }
}

/// A date that is old enough when it is told names one version (RFC 9110, Sec. 8.8.2.2).
fn strong_date(headers: &HeaderMap) -> Option<String> {
    let modified = headers.get(header::LAST_MODIFIED)?;
    let then = levada_cache::parse_date(modified.as_bytes())?;
    let now = levada_cache::parse_date(headers.get(header::DATE)?.as_bytes())?;
    (now - then >= STRONG_AFTER).then(|| modified.to_str().ok().map(str::to_owned)).flatten()
}

/// Whether nothing is left of a body; HTTP/2 may say so in a frame of its own.
async fn ends_here(body: &mut Incoming) -> bool {
    if body.is_end_stream() {
        return true;
    }
    body.size_hint().exact() == Some(0) && drained(body).await
}

/// Reads a short body that nobody wants, so that its connection can be used again.
async fn drained(body: &mut Incoming) -> bool {
    matches!(timeout(DRAIN, Limited::new(body, MOST_DRAINED).collect()).await, Ok(Ok(_)))
}

const AGENT: &str = concat!("levada/", env!("CARGO_PKG_VERSION"));
/// How long an answer may take to begin.
const HEAD_LIMIT: Duration = Duration::from_secs(60);
/// How long a body may be silent: at least 3 s, for TCP on a poor path is silent for seconds and asking
/// again costs the sender's window; at most a minute.
const PATIENCE: Patience = Patience {
    factor: 8.0,
    first: Duration::from_secs(30),
    least: Duration::from_secs(3),
    ..Patience::PAPER
};
const LONG: u64 = 1 << 20;
const SAVE_EVERY: Duration = Duration::from_secs(1);
const SYNC_EVERY: Duration = Duration::from_secs(10);
/// Seconds; RFC 9110 asks for one, clocks for more.
const STRONG_AFTER: i64 = 60;
const DRAIN: Duration = Duration::from_secs(1);
const MOST_DRAINED: usize = 64 << 10;
