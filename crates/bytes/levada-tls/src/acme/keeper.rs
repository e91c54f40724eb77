//! When something is done about a certificate, and by which node.
//!
//! A certificate that is due is first looked for where it may be already: at other nodes, in the state of the fleet,
//! then in the storage, which other processes may share. Only then the first node that is well orders it. The next ones take its place one after
//! the other, if it does not get through. Two nodes that order at the same time do no harm: all end up with the
//! newer certificate.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use instant_acme::{Account, Error};
use levada_types::Backoff;
use tokio::task::JoinSet;

use crate::acme::{
    CertificateEvent, Certificates, OtherNodes, Proof, WantedCertificate, account,
    certificates::{Authority, Entry, OF_FLEET, State, end_in_words, stored, unix_now},
    client::AcmeClient,
    cluster::{Cluster, Message},
    failure::OrderFailure,
    held::Held,
    order::{OrderParts, UNKNOWN_ACCOUNT},
    schedule,
    shared::Turn,
};

/// The interval of checks whether something is to be done. Certificates last for days, and a check reads memory:
/// a second is for operators who wait for the first one.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which alarms and metrics are brought up to date: half of what collectors usually take to come again.
const ALARM_INTERVAL: Duration = Duration::from_secs(30);
/// Orders that run at the same time.
const ORDERS: usize = 4;
/// The timeout for one order with all that it waits for, such as the spread of a DNS record. Then another may begin.
const ORDER_TIMEOUT: Duration = Duration::from_secs(20 * 60);
/// The interval at which a node that is not the first asks the others: a new certificate shows everywhere within it.
const ASK_INTERVAL: Duration = Duration::from_secs(15);
/// The first and the longest wait after a server that could not be reached: a restart, and half an hour of an outage.
const UNREACHABLE_BACKOFF: Backoff =
    Backoff::new(Duration::from_secs(5), Duration::from_secs(1800));
/// The first and the longest wait after a refusal. Authorities limit failed proofs per hour.
const REFUSED_BACKOFF: Backoff =
    Backoff::new(Duration::from_secs(120), Duration::from_secs(6 * 3600));
/// The wait after a failure of the own disk: an operator who has made room sees the order go on within this time.
const STORAGE_BACKOFF: Duration = Duration::from_secs(30);
/// The wait beyond the time that a server names, whose clock may differ.
const LIMIT_GRACE: Duration = Duration::from_secs(1);
/// How often the server is asked for a time to renew, at least and at most.
const WINDOW: [Duration; 2] = [Duration::from_secs(300), Duration::from_secs(86_400)];

/// One certificate that is to be looked after.
struct Job {
    authority: Arc<Authority>,
    wanted: WantedCertificate,
    held: Option<Arc<Held>>,
    task: Task,
    failures: u32,
}

enum Task {
    /// It is due, for so long.
    Renew(Duration),
    /// Write what could not be written.
    Write,
    /// Write it into the state of the fleet.
    Share,
    /// Ask when to renew.
    AskWindow,
}

enum Outcome {
    /// There is nothing to do for so long.
    Wait(Duration),
    Ordered,
    Failed(OrderFailure),
    Window(Option<(i64, i64)>, Duration),
}

