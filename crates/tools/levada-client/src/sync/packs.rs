//! Small files from the pack: the missing ones that are near each other come in one request.

use std::{
    collections::BTreeMap,
    ops::{ControlFlow, Range},
    sync::atomic::{AtomicBool, Ordering},
};

use http::Uri;
use levada_fetch::{
    Digest,
    manifest::{Manifest, Pack},
};

use super::{
    compare::SyncPlan,
    pull::{Pull, aim},
    transfers::{TransferEnd, Work},
};
use crate::{GetRequest, digest::digest_of, get::FileRange};

/// The pack of a tree, from which a pull takes files.
pub(super) struct PackSource {
    get: GetRequest,
    size: u64,
    /// It is not what the manifest says, or the server does not serve parts of it.
    failed: AtomicBool,
}

/// Files that are near each other in the pack.
#[derive(Clone, Debug)]
pub(super) struct PackRun<'p> {
    range: Range<u64>,
    files: Vec<PackedFile<'p>>,
}

/// A file of the pack, and the paths where it is missing.
#[derive(Clone, Debug)]
struct PackedFile<'p> {
    at: u64,
    size: u64,
    digest: Digest,
    paths: Vec<&'p Vec<u8>>,
}

impl<'p> PackRun<'p> {
    /// Divides the missing files of a pack into runs. Returns `None` if the pack's length is not that
    /// of its files.
    pub(super) fn divide(
        manifest: &Manifest,
        pack: &Pack,
        plan: &'p SyncPlan,
        is_here: impl Fn(&(Digest, u64)) -> bool,
    ) -> Option<Vec<Self>> {
        let mut wanted: BTreeMap<(Digest, u64), Vec<&Vec<u8>>> = BTreeMap::new();
        for (path, file) in &plan.fetch {
            wanted.entry((file.digest, file.size)).or_default().push(path);
        }
        wanted.retain(|content, _| !is_here(content));
        let (mut at, mut files) = (0_u64, Vec::new());
        for content in manifest.contents(pack.sizes()) {
            let (digest, size) = (content.digest, content.size);
            if let Some(paths) = wanted.remove(&(digest, size)) {
                files.push(PackedFile { at, size, digest, paths });
            }
            at = at.checked_add(size)?;
        }
        (at == pack.size).then(|| runs(files))
    }

    /// The paths of its files.
    pub(super) fn paths(&self) -> impl Iterator<Item = &'p Vec<u8>> {
        self.files.iter().flat_map(|file| file.paths.iter().copied())
    }

    /// Passes the files in `bytes`, which begin at `at` in the pack, to `complete`. `held` has the
    /// first bytes of the next file, and `next` its number.
    fn split(
        &self,
        mut bytes: &[u8],
        at: &mut u64,
        next: &mut usize,
        held: &mut Vec<u8>,
        mut complete: impl FnMut(&PackedFile<'p>, &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        while let Some(file) = self.files.get(*next) {
            let gap = part(bytes, file.at.saturating_sub(*at));
            *at += gap.len() as u64;
            bytes = &bytes[gap.len()..];
            let more = part(bytes, file.size - held.len() as u64);
            held.extend_from_slice(more);
            *at += more.len() as u64;
            bytes = &bytes[more.len()..];
            if (held.len() as u64) < file.size {
                break;
            }
            complete(file, held)?;
            held.clear();
            *next += 1;
        }
        ControlFlow::Continue(())
    }
}

fn part(bytes: &[u8], most: u64) -> &[u8] {
    &bytes[..usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len())]
}

