//! The state of a fleet: its keys as what they mean.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    access::{judge_unbound, may_ask},
    etcd_store::EtcdStore,
    model::{
        Alive, AuditEntry, ClusterSecrets, Head, Manifest, Member, Purger, Role, Rollout,
        TokenRecord, keys,
    },
    node_store::NodeStore,
    seal::{FleetKey, sha256},
    store::{Answer, Change, Entries, Entry, Question, Reply, Store, StoreError},
    token::{StatePlace, Token, etcd_source},
};

/// A state, as one token sees it.
#[derive(Clone)]
pub struct State {
    store: Arc<dyn Store>,
    /// The fleet's key.
    pub key: FleetKey,
    /// The identifier of the token.
    pub token: String,
}

/// The keys that nodes follow, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    /// The revision of the store.
    pub revision: i64,
    /// The revision of the whole fleet; `None` before the first.
    pub head: Option<Head>,
    /// The revision of the head's last change, for a condition.
    pub head_changed: i64,
    /// A revision that some nodes try.
    pub rollout: Option<Rollout>,
    /// The members, by name.
    pub members: Vec<Member>,
    /// The secrets of the cluster, the one that signs first.
    pub secrets: ClusterSecrets,
    /// The revision of their last change, for a condition.
    pub secrets_changed: i64,
    /// The tokens by which nodes take purges.
    pub purgers: Vec<Purger>,
}

/// A clock that differs by less is good enough: the differences are known to a second or two.
pub(crate) const CLOCK_TOLERANCE: i64 = 5;

/// Unix time in seconds, by the clock of this machine.
pub fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Unix time in seconds, by a clock that this machine is ahead of by so many.
fn time_of(ahead: i64) -> u64 {
    unix_time().saturating_add_signed(ahead.saturating_neg())
}

