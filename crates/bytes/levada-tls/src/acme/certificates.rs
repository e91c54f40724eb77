//! The certificates of a node at work: what listeners show, states for operators, messages of peers.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Instant, SystemTime},
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Limited};
use instant_acme::Account;
use parking_lot::Mutex;
use rustls::{
    pki_types::{CertificateDer, pem::PemObject},
    server::ResolvesServerCert,
};
use tokio::sync::Notify;

use crate::acme::{
    AcmeSettings, CertificateMetrics, FindCertificate, WantedCertificate,
    challenges::Challenges,
    client::ServerSays,
    cluster::{self, Answer, Cluster, Message},
    held::Held,
    leaf::Leaf,
    resolver::{OrderedByName, Resolver},
    schedule,
    shared::{Shared, SharedStorage},
    storage::Storage,
    watched::Alarms,
};

/// See the module.
pub struct Certificates {
    pub(crate) challenges: Challenges,
    pub(crate) by_name: ArcSwap<OrderedByName>,
    pub(crate) state: Mutex<State>,
    /// Something is to be done before the next look.
    pub(crate) changed: Notify,
    pub(crate) metrics: CertificateMetrics,
    /// The other nodes, once the node runs.
    pub(crate) cluster: Mutex<Cluster>,
    /// The state of the fleet, for a node of one.
    pub(crate) shared: Mutex<Shared>,
    /// When a refused handshake was last logged.
    last_refused: AtomicI64,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

/// The part that changes.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) authority: Option<Arc<Authority>>,
    pub(crate) entries: Vec<Entry>,
    files: Vec<CertificateState>,
    pub(crate) alarms: Alarms,
    pub(crate) events: Vec<CertificateEvent>,
}

/// The server, and what is known of it.
pub(crate) struct Authority {
    pub(crate) settings: AcmeSettings,
    pub(crate) storage: Storage,
    pub(crate) says: Arc<ServerSays>,
    pub(crate) account: tokio::sync::Mutex<Option<Account>>,
}

/// A certificate that is to be there, and the one that is.
pub(crate) struct Entry {
    pub(crate) wanted: WantedCertificate,
    pub(crate) held: Option<Arc<Held>>,
    /// Whether the certificate could not be written.
    pub(crate) is_unstored: bool,
    /// Whether the state of the fleet may lack the certificate.
    pub(crate) is_unshared: bool,
    /// Failed orders in a row.
    pub(crate) failures: u32,
    pub(crate) next_try: Instant,
    /// Since when a certificate is missing.
    pub(crate) missing_since: Instant,
    pub(crate) problem: Option<String>,
    /// The server's suggestion, and when it is asked for again.
    pub(crate) window: Option<(i64, i64)>,
    pub(crate) next_window: Instant,
    /// Whether something is being done about it.
    pub(crate) is_busy: bool,
}

/// A certificate as operators see it.
#[derive(Clone, Debug, PartialEq)]
pub struct CertificateState {
    /// Its file, or `acme` for one that is ordered.
    pub source: String,
    /// Its names.
    pub names: Vec<String>,
    /// The begin of its validity: Unix time in seconds; 0 if there is none yet.
    pub begins: i64,
    /// The end of its validity; 0 if there is none yet.
    pub ends: i64,
    /// When it is renewed, if it is.
    pub renews: Option<i64>,
    /// Why it is not there, or not renewed.
    pub problem: Option<String>,
}

impl CertificateState {
    /// The state of the certificate in a file.
    pub fn of_file(file: &Path) -> Self {
        let leaf = CertificateDer::from_pem_file(file).map_err(|error| error.to_string());
        let leaf = leaf.and_then(|leaf| Leaf::of(&leaf));
        let problem = leaf.as_ref().err().cloned();
        let leaf = leaf.ok();
        Self {
            source: file.display().to_string(),
            names: leaf.as_ref().map(|leaf| leaf.names.clone()).unwrap_or_default(),
            begins: leaf.as_ref().map_or(0, |leaf| leaf.begins),
            ends: leaf.as_ref().map_or(0, |leaf| leaf.ends),
            renews: None,
            problem,
        }
    }

    /// Its end in words, if it ends so soon that it should have been renewed by now, or has ended.
    pub fn alarm(&self) -> Option<String> {
        let now = unix_now();
        let is_due = self.ends > 0 && self.is_alarming(now);
        is_due.then(|| end_in_words((self.ends - now) as f64 / DAY))
    }

