//! The transfers of a pull: a queue, of which as much is on its way as the path carries.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io::{self, ErrorKind, Write as _},
    ops::ControlFlow,
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use levada_fetch::{
    Digest, Transfers,
    manifest::{Entry, Manifest, encoded},
    resume::Trouble,
};
use tokio::time::{Instant, sleep};

use super::{
    SyncFailure,
    compare::{SyncPlan, WantedFile},
    deltas::LocalChunks,
    packs::{PackRun, PackSource},
    pull::{Pull, aim, staged_name},
    shown,
};
use crate::{GetError, GetRequest, TargetError, digest::digest_of, get::seed};

/// One thing to fetch.
#[derive(Debug)]
pub(super) enum Work<'p> {
    /// The file at a path.
    File(&'p Vec<u8>),
    /// Files of the pack.
    Run(PackRun<'p>),
    /// The file at a path, which has the content of another one at the destination.
    Copy {
        /// Where it is.
        from: &'p [u8],
        /// Where it is missing.
        path: &'p Vec<u8>,
    },
}

/// Where bytes come from, other than from the URLs of files.
struct Sources<'p> {
    pack: Option<PackSource>,
    chunks: LocalChunks,
    /// The other paths of the content at a path, which is fetched once.
    copies: BTreeMap<&'p [u8], Vec<&'p Vec<u8>>>,
}

