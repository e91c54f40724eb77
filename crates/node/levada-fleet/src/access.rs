//! The rights of a token. Where a node keeps the state, it checks each question; etcd has users of its own, and there the
//! commands check themselves.

use crate::{
    model::{Role, TokenRecord, keys},
    seal::sha256,
    store::{Change, Question},
};

/// Why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The state has no such token, or the secret is another one.
    #[error(
        "the token {0} is not known here: was the node or the token removed, or is it of another fleet?"
    )]
    Unknown(String),
    /// It was revoked.
    #[error("the token {0} was revoked: ask for another one (levada fleet token)")]
    Revoked(String),
    /// It has expired.
    #[error("the token {id} expired {seconds} s ago: make another one (levada fleet token)")]
    Expired {
        /// Its identifier.
        id: String,
        /// How long ago, in seconds.
        seconds: u64,
    },
    /// It is bound to sites.
    #[error(
        "the token {0} is bound to sites: use it with the API (levada fleet serve), or to purge at a node"
    )]
    Bound(String),
    /// Its role does not allow it.
    #[error("a token with the role {0} may not do this: use one with the role {1}")]
    Role(&'static str, &'static str),
}

/// Whether a token can be used at `now`, in seconds of Unix time.
///
/// # Errors
/// If its secret is wrong, or it is over.
pub(crate) fn judge(
    id: &str,
    secret: &str,
    record: Option<&TokenRecord>,
    now: u64,
) -> Result<Role, Refusal> {
    let record = record.ok_or_else(|| Refusal::Unknown(id.to_owned()))?;
    // Digests are compared: their differences say nothing about the secret.
    if sha256(secret.as_bytes()) != record.digest {
        return Err(Refusal::Unknown(id.to_owned()));
    }
    if record.revoked {
        return Err(Refusal::Revoked(id.to_owned()));
    }
    match record.expires {
        Some(end) if end <= now => Err(Refusal::Expired { id: id.to_owned(), seconds: now - end }),
        _ => Ok(record.role),
    }
}

/// The role of a token that may ask the state itself.
///
/// # Errors
/// As [`judge`], or if it is bound to sites.
pub(crate) fn judge_unbound(
    id: &str,
    secret: &str,
    record: Option<&TokenRecord>,
    now: u64,
) -> Result<Role, Refusal> {
    let role = judge(id, secret, record, now)?;
    match record {
        Some(TokenRecord { sites, .. }) if !sites.is_empty() || role == Role::Purge => {
            Err(Refusal::Bound(id.to_owned()))
        }
        _ => Ok(role),
    }
}

/// Whether the token `id` with a role may ask this.
///
/// # Errors
/// If it may not, with the role that may.
pub(crate) fn may_ask(id: &str, role: Role, question: &Question) -> Result<(), Refusal> {
    let among = |key: &str, of: &str| of.starts_with(key) || key.starts_with(of);
    let refused = |other: Role| Err(Refusal::Role(role.as_str(), other.as_str()));
    match question {
        Question::Get(key) | Question::List(key) | Question::Wait { prefix: key, .. } => {
            match role {
                Role::Admin => Ok(()),
                // Each token may see itself, and thereby whether it can be used.
                _ if *key == format!("{}{id}", keys::TOKENS) => Ok(()),
                _ if among(key, keys::TOKENS) => refused(Role::Admin),
                // With these, a reader could pose as the sites of the fleet.
                _ if role != Role::Node && among(key, keys::ACME) => refused(Role::Admin),
                _ => Ok(()),
            }
        }
        Question::Write { unchanged, changes } => match role {
            Role::Admin => Ok(()),
            Role::Apply if removes_or_spares_tokens(changes) => Ok(()),
            Role::Apply => refused(Role::Admin),
            Role::Join if is_joining(unchanged, changes) => Ok(()),
            Role::Node if is_own_report(id, changes) || is_acme(changes) => Ok(()),
            Role::Purge | Role::Read | Role::Join | Role::Node => refused(Role::Apply),
        },
        Question::Grant(_) | Question::Renew(_) | Question::Revoke(_) => match role {
            Role::Purge | Role::Read | Role::Join => refused(Role::Apply),
            Role::Apply | Role::Admin | Role::Node => Ok(()),
        },
    }
}

/// The identifier of the token that a node makes for itself when it joins.
pub(crate) fn node_token(node: &str) -> String {
    format!("node-{node}")
}

/// A node is removed with its token.
fn removes_or_spares_tokens(changes: &[Change]) -> bool {
    let own = format!("{}node-", keys::TOKENS);
    let spares = |change: &Change| {
        !change.key.starts_with(keys::TOKENS)
            || (change.value.is_none() && change.key.starts_with(&own))
    };
    changes.iter().all(spares)
}

