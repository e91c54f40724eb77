//! How a fleet begins, how tokens are made, and how machines come and go.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    access::node_token,
    etcd_store::EtcdStore,
    model::{ClusterSecrets, Member, Purger, Role, TokenRecord, keys},
    seal::{FleetKey, random_text, sha256},
    state::{State, put},
    store::{Change, Store, StoreError},
    token::{StatePlace, Token, etcd_source},
};

/// A token to be made.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Its rights.
    pub role: Role,
    /// The seconds until it ends; `None` for one that does not.
    pub seconds: Option<u64>,
    /// Its purpose, in the words of the person.
    pub note: String,
    /// The sites that it is bound to; none for one that is not bound.
    pub sites: Vec<String>,
}

/// Writes the first keys of a fleet into a store that has none. Returns the token of its administrator.
///
/// # Errors
/// If the store has a fleet already, or does not answer.
pub async fn found(
    store: Arc<dyn Store>,
    fleet: &str,
    place: &StatePlace,
    from: &str,
) -> Result<Token, StoreError> {
    let key = FleetKey::random();
    let token = Token::new(fleet, "admin", &key, place);
    let state = State::new(store, key, &token.id);
    let secrets = ClusterSecrets { secrets: vec![random_text::<24>()], round: 0 };
    let grant = Grant {
        role: Role::Admin,
        seconds: None,
        note: "made by init".to_owned(),
        sites: Vec::new(),
    };
    let record = format!("{}{}", keys::TOKENS, token.id);
    let changes = vec![
        put(&record, &recorded(&token, &grant, state.time())),
        state.sealed(&secrets),
        state.audited(from, format!("made the fleet {fleet}")),
    ];
    match state.write(&[(&record, 0), (keys::SECRETS, 0)], changes).await? {
        true => Ok(token),
        false => Err(StoreError::Refused(format!(
            "there is a fleet {fleet} already: use its tokens, or another name"
        ))),
    }
}

/// The store of a fleet in etcd, before there are tokens.
///
/// # Errors
/// With the endpoint that is no URL of etcd.
pub fn etcd_store(
    fleet: &str,
    endpoints: &[String],
    user: &Option<(String, String)>,
) -> Result<Arc<dyn Store>, String> {
    Ok(Arc::new(EtcdStore::new(etcd_source(fleet, endpoints, user)?)))
}

/// A new token.
#[derive(Debug)]
pub struct MadeToken {
    /// Its identifier.
    pub id: String,
    /// The token. One that is bound to sites, or is for purges, has neither the place nor the key of the fleet.
    pub text: String,
}

/// Makes a token, by one of the administrator.
///
/// # Errors
/// If there is no such token, or the state refuses or does not answer.
pub async fn make_token(
    state: &State,
    own: &Token,
    grant: &Grant,
    from: &str,
) -> Result<MadeToken, StoreError> {
    let Grant { role, sites, .. } = grant;
    if !sites.is_empty() && !matches!(role, Role::Apply | Role::Purge) {
        let words = "only tokens with the role apply or purge are bound to sites";
        return Err(StoreError::Refused(words.to_owned()));
    }
    if *role == Role::Node {
        let words = "a node gets its token when it joins: make one with the role join";
        return Err(StoreError::Refused(words.to_owned()));
    }
    let id = format!("{}-{}", role.as_str(), short_id());
    let token = Token::new(&own.fleet, &id, &state.key, &own.place);
    let key = format!("{}{id}", keys::TOKENS);
    let bound = if sites.is_empty() { String::new() } else { format!(" for {}", sites.join(", ")) };
    // The answer says what the clock of the state is.
    state.get(&key).await?;
    let record = recorded(&token, grant, state.time());
    let mut changes =
        vec![put(&key, &record), state.audited(from, format!("made the token {id}{bound}"))];
    let is_short = *role == Role::Purge || !sites.is_empty();
    let text = if is_short { format!("{id}.{}", token.secret) } else { token.to_string() };
    if *role == Role::Purge {
        let (digest, hosts) = (sha256(text.as_bytes()), sites.clone());
        let purger = Purger { digest, hosts, expires: record.expires };
        changes.push(put(format!("{}{id}", keys::PURGERS), &purger));
    }
    match state.write(&[(&key, 0)], changes).await? {
        true => Ok(MadeToken { id, text }),
        false => Err(StoreError::Refused(format!("the token {id} exists: try again"))),
    }
}

/// Revokes a token.
///
/// # Errors
/// If there is none of this identifier, or the state refuses.
pub async fn revoke_token(state: &State, id: &str, from: &str) -> Result<(), StoreError> {
    let found = state.tokens().await?.into_iter().find(|(_, record)| record.id == id);
    let Some((changed, record)) = found else {
        let message = format!("there is no token {id}: levada fleet token lists them");
        return Err(StoreError::Absent(message));
    };
    let key = format!("{}{id}", keys::TOKENS);
    let record = TokenRecord { revoked: true, ..record };
    let changes = vec![
        put(&key, &record),
        Change::remove(format!("{}{id}", keys::PURGERS)),
        state.audited(from, format!("revoked the token {id}")),
    ];
    match state.write(&[(&key, changed)], changes).await? {
        true => Ok(()),
        false => Err(StoreError::Refused(format!("the token {id} changes: try again"))),
    }
}

