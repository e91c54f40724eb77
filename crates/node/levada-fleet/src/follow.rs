//! A node follows the state of its fleet: it writes the configuration of each revision into its directory, reloads, and
//! says what it uses.

use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use levada_types::Backoff;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::{
    content,
    derive::{Place, derive},
    home::{Current, Home, Membership},
    look::FleetLook,
    model::{Alive, Head, Health, Member, keys},
    seal::sha256,
    state::{CLOCK_TOLERANCE, Followed, State, age, put, unix_time},
    store::StoreError,
    wanted::{Wanted, wanted},
};

/// A node that is silent for so long is not alive.
const LEASE_SECONDS: u64 = 15;
/// Between two renewals: two may fail before the lease is over.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);
/// Between two reports of the requests while there is a roll-out.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// A wait for changes ends after so long, so that one whose server hangs does not last.
const WAIT: Duration = Duration::from_secs(60);
/// How long a node that starts with a revision asks for a newer one first.
const START_TIMEOUT: Duration = Duration::from_secs(2);
/// The waits after failures: a state that is back is followed within seconds.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(3));

/// The node that follows.
pub trait FollowedNode: Send + Sync {
    /// Reads the configuration again. The error says in words why it cannot be used.
    fn reload(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>>;
    /// The reasons why it is not ready for clients, in words.
    fn missing(&self) -> Vec<String>;
    /// Its requests since a mark; `true` sets the mark to this moment first.
    fn health(&self, from_now: bool) -> Health;
    /// Moves its clients to other nodes, or takes it into service again.
    fn drain(&self, drained: bool);
}

/// A node's knowledge of its fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetStatus {
    /// The fleet.
    pub fleet: String,
    /// The revision in use; 0 before the first.
    pub revision: u64,
    /// Since when it is in use: Unix time in seconds.
    pub since: u64,
    /// When the state answered last: Unix time in seconds; 0 if it has not since the start of the process.
    pub heard: u64,
    /// Why the node does not use the revision that it should, or does not reach the state.
    pub error: Option<String>,
}

impl std::fmt::Display for FleetStatus {
    /// In one line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { fleet, revision, since, heard, error } = self;
        write!(f, "fleet {fleet}: revision {revision} for {}", age(*since))?;
        match heard {
            0 => f.write_str("; the state was not heard since the start")?,
            heard => write!(f, "; the state was heard {} ago", age(*heard))?,
        }
        error.iter().try_for_each(|error| write!(f, "; {error}"))
    }
}

/// Follows the state of a fleet.
pub struct Follower {
    home: Home,
    membership: Membership,
    state: State,
    status: Arc<Mutex<FleetStatus>>,
}

/// Why a node cannot follow.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The state does not answer as it should.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory of the node cannot be used.
    #[error("the node's directory cannot be used: {0}")]
    Home(#[from] io::Error),
    /// A revision cannot be used here.
    #[error("revision {number} cannot be used: {why}")]
    Unusable {
        /// Its number.
        number: u64,
        /// The problems.
        why: String,
    },
}

/// A follower's knowledge from one look at the state to the next.
#[derive(Default)]
struct Memory {
    /// The lease of the report, and when it was granted or renewed: the state may change more often than that is due.
    lease: Option<(String, Instant)>,
    /// The last report, without its time.
    reported: Option<Alive>,
    /// A revision that could not be used: it is not tried again.
    unusable: Option<(String, u64, String)>,
    drained: bool,
    rollout: Option<Head>,
    /// A digest of the secrets in use.
    secrets: String,
}

impl Follower {
    /// The follower of a node that has joined.
    ///
    /// # Errors
    /// If its token cannot be used.
    pub fn new(home: Home, membership: Membership) -> Result<Self, FollowError> {
        let state = State::open(&membership.token)?;
        let current = home.current()?.unwrap_or_default();
        let status = FleetStatus {
            fleet: membership.token.fleet.clone(),
            revision: current.number,
            since: current.since,
            ..FleetStatus::default()
        };
        let status = Arc::new(Mutex::new(status));
        Ok(Self { home, membership, state, status })
    }

