//! POSIX ACLs, as Linux has them in two extended attributes: a version, and entries of a tag, permissions
//! and a number.

use std::{io, os::fd::AsFd};

use levada_fetch::manifest::{AclEntry, AclParty};
use rustix::{
    fs::{XattrFlags, fremovexattr, fsetxattr},
    io::Errno,
};

use super::{
    accounts::{AccountKind, Accounts},
    attributes::xattr,
};

/// Tag, number and permissions of each entry, sorted. An ACL without entries is none.
pub(super) type Acl = Vec<(u16, u32, u16)>;

/// The ACL of an open file or directory.
pub(super) fn read(file: impl AsFd, name: &str) -> io::Result<Acl> {
    let bytes = xattr(file, name.as_bytes())?.unwrap_or_default();
    let entries = bytes.get(HEAD.len()..).unwrap_or_default().chunks_exact(8);
    let entry = |entry: &[u8]| {
        let short = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let number = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        (short(0), number, short(2))
    };
    let mut acl: Acl = entries.map(entry).collect();
    acl.sort_unstable();
    Ok(acl)
}

/// Replaces the ACL of an open file or directory.
pub(super) fn write(file: impl AsFd, name: &str, acl: &Acl) -> Result<(), Errno> {
    if acl.is_empty() {
        return match fremovexattr(file, name) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            result => result,
        };
    }
    let mut bytes = HEAD.to_vec();
    for (tag, number, permissions) in acl {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(number.to_le_bytes());
    }
    fsetxattr(file, name, &bytes, XattrFlags::empty())
}

/// An ACL for a manifest.
pub(super) fn with_names(acl: &Acl, accounts: &Accounts) -> Vec<AclEntry> {
    let entry = |&(tag, number, permissions): &(u16, u32, u16)| {
        let (_, party, kind) = *TAGS.iter().find(|(known, ..)| *known == tag)?;
        let account = kind.map(|kind| accounts.account(kind, number));
        Some(AclEntry { party, account, permissions: u8::try_from(permissions & 7).ok()? })
    };
    acl.iter().filter_map(entry).collect()
}

/// An ACL of a manifest, with the numbers of this machine.
pub(super) fn in_numbers(entries: &[AclEntry], accounts: &Accounts) -> Acl {
    let entry = |entry: &AclEntry| {
        let fits = |kind: &Option<AccountKind>| kind.is_some() == entry.account.is_some();
        let tag = TAGS.iter().find(|(_, party, kind)| *party == entry.party && fits(kind))?;
        let number = tag.2.zip(entry.account.as_ref());
        let number = number.map_or(NO_NUMBER, |(kind, account)| accounts.number(kind, account));
        Some((tag.0, number, entry.permissions.into()))
    };
    let mut acl: Acl = entries.iter().filter_map(entry).collect();
    acl.sort_unstable();
    acl
}

/// The tags of Linux's `posix_acl_xattr.h`.
const TAGS: [(u16, AclParty, Option<AccountKind>); 6] = [
    (0x01, AclParty::User, None),
    (0x02, AclParty::User, Some(AccountKind::User)),
    (0x04, AclParty::Group, None),
    (0x08, AclParty::Group, Some(AccountKind::Group)),
    (0x10, AclParty::Mask, None),
    (0x20, AclParty::Other, None),
];
/// Version 2.
const HEAD: [u8; 4] = [2, 0, 0, 0];
/// The number of an entry that names nobody.
const NO_NUMBER: u32 = u32::MAX;

pub(super) const ACCESS_ACL: &str = "system.posix_acl_access";
pub(super) const DEFAULT_ACL: &str = "system.posix_acl_default";