    /// Whether it ends so soon, at a Unix time, that an alarm is due, or is not there.
    pub fn is_alarming(&self, now: i64) -> bool {
        self.ends - now <= schedule::alarm(self.begins, self.ends)
    }
}

/// Something that happened to a certificate.
#[derive(Clone, Debug, PartialEq)]
pub enum CertificateEvent {
    /// There is a newer one.
    Renewed {
        /// The first name.
        name: String,
        /// Its file, `acme`, `peer`, or `fleet`.
        source: String,
        /// Its end: Unix time in seconds.
        ends: i64,
    },
    /// An order failed.
    Failed {
        /// The first name.
        name: String,
        /// Why.
        reason: String,
    },
    /// It ends soon, or has ended.
    Expiring {
        /// The first name.
        name: String,
        /// Its file, or `acme`.
        source: String,
        /// The days until then, negative afterwards.
        days: f64,
        /// Why it was not renewed.
        problem: Option<String>,
    },
}

/// The end of a certificate in words, by the days until then, which are negative afterwards.
pub fn end_in_words(days: f64) -> String {
    let (begin, end) = if days > 0.0 { ("ends in ", "") } else { ("expired ", " ago") };
    let (count, unit) = match days.abs() {
        days if days < 2.0 => ((days * 24.0) as u64, "hour"),
        days => (days as u64, "day"),
    };
    format!("{begin}{count} {unit}{}{end}", if count == 1 { "" } else { "s" })
}

const DAY: f64 = 86_400.0;

/// The largest message: a certificate with its chain and key.
const LARGEST: usize = 1 << 20;
/// The source of certificates that are ordered.
pub(crate) const ORDERED: &str = "acme";
/// The source of those from the state of the fleet.
pub(crate) const OF_FLEET: &str = "fleet";

impl Certificates {
    /// No certificates yet.
    pub fn new(metrics: CertificateMetrics) -> Arc<Self> {
        Arc::new(Self {
            challenges: Challenges::default(),
            by_name: ArcSwap::default(),
            state: Mutex::default(),
            changed: Notify::new(),
            metrics,
            cluster: Mutex::default(),
            shared: Mutex::default(),
            last_refused: AtomicI64::new(0),
        })
    }

    /// Has certificates and the account in common with other nodes, from now on.
    pub fn share(&self, state: Arc<dyn SharedStorage>) {
        *self.shared.lock() = Shared(Some(state));
        self.changed.notify_one();
    }

    /// Goes on with these settings, and with certificates in these files. Whatever failed is tried again at once. It
    /// reads files.
    pub fn set(&self, acme: Option<&AcmeSettings>, files: &[PathBuf]) {
        let read: Vec<_> = files.iter().map(|file| CertificateState::of_file(file)).collect();
        let (former, mut kept) = {
            let mut state = self.state.lock();
            let entries = std::mem::take(&mut state.entries);
            let kept: HashMap<_, _> =
                entries.into_iter().map(|entry| (entry.wanted.names.clone(), entry)).collect();
            (state.authority.clone(), kept)
        };
        let authority = acme.map(|acme| authority(acme, former));
        let mut entries = Vec::new();
        for wanted in acme.iter().flat_map(|acme| &acme.certificates) {
            let mut entry = match kept.remove(&wanted.names) {
                Some(entry) => Entry { wanted: wanted.clone(), ..entry },
                None => Entry::new(wanted.clone(), authority.as_deref()),
            };
            entry.next_try = Instant::now();
            entries.push(entry);
        }
        let mut state = self.state.lock();
        state.authority = authority;
        state.entries = entries;
        let renewed = |after: &CertificateState| {
            let before = state.files.iter().find(|before| before.source == after.source)?;
            (after.ends > before.ends && before.ends > 0).then(|| CertificateEvent::Renewed {
                name: after.names.first().cloned().unwrap_or_default(),
                source: after.source.clone(),
                ends: after.ends,
            })
        };
        let renewed: Vec<_> = read.iter().filter_map(renewed).collect();
        state.events.extend(renewed);
        state.files = read;
        self.publish(&state);
        drop(state);
        self.changed.notify_one();
    }

    /// The certificates of handshakes: proofs, certificates of files, those that were ordered.
    pub fn resolver(self: &Arc<Self>, files: FindCertificate) -> Arc<dyn ResolvesServerCert> {
        Arc::new(Resolver { certificates: self.clone(), files })
    }

