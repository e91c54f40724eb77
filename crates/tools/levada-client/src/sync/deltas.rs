//! Long files from what is here: of a changed file only the chunks are fetched that no file at the
//! destination has.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::File,
    io,
    ops::{ControlFlow, Range},
    os::unix::fs::FileExt as _,
};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use levada_fetch::{
    Chunk, ChunkLists, Digest,
    manifest::{ChunkFile, Content, Entry, Manifest},
};

use super::{
    chunker,
    compare::SyncPlan,
    publish::sha256,
    pull::{Pull, aim},
};
use crate::get::FileRange;

/// The chunks of the missing long files, and where they were found at the destination.
#[derive(Default)]
pub(super) struct LocalChunks {
    lists: BTreeMap<(Digest, u64), Vec<Chunk>>,
    places: HashMap<[u8; 8], Option<Place>>,
    /// Chunks without a place.
    missing: usize,
    sources: Vec<File>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    source: usize,
    at: u64,
}

impl LocalChunks {
    fn want(&mut self, content: (Digest, u64), list: Vec<Chunk>) {
        for chunk in &list {
            self.places.entry(chunk.key).or_insert_with(|| {
                self.missing += 1;
                None
            });
        }
        self.lists.insert(content, list);
    }

    /// Looks for missing chunks among those of `file`, each with its offset.
    fn find(&mut self, file: File, chunks: impl Iterator<Item = (u64, Chunk)>) {
        let source = self.sources.len();
        let mut found = false;
        for (at, chunk) in chunks {
            if let Some(place @ None) = self.places.get_mut(&chunk.key) {
                *place = Some(Place { source, at });
                self.missing -= 1;
                found = true;
            }
        }
        if found {
            self.sources.push(file);
        }
    }

    fn is_done(&self) -> bool {
        self.missing == 0 || self.sources.len() >= MOST_SOURCES
    }

    /// The parts of the file that are here, with their offsets.
    pub(super) fn parts(
        &self,
        content: (Digest, u64),
    ) -> Option<impl Iterator<Item = (u64, Vec<u8>)>> {
        let list = self.lists.get(&content)?;
        let parts = placed(list, |chunk| self.places.get(&chunk.key).copied().flatten().is_some());
        let read = parts.into_iter().filter_map(|(at, chunk)| Some((at, self.read(&chunk)?)));
        Some(read)
    }

    /// The bytes of a chunk, if they are still what they were.
    fn read(&self, chunk: &Chunk) -> Option<Vec<u8>> {
        let place = self.places.get(&chunk.key).copied().flatten()?;
        let mut bytes = vec![0; chunk.length as usize];
        self.sources[place.source].read_exact_at(&mut bytes, place.at).ok()?;
        (chunker::chunk(&bytes) == *chunk).then_some(bytes)
    }
}

/// The chunks that are here, except short runs between missing ones: a request of its own for each gap costs
/// more than they spare.
fn placed(list: &[Chunk], is_here: impl Fn(&Chunk) -> bool) -> Vec<(u64, Chunk)> {
    let (mut parts, mut at) = (Vec::new(), 0);
    for run in list.chunk_by(|a, b| is_here(a) == is_here(b)) {
        let length: u64 = run.iter().map(|chunk| u64::from(chunk.length)).sum();
        if is_here(&run[0]) && length >= SHORTEST_RUN {
            let mut at = at;
            for chunk in run {
                parts.push((at, *chunk));
                at += u64::from(chunk.length);
            }
        }
        at += length;
    }
    parts
}

