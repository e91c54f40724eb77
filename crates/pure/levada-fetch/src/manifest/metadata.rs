//! The facts about an entry that a publisher records by option: owner, group, ACLs, extended attributes;
//! and the times of directories and links. Each is a field `key=value` at the end of the entry's line.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use super::path::{decoded, encoded};

/// Seconds and nanoseconds since 1970.
pub type Time = (i64, u32);

/// The facts about an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The time of the last change of a directory or a link; a file has its own field.
    pub modified: Option<Time>,
    /// The owner.
    pub user: Option<Account>,
    /// The group.
    pub group: Option<Account>,
    /// The entries of the POSIX ACL beyond the permissions; empty if there are none.
    pub acl: Vec<AclEntry>,
    /// The ACL that new entries of a directory inherit.
    pub default_acl: Vec<AclEntry>,
    /// The extended attributes of users, by name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The number at the publisher.
    pub number: u32,
    /// The name at the publisher, if the number has one.
    pub name: Option<Vec<u8>>,
}

/// An entry of an ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// The party.
    pub party: AclParty,
    /// The user or group that is named; the owner, the owning group and others have none.
    pub account: Option<Account>,
    /// Read 4, write 2, execute 1.
    pub permissions: u8,
}

/// The party of an entry of an ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclParty {
    /// A user.
    User,
    /// A group.
    Group,
    /// The bound of all but the owner and others.
    Mask,
    /// Everybody else.
    Other,
}

/// The facts that a publisher records, or that a destination takes over, beyond type, content,
/// permissions and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Files that are one file under several names.
    pub hard_links: bool,
    /// Owners.
    pub owner: bool,
    /// Groups.
    pub group: bool,
    /// ACLs.
    pub acls: bool,
    /// Extended attributes of users.
    pub xattrs: bool,
}

impl Extras {
    /// The name of each, which is also that of the option, and whether it is chosen.
    fn named(&mut self) -> [(&'static str, &mut bool); 5] {
        [
            ("hard-links", &mut self.hard_links),
            ("owner", &mut self.owner),
            ("group", &mut self.group),
            ("acls", &mut self.acls),
            ("xattrs", &mut self.xattrs),
        ]
    }

    /// The names of the chosen ones.
    pub fn names(mut self) -> Vec<&'static str> {
        let named = self.named().into_iter();
        named.filter(|(_, chosen)| **chosen).map(|(name, _)| name).collect()
    }

    /// The name of the first one that is chosen here and not in `other`.
    pub fn first_beyond(self, other: Self) -> Option<&'static str> {
        let others = other.names();
        self.names().into_iter().find(|name| !others.contains(name))
    }

    pub(super) fn parse(names: &[&str]) -> Result<Self, Cow<'static, str>> {
        let mut extras = Self::default();
        for name in names {
            let mut named = extras.named().into_iter();
            *named.find(|(known, _)| known == name).ok_or_else(|| unknown(name))?.1 = true;
        }
        Ok(extras)
    }
}

impl Metadata {
    /// Reads the fields at the end of a line.
    pub(super) fn parse(fields: &[&str]) -> Result<Self, Cow<'static, str>> {
        let mut metadata = Self::default();
        for field in fields {
            let (key, value) = field.split_once('=').ok_or_else(|| unknown(field))?;
            match key {
                "time" => metadata.modified = Some(time(value)?),
                "user" => metadata.user = Some(account(value)?),
                "group" => metadata.group = Some(account(value)?),
                "acl" => metadata.acl = acl(value)?,
                "default-acl" => metadata.default_acl = acl(value)?,
                "xattr" => {
                    let pair = value.split_once(':');
                    let pair =
                        pair.and_then(|(name, value)| Some((decoded(name)?, decoded(value)?)));
                    let (name, value) = pair.ok_or("the extended attribute cannot be read")?;
                    // Others, such as `security.capability`, would give rights.
                    if !name.starts_with(XATTR_PREFIX) || name.contains(&0) {
                        return Err("the extended attribute is not one of users".into());
                    }
                    metadata.xattrs.insert(name, value);
                }
                _ => return Err(unknown(key)),
            }
        }
        Ok(metadata)
    }
}