    /// The file of a proof at this path. It costs one look as long as there is no proof.
    pub fn proof(&self, path: &str) -> Option<String> {
        self.challenges.file(path)
    }

    /// All certificates: those of files, then those that are ordered.
    pub fn states(&self) -> Vec<CertificateState> {
        self.state.lock().states()
    }

    /// Answers a message of a peer.
    pub async fn answer_peer<B>(self: &Arc<Self>, request: Request<B>) -> Response<Bytes>
    where
        B: Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let read = Limited::new(request.into_body(), LARGEST).collect().await;
        let answer = match read {
            Ok(message) => self.answer_message(&message.to_bytes()).await,
            Err(_) => None,
        };
        let status = if answer.is_some() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
        let mut response = Response::new(answer.unwrap_or_default());
        *response.status_mut() = status;
        response
    }

    async fn answer_message(self: &Arc<Self>, message: &[u8]) -> Option<Bytes> {
        let secrets = self.cluster.lock().secrets();
        let plain = cluster::open(secrets.as_ref(), message)?;
        let message = serde_json::from_slice(&plain).ok()?;
        let own = self.clone();
        // It may write a file.
        let answer = tokio::task::spawn_blocking(move || own.answer(message)).await.ok()?;
        cluster::seal(secrets.as_ref(), serde_json::to_vec(&answer).ok()?)
    }

    fn answer(&self, message: Message) -> Answer {
        match message {
            Message::Hold(proof) => match self.challenges.hold(&proof) {
                Ok(()) => {}
                Err(error) => tracing::warn!(error, "a proof cannot be shown for another node"),
            },
            Message::Forget(proof) => self.challenges.forget(&proof),
            Message::Newer { name, than } => {
                let state = self.state.lock();
                let known = state.entries.iter().find(|entry| entry.wanted.name() == name);
                return match known.and_then(|entry| entry.held.as_ref()) {
                    Some(held) if than.is_none_or(|than| held.leaf.begins > than) => {
                        Answer::Certificate { pem: held.pem.clone() }
                    }
                    _ => Answer::Nothing,
                };
            }
            Message::Take { pem } => match Held::of(pem) {
                Ok(held) => drop(self.take(held, "peer")),
                Err(error) => tracing::warn!(error, "a node has sent a wrong certificate"),
            },
        }
        Answer::Done
    }

    /// Shows a certificate, if it is newer than the one that is there, and writes it. Returns whether it is newer.
    pub(crate) fn take(&self, held: Held, source: &str) -> bool {
        let held = Arc::new(held);
        let mut state = self.state.lock();
        let fits = |entry: &&mut Entry| held.leaf.covers(&entry.wanted.names);
        let Some(entry) = state.entries.iter_mut().find(fits) else { return false };
        let before = entry.held.as_ref();
        let is_better = |before: &Arc<Held>| {
            held.is_newer_than(before) || !before.leaf.covers(&entry.wanted.names)
        };
        if held.leaf.ends <= unix_now() || !before.is_none_or(is_better) {
            return false;
        }
        let name = entry.wanted.name().to_owned();
        entry.held = Some(held.clone());
        (entry.failures, entry.problem, entry.window) = (0, None, None);
        entry.next_window = Instant::now();
        entry.is_unshared = source != OF_FLEET;
        let (source, ends) = (source.to_owned(), held.leaf.ends);
        state.events.push(CertificateEvent::Renewed { name: name.clone(), source, ends });
        self.publish(&state);
        let authority = state.authority.clone();
        drop(state);
        self.changed.notify_one();
        if let Some(authority) = authority {
            self.write(&authority, &name, &held);
        }
        true
    }

    /// Writes a certificate. One that cannot be written is used all the same.
    pub(crate) fn write(&self, authority: &Authority, name: &str, held: &Held) {
        let written = authority.storage.store_certificate(name, &held.pem);
        if let Err(error) = &written {
            tracing::error!(%error, name, "a restart would lose the certificate");
        }
        let mut state = self.state.lock();
        if let Some(entry) = state.entry(name) {
            entry.is_unstored = written.is_err();
            if let Err(error) = written {
                entry.problem = Some(format!("a restart would lose it: {error}"));
            }
        }
    }

    /// Shows other nodes and listeners what there is now.
    pub(crate) fn publish(&self, state: &State) {
        let mut by_name = OrderedByName::default();
        for entry in &state.entries {
            for name in &entry.wanted.names {
                by_name.names.entry(name.clone()).or_default();
            }
            let Some(held) = &entry.held else { continue };
            by_name.first.get_or_insert_with(|| held.shown.clone());
            let names = held.leaf.names.iter();
            by_name.names.extend(names.map(|name| (name.clone(), Some(held.shown.clone()))));
        }
        self.by_name.store(Arc::new(by_name));
    }

    /// Notes a handshake for a name whose certificate has not come.
    pub(crate) fn refused(&self, name: &str) {
        let (now, last) = (unix_now(), self.last_refused.load(Relaxed));
        if now - last < 60 || self.last_refused.swap(now, Relaxed) == now {
            return;
        }
        let name = name.to_ascii_lowercase();
        let mut state = self.state.lock();
        let entry = state.entries.iter_mut().find(|entry| entry.wanted.names.contains(&name));
        let problem = entry.and_then(|entry| entry.problem.clone());
        let why = problem.unwrap_or_else(|| "it is being ordered".to_owned());
        tracing::warn!(name, why, "handshakes are refused: there is no certificate yet");
    }
}

