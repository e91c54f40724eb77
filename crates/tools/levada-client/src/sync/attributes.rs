//! The attributes of an entry beyond type and content: permissions, time, owner, group, extended
//! attributes, ACLs. A publisher reads them, a destination compares and sets them.

use std::{collections::BTreeMap, io, os::fd::AsFd};

use levada_fetch::manifest::{Entry, Extras, Metadata, Time, XATTR_PREFIX};
use rustix::{
    buffer::spare_capacity,
    fs::{
        AtFlags, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown,
        fgetxattr, flistxattr, fremovexattr, fsetxattr, fstat, futimens, utimensat,
    },
    io::Errno,
};

use super::{
    accounts::{AccountKind, Accounts},
    acl::{self, ACCESS_ACL, Acl, DEFAULT_ACL},
};

/// The attributes that an entry is to have, with the numbers of this machine. `None` stays as it is.
pub(super) struct Attributes {
    mode: Option<u32>,
    modified: Option<Time>,
    owner: Option<u32>,
    group: Option<u32>,
    acls: Option<Vec<(&'static str, Acl)>>,
    xattrs: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl Attributes {
    /// The attributes of an entry of a manifest, as far as `extras` choose them.
    pub(super) fn wanted(entry: &Entry, extras: Extras, accounts: &Accounts) -> Self {
        let (mode, modified, metadata) = match entry {
            Entry::Directory { mode, metadata } => (Some(*mode), metadata.modified, metadata),
            Entry::File { mode, modified, metadata, .. } => {
                (Some(*mode), Some(*modified), metadata)
            }
            Entry::Link { metadata, .. } => (None, metadata.modified, metadata),
        };
        let number = |kind, account| accounts.number(kind, account);
        let owner = metadata.user.as_ref().filter(|_| extras.owner);
        let group = metadata.group.as_ref().filter(|_| extras.group);
        let is_link = matches!(entry, Entry::Link { .. });
        let access = || (ACCESS_ACL, acl::in_numbers(&metadata.acl, accounts));
        let default = || (DEFAULT_ACL, acl::in_numbers(&metadata.default_acl, accounts));
        let acls = match entry {
            Entry::Directory { .. } => vec![access(), default()],
            _ => vec![access()],
        };
        Self {
            mode,
            modified,
            owner: owner.map(|user| number(AccountKind::User, user)),
            group: group.map(|group| number(AccountKind::Group, group)),
            // Links have neither.
            acls: Some(acls).filter(|_| extras.acls && !is_link),
            xattrs: Some(metadata.xattrs.clone()).filter(|_| extras.xattrs && !is_link),
        }
    }

    /// Whether the entry must be opened to compare it.
    pub(super) fn needs_file(&self) -> bool {
        self.acls.is_some() || self.xattrs.is_some()
    }

    /// Whether an entry with this state has the attributes that it shows.
    pub(super) fn fit(&self, stat: &Stat) -> bool {
        self.mode.is_none_or(|mode| stat.st_mode & 0o7777 == mode)
            && self.modified.is_none_or(|time| time_of(stat) == time)
            && self.owner.is_none_or(|owner| stat.st_uid == owner)
            && self.group.is_none_or(|group| stat.st_gid == group)
    }

    /// Whether an open entry has the others.
    pub(super) fn fit_file(&self, file: impl AsFd) -> io::Result<bool> {
        for (name, wanted) in self.acls.iter().flatten() {
            if acl::read(&file, name)? != *wanted {
                return Ok(false);
            }
        }
        match &self.xattrs {
            Some(wanted) => Ok(xattrs(&file)? == *wanted),
            None => Ok(true),
        }
    }

    /// Sets those that an open file or directory does not have, and returns its state then.
    pub(super) fn set(&self, file: impl AsFd) -> io::Result<Stat> {
        let stat = fstat(&file)?;
        let owner = self.owner.filter(|owner| *owner != stat.st_uid);
        let group = self.group.filter(|group| *group != stat.st_gid);
        if owner.is_some() || group.is_some() {
            let (owner, group) = (owner.map(Uid::from_raw), group.map(Gid::from_raw));
            fchown(&file, owner, group).map_err(|why| refused("its owner or group", why))?;
        }
        for (name, wanted) in self.acls.iter().flatten() {
            acl::write(&file, name, wanted).map_err(|why| refused("its ACL", why))?;
        }
        // After the owner, whose change may reset permissions, and after the ACL, whose mask they are.
        if let Some(mode) = self.mode {
            fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        if let Some(wanted) = &self.xattrs {
            set_xattrs(&file, wanted).map_err(|why| refused("its extended attributes", why))?;
        }
        if let Some(time) = self.modified {
            futimens(&file, &timestamps(time))?;
        }
        Ok(fstat(&file)?)
    }

    /// Sets those of a link.
    pub(super) fn set_link(&self, directory: impl AsFd, name: &std::ffi::OsStr) -> io::Result<()> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if self.owner.is_some() || self.group.is_some() {
            let (owner, group) = (self.owner.map(Uid::from_raw), self.group.map(Gid::from_raw));
            let changed = chownat(&directory, name, owner, group, flags);
            changed.map_err(|why| refused("its owner or group", why))?;
        }
        if let Some(time) = self.modified {
            utimensat(&directory, name, &timestamps(time), flags)?;
        }
        Ok(())
    }
}

/// The facts that a publisher records of an entry. `file` is the entry, unless it is a link.
pub(super) fn read(
    stat: &Stat,
    file: Option<&std::fs::File>,
    extras: Extras,
    accounts: &Accounts,
) -> io::Result<Metadata> {
    let account = |kind, number| accounts.account(kind, number);
    let mut metadata = Metadata {
        user: extras.owner.then(|| account(AccountKind::User, stat.st_uid)),
        group: extras.group.then(|| account(AccountKind::Group, stat.st_gid)),
        ..Metadata::default()
    };
    let Some(file) = file else { return Ok(metadata) };
    if extras.acls {
        metadata.acl = acl::with_names(&acl::read(file, ACCESS_ACL)?, accounts);
        if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
            metadata.default_acl = acl::with_names(&acl::read(file, DEFAULT_ACL)?, accounts);
        }
    }
    if extras.xattrs {
        metadata.xattrs = xattrs(file)?;
    }
    Ok(metadata)
}

/// The time of a state.
pub(super) fn time_of(stat: &Stat) -> Time {
    (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0))
}

