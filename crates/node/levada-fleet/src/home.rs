//! The directory of a node that has joined. It has all that the node needs to start while the state is away.
//!
//! ```text
//! member.json       who the node is, and its token
//! seen.json         the highest head that it has seen: an older one is refused
//! current           the revision in use, a link into revisions/
//! revisions/7-1/    levada.toml, files/, the secret of the cluster, the fleet's directory as it was fetched
//! state/            the fleet's state, at the node that keeps it
//! ```

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    check::write_files,
    derive::SECRET_FILE,
    directory::Directory,
    file_store::replace_file,
    model::{Head, Member},
    token::Token,
};

/// The directory of a node.
#[derive(Clone, Debug)]
pub struct Home(PathBuf);

/// The identity of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Membership {
    /// The node.
    pub node: Member,
    /// Its token.
    pub token: Token,
}

/// The revision on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Current {
    /// Its number.
    pub number: u64,
    /// Since when it is in use: Unix time in seconds.
    pub since: u64,
    /// A digest of all that it was made of: another node that joins makes another configuration of the same revision.
    pub made_of: String,
}

/// A revision on disk that is not in use yet.
#[derive(Debug)]
pub struct Prepared {
    directory: String,
    former: Option<PathBuf>,
}

impl Home {
    /// The directory at a path.
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The configuration of the node.
    pub fn configuration(&self) -> PathBuf {
        self.0.join("current/levada.toml")
    }

    /// The node; `None` before it has joined.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn membership(&self) -> io::Result<Option<Membership>> {
        self.read("member.json")
    }

    /// Remembers who the node is.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn join(&self, membership: &Membership) -> io::Result<()> {
        fs::create_dir_all(&self.0)?;
        self.write("member.json", membership)
    }

    /// The highest head that the node has seen.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn seen(&self) -> io::Result<Option<Head>> {
        self.read("seen.json")
    }

    /// Remembers a head.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn see(&self, head: &Head) -> io::Result<()> {
        self.write("seen.json", head)
    }

    /// The revision in use; `None` before the first.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn current(&self) -> io::Result<Option<Current>> {
        self.read("current/current.json")
    }

    /// The files of the fleet that the revision in use was made of, which need not be fetched again.
    pub fn fetched(&self) -> Directory {
        Directory::read(&self.0.join("current/fleet")).unwrap_or_default()
    }

    /// Writes a revision, which is not in use yet.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn prepare(
        &self,
        current: &Current,
        configuration: &str,
        secrets: &[String],
        directory: &Directory,
    ) -> io::Result<Prepared> {
        let former = fs::read_link(self.0.join("current")).ok();
        let name = (1..)
            .map(|number| format!("revisions/{}-{number}", current.number))
            .find(|name| !self.0.join(name).exists())
            .unwrap_or_default();
        let root = self.0.join(&name);
        fs::create_dir_all(&root)?;
        fs::set_permissions(&root, fs::Permissions::from_mode(0o700))?;
        write_files(directory.files(), &root.join("fleet"))?;
        // The configuration names them by relative paths.
        symlink("fleet/files", root.join("files"))?;
        replace_file(&root.join(SECRET_FILE), secrets.join("\n").as_bytes())?;
        replace_file(&root.join("levada.toml"), configuration.as_bytes())?;
        replace_file(&root.join("current.json"), &serde_json::to_vec(current)?)?;
        // The link must not lead to files that a loss of power takes away.
        rustix::fs::sync();
        Ok(Prepared { directory: name, former })
    }

    /// Puts a revision into use.
    ///
    /// # Errors
    /// If the link cannot be changed.
    pub fn switch_to(&self, prepared: &Prepared) -> io::Result<()> {
        self.link(Path::new(&prepared.directory))
    }

    /// Puts the former revision into use again, and removes the new one.
    ///
    /// # Errors
    /// If the link cannot be changed.
    pub fn switch_back(&self, prepared: &Prepared) -> io::Result<()> {
        match &prepared.former {
            Some(former) => self.link(former)?,
            None => fs::remove_file(self.0.join("current"))?,
        }
        fs::remove_dir_all(self.0.join(&prepared.directory))
    }

    /// Removes the revisions that are not in use, except the former one.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn tidy(&self, prepared: &Prepared) -> io::Result<()> {
        let former = prepared.former.as_deref().and_then(Path::file_name);
        let kept = [Path::new(&prepared.directory).file_name(), former];
        for entry in fs::read_dir(self.0.join("revisions"))? {
            let entry = entry?;
            if !kept.contains(&Some(&entry.file_name())) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    fn link(&self, to: &Path) -> io::Result<()> {
        let (link, next) = (self.0.join("current"), self.0.join("current.next"));
        let _ = fs::remove_file(&next);
        symlink(to, &next)?;
        fs::rename(&next, &link)?;
        fs::File::open(&self.0)?.sync_all()
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        let path = self.0.join(name);
        let named =
            |why: io::Error| io::Error::new(why.kind(), format!("{}: {why}", path.display()));
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|why| named(why.into())),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(named(why)),
        }
    }

    fn write(&self, name: &str, value: &impl Serialize) -> io::Result<()> {
        replace_file(&self.0.join(name), &serde_json::to_vec(value)?)
    }
}