impl State {
    pub(crate) fn entry(&mut self, name: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.wanted.name() == name)
    }

    pub(crate) fn states(&self) -> Vec<CertificateState> {
        let ordered = self.entries.iter().map(Entry::state);
        self.files.iter().cloned().chain(ordered).collect()
    }
}

impl Entry {
    fn new(wanted: WantedCertificate, authority: Option<&Authority>) -> Self {
        let now = Instant::now();
        let held = authority.and_then(|authority| stored(authority, wanted.name()));
        Self {
            wanted,
            is_unshared: held.is_some(),
            held: held.map(Arc::new),
            is_unstored: false,
            failures: 0,
            next_try: now,
            missing_since: now,
            problem: None,
            window: None,
            next_window: now,
            is_busy: false,
        }
    }

    /// When it is renewed: Unix time; `None`: there is none, or one without a name that is wanted.
    pub(crate) fn renews(&self) -> Option<i64> {
        let leaf = &self.held.as_ref()?.leaf;
        if !leaf.covers(&self.wanted.names) {
            return None;
        }
        let own = || schedule::renewal(leaf.begins, leaf.ends, leaf.seed());
        let suggested = self.window.map(|window| schedule::within(window, leaf.seed()));
        // A server whose suggestion comes too late is not followed.
        let latest = leaf.ends - (leaf.ends - leaf.begins) / 6;
        Some(suggested.unwrap_or_else(own).min(latest))
    }

    fn state(&self) -> CertificateState {
        let leaf = self.held.as_ref().map(|held| &held.leaf);
        CertificateState {
            source: ORDERED.to_owned(),
            names: leaf.map_or_else(|| self.wanted.names.clone(), |leaf| leaf.names.clone()),
            begins: leaf.map_or(0, |leaf| leaf.begins),
            ends: leaf.map_or(0, |leaf| leaf.ends),
            renews: self.renews(),
            problem: self.problem.clone(),
        }
    }
}

/// The server of these settings. A server that stays keeps its account and its limits.
fn authority(acme: &AcmeSettings, former: Option<Arc<Authority>>) -> Arc<Authority> {
    let of_server = |settings: &AcmeSettings| AcmeSettings {
        certificates: Vec::new(),
        dns: None,
        ..settings.clone()
    };
    let former = former.filter(|former| of_server(&former.settings) == of_server(acme));
    let account = former.as_ref().and_then(|former| former.account.try_lock().ok()?.clone());
    Arc::new(Authority {
        settings: acme.clone(),
        storage: Storage::new(&acme.storage),
        says: former.map(|former| former.says.clone()).unwrap_or_default(),
        account: tokio::sync::Mutex::new(account),
    })
}

/// The certificate on disk.
pub(crate) fn stored(authority: &Authority, name: &str) -> Option<Held> {
    let pem = match authority.storage.certificate(name) {
        Ok(pem) => pem?,
        Err(error) => {
            tracing::error!(%error, name, "another certificate is ordered");
            return None;
        }
    };
    let file = authority.storage.certificate_path(name);
    let held = Held::of(pem);
    held.inspect_err(|why| {
        tracing::error!(file = %file.display(), why, "another certificate is ordered");
    })
    .ok()
}

pub(crate) fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