/// The fields, each with a space before it.
impl fmt::Display for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(time) = self.modified {
            write!(f, " time={}", written_time(time))?;
        }
        for (key, account) in [("user", &self.user), ("group", &self.group)] {
            if let Some(account) = account {
                write!(f, " {key}={account}")?;
            }
        }
        for (key, acl) in [("acl", &self.acl), ("default-acl", &self.default_acl)] {
            if !acl.is_empty() {
                let entries: Vec<String> = acl.iter().map(AclEntry::to_string).collect();
                write!(f, " {key}={}", entries.join(","))?;
            }
        }
        for (name, value) in &self.xattrs {
            write!(f, " xattr={}:{}", encoded(name), encoded(value))?;
        }
        Ok(())
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            None => write!(f, "{}", self.number),
            Some(name) => write!(f, "{}/{}", self.number, encoded(name)),
        }
    }
}

impl fmt::Display for AclEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = self.account.as_ref().map(Account::to_string).unwrap_or_default();
        write!(f, "{}:{account}:{}", self.party.letter(), self.permissions)
    }
}

impl AclParty {
    const fn letter(self) -> &'static str {
        match self {
            Self::User => "u",
            Self::Group => "g",
            Self::Mask => "m",
            Self::Other => "o",
        }
    }
}

fn account(text: &str) -> Result<Account, &'static str> {
    const WRONG: &str = "the user or group cannot be read";
    let (number, name) = text.split_once('/').map_or((text, None), |(n, name)| (n, Some(name)));
    let name = name.map(|name| decoded(name).filter(|name| !name.is_empty()).ok_or(WRONG));
    Ok(Account { number: number.parse().map_err(|_| WRONG)?, name: name.transpose()? })
}

fn acl(text: &str) -> Result<Vec<AclEntry>, &'static str> {
    text.split(',').map(acl_entry).collect()
}

fn acl_entry(text: &str) -> Result<AclEntry, &'static str> {
    const WRONG: &str = "the ACL cannot be read";
    let mut parts = text.splitn(3, ':');
    let mut part = || parts.next().ok_or(WRONG);
    let party = match part()? {
        "u" => AclParty::User,
        "g" => AclParty::Group,
        "m" => AclParty::Mask,
        "o" => AclParty::Other,
        _ => return Err(WRONG),
    };
    let account = Some(part()?).filter(|text| !text.is_empty()).map(account).transpose()?;
    let has_account = matches!(party, AclParty::User | AclParty::Group);
    let permissions = part()?.parse().ok().filter(|bits| *bits <= 7).ok_or(WRONG)?;
    if account.is_some() && !has_account {
        return Err(WRONG);
    }
    Ok(AclEntry { party, account, permissions })
}

pub(super) fn time(text: &str) -> Result<Time, &'static str> {
    const WRONG: &str = "the time cannot be read";
    let (seconds, nanoseconds) = text.split_once('.').ok_or(WRONG)?;
    let digits = nanoseconds.len() == 9 && nanoseconds.bytes().all(|byte| byte.is_ascii_digit());
    let nanoseconds = nanoseconds.parse().ok().filter(|_| digits).ok_or(WRONG)?;
    Ok((seconds.parse().map_err(|_| WRONG)?, nanoseconds))
}

pub(super) fn written_time((seconds, nanoseconds): Time) -> String {
    format!("{seconds}.{nanoseconds:09}")
}

/// The sentence about a word that a later version of the format may have.
pub(super) fn unknown(word: &str) -> Cow<'static, str> {
    let word: String = word.chars().take(40).collect();
    format!("`{word}` is not known to this program: a newer levada may read it").into()
}

/// The beginning of the names of extended attributes that users may set.
pub const XATTR_PREFIX: &[u8] = b"user.";
