//! The destination's side: fetches a manifest, compares, fetches the differences, and installs
//! them.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use futures_util::{StreamExt as _, stream};
use http::Uri;
use levada_fetch::{
    Digest,
    manifest::{Archive, Manifest, encoded},
};
use parking_lot::Mutex;
use serde::Serialize;

use super::{
    PathFilter, SyncError, SyncFailure,
    compare::{SyncPlan, WantedFile},
    io_error,
    publish::sha256,
    shown,
    tree::Destination,
};
use crate::{Client, DownloadProgress, GetError, GetRequest, Hasher, TargetError, redirect};

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
    /// Whether to change nothing.
    pub dry_run: bool,
    /// Whether to compare digests even if length and time are equal.
    pub thorough: bool,
    /// Whether to use the manifest's tar file, if there is one and at least half of its bytes are
    /// needed.
    pub tar: bool,
    /// The number of files to fetch in parallel.
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

    fn begin(&self) -> std::sync::Arc<DownloadProgress> {
        let progress = std::sync::Arc::new(DownloadProgress::default());
        self.under_way.lock().push(progress.clone());
        if self.is_stopped() {
            progress.stop();
        }
        progress
    }

    fn end(&self, progress: &std::sync::Arc<DownloadProgress>, bytes: u64) {
        self.under_way.lock().retain(|other| !std::sync::Arc::ptr_eq(other, progress));
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

/// The result of a pull.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PullReport {
    /// Whether the tree equals the manifest.
    pub complete: bool,
    /// Files that were fetched, or would be.
    pub fetched: Vec<String>,
    /// Their bytes.
    pub bytes: u64,
    /// The number of files that were extracted from the tar file.
    pub unpacked: u64,
    /// The number of files that were already right.
    pub unchanged: u64,
    /// The number of files of which only permissions or time were changed, or would be.
    pub dressed: u64,
    /// Links that were created, or would be.
    pub linked: Vec<String>,
    /// Entries that were removed, or would be.
    pub deleted: Vec<String>,
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
        let tree = Destination::open(&request.directory)?;
        let manifest = self.manifest(request, &tree, pulling).await?;
        if let Some((a, b)) = manifest.same_but_for_case()
            && tree.ignores_case()
        {
            return Err(SyncError::Case(shown(a), shown(b)));
        }
        let root = levada_cache::resolve(&request.get.url, &manifest.root)
            .ok_or_else(|| SyncError::Root(manifest.root.clone()))?;
        let plan =
            SyncPlan::new(&manifest, &tree, &request.filter, request.thorough, request.delete)
                .map_err(io_error(&request.directory))?;
        let mut pull = Pull {
            client: self,
            request,
            pulling,
            tree,
            root,
            report: Mutex::new(PullReport { unchanged: plan.unchanged, ..PullReport::default() }),
        };
        let total = plan.fetch.values().map(|wanted| wanted.size).sum();
        pulling.total.store(total, Ordering::Relaxed);
        if request.dry_run {
            pull.foretell(&plan);
        } else {
            pull.carry_out(plan, manifest.tar.as_ref()).await;
        }
        if pulling.is_stopped() {
            return Err(SyncError::Stopped);
        }
        let mut report = pull.report.into_inner();
        report.fetched.sort();
        report.complete = report.failed.is_empty();
        if report.complete {
            pull.tree.clean();
        }
        Ok(report)
    }

    async fn manifest(
        &self,
        request: &PullRequest,
        tree: &Destination,
        pulling: &Pulling,
    ) -> Result<Manifest, SyncError> {
        let mut get = request.get.clone();
        get.path = tree.staged(MANIFEST);
        get.restart = true;
        let progress = pulling.begin();
        let (_, result) = self.get(&get, &progress).await;
        pulling.end(&progress, 0);
        result.map_err(SyncError::Manifest)?;
        let file = File::open(&get.path).map_err(io_error(&get.path))?;
        let length = file.metadata().map_err(io_error(&get.path))?.len();
        if length > LONGEST_MANIFEST {
            return Err(SyncError::Huge(length));
        }
        let mut bytes = Vec::new();
        file.take(length).read_to_end(&mut bytes).map_err(io_error(&get.path))?;
        // A manifest must be valid UTF-8.
        let text = String::from_utf8(bytes).unwrap_or_default();
        Ok(Manifest::parse(&text, sha256)?)
    }
}

