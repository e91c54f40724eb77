//! The life of one transfer: [`Client::get`] opens the files on disk, lets lanes fetch, verifies,
//! and gives the file its name.

use std::{collections::BTreeSet, future::Future, pin::Pin, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::Uri;
use levada_fetch::{
    Algorithm, Digest, Patience, Timeout,
    resume::{After, Known, Next, Resume, ResumeSettings, Trouble},
};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use super::{
    DownloadProgress, GetError, GetReport, GetRequest,
    flight::Flight,
    lane::Lane,
    report::History,
    target::{Target, TargetError},
};
use crate::{
    Client, Hasher,
    connect::{ConnectError, HttpConnection, Wanted},
    redirect,
};

impl Client {
    /// Fetches a file. Received bytes are kept after an error, so that the same call resumes later.
    ///
    /// # Errors
    /// When the file is not complete; the report has its progress.
    pub async fn get(
        &self,
        request: &GetRequest,
        progress: &DownloadProgress,
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
                let work = ActiveTransfer::new(self, request, progress, target, known, begun);
                let result = work.run().await;
                work.conclude(result, &mut report)
            }
            Err(error) => Err(error.into()),
        };
        report.complete = result.is_ok();
        report.error = result.as_ref().err().map(|error| described(error, &report));
        report.seconds = begun.elapsed().as_secs_f64();
        (report, result)
    }
}

/// The error, with the defect that the last connection had.
fn described(error: &GetError, report: &GetReport) -> String {
    match (error, report.connections.last()) {
        (GetError::Trouble(Trouble::NoProgress { .. }), Some(last)) => {
            let ended = last.ended.as_str();
            format!("{error}; the last one: status {}, {ended}", last.status)
        }
        _ => error.to_string(),
    }
}

/// A transfer in progress.
pub(super) struct ActiveTransfer<'a> {
    pub(super) client: &'a Client,
    pub(super) request: &'a GetRequest,
    pub(super) progress: &'a DownloadProgress,
    pub(super) begun: Instant,
    /// All lanes run in one task, so this is never contended.
    pub(super) state: Mutex<DownloadState>,
    /// Signals that more lanes are useful.
    pub(super) more: Notify,
    /// Signals that the route has moved.
    pub(super) moved: Notify,
}

pub(super) struct DownloadState {
    pub(super) resume: Resume,
    pub(super) target: Target,
    pub(super) hasher: Hasher,
    pub(super) history: History,
    pub(super) stall: Timeout,
    pub(super) flight: Flight,
    /// The number of lanes that is wanted.
    pub(super) lanes: u32,
    /// The time of the last sign that the route has moved.
    moved: Option<Instant>,
    /// The URL after redirects.
    pub(super) location: Uri,
    pub(super) name: Option<String>,
}

impl DownloadState {
    /// Whether the route has moved lately.
    pub(super) fn is_restless(&self) -> bool {
        self.moved.is_some_and(|moved| moved.elapsed() < CALM)
    }
}