/// The time since a moment of Unix time, in the unit that a person would use.
pub fn age(since: u64) -> String {
    let seconds = unix_time().saturating_sub(since);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

impl State {
    /// A state in a store.
    pub fn new(store: Arc<dyn Store>, key: FleetKey, token: &str) -> Self {
        Self { store, key, token: token.to_owned() }
    }

    /// The state of a token, which is not asked yet.
    ///
    /// # Errors
    /// If the token cannot be used as one.
    pub fn open(token: &Token) -> Result<Self, StoreError> {
        let strange = |error: &dyn std::fmt::Display| StoreError::Strange(error.to_string());
        let key = token.key().map_err(|error| strange(&error))?;
        let store: Arc<dyn Store> = match &token.place {
            StatePlace::Node { address, certificate } => {
                Arc::new(NodeStore::new(*address, certificate, (&token.id, &token.secret))?)
            }
            StatePlace::Etcd { endpoints, user } => {
                let source = etcd_source(&token.fleet, endpoints, user).map_err(|url| {
                    strange(&format!("{url} is no URL of etcd, such as http://10.0.0.5:2379"))
                })?;
                Arc::new(Judged::new(EtcdStore::new(source), token))
            }
        };
        Ok(Self::new(store, key, &token.id))
    }

    /// The same state, in which orders are noted under another token.
    pub(crate) fn by_token(&self, id: &str) -> Self {
        Self { token: id.to_owned(), ..self.clone() }
    }

    /// The seconds by which the clock of this machine is ahead of the state's, as its last answer had it. Small
    /// differences are none.
    pub fn clock_ahead(&self) -> i64 {
        let ahead = self.store.clock_ahead().unwrap_or(0);
        if ahead.abs() < CLOCK_TOLERANCE { 0 } else { ahead }
    }

    /// Unix time in seconds, by the clock of the state as far as it is known.
    pub fn time(&self) -> u64 {
        time_of(self.clock_ahead())
    }

    /// One key.
    ///
    /// # Errors
    /// If the state does not answer.
    pub async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        Ok(self.entries(Question::Get(key.to_owned())).await?.entries.pop())
    }

    /// All keys with a prefix.
    ///
    /// # Errors
    /// If the state does not answer.
    pub async fn list(&self, prefix: &str) -> Result<Entries, StoreError> {
        self.entries(Question::List(prefix.to_owned())).await
    }

    /// Changes keys, if the first ones are as they were.
    ///
    /// # Errors
    /// If the state does not answer.
    pub async fn write(
        &self,
        unchanged: &[(&str, i64)],
        changes: Vec<Change>,
    ) -> Result<bool, StoreError> {
        let unchanged = unchanged.iter().map(|(key, at)| ((*key).to_owned(), *at)).collect();
        self.done(Question::Write { unchanged, changes }).await
    }

    /// A new lease.
    ///
    /// # Errors
    /// If the state does not answer.
    pub async fn grant(&self, seconds: u64) -> Result<String, StoreError> {
        match self.store.ask(Question::Grant(seconds)).await? {
            Reply::Lease(lease) => Ok(lease),
            other => Err(strange(&other)),
        }
    }

    /// Renews a lease; whether it still existed.
    ///
    /// # Errors
    /// If the state does not answer.
    pub async fn renew(&self, lease: &str) -> Result<bool, StoreError> {
        self.done(Question::Renew(lease.to_owned())).await
    }

    /// Ends a lease.
    ///
    /// # Errors
    /// If the state does not answer.
    pub async fn revoke(&self, lease: &str) -> Result<(), StoreError> {
        self.done(Question::Revoke(lease.to_owned())).await.map(drop)
    }

    /// Waits until a key with a prefix may have changed after a revision, at most so long.
    ///
    /// # Errors
    /// If the state does not answer.
    pub async fn wait(
        &self,
        prefix: &str,
        after: i64,
        longest: Duration,
    ) -> Result<bool, StoreError> {
        let (prefix, seconds) = (prefix.to_owned(), longest.as_secs().max(1));
        self.done(Question::Wait { prefix, after, seconds }).await
    }

    /// The keys that nodes follow.
    ///
    /// # Errors
    /// If the state does not answer, or is of another fleet.
    pub async fn followed(&self) -> Result<Followed, StoreError> {
        let listed = self.list(keys::FOLLOWED).await?;
        let head = listed.get(keys::HEAD);
        let members = listed.below(keys::MEMBERS).map(|(_, entry)| read(entry));
        let purgers = listed.below(keys::PURGERS).map(|(_, entry)| read(entry));
        let sealed = listed.get(keys::SECRETS);
        let secrets = match sealed {
            Some(entry) => {
                let opened = self.open_sealed(keys::SECRETS, &entry.value.0)?;
                serde_json::from_slice(&opened)
                    .map_err(|error| StoreError::Strange(error.to_string()))?
            }
            None => ClusterSecrets::default(),
        };
        Ok(Followed {
            revision: listed.revision,
            head: head.map(read).transpose()?,
            head_changed: head.map_or(0, |entry| entry.changed),
            rollout: listed.get(keys::ROLLOUT).map(read).transpose()?,
            members: members.collect::<Result<_, _>>()?,
            secrets,
            secrets_changed: sealed.map_or(0, |entry| entry.changed),
            purgers: purgers.collect::<Result<_, _>>()?,
        })
    }

    /// The nodes that are alive, by name.
    ///
    /// # Errors
    /// If the state does not answer.
    pub async fn alive(&self) -> Result<(i64, BTreeMap<String, Alive>), StoreError> {
        let listed = self.list(keys::ALIVE).await?;
        let alive = listed
            .below(keys::ALIVE)
            .map(|(name, entry)| read(entry).map(|alive: Alive| (name.to_owned(), alive)));
        Ok((listed.revision, alive.collect::<Result<_, _>>()?))
    }

    /// The revisions, oldest first.
    ///
    /// # Errors
    /// If the state does not answer.
    pub async fn revisions(&self) -> Result<Vec<Manifest>, StoreError> {
        let listed = self.list(keys::REVISIONS).await?;
        listed.entries.iter().map(read).collect()
    }

    /// The tokens, by identifier.
    ///
    /// # Errors
    /// If the state does not answer.
    pub async fn tokens(&self) -> Result<Vec<(i64, TokenRecord)>, StoreError> {
        let listed = self.list(keys::TOKENS).await?;
        listed.entries.iter().map(|entry| Ok((entry.changed, read(entry)?))).collect()
    }

    /// The orders of people, oldest first.
    ///
    /// # Errors
    /// If the state does not answer.
    pub async fn audit(&self) -> Result<Vec<AuditEntry>, StoreError> {
        let listed = self.list(keys::AUDIT).await?;
        listed.entries.iter().map(read).collect()
    }

    /// The change that writes a line of the audit, and its key.
    pub fn audited(&self, from: &str, what: impl Into<String>) -> Change {
        let (token, from, time) = (self.token.clone(), from.to_owned(), self.time());
        let entry = AuditEntry { time, token, from, what: what.into() };
        put(format!("{}{time:012}-{}", keys::AUDIT, crate::seal::random_text::<6>()), &entry)
    }

    /// The change that writes the secrets of the cluster.
    pub(crate) fn sealed(&self, secrets: &ClusterSecrets) -> Change {
        let text = serde_json::to_vec(secrets).unwrap_or_default();
        Change::put(keys::SECRETS, self.key.seal(keys::SECRETS, &text))
    }

    pub(crate) fn open_sealed(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.key.open(name, sealed).map_err(|error| StoreError::Refused(error.to_string()))
    }

    async fn entries(&self, question: Question) -> Result<Entries, StoreError> {
        match self.store.ask(question).await? {
            Reply::Entries(entries) => Ok(entries),
            other => Err(strange(&other)),
        }
    }

    async fn done(&self, question: Question) -> Result<bool, StoreError> {
        match self.store.ask(question).await? {
            Reply::Done(done) => Ok(done),
            other => Err(strange(&other)),
        }
    }
}

