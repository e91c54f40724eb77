//! The last steps of a pull: what is ready and verified gets its place and its attributes, other names
//! and links are made, and what is not in the manifest is removed.

use std::{collections::BTreeSet, io};

use levada_fetch::manifest::Entry;
use rustix::fs::fstat;

use super::{
    attributes::Attributes,
    compare::{SyncPlan, WantedFile, digest_of},
    pull::{Pull, STAGED_NAME, staged_name},
    shown,
};

/// A file that is ready and waits for all others (`--delay-updates`).
pub(super) struct ReadyFile {
    path: Vec<u8>,
    wanted: WantedFile,
    name: String,
}

impl Pull<'_> {
    /// Puts a complete and verified file of the directory for incomplete ones in its place, or keeps it
    /// there until all are ready. Returns false if it failed, which is in the report then.
    pub(super) fn install(
        &self,
        path: &[u8],
        wanted: WantedFile,
        name: &str,
        plan: &SyncPlan,
    ) -> bool {
        if self.request.delay {
            let ready = ReadyFile { path: path.to_vec(), wanted, name: name.to_owned() };
            self.ready.lock().push(ready);
            return true;
        }
        self.place(path, wanted, name, plan)
    }

    fn place(&self, path: &[u8], wanted: WantedFile, name: &str, plan: &SyncPlan) -> bool {
        self.make_room(path, plan);
        let put = self
            .attributes(path)
            .and_then(|attributes| self.tree.put(name, path, &attributes, self.request.sparse));
        let recorded = put.map(|stat| self.state.lock().record(path, wanted.digest, &stat));
        self.tell(path, recorded)
    }

    /// Puts a file that is in memory in its place, if that is possible without an incomplete file.
    pub(super) fn place_bytes(
        &self,
        path: &[u8],
        bytes: &[u8],
        name: &str,
        plan: &SyncPlan,
    ) -> bool {
        if self.request.delay || self.request.sparse || plan.room.contains_key(path) {
            return false;
        }
        let digest = plan.fetch[path].digest;
        let written = self
            .attributes(path)
            .and_then(|attributes| self.tree.write(path, name, bytes, &attributes));
        written.is_ok_and(|stat| {
            self.state.lock().record(path, digest, &stat);
            true
        })
    }

    /// Whether a fetched file will have a place.
    pub(super) fn has_place(&self, path: &[u8], plan: &SyncPlan) -> bool {
        self.request.delay
            || plan.room.contains_key(path)
            || self.tell(path, self.tree.has_place(path))
    }

    /// Creates directories.
    pub(super) fn make_directories(&self, plan: &SyncPlan) {
        for path in &plan.directories {
            self.make_room(path, plan);
            self.tell(path, self.tree.directory(path));
        }
    }

    /// Installs files whose bytes are here: those that an earlier run has completed, and copies.
    pub(super) async fn take_local(&self, plan: &mut SyncPlan) {
        let mut names: BTreeSet<Vec<u8>> = self.tree.staged_names().into_iter().collect();
        names.retain(|name| name.len() == STAGED_NAME);
        let staged = |(path, wanted): (&Vec<u8>, &WantedFile)| {
            let name = staged_name(path, &wanted.digest);
            names.contains(name.as_bytes()).then(|| (path.clone(), *wanted))
        };
        let staged: Vec<_> = if names.is_empty() {
            Vec::new()
        } else {
            plan.fetch.iter().filter_map(staged).collect()
        };
        for (path, wanted) in staged {
            if self.take_staged(&path, wanted, plan).await {
                plan.fetch.remove(&path);
                self.report.lock().fetched.push(shown(&path));
            }
        }
        for (path, wanted) in std::mem::take(&mut plan.copy) {
            let copied = self.copy(&path, wanted);
            if self.tell(&path, copied) {
                if self.take_staged(&path, wanted, plan).await {
                    self.report.lock().dressed.push(shown(&path));
                } else {
                    // It has changed since it was compared.
                    plan.fetch.insert(path, wanted);
                }
            }
        }
    }

    async fn take_staged(&self, path: &[u8], wanted: WantedFile, plan: &SyncPlan) -> bool {
        let name = staged_name(path, &wanted.digest);
        let Ok(file) = self.tree.staged_file(&name) else { return false };
        let is_right = match fstat(&file) {
            Ok(stat) if u64::try_from(stat.st_size) == Ok(wanted.size) => {
                digest_of(file, wanted).await.is_ok_and(|(digest, _)| digest == wanted.digest)
            }
            _ => false,
        };
        is_right && self.has_place(path, plan) && self.install(path, wanted, &name, plan)
    }

    fn copy(&self, path: &[u8], wanted: WantedFile) -> io::Result<()> {
        let mut copy = self.tree.create(&staged_name(path, &wanted.digest))?;
        io::copy(&mut self.tree.file(path)?, &mut copy).map(drop)
    }

    /// Puts the files in their places that have waited for all others.
    pub(super) fn place_ready(&self, plan: &SyncPlan) {
        let ready = std::mem::take(&mut *self.ready.lock());
        for ReadyFile { path, wanted, name } in ready {
            if plan.room.contains_key(&path) || self.tell(&path, self.tree.has_place(&path)) {
                self.place(&path, wanted, &name, plan);
            }
        }
    }

    /// Everything after the files are in their places.
    pub(super) fn finish(&self, plan: &SyncPlan) {
        let is_directory =
            |path: &[u8]| matches!(self.manifest.entries.get(path), Some(Entry::Directory { .. }));
        for path in plan.dress.iter().filter(|path| !is_directory(path)) {
            if self.tell(path, self.dress(path)) {
                self.report.lock().dressed.push(shown(path));
            }
        }
        for (path, target) in &plan.links {
            self.make_room(path, plan);
            let made = self.attributes(path);
            let made = made.and_then(|attributes| self.tree.link(path, target, &attributes));
            if self.tell(path, made) {
                self.report.lock().linked.push(shown(path));
            }
        }
        self.add_names(plan);
        // Old entries are removed only after all new ones are installed.
        if self.report.lock().failed.is_empty() && !self.pulling.is_stopped() {
            for (path, is_directory) in &plan.delete {
                if self.tell(path, self.tree.remove(path, *is_directory)) {
                    self.report.lock().deleted.push(shown(path));
                }
            }
        }
        // At the end: what is done in a directory changes its time, and its permissions may forbid it.
        for path in plan.directories.iter().rev() {
            let dressed = self.attributes(path);
            let dressed = dressed.and_then(|wanted| self.tree.dress_directory(path, &wanted));
            if self.tell(path, dressed) && plan.dress.contains(path) {
                self.report.lock().dressed.push(shown(path));
            }
        }
    }

    /// Sets the attributes of a file or link with the right content.
    fn dress(&self, path: &[u8]) -> io::Result<()> {
        let attributes = self.attributes(path)?;
        let Some(Entry::File { digest, .. }) = self.manifest.entries.get(path) else {
            return self.tree.dress_link(path, &attributes);
        };
        let file = self.tree.file(path)?;
        let known = self.state.lock().digest(path, &fstat(&file)?, digest.algorithm());
        if known != Some(*digest) {
            return Err(changed());
        }
        let stat = attributes.set(&file)?;
        self.state.lock().record(path, *digest, &stat);
        Ok(())
    }

    /// Makes hard links.
    fn add_names(&self, plan: &SyncPlan) {
        let mut touched = BTreeSet::new();
        for name in plan.names.iter().filter(|name| name.is_new) {
            if touched.insert(name.first.as_slice()) && !self.is_right(&name.first) {
                touched.remove(name.first.as_slice());
                self.tell(
                    &name.path,
                    Err(io::Error::other("the file of its other name is missing")),
                );
                continue;
            }
            self.make_room(&name.path, plan);
            if self.tell(&name.path, self.tree.add_name(&name.path, &name.first)) {
                self.report.lock().linked.push(shown(&name.path));
            }
        }
        // Each new name changes the inode, so the state of its files is recorded again.
        for name in plan.names.iter().filter(|name| touched.contains(name.first.as_slice())) {
            let stats = self.tree.stat(&name.first).zip(self.tree.stat(&name.path));
            let stats = stats.filter(|(first, other)| first.st_ino == other.st_ino);
            let entry = self.manifest.entries.get(&name.path);
            if let (Some((first, other)), Some(Entry::File { digest, .. })) = (stats, entry) {
                let mut state = self.state.lock();
                state.record(&name.first, *digest, &first);
                state.record(&name.path, *digest, &other);
            }
        }
    }

    /// Whether the file at `path` is known to be the one of the manifest.
    fn is_right(&self, path: &[u8]) -> bool {
        let Some(Entry::File { digest, .. }) = self.manifest.entries.get(path) else {
            return false;
        };
        let stat = self.tree.stat(path);
        let known = |stat| self.state.lock().digest(path, &stat, digest.algorithm());
        stat.and_then(known) == Some(*digest)
    }

    fn attributes(&self, path: &[u8]) -> io::Result<Attributes> {
        let entry = self.manifest.entries.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Attributes::wanted(entry, self.request.extras, &self.accounts))
    }

    /// Removes the entries at the place of a file, a directory or a link that is ready to install.
    fn make_room(&self, path: &[u8], plan: &SyncPlan) {
        for (path, is_directory) in plan.room.get(path).into_iter().flatten() {
            if self.tell(path, self.tree.remove(path, *is_directory)) {
                self.report.lock().deleted.push(shown(path));
            }
        }
    }
}

fn changed() -> io::Error {
    io::Error::other("it changed during the pull: run the command again")
}
