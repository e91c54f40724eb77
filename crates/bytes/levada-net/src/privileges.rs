//! The user that this process runs as, and the capabilities that it has.
//!
//! A program that root has started binds its addresses first, and then becomes another user by [`run_as`].
//! It keeps the capabilities that it names, and no others. Credentials belong to threads on Linux: the change
//! of the user reaches all of them (setuid(3)), the capabilities stay with the calling thread and with those
//! that it starts afterwards.

use std::{fmt, io, os::unix::fs::lchown, path::Path};

use nix::unistd::{self, Gid, Group, Uid, User};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
};

/// What a program may keep when it stops being root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Moving TCP connections to other machines: the capabilities NET_ADMIN, BPF and NET_BIND_SERVICE.
    pub handoff: bool,
}

/// A user and its group.
#[derive(Clone, Debug)]
pub struct Account {
    name: String,
    user: Uid,
    group: Gid,
}

/// Who this process is, and what it may do beyond other programs of that user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// The user's name, or its number if it has none.
    pub user: String,
    /// The names of the capabilities.
    pub capabilities: Vec<&'static str>,
    is_root: bool,
}

impl Account {
    /// The account of this user, with this group or its own.
    ///
    /// # Errors
    /// When there is no such user or group.
    pub fn find(user: &str, group: Option<&str>) -> io::Result<Self> {
        let missing = |kind: &str, name: &str| {
            io::Error::new(io::ErrorKind::NotFound, format!("there is no {kind} {name}"))
        };
        let found = User::from_name(user)?.ok_or_else(|| missing("user", user))?;
        let group = match group {
            None => found.gid,
            Some(name) => Group::from_name(name)?.ok_or_else(|| missing("group", name))?.gid,
        };
        Ok(Self { name: found.name, user: found.uid, group })
    }

    /// Gives a file or directory to this user.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn own(&self, path: &Path) -> io::Result<()> {
        lchown(path, Some(self.user.as_raw()), Some(self.group.as_raw()))
    }
}

/// Whether this process may become another user.
pub fn is_root() -> bool {
    unistd::geteuid().is_root()
}

/// Becomes this user, for good. To be called before the program starts threads that need what is kept.
///
/// # Errors
/// When the system refuses. The process may be half the one and half the other user then, and must end.
pub fn run_as(account: &Account, kept: Kept) -> io::Result<()> {
    // In a container, root may not have them all.
    let keeps = kept.capabilities() & capabilities(None)?.permitted;
    // The groups that let the user use sockets of other programs, such as BIRD's.
    let name = std::ffi::CString::new(account.name.as_str())?;
    unistd::initgroups(&name, account.group)?;
    unistd::setresgid(account.group, account.group, account.group)?;
    set_keep_capabilities(!keeps.is_empty())?;
    unistd::setresuid(account.user, account.user, account.user)?;
    set_capabilities(
        None,
        CapabilitySets { effective: keeps, permitted: keeps, inheritable: CapabilitySet::empty() },
    )?;
    set_keep_capabilities(false)?;
    clear_ambient_capability_set()?;
    // Nor by a program that it runs, whatever the permissions of its file.
    set_no_new_privs(true)?;
    if unistd::setuid(Uid::from_raw(0)).is_ok() && !account.user.is_root() {
        return Err(io::Error::other("the process could become root again"));
    }
    Ok(())
}

/// Lets the programs that this thread starts keep its capabilities.
///
/// # Errors
/// When the system refuses.
pub fn pass_to_children() -> io::Result<()> {
    if is_root() {
        return Ok(());
    }
    let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: permitted })?;
    for one in permitted.iter() {
        configure_capability_in_ambient_set(one, true)?;
    }
    Ok(())
}

/// Ends what [`pass_to_children`] of the parent process has started.
///
/// # Errors
/// When the system refuses.
pub fn keep_from_children() -> io::Result<()> {
    if is_root() {
        return Ok(());
    }
    let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?;
    Ok(clear_ambient_capability_set()?)
}

impl Kept {
    fn capabilities(self) -> CapabilitySet {
        match self.handoff {
            false => CapabilitySet::empty(),
            true => CapabilitySet::NET_ADMIN | CapabilitySet::BPF | CapabilitySet::NET_BIND_SERVICE,
        }
    }
}

impl Privileges {
    /// Those of the calling thread.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn now() -> io::Result<Self> {
        let user = unistd::geteuid();
        let name = User::from_uid(user)?.map_or_else(|| user.to_string(), |user| user.name);
        let names = capabilities(None)?.effective.iter_names().map(|(name, _)| name).collect();
        Ok(Self { user: name, capabilities: names, is_root: user.is_root() })
    }
}

impl fmt::Display for Privileges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "runs as {}", self.user)?;
        match &self.capabilities[..] {
            _ if self.is_root => f.write_str(" with all its rights"),
            [] => f.write_str(" without capabilities"),
            names => write!(f, " with the capabilities {}", names.join(", ")),
        }
    }
}