/// Lets this machine join by a token. Returns the token of the node.
///
/// # Errors
/// If the state refuses, or another machine has the name or address.
pub async fn join(
    state: &State,
    own: &Token,
    node: &Member,
    from: &str,
) -> Result<Token, StoreError> {
    let followed = state.followed().await?;
    let refused = |message: String| Err(StoreError::Refused(message));
    if followed.member(&node.name).is_some() {
        return refused(format!(
            "the fleet has a node {} already: give this one another name (--name), or remove that one (levada fleet remove {})",
            node.name, node.name
        ));
    }
    if let Some(other) = followed.members.iter().find(|other| other.address == node.address) {
        return refused(format!(
            "{} has the address {} already: give this one another (--address)",
            other.name, node.address
        ));
    }
    let token = Token::new(&own.fleet, &node_token(&node.name), &state.key, &own.place);
    let note = format!("joined by {}", own.id);
    let grant = Grant { role: Role::Node, seconds: None, note, sites: Vec::new() };
    let (member, record) =
        (format!("{}{}", keys::MEMBERS, node.name), format!("{}{}", keys::TOKENS, token.id));
    let audited = state.audited(from, format!("{} joined at {}", node.name, node.address));
    let unchanged = [(member.as_str(), 0), (record.as_str(), 0), (&audited.key.clone(), 0)];
    let changes =
        vec![put(&member, node), put(&record, &recorded(&token, &grant, state.time())), audited];
    match state.write(&unchanged, changes).await? {
        true => Ok(token),
        false => refused(format!(
            "another machine joins as {} at this moment: give one of them another name (--name)",
            node.name
        )),
    }
}

/// Removes a node and its token. A node that is alive learns of it first, so that it drains.
///
/// # Errors
/// If there is no such node, or the state refuses.
pub async fn remove(state: &State, name: &str, from: &str) -> Result<(), StoreError> {
    known(state, name).await?;
    let member = Change::remove(format!("{}{name}", keys::MEMBERS));
    let changes = vec![member, state.audited(from, format!("removed {name}"))];
    state.write(&[], changes).await?;
    let began = Instant::now();
    loop {
        let left = LEAVE_TIMEOUT.saturating_sub(began.elapsed());
        let (revision, alive) = state.alive().await?;
        if left.is_zero() || alive.get(name).is_none_or(|node| node.error.is_some()) {
            break;
        }
        state.wait(keys::ALIVE, revision, left).await?;
    }
    let changes = vec![
        Change::remove(format!("{}{}", keys::TOKENS, node_token(name))),
        Change::remove(format!("{}{name}", keys::ALIVE)),
    ];
    state.write(&[], changes).await.map(drop)
}

/// How long a node that is removed may take to learn of it, before its token goes.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Drains a node, or takes it into service again.
///
/// # Errors
/// If there is no such node, or the state refuses.
pub async fn drain(state: &State, name: &str, drained: bool, from: &str) -> Result<(), StoreError> {
    let member = known(state, name).await?;
    let word = if drained { "drained" } else { "took into service" };
    let key = format!("{}{name}", keys::MEMBERS);
    let member = Member { drained, ..member };
    let changes = vec![put(key, &member), state.audited(from, format!("{word} {name}"))];
    state.write(&[], changes).await.map(drop)
}

async fn known(state: &State, name: &str) -> Result<Member, StoreError> {
    let followed = state.followed().await?;
    followed.member(name).cloned().ok_or_else(|| {
        let names: Vec<_> = followed.members.iter().map(|member| &*member.name).collect();
        StoreError::Absent(format!("there is no node {name}: the fleet has {}", names.join(", ")))
    })
}

/// `made`: when, in Unix time by the clock of the state.
fn recorded(token: &Token, grant: &Grant, made: u64) -> TokenRecord {
    TokenRecord {
        id: token.id.clone(),
        role: grant.role,
        digest: sha256(token.secret.as_bytes()),
        made,
        expires: grant.seconds.map(|seconds| made.saturating_add(seconds)),
        revoked: false,
        note: grant.note.clone(),
        sites: grant.sites.clone(),
    }
}

/// Six letters and digits, which a person can say.
fn short_id() -> String {
    let text = sha256(random_text::<12>().as_bytes());
    text.chars().take(6).collect()
}

/// A new node.
pub fn new_member(
    name: &str,
    region: Option<&str>,
    address: SocketAddr,
    public: &[IpAddr],
) -> Member {
    let public = if public.is_empty() { vec![address.ip()] } else { public.to_vec() };
    Member {
        name: name.to_owned(),
        region: region.map(str::to_owned),
        address,
        public,
        identity: random_text::<12>(),
        drained: false,
    }
}