/// A machine that joins writes keys that do not exist yet: a member, its token, and a line of the audit.
fn is_joining(unchanged: &[(String, i64)], changes: &[Change]) -> bool {
    let is_new = |key: &String| unchanged.iter().any(|(other, at)| other == key && *at == 0);
    let own = format!("{}node-", keys::TOKENS);
    let allowed = |change: &Change| {
        let key = &change.key;
        let has_place = key.starts_with(keys::MEMBERS)
            || (key.starts_with(&own) && is_node_record(change))
            || key.starts_with(keys::AUDIT);
        has_place && change.value.is_some() && is_new(key)
    };
    changes.iter().all(allowed)
}

fn is_node_record(change: &Change) -> bool {
    let record = change.value.as_ref().map(|value| serde_json::from_slice(&value.0));
    matches!(record, Some(Ok(TokenRecord { role: Role::Node, .. })))
}

fn is_acme(changes: &[Change]) -> bool {
    changes.iter().all(|change| change.key.starts_with(keys::ACME))
}

fn is_own_report(id: &str, changes: &[Change]) -> bool {
    let own = id.strip_prefix("node-").map(|node| format!("{}{node}", keys::ALIVE));
    changes.iter().all(|change| Some(&change.key) == own.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(role: Role, expires: Option<u64>, revoked: bool) -> TokenRecord {
        let (digest, id) = (sha256(b"s"), "t".to_owned());
        TokenRecord {
            id,
            role,
            digest,
            made: 0,
            expires,
            revoked,
            note: String::new(),
            sites: Vec::new(),
        }
    }

    #[test]
    fn token_that_is_over_says_why() {
        let judged = |record: &TokenRecord, secret| judge("t", secret, Some(record), 100);
        assert_eq!(judged(&record(Role::Read, Some(101), false), "s"), Ok(Role::Read));
        let expired = judged(&record(Role::Read, Some(60), false), "s").unwrap_err();
        assert!(expired.to_string().starts_with("the token t expired 40 s ago"), "{expired}");
        let revoked = judged(&record(Role::Read, None, true), "s");
        assert_eq!(revoked, Err(Refusal::Revoked("t".to_owned())));
        let other = judged(&record(Role::Read, None, false), "other");
        assert_eq!(other, Err(Refusal::Unknown("t".to_owned())));
        assert_eq!(judge("t", "s", None, 0), Err(Refusal::Unknown("t".to_owned())));
    }

    fn write(unchanged: &[(&str, i64)], changes: Vec<Change>) -> Question {
        let unchanged = unchanged.iter().map(|(key, at)| (key.to_string(), *at)).collect();
        Question::Write { unchanged, changes }
    }

    #[test]
    fn role_bounds_what_a_token_writes_and_reads() {
        let may = |id: &str, role, question: &Question| may_ask(id, role, question).is_ok();
        let head = write(&[], vec![Change::put(keys::HEAD, "{}")]);
        let token = write(&[], vec![Change::put("tokens/x", "{}")]);
        for (role, writes_head, writes_tokens, reads_tokens) in [
            (Role::Read, false, false, false),
            (Role::Join, false, false, false),
            (Role::Node, false, false, false),
            (Role::Apply, true, false, false),
            (Role::Admin, true, true, true),
        ] {
            assert_eq!(may("t", role, &head), writes_head, "{role:?}");
            assert_eq!(may("t", role, &token), writes_tokens, "{role:?}");
            let lists = Question::List("tok".to_owned());
            assert_eq!(may("t", role, &lists), reads_tokens, "{role:?}");
            assert!(may("t", role, &Question::List(keys::FOLLOWED.to_owned())), "{role:?}");
        }
        let alive = |node| write(&[], vec![Change::put(format!("{}{node}", keys::ALIVE), "{}")]);
        assert!(may("node-a", Role::Node, &alive("a")));
        assert!(!may("node-a", Role::Node, &alive("b")));
        let certificate = format!("{}certificates/a", keys::ACME);
        for (role, reads) in [
            (Role::Read, false),
            (Role::Join, false),
            (Role::Apply, false),
            (Role::Node, true),
            (Role::Admin, true),
        ] {
            for asked in [Question::Get(certificate.clone()), Question::List("ac".to_owned())] {
                assert_eq!(may("node-a", role, &asked), reads, "{role:?}");
            }
        }
        assert!(may("node-a", Role::Node, &write(&[], vec![Change::put(&certificate, "x")])));
    }

    #[test]
    fn machine_that_joins_replaces_nothing() {
        let node = serde_json::to_vec(&record(Role::Node, None, false)).unwrap();
        let admin = serde_json::to_vec(&record(Role::Admin, None, false)).unwrap();
        let joins = |value: &[u8], before| {
            let changes =
                vec![Change::put("f/members/a", "{}"), Change::put("tokens/node-a", value)];
            let unchanged = [("f/members/a", before), ("tokens/node-a", 0)];
            may_ask("t", Role::Join, &write(&unchanged, changes)).is_ok()
        };
        assert!(joins(&node, 0));
        assert!(!joins(&node, 7));
        assert!(!joins(&admin, 0));
    }
}
