//! The destination's side: fetches a manifest, compares, fetches the differences, and installs
//! them.

use std::{
    fs::File,
    io::{self, Read as _},
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use http::{HeaderValue, Uri, header};
use levada_fetch::{
    Digest,
    manifest::{Extras, Manifest},
    resume::Trouble,
};
use parking_lot::Mutex;
use serde::Serialize;

use super::{
    PathFilter, SyncError, SyncFailure,
    accounts::Accounts,
    compare::{Comparison, SyncPlan},
    install::ReadyFile,
    io_error,
    manifest_file::{self, LONGEST_MANIFEST},
    publish::sha256,
    shown,
    state::InstalledState,
    tree::Destination,
};
use crate::{Client, DownloadProgress, GetError, GetRequest, redirect};

/// The tree to pull, its destination, and how to pull it.
#[derive(Clone, Debug)]
pub struct PullRequest {
    /// The request for the manifest; its URL is the URL of the tree.
    pub get: GetRequest,
    /// The destination.
    pub directory: PathBuf,
    /// The paths to pull.
    pub filter: PathFilter,
    /// Whether to remove entries that are not in the manifest.
    pub delete: bool,
    /// Whether to remove paths that the filter does not take, too.
    pub delete_excluded: bool,
    /// Whether to change nothing.
    pub dry_run: bool,
    /// Whether to read all files, even those that have not changed since they were installed.
    pub thorough: bool,
    /// The extras taken over beyond content, permissions and time.
    pub extras: Extras,
    /// Whether owners and groups are numbers, whatever their names are.
    pub numeric_ids: bool,
    /// Whether zero blocks become holes.
    pub sparse: bool,
    /// Whether files get their places only when all are ready.
    pub delay: bool,
    /// Whether the bytes are written to the disk before the pull ends.
    pub fsync: bool,
    /// The entity tag of a manifest that the destination equals already: if it is still the current one,
    /// nothing is done.
    pub unless: Option<String>,
    /// The most transfers at a time; the number is found from what they bring.
    pub transfers: usize,
}

/// The progress of a pull.
#[derive(Debug, Default)]
pub struct Pulling {
    /// The bytes to fetch, once known.
    pub total: AtomicU64,
    /// The bytes of installed files.
    done: AtomicU64,
    under_way: Mutex<Vec<std::sync::Arc<DownloadProgress>>>,
    stopped: AtomicBool,
}

impl Pulling {
    /// The bytes received so far.
    pub fn bytes(&self) -> u64 {
        let under_way: u64 = self.under_way.lock().iter().map(|progress| progress.held()).sum();
        self.done.load(Ordering::Relaxed) + under_way
    }

    /// Stops the pull; the same call continues later.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.under_way.lock().iter().for_each(|progress| progress.stop());
    }

    /// Stops the transfers that are under way.
    pub(super) fn stop_transfers(&self) {
        self.under_way.lock().iter().for_each(|progress| progress.stop());
    }

    pub(super) fn begin(&self) -> std::sync::Arc<DownloadProgress> {
        let progress = std::sync::Arc::new(DownloadProgress::default());
        self.under_way.lock().push(progress.clone());
        if self.is_stopped() {
            progress.stop();
        }
        progress
    }

    pub(super) fn end(&self, progress: &std::sync::Arc<DownloadProgress>, bytes: u64) {
        self.under_way.lock().retain(|other| !std::sync::Arc::ptr_eq(other, progress));
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

/// The result of a pull.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PullReport {
    /// Whether the tree equals the manifest.
    pub complete: bool,
    /// Whether the manifest is the one of [`PullRequest::unless`], so that nothing was done.
    pub not_modified: bool,
    /// The entity tag of the manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Files that were fetched, or would be.
    pub fetched: Vec<String>,
    /// Their bytes.
    pub bytes: u64,
    /// The part of them that was at the destination already.
    pub reused: u64,
    /// The number of files that were already right.
    pub unchanged: u64,
    /// Entries of which only permissions, time or other attributes were changed, or would be.
    pub dressed: Vec<String>,
    /// Symbolic and hard links that were created, or would be.
    pub linked: Vec<String>,
    /// Entries that were removed, or would be.
    pub deleted: Vec<String>,
    /// Ways to spare requests or bytes that could not be used.
    pub notes: Vec<String>,
    /// Operations that failed.
    pub failed: Vec<SyncFailure>,
}

impl Client {
    /// Makes the destination equal to the manifest.
    ///
    /// # Errors
    /// When no operation is possible at all. Failures of single entries are in the report.
    pub async fn pull(
        &self,
        request: &PullRequest,
        pulling: &Pulling,
    ) -> Result<PullReport, SyncError> {
        let tree = if request.dry_run {
            Destination::look_at(&request.directory)?
        } else {
            Destination::open_or_create(&request.directory)?
        };
        let Some((manifest, etag)) = self.manifest(request, &tree, pulling).await? else {
            let etag = request.unless.clone();
            return Ok(PullReport {
                complete: true,
                not_modified: true,
                etag,
                ..PullReport::default()
            });
        };
        if let Some((a, b)) = manifest.same_but_for_case()
            && tree.ignores_case()
        {
            return Err(SyncError::Case(shown(a), shown(b)));
        }
        if let Some(name) = request.extras.first_beyond(manifest.extras) {
            return Err(SyncError::NotRecorded(name));
        }
        let root = levada_cache::resolve(&request.get.url, &manifest.root)
            .ok_or_else(|| SyncError::Root(manifest.root.clone()))?;
        let mut pull = Pull {
            client: self,
            request,
            pulling,
            root,
            accounts: Accounts::new(request.numeric_ids),
            state: Mutex::new(tree.state().map_err(io_error(&request.directory))?),
            ready: Mutex::default(),
            report: Mutex::new(PullReport { etag, ..PullReport::default() }),
            tree,
            manifest,
        };
        let plan = pull.compare().await?;
        let total = plan.fetch.values().map(|wanted| wanted.size).sum();
        pulling.total.store(total, Ordering::Relaxed);
        pull.report.get_mut().unchanged = plan.unchanged;
        if request.dry_run {
            pull.foretell(&plan);
        } else {
            pull.carry_out(plan).await;
        }
        pull.end()
    }

    /// The manifest and its entity tag; `None` if it is the one that the request excepts.
    async fn manifest(
        &self,
        request: &PullRequest,
        tree: &Destination,
        pulling: &Pulling,
    ) -> Result<Option<(Manifest, Option<String>)>, SyncError> {
        let mut get = request.get.clone();
        get.path = tree.staged(MANIFEST);
        get.restart = true;
        if let Some(Ok(etag)) = request.unless.as_ref().map(HeaderValue::try_from) {
            get.headers.push((header::IF_NONE_MATCH, etag));
        }
        let progress = pulling.begin();
        let (report, result) = self.get(&get, &progress).await;
        pulling.end(&progress, 0);
        match result {
            Err(GetError::Trouble(Trouble::Refused { status: 304 }))
                if request.unless.is_some() =>
            {
                return Ok(None);
            }
            Err(GetError::Stopped) => return Err(SyncError::Stopped),
            result => result.map_err(SyncError::Manifest)?,
        }
        let file = File::open(&get.path).map_err(io_error(&get.path))?;
        let length = file.metadata().map_err(io_error(&get.path))?.len();
        if length > LONGEST_MANIFEST {
            return Err(SyncError::Huge(length));
        }
        let mut bytes = Vec::new();
        file.take(length).read_to_end(&mut bytes).map_err(io_error(&get.path))?;
        let text = manifest_file::unpacked(bytes).map_err(io_error(&get.path))?;
        Ok(Some((Manifest::parse(&text, sha256)?, report.etag)))
    }
}

/// A pull in progress.
pub(super) struct Pull<'a> {
    pub(super) client: &'a Client,
    pub(super) request: &'a PullRequest,
    pub(super) pulling: &'a Pulling,
    pub(super) manifest: Manifest,
    pub(super) tree: Destination,
    pub(super) accounts: Accounts,
    pub(super) state: Mutex<InstalledState>,
    pub(super) root: Uri,
    /// Files that wait for all others.
    pub(super) ready: Mutex<Vec<ReadyFile>>,
    pub(super) report: Mutex<PullReport>,
}