    /// The state of the fleet.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The node's knowledge of its fleet.
    pub fn status(&self) -> Arc<Mutex<FleetStatus>> {
        self.status.clone()
    }

    /// A look at the whole fleet.
    pub fn look_at_fleet(&self) -> FleetLook {
        FleetLook::new(self.state.clone(), &self.membership.token.fleet)
    }

    /// Takes the present revision before the node starts: one that a running node cannot take, too. A node without a
    /// revision waits for its first one; any other starts with the one that it has if the state is away.
    ///
    /// # Errors
    /// If the node cannot use its first revision, or was removed.
    pub async fn start(&self, node: &dyn FollowedNode) -> Result<(), FollowError> {
        if self.home.current()?.is_some() {
            let look = async {
                loop {
                    match self.look_before_start(node).await {
                        // The node that keeps the state may start at this moment, too.
                        Err(FollowError::Store(StoreError::Away(_))) => {
                            tokio::time::sleep(RETRY_BACKOFF.after(1)).await;
                        }
                        looked => return looked,
                    }
                }
            };
            match timeout(START_TIMEOUT, look).await {
                Ok(Ok(_)) => {}
                Ok(Err(why)) => {
                    tracing::warn!("the node starts with the revision that it has: {why}")
                }
                Err(_) => tracing::warn!(
                    "the node starts with the revision that it has: the state is away"
                ),
            }
            return Ok(());
        }
        tracing::info!("waits for the first revision of the fleet");
        let (mut memory, mut failures) = (Memory::default(), 0);
        loop {
            match self.look_before_start(node).await {
                Ok(None) => return Ok(()),
                Ok(Some(revision)) => {
                    failures = 0;
                    // An error shows at the next look.
                    let _ = self.wait_reporting(node, &mut memory, revision).await;
                }
                Err(FollowError::Store(StoreError::Away(why))) => {
                    failures += 1;
                    if failures == 1 {
                        tracing::warn!(%why, "the node waits for the state of its fleet");
                    }
                    tokio::time::sleep(RETRY_BACKOFF.after(failures)).await;
                }
                Err(error) => {
                    // The state need not wait for the end of the lease to know that the node is gone.
                    if let Some((lease, _)) = &memory.lease {
                        let _ = self.state.revoke(lease).await;
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Takes the present revision, or returns the revision of a state that has none.
    async fn look_before_start(&self, node: &dyn FollowedNode) -> Result<Option<i64>, FollowError> {
        let followed = self.state.followed().await?;
        let refused = |why: String| Err(StoreError::Refused(why).into());
        match wanted(&followed, &self.membership.node, self.home.seen()?.as_ref()) {
            Wanted::Revision(head) => self.take(&followed, &head, node).await.map(|()| None),
            Wanted::Nothing => Ok(Some(followed.revision)),
            Wanted::Removed => {
                refused("this node was removed from the fleet: join it again".to_owned())
            }
            Wanted::Refused(why) => refused(why),
        }
    }

    /// Follows until the future is dropped.
    pub async fn follow(&self, node: &dyn FollowedNode) -> Infallible {
        let (mut memory, mut failures) = (Memory::default(), 0);
        loop {
            match self.look(node, &mut memory).await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    let text = error.to_string();
                    let is_news = self.status.lock().error.replace(text) != Some(error.to_string());
                    if is_news {
                        tracing::warn!(%error, "the node keeps its revision, and goes on trying");
                    }
                    tokio::time::sleep(RETRY_BACKOFF.after(failures)).await;
                }
            }
        }
    }

    /// Looks at the state once, does what it says, and waits until it changes.
    async fn look(&self, node: &dyn FollowedNode, memory: &mut Memory) -> Result<(), FollowError> {
        let followed = self.state.followed().await?;
        self.heard();
        let error = self.obey(&followed, node, memory).await?;
        self.status.lock().error = error;
        self.wait_reporting(node, memory, followed.revision).await
    }

    /// Says what the node uses, and that it is alive, until what it follows changes after a revision of the store.
    async fn wait_reporting(
        &self,
        node: &dyn FollowedNode,
        memory: &mut Memory,
        revision: i64,
    ) -> Result<(), FollowError> {
        self.report(node, memory).await?;
        let waiting = self.state.wait(keys::FOLLOWED, revision, WAIT);
        let mut waiting = pin!(waiting);
        let tick = if memory.rollout.is_some() { REPORT_INTERVAL } else { RENEWAL_INTERVAL };
        let mut ticks = interval(tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            tokio::select! {
                changed = &mut waiting => {
                    let changed = changed?;
                    self.heard();
                    if changed {
                        return Ok(());
                    }
                    waiting.set(self.state.wait(keys::FOLLOWED, revision, WAIT));
                }
                _ = ticks.tick() => {
                    self.report(node, memory).await?;
                    self.heard();
                }
            }
        }
    }

    fn heard(&self) {
        self.status.lock().heard = unix_time();
    }

    /// Uses what the state says; why it does not, in words.
    async fn obey(
        &self,
        followed: &Followed,
        node: &dyn FollowedNode,
        memory: &mut Memory,
    ) -> Result<Option<String>, FollowError> {
        let me = &self.membership.node;
        let seen = self.home.seen()?;
        let head = match wanted(followed, me, seen.as_ref()) {
            Wanted::Nothing => return Ok(None),
            Wanted::Refused(why) => {
                tracing::error!("{why}");
                return Ok(Some(why));
            }
            Wanted::Removed => {
                if !std::mem::replace(&mut memory.drained, true) {
                    tracing::error!("the node was removed from the fleet: it drains; stop it");
                    node.drain(true);
                }
                return Ok(Some("the node was removed from the fleet".to_owned()));
            }
            Wanted::Revision(head) => head,
        };
        let rollout = followed.rollout.as_ref().map(|rollout| rollout.revision.clone());
        if memory.rollout != rollout {
            memory.rollout = rollout;
            node.health(true);
        }
        if let Some(head) = followed.head.as_ref().filter(|head| seen.as_ref() != Some(*head)) {
            self.home.see(head)?;
        }
        let drained = followed.member(&me.name).is_some_and(|member| member.drained);
        if memory.drained != drained {
            memory.drained = drained;
            node.drain(drained);
        }
        let made_of = made_of(followed, &head);
        if let Some((_, _, why)) =
            memory.unusable.as_ref().filter(|(unusable, ..)| *unusable == made_of)
        {
            return Ok(Some(why.clone()));
        }
        match self.take(followed, &head, node).await {
            Ok(()) => {
                memory.unusable = None;
                memory.secrets = followed.secrets.digest();
            }
            Err(FollowError::Unusable { number, why }) => {
                tracing::error!(
                    number,
                    "a revision cannot be used, the node stays as it is: {why}"
                );
                memory.unusable = Some((made_of, number, why.clone()));
                return Ok(Some(why));
            }
            Err(other) => return Err(other),
        }
        Ok(None)
    }

    /// Takes a revision into use, if it is not.
    async fn take(
        &self,
        followed: &Followed,
        head: &Head,
        node: &dyn FollowedNode,
    ) -> Result<(), FollowError> {
        let (number, made_of) = (head.number, made_of(followed, head));
        let former = self.home.current()?;
        if former.as_ref().is_some_and(|former| former.made_of == made_of) {
            return Ok(());
        }
        let manifest = content::manifest(&self.state, head).await?;
        let directory = content::fetch(&self.state, &manifest, &self.home.fetched()).await?;
        let unusable = |why: String| FollowError::Unusable { number, why };
        let me = followed.member(&self.membership.node.name).unwrap_or(&self.membership.node);
        let at = self.home.path().to_string_lossy();
        let place = Place { node: me, directory: &at, purgers: &followed.purgers };
        let derived = derive(&directory, place, &followed.members);
        let derived = derived.map_err(|wrong| {
            unusable(wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        })?;
        derived.notes.iter().for_each(|note| tracing::warn!("{note}"));
        let text = derived.text().map_err(|error| unusable(error.to_string()))?;
        let since = former.filter(|former| former.number == number);
        let since = since.map_or_else(unix_time, |former| former.since);
        let current = Current { number, since, made_of };
        let prepared = self.home.prepare(&current, &text, &followed.secrets.secrets, &directory)?;
        self.home.switch_to(&prepared)?;
        if let Err(why) = node.reload().await {
            self.home.switch_back(&prepared)?;
            return Err(unusable(why));
        }
        node.health(true);
        let _ = self.home.tidy(&prepared);
        let mut status = self.status.lock();
        (status.revision, status.since) = (number, since);
        tracing::info!(revision = number, "uses a revision of the fleet");
        Ok(())
    }

    /// The seconds by which the clock is ahead. A change by a second or two is no news.
    fn clock_ahead(&self, memory: &Memory) -> i64 {
        let (now, before) = (self.state.clock_ahead(), memory.reported.as_ref());
        let before = before.map_or(0, |reported| reported.clock);
        if now != 0 && (now - before).abs() < CLOCK_TOLERANCE {
            return before;
        }
        if now != 0 {
            tracing::warn!(seconds = now, "the clock of this machine is ahead of the state's");
        }
        now
    }

    /// Renews the lease if that is due, and writes the report if it is another one.
    async fn report(
        &self,
        node: &dyn FollowedNode,
        memory: &mut Memory,
    ) -> Result<(), FollowError> {
        if let Some((lease, renewed)) = &mut memory.lease
            && renewed.elapsed() + REPORT_INTERVAL > RENEWAL_INTERVAL
        {
            *renewed = Instant::now();
            if !self.state.renew(lease).await? {
                (memory.lease, memory.reported) = (None, None);
            }
        }
        let me = &self.membership.node;
        let (missing, status) = (node.missing(), self.status.lock().clone());
        let alive = Alive {
            name: me.name.clone(),
            identity: me.identity.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: status.revision,
            since: status.since,
            seen: self.home.seen()?.unwrap_or_default().number,
            ready: missing.is_empty(),
            missing,
            error: status.error,
            secrets: memory.secrets.clone(),
            refused: memory.unusable.as_ref().map_or(0, |(_, number, _)| *number),
            time: 0,
            clock: self.clock_ahead(memory),
            health: memory.rollout.is_some().then(|| node.health(false)),
        };
        // During a roll-out its time is looked at.
        let is_news = memory.rollout.is_some() || memory.reported.as_ref() != Some(&alive);
        if !is_news {
            return Ok(());
        }
        let timed = Alive { time: unix_time(), ..alive.clone() };
        let key = format!("{}{}", keys::ALIVE, me.name);
        // A lease that has ended meanwhile writes nothing: once more, with another one.
        for _ in 0..2 {
            let (lease, renewed) = match &memory.lease {
                Some(held) => held.clone(),
                None => (self.state.grant(LEASE_SECONDS).await?, Instant::now()),
            };
            memory.lease = Some((lease.clone(), renewed));
            if self.state.write(&[], vec![put(&key, &timed).leased(&lease)]).await? {
                memory.reported = Some(alive);
                return Ok(());
            }
            (memory.lease, memory.reported) = (None, None);
        }
        Ok(())
    }
}

/// A digest of all that the configuration of a node is made of.
fn made_of(followed: &Followed, head: &Head) -> String {
    let place = |member: &Member| (member.name.clone(), member.region.clone(), member.address);
    let members: Vec<_> = followed.members.iter().map(place).collect();
    let all = (head, members, &followed.secrets.secrets, &followed.purgers);
    sha256(&serde_json::to_vec(&all).unwrap_or_default())
}
