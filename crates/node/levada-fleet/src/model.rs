//! The parts of a fleet's state: members, revisions, the head, a roll-out, tokens, the audit.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::seal::sha256;

/// The names of the keys. A node follows all keys with the prefix [`keys::FOLLOWED`], which are few and rarely change.
pub mod keys {
    /// Everything that nodes follow.
    pub const FOLLOWED: &str = "f/";
    /// The revision of the whole fleet.
    pub const HEAD: &str = "f/head";
    /// A revision that some of the nodes try.
    pub const ROLLOUT: &str = "f/rollout";
    /// The members, by name.
    pub const MEMBERS: &str = "f/members/";
    /// The secrets of the cluster, sealed.
    pub const SECRETS: &str = "f/secrets";
    /// The tokens by which nodes take purges, by identifier.
    pub const PURGERS: &str = "f/purgers/";
    /// The nodes that are alive, by name.
    pub const ALIVE: &str = "alive/";
    /// The revisions, by number.
    pub const REVISIONS: &str = "revisions/";
    /// Parts of files, sealed, by digest.
    pub const CHUNKS: &str = "chunks/";
    /// The tokens, by identifier.
    pub const TOKENS: &str = "tokens/";
    /// The orders of people, by time.
    pub const AUDIT: &str = "audit/";
    /// Certificates and the ACME account, sealed: nodes and administrators alone read them.
    pub const ACME: &str = "acme/";
    /// Held by the one who applies.
    pub const APPLY_LOCK: &str = "locks/apply";

    /// The key of a revision. Keys are in the order of the numbers.
    pub fn revision(number: u64) -> String {
        format!("{REVISIONS}{number:010}")
    }
}

/// A node that has joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its region, in a fleet with regions.
    pub region: Option<String>,
    /// Its address for peers.
    pub address: SocketAddr,
    /// Its addresses for clients, as DNS answers with them.
    #[serde(default)]
    pub public: Vec<IpAddr>,
    /// Chosen by the machine when it joined: another machine of this name has another one.
    pub identity: String,
    /// Whether an operator has drained it.
    #[serde(default)]
    pub drained: bool,
}

impl Default for Member {
    fn default() -> Self {
        Self {
            name: String::new(),
            region: None,
            address: ([0, 0, 0, 0], 0).into(),
            public: Vec::new(),
            identity: String::new(),
            drained: false,
        }
    }
}

/// The revision that all nodes use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Its number. Numbers only grow: a roll-back is a new revision with former files.
    pub number: u64,
    /// The digest of its manifest.
    pub digest: String,
}

/// A revision that some nodes try. It lives as long as the lease of the command that applies it, so that nodes go
/// back to the head when the command is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// The revision.
    #[serde(flatten)]
    pub revision: Head,
    /// The nodes that try it.
    pub nodes: Vec<String>,
}

/// The files of a revision. It never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// Its number.
    pub number: u64,
    /// Unix time in seconds, by the clock of the machine that applied it.
    pub time: u64,
    /// The token and machine that applied it.
    pub by: String,
    /// Why, in the words of the person.
    #[serde(default)]
    pub note: String,
    /// The files.
    pub files: BTreeMap<String, StoredFile>,
}

/// A file of a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoredFile {
    /// Bytes.
    pub size: u64,
    /// The digests of its parts, in order.
    pub chunks: Vec<String>,
}

/// The secrets of the cluster: the first signs, each is accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSecrets {
    /// One, or two while they change.
    pub secrets: Vec<String>,
    /// How far a change is: 0 without one, 1 while the old one signs, 2 while the new one does.
    #[serde(default)]
    pub round: u8,
}

impl ClusterSecrets {
    /// A digest by which nodes say that they use them. It names no secret: they are random and long.
    pub fn digest(&self) -> String {
        sha256(self.secrets.join("\n").as_bytes())
    }
}

/// A node that is alive, in its own words. The key lives as long as the node renews its lease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Alive {
    /// Its name.
    pub name: String,
    /// As in [`Member`].
    pub identity: String,
    /// The version of its program.
    pub version: String,
    /// The revision that it uses; 0 before the first.
    pub revision: u64,
    /// Since when it uses it: Unix time in seconds, by its own clock.
    pub since: u64,
    /// The highest number of a head that it has seen, which it remembers on disk.
    pub seen: u64,
    /// Whether it is ready for clients.
    pub ready: bool,
    /// The reasons why it is not, in words.
    pub missing: Vec<String>,
    /// Why it does not use the revision that it should.
    pub error: Option<String>,
    /// The revision that it could not use.
    pub refused: u64,
    /// A digest of the secrets that it uses.
    pub secrets: String,
    /// The time of this record by its clock: Unix time in seconds.
    pub time: u64,
    /// The seconds by which its clock is ahead of the state's; 0 if they agree.
    pub clock: i64,
    /// Its requests since the roll-out or its revision began, while there is a roll-out.
    pub health: Option<Health>,
}

/// The requests of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Health {
    /// Requests that were answered.
    pub requests: u64,
    /// Answers with a status from 500 to 599.
    pub failed: u64,
    /// The seconds within which 90 % of the responses to clients ended; `None` without responses.
    pub p90: Option<f64>,
}

/// The rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Purges, at any node.
    Purge,
    /// Sees status and history.
    Read,
    /// Lets a machine join.
    Join,
    /// A node that has joined.
    Node,
    /// Applies, rolls back, drains and removes, and sees everything.
    Apply,
    /// The same, and makes and revokes tokens.
    Admin,
}

impl Role {
    /// Whether it has all rights of another one. Those of machines and of purges are in none.
    pub fn includes(self, other: Self) -> bool {
        let rank =
            |role| [Self::Read, Self::Apply, Self::Admin].iter().position(|one| *one == role);
        self == other || rank(self).zip(rank(other)).is_some_and(|(own, other)| own >= other)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Purge => "purge",
            Self::Read => "read",
            Self::Join => "join",
            Self::Node => "node",
            Self::Apply => "apply",
            Self::Admin => "admin",
        }
    }
}

/// A token, as the state knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenRecord {
    /// Its identifier.
    pub id: String,
    /// Its rights.
    pub role: Role,
    /// SHA-256 of its secret, in hexadecimal digits.
    pub digest: String,
    /// When it was made: Unix time in seconds.
    pub made: u64,
    /// When it ends.
    pub expires: Option<u64>,
    /// Whether it was revoked.
    #[serde(default)]
    pub revoked: bool,
    /// Its purpose, in the words of the person.
    #[serde(default)]
    pub note: String,
    /// The sites that it is bound to; none for one that is not bound.
    #[serde(default)]
    pub sites: Vec<String>,
}

/// A token by which nodes take purges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purger {
    /// SHA-256 of the token, in hexadecimal digits.
    pub digest: String,
    /// The hosts whose sites it may purge; none for all.
    pub hosts: Vec<String>,
    /// When it ends: Unix time in seconds.
    pub expires: Option<u64>,
}

/// An order of a person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// Unix time in seconds, by the clock of the machine.
    pub time: u64,
    /// The token.
    pub token: String,
    /// User and machine.
    pub from: String,
    /// The order and its outcome.
    pub what: String,
}