/// A pull in progress.
struct Pull<'a> {
    client: &'a Client,
    request: &'a PullRequest,
    pulling: &'a Pulling,
    tree: Destination,
    root: Uri,
    report: Mutex<PullReport>,
}

impl Pull<'_> {
    fn foretell(&mut self, plan: &SyncPlan) {
        let report = self.report.get_mut();
        report.fetched = plan.fetch.keys().map(|path| shown(path)).collect();
        report.bytes = plan.fetch.values().map(|wanted| wanted.size).sum();
        report.dressed = plan.dress.len() as u64;
        report.linked = plan.links.iter().map(|(path, _)| shown(path)).collect();
        let room = plan.room.values().flatten();
        report.deleted = room.chain(&plan.delete).map(|(path, _)| shown(path)).collect();
    }

    async fn carry_out(&mut self, mut plan: SyncPlan, archive: Option<&Archive>) {
        for (path, _) in &plan.directories {
            self.make_room(path, &plan);
            self.tell(path, self.tree.directory(path));
        }
        if let Some(archive) = archive.filter(|archive| self.is_worth(archive, &plan)) {
            self.unpack(archive, &mut plan).await;
        }
        stream::iter(&plan.fetch)
            .for_each_concurrent(self.request.transfers.max(1), |(path, wanted)| {
                self.fetch(path, *wanted, &plan)
            })
            .await;
        for (path, mode, modified) in &plan.dress {
            if self.tell(path, self.tree.dress(path, *mode, *modified)) {
                self.report.get_mut().dressed += 1;
            }
        }
        for (path, target) in &plan.links {
            self.make_room(path, &plan);
            if self.tell(path, self.tree.link(path, target)) {
                self.report.get_mut().linked.push(shown(path));
            }
        }
        // Old entries are removed only after all new ones are installed.
        if self.report.get_mut().failed.is_empty() && !self.pulling.is_stopped() {
            for (path, is_directory) in &plan.delete {
                if self.tell(path, self.tree.remove(path, *is_directory)) {
                    self.report.get_mut().deleted.push(shown(path));
                }
            }
        }
        // At the end, because the permissions of a directory may forbid writing to it.
        for (path, mode) in plan.directories.iter().rev() {
            self.tell(path, self.tree.dress_directory(path, *mode));
        }
    }

    /// Fetches one file and installs it.
    async fn fetch(&self, path: &[u8], wanted: WantedFile, plan: &SyncPlan) {
        if self.pulling.is_stopped() {
            return;
        }
        if !plan.room.contains_key(path) && !self.tell(path, self.tree.has_place(path)) {
            return;
        }
        let text = format!("{}{}", self.root, encoded(path));
        let Ok(url) = crate::parse_url(&text) else {
            self.tell(path, Err(io::Error::other(format!("{text} is not a URL"))));
            return;
        };
        let name = staged_name(path, &wanted.digest);
        let mut get = self.request.get.clone();
        aim(&mut get, url);
        get.path = self.tree.staged(&name);
        (get.digest, get.length) = (Some(wanted.digest), Some(wanted.size));
        let progress = self.pulling.begin();
        let (_, result) = self.client.get(&get, &progress).await;
        self.pulling.end(&progress, if result.is_ok() { wanted.size } else { 0 });
        match result {
            Ok(()) => {
                self.make_room(path, plan);
                if self.tell(path, self.tree.put(&name, path, wanted.mode, wanted.modified)) {
                    let mut report = self.report.lock();
                    report.fetched.push(shown(path));
                    report.bytes += wanted.size;
                }
            }
            Err(GetError::Stopped) => {}
            Err(error) => {
                let full = matches!(error, GetError::Target(TargetError::Full(_)));
                // The other transfers would only fill the remaining space.
                let error = if full {
                    self.pulling.under_way.lock().iter().for_each(|other| other.stop());
                    "no space is left; the received bytes are kept: make room and run the same command again".to_owned()
                } else {
                    error.to_string()
                };
                self.report.lock().failed.push(SyncFailure { path: shown(path), error });
            }
        }
    }

    /// Whether the tar file saves anything: at least half of its bytes must be needed.
    fn is_worth(&self, archive: &Archive, plan: &SyncPlan) -> bool {
        // A file in a tar file has a header of 512 bytes, and is padded to a multiple of 512.
        let in_tar = |wanted: &WantedFile| wanted.size.saturating_add(1023) / 512 * 512;
        let wanted = plan.fetch.values().map(in_tar).fold(0, u64::saturating_add);
        self.request.tar && wanted >= archive.size / 2
    }

    /// Fetches the tar file and extracts the needed files. Files that it does not contain stay in
    /// the plan.
    async fn unpack(&self, archive: &Archive, plan: &mut SyncPlan) {
        let Some(url) = levada_cache::resolve(&self.request.get.url, &archive.reference) else {
            return;
        };
        let name = staged_name(b"tar", &archive.digest);
        let mut get = self.request.get.clone();
        aim(&mut get, url);
        get.path = self.tree.staged(&name);
        (get.digest, get.length) = (Some(archive.digest), Some(archive.size));
        let progress = self.pulling.begin();
        let (_, result) = self.client.get(&get, &progress).await;
        self.pulling.end(&progress, 0);
        if let Err(error) = result {
            if !self.pulling.is_stopped() {
                let failure =
                    SyncFailure { path: archive.reference.clone(), error: error.to_string() };
                self.report.lock().failed.push(failure);
            }
            return;
        }
        let unpacked = File::open(&get.path).and_then(|file| self.take_out(file, plan));
        self.tell(archive.reference.as_bytes(), unpacked);
        let _ = std::fs::remove_file(&get.path);
    }

    fn take_out(&self, archive: File, plan: &mut SyncPlan) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        for entry in tar::Archive::new(io::BufReader::new(archive)).entries()? {
            let mut entry = entry?;
            let path = entry.path()?.as_os_str().as_bytes().to_vec();
            let Some(wanted) = plan.fetch.get(&path).copied() else { continue };
            let name = staged_name(&path, &wanted.digest);
            let mut file = self.tree.create(&name)?;
            let mut hasher = Hasher::new(&[wanted.digest.algorithm()]);
            let mut length = 0;
            loop {
                let read = entry.read(&mut buffer)?;
                if read == 0 {
                    break;
                }
                file.write_all(&buffer[..read])?;
                hasher.offer(length, &buffer[..read]);
                length += read as u64;
            }
            if length == wanted.size && hasher.finish(&file, length)?.contains(&wanted.digest) {
                self.make_room(&path, plan);
                self.tree.put(&name, &path, wanted.mode, wanted.modified)?;
                plan.fetch.remove(&path);
                self.pulling.done.fetch_add(wanted.size, Ordering::Relaxed);
                let mut report = self.report.lock();
                report.unpacked += 1;
                report.bytes += wanted.size;
            }
        }
        Ok(())
    }

    /// Removes the entries at the place of a file, a directory or a link that is ready to install.
    fn make_room(&self, path: &[u8], plan: &SyncPlan) {
        for (path, is_directory) in plan.room.get(path).into_iter().flatten() {
            if self.tell(path, self.tree.remove(path, *is_directory)) {
                self.report.lock().deleted.push(shown(path));
            }
        }
    }

    /// Records a failure.
    fn tell(&self, path: &[u8], result: io::Result<()>) -> bool {
        if let Err(error) = &result {
            let failure = SyncFailure { path: shown(path), error: error.to_string() };
            self.report.lock().failed.push(failure);
        }
        result.is_ok()
    }
}

/// The name of an incomplete file: derived from path and content, so that a part of another version
/// is not taken as the beginning of this one.
fn staged_name(path: &[u8], digest: &Digest) -> String {
    let path = sha256(path).hex();
    format!("{}-{}", &path[..32], &digest.hex()[..32])
}

const MANIFEST: &str = "manifest";
const LONGEST_MANIFEST: u64 = 1 << 30;

/// Aims a request at a URL of the manifest. The user has given credentials for the manifest's origin: they
/// are not for another one that the manifest names.
fn aim(get: &mut GetRequest, url: Uri) {
    if !redirect::same_origin(&url, &get.url) {
        get.headers.retain(|(name, _)| !redirect::is_credential(name));
    }
    get.url = url;
}