impl Pull<'_> {
    async fn compare(&self) -> Result<SyncPlan, SyncError> {
        let comparison = Comparison {
            request: self.request,
            pulling: self.pulling,
            manifest: &self.manifest,
            tree: &self.tree,
            accounts: &self.accounts,
            state: &self.state,
        };
        let plan = comparison.plan().await.map_err(io_error(&self.request.directory))?;
        if self.pulling.is_stopped() { Err(SyncError::Stopped) } else { Ok(plan) }
    }

    fn foretell(&mut self, plan: &SyncPlan) {
        let report = self.report.get_mut();
        report.fetched = plan.fetch.keys().map(|path| shown(path)).collect();
        report.bytes = plan.fetch.values().map(|wanted| wanted.size).sum();
        report.dressed =
            plan.dress.iter().chain(plan.copy.keys()).map(|path| shown(path)).collect();
        let names = plan.names.iter().filter(|name| name.is_new).map(|name| &name.path);
        let links = plan.links.iter().map(|(path, _)| path);
        report.linked = links.chain(names).map(|path| shown(path)).collect();
        let room = plan.room.values().flatten();
        report.deleted = room.chain(&plan.delete).map(|(path, _)| shown(path)).collect();
    }

    async fn carry_out(&mut self, mut plan: SyncPlan) {
        if !self.request.delay {
            self.make_directories(&plan);
        }
        self.take_local(&mut plan).await;
        self.transfer(&plan).await;
        if self.request.delay {
            if self.pulling.is_stopped() || !self.report.get_mut().failed.is_empty() {
                return;
            }
            self.make_directories(&plan);
            self.place_ready(&plan);
        }
        self.finish(&plan);
    }

    fn end(self) -> Result<PullReport, SyncError> {
        let mut report = self.report.into_inner();
        let mut synced = Ok(());
        let stopped = self.pulling.is_stopped();
        if !stopped && !self.request.dry_run && report.failed.is_empty() {
            synced = if self.request.fsync { self.tree.sync() } else { Ok(()) };
            self.tree.clean();
        }
        let is_synced =
            self.request.fsync && synced.is_ok() && report.failed.is_empty() && !stopped;
        self.state.into_inner().close(&self.manifest, is_synced);
        if stopped {
            return Err(SyncError::Stopped);
        }
        synced.map_err(io_error(&self.request.directory))?;
        report.fetched.sort();
        report.dressed.sort();
        report.complete = report.failed.is_empty();
        Ok(report)
    }

    /// Reports something that is no failure.
    pub(super) fn note(&self, text: String) {
        self.report.lock().notes.push(text);
    }

    /// Records a failure.
    pub(super) fn tell(&self, path: &[u8], result: io::Result<()>) -> bool {
        if let Err(error) = &result {
            let failure = SyncFailure { path: shown(path), error: error.to_string() };
            self.report.lock().failed.push(failure);
        }
        result.is_ok()
    }
}

/// The name of an incomplete file: derived from path and content, so that a part of another version
/// is not taken as the beginning of this one.
pub(super) fn staged_name(path: &[u8], digest: &Digest) -> String {
    let path = sha256(path).hex();
    format!("{}-{}", &path[..32], &digest.hex()[..32])
}

/// The length of such a name.
pub(super) const STAGED_NAME: usize = 65;
const MANIFEST: &str = "manifest";

/// Aims a request at a URL of the manifest. The user has given credentials for the manifest's origin: they
/// are not for another one that the manifest names.
pub(super) fn aim(get: &mut GetRequest, url: Uri) {
    if !redirect::same_origin(&url, &get.url) {
        get.headers.retain(|(name, _)| !redirect::is_credential(name));
    }
    get.url = url;
}