impl<'a> ActiveTransfer<'a> {
    fn new(
        client: &'a Client,
        request: &'a GetRequest,
        progress: &'a DownloadProgress,
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
            Some(time) => Patience { factor: 0.0, first: time, least: time, most: time },
            None => STALL_TIMEOUT,
        };
        progress.set(known.total, known.held.bytes());
        Self {
            client,
            request,
            progress,
            begun,
            state: Mutex::new(DownloadState {
                resume: Resume::new(settings, known),
                target,
                hasher: Hasher::new(&algorithms),
                history: History::default(),
                stall: Timeout::new(patience),
                flight: Flight::default(),
                lanes: request.connections,
                moved: None,
                location: request.url.clone(),
                name: None,
            }),
            more: Notify::new(),
            moved: Notify::new(),
        }
    }

    /// Runs until the file is complete and verified, the time limit is exceeded, or the transfer is
    /// stopped.
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
            let Some(wrong) = self.verify().await? else { return Ok(()) };
            let after = self.state.lock().resume.on_wrong_digest(&wrong);
            if let After::Failed(trouble) = after {
                return Err(trouble.into());
            }
        }
    }

    /// Runs lanes until all bytes are on disk.
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
                    // The last lane left work to lanes that have ended.
                    None => wanted = 1,
                },
                () = self.more.notified() => wanted = self.state.lock().lanes,
            }
        }
    }

    /// A connection has ended in the middle, so the route has moved: the transfer goes on over more
    /// connections, and older ones have only a moment to show that they live.
    pub(super) fn route_moved(&self) {
        let state = &mut *self.state.lock();
        state.moved = Some(Instant::now());
        self.moved.notify_waiters();
        let connections = state.flight.connections();
        if self.request.spreads && connections > 1 {
            state.lanes = state.lanes.max(connections);
            self.more.notify_one();
        }
    }

    /// The next request of a lane.
    pub(super) fn ask(&self, lane: u32) -> Next {
        let state = &mut *self.state.lock();
        if state.lanes > self.request.connections {
            state.resume.ask_for_pieces_of(state.flight.range());
        }
        state.resume.ask(lane)
    }

    /// A new connection. While the route keeps moving its window is limited: one that grows until
    /// packets are lost costs the bytes behind the lost ones when the route moves again.
    pub(super) async fn fresh_link(&self, uri: &Uri) -> Result<HttpConnection, ConnectError> {
        let wanted = match &*self.state.lock() {
            state if state.is_restless() => {
                Wanted { window: state.flight.window(state.lanes), is_restless: true }
            }
            _ => Wanted::default(),
        };
        self.client.fresh_link(redirect::origin(uri), wanted).await
    }

    /// The time from which on a lane, which sent its request at `asked`, opens a spare connection.
    pub(super) fn doubtful_from(&self, asked: Instant) -> Option<Instant> {
        let state = self.state.lock();
        let spreads = state.lanes > self.request.connections;
        spreads.then(|| state.flight.doubtful_from(asked)).flatten()
    }

    /// Whether a connection has carried a request, so that the server is known to be there.
    pub(super) fn has_connected(&self) -> bool {
        self.state.lock().history.total > 0
    }

    /// How long a connection may be silent that usually may be so for `usual`.
    pub(super) fn patience(&self, opened: Instant, usual: Duration) -> Duration {
        let state = self.state.lock();
        let is_doubtful = state.moved.is_some_and(|moved| opened < moved);
        if is_doubtful { usual.min(state.flight.grace()) } else { usual }
    }

    /// The digests of the file, if one of them is another than was expected.
    async fn verify(&self) -> Result<Option<Vec<Digest>>, GetError> {
        let (hasher, file, length, expected) = {
            let mut state = self.state.lock();
            let told = state.resume.known().version.digest.as_deref();
            let told = told.and_then(Digest::parse);
            let expected: Vec<_> = self.request.digest.into_iter().chain(told).collect();
            for digest in &expected {
                state.hasher.add(digest.algorithm());
            }
            let hasher = std::mem::replace(&mut state.hasher, Hasher::new(&[]));
            let length = state.resume.known().total.unwrap_or(0);
            (hasher, state.target.file()?, length, expected)
        };
        if hasher.is_idle() {
            return Ok(None);
        }
        let algorithms: Vec<_> = expected.iter().map(|digest| digest.algorithm()).collect();
        let hashing = tokio::task::spawn_blocking(move || hasher.finish(&file, length)).await;
        let found = hashing
            .map_err(std::io::Error::other)
            .flatten()
            .map_err(|why| TargetError::Io { path: self.request.path.clone(), why })?;
        self.state.lock().hasher = Hasher::new(&algorithms);
        let is_right = expected.iter().all(|digest| found.contains(digest));
        Ok((!is_right).then_some(found))
    }

    /// Writes the state file regularly, and syncs the bytes that it describes from time to time.
    async fn save_now_and_then(&self) -> Result<(), GetError> {
        let mut last_sync = Instant::now();
        loop {
            sleep(SAVE_INTERVAL).await;
            self.save()?;
            if last_sync.elapsed() >= SYNC_INTERVAL {
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

    pub(super) fn save(&self) -> Result<(), TargetError> {
        let state = &mut *self.state.lock();
        state.target.save(state.resume.known())
    }

    /// Whether the file is long enough to write a state at its first byte. Then the state has room
    /// even if the disk becomes full.
    pub(super) fn is_long(&self) -> bool {
        let state = self.state.lock();
        state.resume.known().total.is_none_or(|total| total >= LONG)
    }

    /// Gives the file its name, or keeps the data for a later run.
    fn conclude(
        self,
        result: Result<(), GetError>,
        report: &mut GetReport,
    ) -> Result<(), GetError> {
        let DownloadState { resume, mut target, history, location, name, .. } =
            self.state.into_inner();
        let known = resume.known();
        report.length = known.total;
        report.held = known.held.bytes();
        report.discarded = resume.discarded();
        report.restarts = resume.restarts();
        report.connections = history.connections;
        report.connections_total = history.total;
        report.lost_seconds = history.lost.as_secs_f64();
        report.etag = known.version.strong.iter().find(|name| name.starts_with('"')).cloned();
        report.redirected_to = (location != self.request.url).then(|| location.to_string());
        match result {
            Ok(()) => {
                let verified = self.request.digest.map(|digest| digest.to_string());
                report.verified = verified.or_else(|| known.version.digest.clone());
                // Saves the state first, so that no bytes are lost if the name is already taken.
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
                // If the disk is full, the state of a second ago stays.
                let _ = target.save(known);
                result
            }
        }
    }
}

/// How long a body may stall: at least 3 s, because TCP on a poor path can pause for seconds and a
/// new request loses the sender's congestion window; at most a minute.
const STALL_TIMEOUT: Patience = Patience {
    factor: 8.0,
    first: Duration::from_secs(30),
    least: Duration::from_secs(3),
    ..Patience::PAPER
};
const LONG: u64 = 1 << 20;
/// A route that has not moved for so long stays.
const CALM: Duration = Duration::from_secs(5);
/// The interval at which the state is saved: a killed program fetches so much again.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which the file is synchronised with the disk, which is slow.
const SYNC_INTERVAL: Duration = Duration::from_secs(10);