/// The end of a transfer.
pub(super) enum TransferEnd<'p> {
    /// It is done, or its failure is reported.
    Done,
    /// These are left to be fetched in another way.
    More(Vec<Work<'p>>),
    /// The server does not serve this now.
    Refused(Work<'p>, GetError),
}

impl<'p> TransferEnd<'p> {
    pub(super) fn more(paths: impl Iterator<Item = &'p Vec<u8>>) -> Self {
        Self::More(paths.map(Work::File).collect())
    }
}

impl Pull<'_> {
    /// Fetches and installs the files of the plan.
    pub(super) async fn transfer(&self, plan: &SyncPlan) {
        let manifest = &self.manifest;
        let here = self.contents_here(plan, manifest);
        let (pack, runs) = self.pack(manifest, plan, |content| here.contains_key(content)).unzip();
        let chunks = self.local_chunks(plan, manifest).await;
        let mut sources = Sources { pack, chunks, copies: BTreeMap::new() };
        let mut queue = sources.queue(plan, runs.unwrap_or_default(), &here);
        let sources = &sources;
        let mut running = FuturesUnordered::new();
        let mut number = Transfers::new(self.request.transfers);
        let (begun, mut ended) = (Instant::now(), 0);
        loop {
            while running.len() < number.at_once()
                && let Some(work) = queue.pop_front()
            {
                running.push(self.carry(work, sources, plan));
            }
            tokio::select! {
                end = running.next() => match end {
                    None => break,
                    Some(TransferEnd::Done) => ended += 1,
                    Some(TransferEnd::More(more)) => {
                        ended += 1;
                        queue.extend(more);
                    }
                    Some(TransferEnd::Refused(work, error)) => {
                        if number.on_refused(running.len() + 1) {
                            queue.push_front(work);
                        } else {
                            queue.extend(self.refused(work, sources, &error));
                        }
                    }
                },
                () = sleep(TICK) => {}
            }
            number.advance(begun.elapsed(), self.pulling.bytes(), ended);
        }
    }

    async fn carry<'p>(
        &self,
        work: Work<'p>,
        sources: &Sources<'p>,
        plan: &SyncPlan,
    ) -> TransferEnd<'p> {
        match (work, &sources.pack) {
            (Work::File(path), _) => self.fetch(path, sources, plan).await,
            (Work::Copy { from, path }, _) => match self.copy_content(from, path, plan) {
                Ok(true) => TransferEnd::Done,
                // It has changed in the meantime, or is not installed: that is reported there.
                Ok(false) | Err(_) => TransferEnd::More(vec![Work::File(path)]),
            },
            (Work::Run(run), Some(pack)) => self.fetch_run(pack, run, plan).await,
            (Work::Run(run), None) => TransferEnd::more(run.paths()),
        }
    }

    /// The server refuses a transfer although nothing else is on its way.
    fn refused<'p>(
        &self,
        work: Work<'p>,
        sources: &Sources<'p>,
        error: &GetError,
    ) -> Vec<Work<'p>> {
        match work {
            Work::File(path) | Work::Copy { path, .. } => {
                self.failed(path, error.to_string());
                sources.copies_of(path)
            }
            Work::Run(run) => {
                sources.pack.iter().for_each(|pack| self.give_up(pack, &error.to_string()));
                run.paths().map(Work::File).collect()
            }
        }
    }

    /// The contents of files that are right at the destination, and a path of each.
    fn contents_here<'m>(
        &self,
        plan: &SyncPlan,
        manifest: &'m Manifest,
    ) -> BTreeMap<(Digest, u64), &'m [u8]> {
        let wanted: BTreeSet<_> =
            plan.fetch.values().map(|file| (file.digest, file.size)).collect();
        let files = manifest.entries.iter().filter_map(|(path, entry)| match entry {
            Entry::File { size, digest, .. } => Some(((*digest, *size), path.as_slice())),
            _ => None,
        });
        let here = files.filter(|(content, path)| {
            wanted.contains(content)
                && !plan.fetch.contains_key(*path)
                && self.tree.stat(path).is_some()
        });
        here.collect()
    }

    /// Fetches one file and installs it; then its other paths are to be copied.
    async fn fetch<'p>(
        &self,
        path: &'p Vec<u8>,
        sources: &Sources<'p>,
        plan: &SyncPlan,
    ) -> TransferEnd<'p> {
        match self.fetch_file(path, &sources.chunks, plan).await {
            Ok(()) => TransferEnd::More(sources.copies_of(path)),
            Err(error) => TransferEnd::Refused(Work::File(path), error),
        }
    }

    /// Fetches one file and installs it. Fails only if the server does not serve it now.
    async fn fetch_file(
        &self,
        path: &[u8],
        chunks: &LocalChunks,
        plan: &SyncPlan,
    ) -> Result<(), GetError> {
        if self.pulling.is_stopped() {
            return Ok(());
        }
        if !self.has_place(path, plan) {
            return Ok(());
        }
        let wanted = &plan.fetch[path];
        if wanted.size == 0 && digest_of(wanted.digest.algorithm(), b"") == Some(wanted.digest) {
            let _ = self.install_bytes(path, b"", plan);
            return Ok(());
        }
        let text = format!("{}{}", self.root, encoded(path));
        let Ok(url) = crate::parse_url(&text) else {
            self.tell(path, Err(io::Error::other(format!("{text} is not a URL"))));
            return Ok(());
        };
        let name = staged_name(path, &wanted.digest);
        let mut get = self.request.get.clone();
        aim(&mut get, url);
        get.path = self.tree.staged(&name);
        (get.digest, get.length) = (Some(wanted.digest), Some(wanted.size));
        get.connections = if wanted.size >= LONG { OF_LONG } else { 1 };
        // The other transfers fill the path.
        get.spreads = false;
        let seeded = match self.seed(&mut get, *wanted, chunks) {
            Ok(seeded) => seeded,
            Err(TargetError::Full(_)) => {
                self.full(path);
                return Ok(());
            }
            Err(error) => {
                self.failed(path, error.to_string());
                return Ok(());
            }
        };
        let progress = self.pulling.begin();
        let (mut report, mut result) = self.client.get(&get, &progress).await;
        if seeded && matches!(result, Err(GetError::Trouble(Trouble::WrongDigest))) {
            get.restart = true;
            (report, result) = self.client.get(&get, &progress).await;
            report.restarts += 1;
        }
        if seeded && report.restarts > 0 {
            self.note(format!("{}: its chunk list is wrong; it is fetched whole", shown(path)));
        }
        self.pulling.end(&progress, if result.is_ok() { wanted.size } else { 0 });
        match result {
            Ok(()) => {
                self.report.lock().reused += report.held_before;
                self.install_fetched(path, &name, plan);
            }
            Err(GetError::Stopped) => {}
            Err(error @ (GetError::Unavailable { .. } | GetError::Connect(_))) => {
                return Err(error);
            }
            Err(GetError::Target(TargetError::Full(_))) => self.full(path),
            Err(error) => self.failed(path, error.to_string()),
        }
        Ok(())
    }

    /// Puts what is here of a long file into its incomplete file. Returns whether there is any.
    fn seed(
        &self,
        get: &mut GetRequest,
        wanted: WantedFile,
        chunks: &LocalChunks,
    ) -> Result<bool, TargetError> {
        let Some(parts) = chunks.parts((wanted.digest, wanted.size)) else { return Ok(false) };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return Ok(false);
        }
        let gaps = seed(get, wanted.size, parts)?;
        get.connections = u32::try_from(gaps).unwrap_or(MOST_GAPS).clamp(1, MOST_GAPS);
        Ok(true)
    }

    /// Installs a file whose verified bytes are in memory. Breaks if the disk is full.
    pub(super) fn install_bytes(
        &self,
        path: &[u8],
        bytes: &[u8],
        plan: &SyncPlan,
    ) -> ControlFlow<()> {
        let wanted = &plan.fetch[path];
        let name = staged_name(path, &wanted.digest);
        if self.place_bytes(path, bytes, &name, plan) {
            self.count_fetched(path, wanted.size);
            return ControlFlow::Continue(());
        }
        let staged = self.tree.create(&name).and_then(|mut file| file.write_all(bytes));
        match staged {
            Err(why) if matches!(why.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                self.full(path);
                return ControlFlow::Break(());
            }
            staged => {
                if self.tell(path, staged) {
                    self.install_fetched(path, &name, plan);
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Installs a complete and verified file.
    pub(super) fn install_fetched(&self, path: &[u8], name: &str, plan: &SyncPlan) {
        let wanted = plan.fetch[path];
        if self.install(path, wanted, name, plan) {
            self.count_fetched(path, wanted.size);
        }
    }

    fn count_fetched(&self, path: &[u8], size: u64) {
        let mut report = self.report.lock();
        report.fetched.push(shown(path));
        report.bytes += size;
    }

    /// The other transfers would only fill the remaining space.
    fn full(&self, path: &[u8]) {
        self.pulling.stop_transfers();
        self.failed(path, FULL.to_owned());
    }

    fn failed(&self, path: &[u8], error: String) {
        self.report.lock().failed.push(SyncFailure { path: shown(path), error });
    }
}

impl<'p> Sources<'p> {
    /// Long files come first, so that none of them is left to fill the path alone, then runs of the pack, then the
    /// other files in the order of paths.
    fn queue(
        &mut self,
        plan: &'p SyncPlan,
        runs: Vec<PackRun<'p>>,
        here: &BTreeMap<(Digest, u64), &'p [u8]>,
    ) -> VecDeque<Work<'p>> {
        let packed: BTreeSet<_> = runs.iter().flat_map(PackRun::paths).collect();
        let mut queue: VecDeque<_> = runs.into_iter().map(Work::Run).collect();
        let mut first: BTreeMap<_, &[u8]> = BTreeMap::new();
        for (path, file) in plan.fetch.iter().filter(|(path, _)| !packed.contains(path)) {
            let content = (file.digest, file.size);
            if let Some(from) = here.get(&content) {
                queue.push_back(Work::Copy { from, path });
            } else if let Some(&from) = first.get(&content) {
                self.copies.entry(from).or_default().push(path);
            } else {
                first.insert(content, path.as_slice());
                queue.push_back(Work::File(path));
            }
        }
        queue.make_contiguous().sort_by_key(|work| match work {
            Work::File(path) if plan.fetch[*path].size >= LONG => 0,
            Work::Run(_) => 1,
            Work::File(_) | Work::Copy { .. } => 2,
        });
        queue
    }

    fn copies_of(&self, from: &'p [u8]) -> Vec<Work<'p>> {
        let paths = self.copies.get(from).into_iter().flatten();
        paths.map(|path| Work::Copy { from, path }).collect()
    }
}

/// How often the number of transfers is looked at.
const TICK: Duration = Duration::from_millis(50);
/// The gaps of one file that are fetched at a time.
const MOST_GAPS: u32 = 8;
/// A file of so many bytes is a long one.
const LONG: u64 = 4 << 20;
/// The connections of a long file: the path is shared with runs of the pack, of which there are more.
const OF_LONG: u32 = 2;
const FULL: &str =
    "no space is left; the received bytes are kept: make room and run the same command again";