fn timestamps((seconds, nanoseconds): Time) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}

/// The extended attributes of users. A file system that has none is not an error.
fn xattrs(file: impl AsFd) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = Vec::with_capacity(MOST_XATTR);
    match flistxattr(&file, spare_capacity(&mut names)) {
        Ok(_) => {}
        Err(Errno::OPNOTSUPP) => return Ok(BTreeMap::new()),
        Err(why) => return Err(why.into()),
    }
    let names = names.split(|&byte| byte == 0).filter(|name| name.starts_with(XATTR_PREFIX));
    let value = |name: &[u8]| Ok((name.to_vec(), xattr(&file, name)?.unwrap_or_default()));
    names.map(value).collect()
}

/// The value of an extended attribute, if there is one.
pub(super) fn xattr(file: impl AsFd, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut value = Vec::with_capacity(MOST_XATTR);
    match fgetxattr(file, name, spare_capacity(&mut value)) {
        Ok(_) => Ok(Some(value)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

fn set_xattrs(file: impl AsFd, wanted: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), Errno> {
    let present = xattrs(&file).map_err(|why| Errno::from_io_error(&why).unwrap_or(Errno::IO))?;
    for name in present.keys().filter(|name| !wanted.contains_key(*name)) {
        fremovexattr(&file, name.as_slice())?;
    }
    for (name, value) in wanted.iter().filter(|(name, value)| present.get(*name) != Some(value)) {
        fsetxattr(&file, name.as_slice(), value, XattrFlags::empty())?;
    }
    Ok(())
}

/// An error, with the attribute that could not be set.
fn refused(attribute: &str, why: Errno) -> io::Error {
    let remedy = match why {
        Errno::PERM => ": only root may",
        Errno::OPNOTSUPP => ": the file system does not have it",
        _ => "",
    };
    io::Error::other(format!("{attribute} cannot be set: {why}{remedy}"))
}

/// The longest value and list of extended attributes that Linux has.
const MOST_XATTR: usize = 64 << 10;