impl Pull<'_> {
    /// Finds the chunks of missing long files at the destination.
    pub(super) async fn local_chunks(&self, plan: &SyncPlan, manifest: &Manifest) -> LocalChunks {
        let mut local = LocalChunks::default();
        let Some(file) = &manifest.chunks else { return local };
        let wanted: HashSet<_> = plan.fetch.values().map(|file| (file.digest, file.size)).collect();
        let contents = manifest.contents(file.sizes());
        let is_wanted = |content: &Content<'_>| wanted.contains(&(content.digest, content.size));
        let missing: u64 = contents.iter().filter(|c| is_wanted(c)).map(|c| c.size).sum();
        if missing == 0 {
            return local;
        }
        let others = self.others(plan, manifest, missing);
        let has_kin = plan.fetch.keys().any(|path| self.tree.stat(path).is_some());
        if others.is_empty() && !has_kin && plan.unchanged == 0 {
            return local;
        }
        let lists = match self.chunk_lists(file, &contents, missing, &is_wanted).await {
            Ok(lists) => lists,
            Err(why) => {
                self.note(format!("{}: {why}; changed files are fetched whole", file.reference));
                return local;
            }
        };
        let mut there = Vec::new();
        for (content, list) in contents.iter().zip(lists) {
            match list {
                Some(list) if is_wanted(content) => {
                    local.want((content.digest, content.size), list);
                }
                Some(list) => there.push((content.path, list)),
                None => {}
            }
        }
        self.search(&mut local, plan, there, others);
        local
    }

    fn search(
        &self,
        local: &mut LocalChunks,
        plan: &SyncPlan,
        there: Vec<(&[u8], Vec<Chunk>)>,
        others: Vec<Vec<u8>>,
    ) {
        let own = plan
            .fetch
            .iter()
            .filter(|(_, file)| local.lists.contains_key(&(file.digest, file.size)));
        let own: Vec<_> = own.map(|(path, _)| path.clone()).collect();
        for path in &own {
            self.search_file(local, path);
        }
        for (path, list) in there {
            if local.is_done() {
                return;
            }
            if let Ok(file) = self.tree.file(path) {
                let chunks = list.into_iter().scan(0, |at, chunk| {
                    *at += u64::from(chunk.length);
                    Some((*at - u64::from(chunk.length), chunk))
                });
                local.find(file, chunks);
            }
        }
        for path in &others {
            self.search_file(local, path);
        }
    }

    fn search_file(&self, local: &mut LocalChunks, path: &[u8]) {
        if local.is_done() || self.pulling.is_stopped() {
            return;
        }
        let Ok(file) = self.tree.file(path) else { return };
        if !file.metadata().is_ok_and(|there| there.is_file()) {
            return;
        }
        let (mut at, mut chunks) = (0, Vec::new());
        let cut = chunker::cut(&file, |chunk, _| {
            chunks.push((at, chunk));
            at += u64::from(chunk.length);
            Ok(())
        });
        if cut.is_ok() {
            local.find(file, chunks.into_iter());
        }
    }

    /// Files that the manifest does not have, as after a renaming: those first whose name or length is that of
    /// a missing file. They are read, so that there is a limit.
    fn others(&self, plan: &SyncPlan, manifest: &Manifest, missing: u64) -> Vec<Vec<u8>> {
        let sizes: HashSet<u64> = plan.fetch.values().map(|file| file.size).collect();
        let names: HashSet<&[u8]> = plan.fetch.keys().map(|path| last_part(path)).collect();
        let is_file = |path: &[u8]| matches!(manifest.entries.get(path), Some(Entry::File { .. }));
        let mut others: Vec<(bool, Vec<u8>, u64)> = Vec::new();
        for (path, is_directory) in self.tree.paths().unwrap_or_default() {
            if is_directory || is_file(&path) {
                continue;
            }
            let size = self.tree.stat(&path).and_then(|there| u64::try_from(there.st_size).ok());
            if let Some(size) = size.filter(|&size| size >= SHORTEST_OTHER) {
                let is_kin = sizes.contains(&size) || names.contains(last_part(&path));
                others.push((!is_kin, path, size));
            }
        }
        others.sort();
        // Remains of older versions are read first.
        for path in self.tree.staged_files() {
            others.insert(0, (false, path, 0));
        }
        let mut left = missing.saturating_mul(MOST_READ);
        others.retain(|(_, _, size)| {
            let fits = *size <= left;
            left -= if fits { *size } else { 0 };
            fits
        });
        others.into_iter().map(|(_, path, _)| path).collect()
    }

    /// The chunk lists of the wanted contents; of all, if the file is short next to what is missing.
    async fn chunk_lists(
        &self,
        file: &ChunkFile,
        contents: &[Content<'_>],
        missing: u64,
        is_wanted: &(dyn Fn(&Content<'_>) -> bool + Sync),
    ) -> Result<Vec<Option<Vec<Chunk>>>, String> {
        let head = ChunkLists::head_length(contents.len());
        let all = file.size <= SHORT_LISTS.max(missing / MANY_TIMES);
        let begin = self.chunk_bytes(file, 0..if all { file.size } else { head }).await?;
        if all
            && file.digest.algorithm() == levada_fetch::Algorithm::Sha256
            && sha256(&begin) != file.digest
        {
            return Err("they do not have the digest of the manifest".to_owned());
        }
        let counts = begin.get(..head as usize).unwrap_or(&begin);
        let places = ChunkLists::parse(counts, contents.len(), file.size);
        let places = places.map_err(|why| why.to_string())?;
        let lists = contents.iter().enumerate().map(|(number, content)| {
            let (range, begin) = (places.range(number), &begin);
            async move {
                let fetched;
                let bytes = if all {
                    &begin[range.start as usize..range.end as usize]
                } else if is_wanted(content) {
                    fetched = self.chunk_bytes(file, range).await?;
                    &fetched
                } else {
                    return Ok(None);
                };
                ChunkLists::list(bytes, content.size).map(Some).map_err(|why| why.to_string())
            }
        });
        stream::iter(lists).buffered(LISTS_AT_ONCE).try_collect().await
    }

    async fn chunk_bytes(&self, file: &ChunkFile, range: Range<u64>) -> Result<Vec<u8>, String> {
        let url = levada_cache::resolve(&self.request.get.url, &file.reference);
        let mut get = self.request.get.clone();
        aim(&mut get, url.ok_or("it is not a URL")?);
        let wanted = FileRange { range, total: file.size };
        let progress = self.pulling.begin();
        let mut bytes = Vec::new();
        let mut take = |more: &[u8]| {
            bytes.extend_from_slice(more);
            ControlFlow::Continue(())
        };
        let result = self.client.read_range(&get, &wanted, &progress, &mut take).await;
        self.pulling.end(&progress, 0);
        result.map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    /// Copies a file of the destination that has the wanted content.
    pub(super) fn copy_content(
        &self,
        from: &[u8],
        path: &[u8],
        plan: &SyncPlan,
    ) -> io::Result<bool> {
        let wanted = &plan.fetch[path];
        // It may wait for all others, or be an old file that stays.
        let ready = self.tree.staged_file(&super::pull::staged_name(from, &wanted.digest));
        let source = ready.or_else(|_| self.tree.file(from))?;
        let there = source.metadata()?;
        if !there.is_file() || there.len() != wanted.size {
            return Ok(false);
        }
        let name = super::pull::staged_name(path, &wanted.digest);
        let mut staged = self.tree.create(&name)?;
        io::copy(&mut &source, &mut staged)?;
        let staged = File::open(self.tree.staged(&name))?;
        let found =
            crate::Hasher::new(&[wanted.digest.algorithm()]).finish(&staged, wanted.size)?;
        let is_right = found.contains(&wanted.digest);
        if is_right {
            self.report.lock().reused += wanted.size;
            self.install_fetched(path, &name, plan);
        }
        Ok(is_right)
    }
}

fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Found chunks between two gaps are fetched again if they are fewer bytes than this.
const SHORTEST_RUN: u64 = 16 << 10;
/// Other files that are shorter are not looked into.
const SHORTEST_OTHER: u64 = 16 << 10;
/// Other files are read up to this many times the missing bytes.
const MOST_READ: u64 = 8;
/// Files that are kept open until their chunks are copied.
const MOST_SOURCES: usize = 256;
/// Chunk lists are fetched all together up to this length, or if what is missing is so many times longer.
const SHORT_LISTS: u64 = 64 << 10;
const MANY_TIMES: u64 = 64;
const LISTS_AT_ONCE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_runs_between_gaps_are_left_out() {
        let chunk = |length, here: u8| Chunk { length, key: [here; 8] };
        let list = [
            chunk(100, 1),
            chunk(20_000, 0),
            chunk(9000, 1),
            chunk(9000, 1),
            chunk(5, 0),
            chunk(4000, 1),
        ];
        let parts = placed(&list, |chunk| chunk.key[0] == 1);
        let offsets: Vec<u64> = parts.iter().map(|(at, _)| *at).collect();
        assert_eq!(offsets, [20_100, 29_100]);
    }
}