impl Followed {
    /// A text that changes whenever the head does.
    pub fn version(&self) -> String {
        self.head.as_ref().map_or_else(
            || "0".to_owned(),
            |head| format!("{}-{}", head.number, &head.digest[..head.digest.len().min(16)]),
        )
    }

    /// The member of a name.
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }
}

/// The change that writes a value as JSON.
pub fn put(key: impl Into<String>, value: &impl Serialize) -> Change {
    // Values are maps with keys of text: only others could fail.
    Change::put(key, serde_json::to_vec(value).unwrap_or_default())
}

/// The digest of a manifest, by which the head names it.
pub fn digest(manifest: &Manifest) -> String {
    sha256(&serde_json::to_vec(manifest).unwrap_or_default())
}

pub(crate) fn read<T: DeserializeOwned>(entry: &Entry) -> Result<T, StoreError> {
    serde_json::from_slice(&entry.value.0)
        .map_err(|error| StoreError::Strange(format!("{}: {error}", entry.key)))
}

fn strange(reply: &Reply) -> StoreError {
    StoreError::Strange(format!("{reply:?}"))
}

/// A store that knows no tokens, whose clients keep to theirs.
struct Judged {
    store: EtcdStore,
    id: String,
    secret: String,
    /// The role of the token, and when it was looked up.
    role: Mutex<Option<(Role, Instant)>>,
}

/// A role counts for so long.
const ROLE_AGE: Duration = Duration::from_secs(30);

impl Judged {
    fn new(store: EtcdStore, token: &Token) -> Self {
        let (id, secret) = (token.id.clone(), token.secret.clone());
        Self { store, id, secret, role: Mutex::new(None) }
    }

    async fn role(&self) -> Result<Role, StoreError> {
        let known = *self.role.lock();
        if let Some((role, _)) = known.filter(|(_, at)| at.elapsed() < ROLE_AGE) {
            return Ok(role);
        }
        let key = format!("{}{}", keys::TOKENS, self.id);
        let Reply::Entries(found) = self.store.ask(Question::Get(key)).await? else {
            return Err(StoreError::Strange("no list of keys".to_owned()));
        };
        let record: Option<TokenRecord> = found.entries.first().map(read).transpose()?;
        // Tokens end by the clock of etcd, whatever that of this machine is.
        let now = time_of(self.store.clock_ahead().unwrap_or(0));
        let role = judge_unbound(&self.id, &self.secret, record.as_ref(), now)
            .map_err(|refusal| StoreError::Refused(refusal.to_string()))?;
        *self.role.lock() = Some((role, Instant::now()));
        Ok(role)
    }
}

impl Store for Judged {
    fn clock_ahead(&self) -> Option<i64> {
        self.store.clock_ahead()
    }

    fn ask(&self, question: Question) -> Answer<'_> {
        Box::pin(async move {
            // Renewals and waits are many, and change nothing by themselves.
            if !matches!(question, Question::Renew(_) | Question::Wait { .. }) {
                may_ask(&self.id, self.role().await?, &question)
                    .map_err(|refusal| StoreError::Refused(refusal.to_string()))?;
            }
            self.store.ask(question).await
        })
    }
}