impl Certificates {
    /// Looks after the certificates while the node runs. `report` is called for all that happens.
    pub async fn keep(
        self: Arc<Self>,
        others: Option<Arc<dyn OtherNodes>>,
        report: impl Fn(&CertificateEvent),
    ) {
        *self.cluster.lock() = Cluster(others);
        let mut running = JoinSet::new();
        let mut watched: Option<Instant> = None;
        loop {
            self.begin_jobs(&mut running);
            let mut new = std::mem::take(&mut self.state.lock().events);
            if !new.is_empty() || watched.is_none_or(|at| at.elapsed() >= ALARM_INTERVAL) {
                watched = Some(Instant::now());
                new.extend(self.watch());
            }
            new.iter().for_each(|event| {
                log(event);
                report(event);
            });
            let orders = self.state.lock().authority.is_some();
            let pause = if orders { CHECK_INTERVAL } else { ALARM_INTERVAL };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.changed.notified() => {}
                Some(_) = running.join_next() => {}
            }
        }
    }

    /// Looks at the ends of all certificates.
    fn watch(&self) -> Vec<CertificateEvent> {
        let mut state = self.state.lock();
        let states = state.states();
        self.metrics.show(&states);
        state.alarms.look(&states, unix_now())
    }

    fn begin_jobs(self: &Arc<Self>, running: &mut JoinSet<()>) {
        let mut state = self.state.lock();
        let State { authority: Some(authority), entries, .. } = &mut *state else { return };
        let is_shared = self.shared.lock().0.is_some();
        let room = ORDERS.saturating_sub(running.len());
        let due = entries.iter_mut().filter(|entry| !entry.is_busy);
        let due = due.filter_map(|entry| Some((entry.task(is_shared)?, entry)));
        for (task, entry) in due.take(room) {
            entry.is_busy = true;
            let (wanted, held) = (entry.wanted.clone(), entry.held.clone());
            let (authority, failures) = (authority.clone(), entry.failures);
            let job = Job { authority, wanted, held, task, failures };
            let certificates = self.clone();
            running.spawn(async move {
                let outcome = certificates.run(&job).await;
                certificates.over(&job, outcome);
            });
        }
    }

    async fn run(self: &Arc<Self>, job: &Job) -> Outcome {
        match job.task {
            Task::Write => self.write_again(job).await,
            Task::Share => self.share_again(job).await,
            Task::AskWindow => self.ask_window(job).await,
            Task::Renew(due_for) => match self.find(job).await {
                true => Outcome::Ordered,
                false => self.order_in_turn(job, due_for).await,
            },
        }
    }

    /// Notes what has come of a job.
    fn over(&self, job: &Job, outcome: Outcome) {
        let mut state = self.state.lock();
        let State { entries, events, .. } = &mut *state;
        let name = job.wanted.name();
        let Some(entry) = entries.iter_mut().find(|entry| entry.wanted.name() == name) else {
            return;
        };
        entry.is_busy = false;
        let now = Instant::now();
        match outcome {
            Outcome::Wait(time) => entry.next_try = now + time,
            Outcome::Window(window, again) => {
                entry.window = window.or(entry.window);
                entry.next_window = now + again;
            }
            Outcome::Ordered => {
                // A server that always wants another one gets no more than a few orders in one life.
                let life = entry.held.as_ref().map_or(0, |held| held.leaf.ends - held.leaf.begins);
                let pause = (life / 8).clamp(1, 86_400).unsigned_abs();
                entry.next_try = now + Duration::from_secs(pause);
            }
            Outcome::Failed(failure) => {
                entry.failures = entry.failures.saturating_add(1);
                entry.next_try = now + failure.wait(entry.failures, name);
                let reason = failure.to_string();
                entry.problem = Some(reason.clone());
                events.push(CertificateEvent::Failed { name: name.to_owned(), reason });
                self.metrics.ordered(false);
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Takes a certificate that another node or another process has got.
    async fn find(self: &Arc<Self>, job: &Job) -> bool {
        let cluster = self.cluster.lock().clone();
        let shared = self.shared.lock().clone();
        let (name, held) = (job.wanted.name(), job.held.as_deref());
        let (newest, of_fleet) =
            tokio::join!(cluster.newest(name, held), shared.newest(name, held));
        let (own, authority) = (self.clone(), job.authority.clone());
        let (name, held) = (job.wanted.name().to_owned(), job.held.clone());
        let taken = tokio::task::spawn_blocking(move || {
            let from_fleet = of_fleet.is_some_and(|newest| own.take(newest, OF_FLEET));
            if newest.is_some_and(|newest| own.take(newest, "peer")) || from_fleet {
                return true;
            }
            let stored = stored(&authority, &name);
            let is_newer = |stored: &Held| held.is_none_or(|held| stored.is_newer_than(&held));
            stored.filter(is_newer).is_some_and(|stored| own.take(stored, "storage"))
        });
        let taken = taken.await.unwrap_or(false);
        taken && !self.is_due(job.wanted.name())
    }

    fn is_due(&self, name: &str) -> bool {
        self.state.lock().entry(name).is_none_or(|entry| entry.due().is_some())
    }

    /// Orders, if it is this node's turn.
    async fn order_in_turn(self: &Arc<Self>, job: &Job, due_for: Duration) -> Outcome {
        let cluster = self.cluster.lock().clone();
        let (me, well) = cluster.well();
        let rank = schedule::rank(job.wanted.name(), &me, &well);
        let life = job.held.as_ref().map(|held| held.leaf.ends - held.leaf.begins);
        let dns = job.authority.settings.dns.as_ref();
        let dns = dns.filter(|_| job.wanted.proofs.contains(&Proof::Dns01));
        let proof = dns.map_or(Duration::ZERO, |dns| dns.timeout + dns.wait);
        let turn = schedule::takeover(life, proof) * rank;
        if due_for < turn {
            return Outcome::Wait((turn - due_for).min(ASK_INTERVAL));
        }
        if let Some(wait) = job.authority.says.retry_at()
            && let Ok(wait) = wait.duration_since(std::time::SystemTime::now())
        {
            let why = "the server has asked for patience".to_owned();
            return Outcome::Failed(OrderFailure::Limited { why, wait });
        }
        let ordering = tokio::time::timeout(ORDER_TIMEOUT, self.order(job, &cluster));
        let held = match ordering.await {
            Ok(Ok(Some(held))) => held,
            Ok(Ok(None)) => return Outcome::Wait(ASK_INTERVAL),
            Ok(Err(failure)) => return Outcome::Failed(failure),
            Err(_) => {
                let why = "the order has not come to an end in time".to_owned();
                return Outcome::Failed(OrderFailure::Unreachable(why));
            }
        };
        self.metrics.ordered(true);
        let (own, pem) = (self.clone(), held.pem.clone());
        let taken = tokio::task::spawn_blocking(move || own.take(held, "acme"));
        if !taken.await.unwrap_or(false) {
            tracing::info!(name = job.wanted.name(), "a newer certificate has come meanwhile");
        }
        cluster.tell_all(&Message::Take { pem }).await;
        Outcome::Ordered
    }

    /// Orders; `None`: another process with the same storage does, or another node of the fleet.
    async fn order(
        self: &Arc<Self>,
        job: &Job,
        cluster: &Cluster,
    ) -> Result<Option<Held>, OrderFailure> {
        let Authority { settings, storage, says, .. } = &*job.authority;
        let lock = match storage.check().and_then(|()| storage.lock()) {
            Ok(Some(lock)) => Some(lock),
            Ok(None) => return Ok(None),
            Err(error) if self.is_urgent(job) => {
                tracing::error!(%error, "a certificate is ordered that a restart would lose");
                None
            }
            Err(error) => return Err(error.into()),
        };
        let (shared, name) = (self.shared.lock().clone(), job.wanted.name());
        let Turn::Own(turn) = shared.turn(name, job.held.as_deref()).await else {
            return Ok(None);
        };
        let account = self.account(job).await?;
        let proofs = &job.wanted.proofs;
        let Some(proof) = proofs.get(job.failures as usize % proofs.len().max(1)) else {
            return Err(OrderFailure::Refused("there is no way to prove the names".to_owned()));
        };
        tracing::info!(name = job.wanted.name(), proof = proof.as_str(), "certificate ordered");
        let parts = OrderParts {
            certificates: self,
            settings,
            says,
            account: &account,
            cluster,
            wanted: &job.wanted,
            proof: *proof,
            former: job.held.clone(),
        };
        let ordered = parts.order().await;
        if let Ok(held) = &ordered {
            // A state that is away gets it later.
            let _ = shared.offer(name, held).await;
        }
        drop((lock, turn));
        if let Err(OrderFailure::Unreachable(why)) = &ordered
            && why == UNKNOWN_ACCOUNT
        {
            *job.authority.account.lock().await = None;
            if let Ok(Some(lost)) = storage.account(&settings.directory) {
                shared.forget_account(&settings.directory, &lost).await;
            }
            account::set_aside(settings, storage, why)?;
        }
        ordered.map(Some).map_err(|failure| match says.skew() {
            Some(skew) => failure.with(&skew),
            None => failure,
        })
    }

    /// Whether a certificate that cannot be stored is better than none.
    fn is_urgent(&self, job: &Job) -> bool {
        let Some(held) = &job.held else { return false };
        unix_now() > held.leaf.ends - (held.leaf.ends - held.leaf.begins) / 10
    }

    async fn account(&self, job: &Job) -> Result<Account, OrderFailure> {
        let Authority { settings, storage, says, account } = &*job.authority;
        let mut account = account.lock().await;
        if let Some(open) = &*account {
            return Ok(open.clone());
        }
        let client = AcmeClient::new(settings.authority.as_deref(), says.clone());
        let client = client.map_err(OrderFailure::Unreachable)?;
        let shared = self.shared.lock().clone();
        let opened = account::open(settings, (storage, &shared), client, says).await?;
        Ok(account.insert(opened).clone())
    }

    async fn write_again(self: &Arc<Self>, job: &Job) -> Outcome {
        if let Some(held) = job.held.clone() {
            let (own, authority) = (self.clone(), job.authority.clone());
            let name = job.wanted.name().to_owned();
            let write = tokio::task::spawn_blocking(move || {
                own.write(&authority, &name, &held);
                let mut state = own.state.lock();
                if let Some(entry) = state.entry(&name).filter(|entry| !entry.is_unstored) {
                    entry.problem = None;
                }
            });
            let _ = write.await;
        }
        Outcome::Wait(STORAGE_BACKOFF)
    }

    /// Writes a certificate into the state of the fleet, or takes the newer one that is there.
    async fn share_again(self: &Arc<Self>, job: &Job) -> Outcome {
        let (name, shared) = (job.wanted.name(), self.shared.lock().clone());
        let Some(held) = job.held.as_deref() else { return Outcome::Wait(Duration::ZERO) };
        if let Some(newer) = shared.newest(name, Some(held)).await {
            let own = self.clone();
            let _ = tokio::task::spawn_blocking(move || own.take(newer, OF_FLEET)).await;
            return Outcome::Wait(Duration::ZERO);
        }
        match shared.offer(name, held).await {
            Ok(()) => {
                let mut state = self.state.lock();
                if let Some(entry) = state.entry(name) {
                    // A newer one may have come meanwhile.
                    entry.is_unshared = entry.held.as_ref().is_some_and(|now| now.pem != held.pem);
                }
                Outcome::Wait(Duration::ZERO)
            }
            Err(why) => {
                tracing::info!(name, why, "the state of the fleet lacks a certificate");
                Outcome::Wait(STORAGE_BACKOFF)
            }
        }
    }

    /// Asks the server when to renew (RFC 9773). The nodes that do not order keep to the usual time.
    async fn ask_window(&self, job: &Job) -> Outcome {
        let [least, most] = WINDOW;
        let (me, well) = self.cluster.lock().well();
        let identifier = job.held.as_ref().and_then(|held| held.leaf.identifier.clone());
        let Some(identifier) = identifier else { return Outcome::Window(None, most) };
        let is_first = schedule::rank(job.wanted.name(), &me, &well) == 0;
        if !is_first || job.authority.says.retry_at().is_some() {
            return Outcome::Window(None, least);
        }
        let Ok(account) = self.account(job).await else { return Outcome::Window(None, least) };
        match account.renewal_info(&identifier).await {
            Ok((info, again)) => {
                let window = info.suggested_window;
                let window = (window.start.unix_timestamp(), window.end.unix_timestamp());
                let sane = window.1 > window.0;
                Outcome::Window(sane.then_some(window), again.clamp(least, most))
            }
            Err(Error::Unsupported(_)) => Outcome::Window(None, most),
            Err(_) => Outcome::Window(None, least * 6),
        }
    }
}

impl Entry {
    fn task(&self, is_shared: bool) -> Option<Task> {
        let now = Instant::now();
        match self.due() {
            Some(due) if self.next_try <= now => return Some(Task::Renew(due)),
            _ if self.is_unstored && self.next_try <= now => return Some(Task::Write),
            _ if is_shared && self.is_unshared && self.next_try <= now => return Some(Task::Share),
            _ => {}
        }
        (self.held.is_some() && self.next_window <= now).then_some(Task::AskWindow)
    }

    /// How long it has been due; `None`: it is not.
    fn due(&self) -> Option<Duration> {
        match self.renews() {
            Some(at) => u64::try_from(unix_now() - at).ok().map(Duration::from_secs),
            None => Some(self.missing_since.elapsed()),
        }
    }
}

impl OrderFailure {
    /// How long to wait, after so many failures.
    fn wait(&self, failures: u32, name: &str) -> Duration {
        let seed = levada_types::hash64(name.as_bytes());
        match self {
            Self::Limited { wait, .. } => *wait + LIMIT_GRACE,
            Self::Storage(_) => STORAGE_BACKOFF,
            Self::Unreachable(_) => schedule::retry(failures, UNREACHABLE_BACKOFF, seed),
            Self::Refused(_) => schedule::retry(failures, REFUSED_BACKOFF, seed),
        }
    }

    /// The same, with what may be the cause.
    fn with(self, cause: &str) -> Self {
        match self {
            Self::Unreachable(why) => Self::Unreachable(format!("{why}; {cause}")),
            Self::Refused(why) => Self::Refused(format!("{why}; {cause}")),
            other => other,
        }
    }
}

fn log(event: &CertificateEvent) {
    match event {
        CertificateEvent::Renewed { name, source, ends } => {
            tracing::info!(name, source, ends, "new certificate");
        }
        CertificateEvent::Failed { name, reason } => {
            tracing::error!(name, reason, "no new certificate");
        }
        CertificateEvent::Expiring { name, source, days, problem } => {
            let problem = problem.as_deref().unwrap_or("none");
            tracing::error!(name, source, problem, "the certificate {}", end_in_words(*days));
        }
    }
}