/// Files with small gaps between them share a request, up to a length that leaves work for others.
fn runs(files: Vec<PackedFile<'_>>) -> Vec<PackRun<'_>> {
    let wanted: u64 = files.iter().map(|file| file.size).sum();
    let longest = (wanted / SHARES).clamp(SHORTEST_RUN, LONGEST_RUN);
    let mut runs: Vec<PackRun<'_>> = Vec::new();
    for file in files {
        let end = file.at + file.size;
        match runs.last_mut() {
            Some(run) if file.at - run.range.end <= GAP && end - run.range.start <= longest => {
                run.range.end = end;
                run.files.push(file);
            }
            _ => runs.push(PackRun { range: file.at..end, files: vec![file] }),
        }
    }
    // A file alone is as well fetched from its own URL, of which caches know more.
    runs.retain(|run| run.paths().nth(1).is_some());
    runs
}

impl PackSource {
    pub(super) fn new(get: &GetRequest, url: Uri, size: u64) -> Self {
        let mut get = get.clone();
        aim(&mut get, url);
        Self { get, size, failed: AtomicBool::new(false) }
    }
}

impl Pull<'_> {
    /// The work of the pack: runs of missing files.
    pub(super) fn pack<'p>(
        &self,
        manifest: &Manifest,
        plan: &'p SyncPlan,
        is_here: impl Fn(&(Digest, u64)) -> bool,
    ) -> Option<(PackSource, Vec<PackRun<'p>>)> {
        let pack = manifest.pack.as_ref()?;
        let Some(url) = levada_cache::resolve(&self.request.get.url, &pack.reference) else {
            self.note(format!("{} is not a URL: {ALONE}", pack.reference));
            return None;
        };
        let Some(runs) = PackRun::divide(manifest, pack, plan, is_here) else {
            self.note(format!("{} has not the length of its files: {ALONE}", pack.reference));
            return None;
        };
        Some((PackSource::new(&self.request.get, url, pack.size), runs))
    }

    /// Fetches a run and installs its files. The other files are left to be fetched alone.
    pub(super) async fn fetch_run<'p>(
        &self,
        source: &PackSource,
        run: PackRun<'p>,
        plan: &SyncPlan,
    ) -> TransferEnd<'p> {
        if self.pulling.is_stopped() {
            return TransferEnd::Done;
        }
        if source.failed.load(Ordering::Relaxed) {
            return TransferEnd::more(run.paths());
        }
        let progress = self.pulling.begin();
        let wanted = FileRange { range: run.range.clone(), total: source.size };
        let (mut at, mut next, mut held) = (run.range.start, 0, Vec::new());
        let mut installed = 0;
        let mut is_other = false;
        let mut take = |bytes: &[u8]| {
            run.split(bytes, &mut at, &mut next, &mut held, |file, bytes| {
                if digest_of(file.digest.algorithm(), bytes) != Some(file.digest) {
                    is_other = true;
                    return ControlFlow::Break(());
                }
                for path in &file.paths {
                    self.install_bytes(path, bytes, plan)?;
                    installed += file.size;
                }
                ControlFlow::Continue(())
            })
        };
        let result = self.client.read_range(&source.get, &wanted, &progress, &mut take).await;
        self.pulling.end(&progress, installed);
        let rest = PackRun { range: run.range.clone(), files: run.files[next..].to_vec() };
        let why = match result {
            Err(crate::GetError::Stopped) => return TransferEnd::Done,
            Err(error @ (crate::GetError::Unavailable { .. } | crate::GetError::Connect(_))) => {
                return TransferEnd::Refused(Work::Run(rest.shortened()), error);
            }
            Err(error) => error.to_string(),
            Ok(()) if is_other => "it is of another version of the tree".to_owned(),
            Ok(()) => return TransferEnd::Done,
        };
        self.give_up(source, &why);
        TransferEnd::more(rest.paths())
    }

    /// Uses the pack no more.
    pub(super) fn give_up(&self, source: &PackSource, why: &str) {
        if !source.failed.swap(true, Ordering::Relaxed) {
            self.note(format!("{}: {why}; {ALONE}", source.get.url));
        }
    }
}

impl PackRun<'_> {
    /// From the first of its files to the last.
    fn shortened(mut self) -> Self {
        if let Some(first) = self.files.first() {
            self.range.start = first.at;
        }
        self
    }
}

const ALONE: &str = "small files are fetched one by one";
/// Bytes that are not needed are fetched if they are fewer between two files than a request costs.
const GAP: u64 = 16 << 10;
/// A pack is divided into about as many runs, so that several can be on their way.
const SHARES: u64 = 32;
const SHORTEST_RUN: u64 = 256 << 10;
const LONGEST_RUN: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(at: u64, size: u64, paths: &[&'static Vec<u8>]) -> PackedFile<'static> {
        let digest = digest_of(levada_fetch::Algorithm::Sha256, b"").unwrap();
        PackedFile { at, size, digest, paths: paths.to_vec() }
    }

    fn path() -> &'static Vec<u8> {
        Box::leak(Box::new(b"p".to_vec()))
    }

    #[test]
    fn near_files_share_a_run() {
        let p = path();
        let files = vec![
            file(0, 10, &[p]),
            file(10, 10, &[p]),
            file(20 + GAP, 5, &[p]),
            file(26 + 2 * GAP, 5, &[p]),
            file(1 << 30, 1, &[p, p]),
        ];
        let ranges: Vec<_> = runs(files).into_iter().map(|run| run.range).collect();
        // The fourth file is alone.
        assert_eq!(ranges, [0..25 + GAP, 1 << 30..(1 << 30) + 1]);
    }

    #[test]
    fn files_are_split_wherever_the_bytes_come_apart() {
        let p = path();
        let pack = b"..aaabbbb...cc";
        let run = PackRun {
            range: 2..14,
            files: vec![file(2, 3, &[p]), file(5, 4, &[p]), file(12, 2, &[p])],
        };
        for step in 1..pack.len() {
            let (mut at, mut next, mut held) = (2, 0, Vec::new());
            let mut got = Vec::new();
            for bytes in pack[2..].chunks(step) {
                let flow = run.split(bytes, &mut at, &mut next, &mut held, |_, bytes| {
                    got.push(bytes.to_vec());
                    ControlFlow::Continue(())
                });
                assert!(flow.is_continue());
            }
            assert_eq!(got, [&b"aaa"[..], b"bbbb", b"cc"], "{step}");
        }
    }
}
