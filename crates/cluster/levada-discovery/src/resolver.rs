//! Names to addresses, as the system resolves them: `/etc/hosts`, then DNS by `/etc/resolv.conf`, or by the servers
//! of the configuration. Both files are followed when they change.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, Weak},
    time::{Duration, Instant, SystemTime},
};

use hickory_resolver::{
    Hosts, TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    lookup::Lookup,
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::Query,
        rr::{Name, RData, RecordType},
    },
};
use levada_types::Backoff;
use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, watch},
    task::AbortHandle,
};

use crate::{Member, Report, ResolverSettings, SystemFiles};

/// The interval at which files that another program may change are looked at: an operator sees a change work at
/// once, and one stat a second costs nothing.
pub(crate) const FILES_INTERVAL: Duration = Duration::from_secs(1);
/// Questions under way at once. 10,000 names must not flood a DNS server when a node starts.
const AT_ONCE: usize = 64;
/// The time after which a question without an answer is asked again.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));

/// How names are resolved at this moment, and when that changes.
pub(crate) struct Resolvers {
    current: watch::Sender<Arc<Resolving>>,
    /// The task that follows the files of the system, once a name is followed.
    files: OnceLock<AbortHandle>,
    /// The change that is planned, if one is.
    planned: Mutex<Weak<Planned>>,
}

/// Another way to resolve names. Sources that are followed while it is planned resolve names so, all others when it
/// is committed. Nothing has changed if it is dropped.
pub struct ResolverPlan {
    resolvers: Arc<Resolvers>,
    /// `None` if nothing is to change.
    planned: Option<Arc<Planned>>,
}

struct Planned(Arc<Resolving>);

/// The way of one source: that of the plan under which it was followed, until that has ended, then that of all.
pub(crate) struct ResolverView {
    current: watch::Receiver<Arc<Resolving>>,
    planned: Weak<Planned>,
}

/// How names are resolved.
pub(crate) struct Resolving {
    pub(crate) settings: ResolverSettings,
    default: Result<TokioResolver, String>,
    hosts: Hosts,
    files: Files,
    places: Arc<Semaphore>,
}

/// The times at which the files of the system were changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Files([Option<SystemTime>; 2]);

/// The answer to a question.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) found: T,
    /// How long it counts.
    pub(crate) ttl: Duration,
}

/// A question without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The name does not exist, or has no such records.
    Nothing(String),
    /// The servers do not say.
    Failed(String),
}

impl NoAnswer {
    pub(crate) fn into_reason(self) -> String {
        match self {
            Self::Nothing(reason) | Self::Failed(reason) => reason,
        }
    }
}

/// The rounds in which a source asks DNS servers.
pub(crate) struct Rounds {
    view: ResolverView,
    /// Rounds in a row without an answer.
    failures: u32,
}

impl Rounds {
    pub(crate) fn new(resolvers: &Resolvers) -> Self {
        Self { view: resolvers.follow(), failures: 0 }
    }

    /// How names are resolved in this round.
    pub(crate) fn resolving(&mut self) -> Arc<Resolving> {
        self.view.current.mark_unchanged();
        self.view.now()
    }

    /// Reports what was found, and waits until it is time for the next round.
    pub(crate) async fn end(
        &mut self,
        asked: Result<Answer<Vec<Member>>, String>,
        report: &Report,
    ) {
        let wait = match asked {
            Ok(answer) => {
                self.failures = if answer.found.is_empty() { self.failures + 1 } else { 0 };
                report.members(answer.found);
                self.view.now().wait(answer.ttl)
            }
            Err(reason) => {
                self.failures += 1;
                report.failed(reason);
                Duration::ZERO
            }
        };
        let wait = match self.failures {
            0 => wait,
            failures => RETRY_BACKOFF.after(failures),
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            // The way in which names are resolved has changed.
            _ = self.view.current.changed() => {}
        }
    }
}

impl Resolvers {
    pub(crate) fn new(settings: ResolverSettings) -> Self {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        Self {
            current: watch::Sender::new(Arc::new(Resolving::new(settings, places))),
            files: OnceLock::new(),
            planned: Mutex::default(),
        }
    }

    /// Plans a change. One may be planned at a time.
    pub(crate) fn plan(self: &Arc<Self>, settings: ResolverSettings) -> ResolverPlan {
        let before = self.current.borrow().clone();
        let planned = (before.settings != settings).then(|| {
            let planned = Planned(Arc::new(Resolving::new(settings, before.places.clone())));
            let planned = Arc::new(planned);
            *self.planned.lock() = Arc::downgrade(&planned);
            planned
        });
        ResolverPlan { resolvers: self.clone(), planned }
    }

    /// The way to resolve names, now and after each change.
    pub(crate) fn follow(&self) -> ResolverView {
        self.files.get_or_init(|| {
            let current = self.current.clone();
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(FILES_INTERVAL).await;
                    let before = current.borrow().clone();
                    if Files::now(&before.settings.system) != before.files {
                        tracing::info!("the system resolves names in another way now");
                        let (settings, places) = (before.settings.clone(), before.places.clone());
                        current.send_replace(Arc::new(Resolving::new(settings, places)));
                    }
                }
            })
            .abort_handle()
        });
        ResolverView { current: self.current.subscribe(), planned: self.planned.lock().clone() }
    }
}

impl ResolverPlan {
    /// All sources resolve names in this way from now on.
    pub fn commit(self) {
        if let Some(planned) = self.planned {
            self.resolvers.current.send_replace(planned.0.clone());
        }
    }
}

impl ResolverView {
    pub(crate) fn now(&self) -> Arc<Resolving> {
        let planned = self.planned.upgrade().map(|planned| planned.0.clone());
        planned.unwrap_or_else(|| self.current.borrow().clone())
    }
}

impl Drop for Resolvers {
    fn drop(&mut self) {
        if let Some(task) = self.files.get() {
            task.abort();
        }
    }
}

impl Files {
    fn now(SystemFiles { resolv_conf, hosts }: &SystemFiles) -> Self {
        let changed = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).ok();
        Self([resolv_conf, hosts].map(changed))
    }
}

impl Resolving {
    fn new(settings: ResolverSettings, places: Arc<Semaphore>) -> Self {
        // Before the files are read, so that a change meanwhile is noticed.
        let files = Files::now(&settings.system);
        let SystemFiles { resolv_conf, hosts } = &settings.system;
        let ((config, options), hosts) = (read(resolv_conf), read_hosts(hosts));
        let config = match &settings.servers[..] {
            [] => config,
            servers => {
                let (domain, search) = (config.domain, config.search);
                let servers = servers.iter().map(|server| name_server(*server)).collect();
                ResolverConfig::from_parts(domain, search, servers)
            }
        };
        let default = match config.name_servers.is_empty() {
            true => Err(format!("{} names no DNS server", resolv_conf.display())),
            false => build(config, options, &settings),
        };
        Self { settings, default, hosts, files, places }
    }

    /// The resolver that asks `server`, or the default one.
    pub(crate) fn of(&self, server: Option<SocketAddr>) -> Result<TokioResolver, String> {
        let Some(server) = server else { return self.default.clone() };
        let config = ResolverConfig::from_name_servers(vec![name_server(server)]);
        build(config, ResolverOpts::default(), &self.settings)
    }

    /// The addresses of a name; at least one.
    pub(crate) async fn addresses(
        &self,
        resolver: &TokioResolver,
        host: &str,
        before: &BTreeSet<IpAddr>,
    ) -> Result<Answer<BTreeSet<IpAddr>>, NoAnswer> {
        if let Ok(address) = host.parse() {
            return Ok(Answer { found: [address].into(), ttl: Duration::MAX });
        }
        let name: Name = host.parse().map_err(|_| NoAnswer::Nothing("it is no name".to_owned()))?;
        let family = self.settings.family;
        let written = self.written(&name);
        if !written.is_empty() {
            let found = written.into_iter().filter(|address| family.has(*address)).collect();
            return Ok(Answer { found, ttl: Duration::MAX });
        }
        let asked = |kind, example: IpAddr| {
            let name = name.clone();
            async move {
                match family.has(example) {
                    true => Some(self.ask(resolver, name, kind).await),
                    false => None,
                }
            }
        };
        let (v4, v6) = tokio::join!(
            asked(RecordType::A, Ipv4Addr::LOCALHOST.into()),
            asked(RecordType::AAAA, std::net::Ipv6Addr::LOCALHOST.into()),
        );
        let (mut found, mut ttl, mut answered) = (BTreeSet::new(), Duration::MAX, false);
        let (mut failed, mut nothing) = (None, None);
        for (answer, is_v4) in [(v4, true), (v6, false)] {
            match answer {
                None => {}
                Some(Ok(answer)) => {
                    answered = true;
                    found.extend(data(&answer.found).filter_map(RData::ip_addr));
                    ttl = ttl.min(answer.ttl);
                }
                Some(Err(failure @ NoAnswer::Failed(_))) => {
                    // It says nothing of these addresses, while the other question may be answered.
                    found.extend(before.iter().filter(|address| address.is_ipv4() == is_v4));
                    ttl = ttl.min(self.settings.min_ttl);
                    failed = Some(failure);
                }
                Some(Err(failure)) => nothing = Some(failure),
            }
        }
        match failed.or(nothing) {
            Some(failure) if !answered => Err(failure),
            _ => Ok(Answer { found, ttl }),
        }
    }

    /// Asks for the records of one kind.
    pub(crate) async fn ask(
        &self,
        resolver: &TokioResolver,
        name: Name,
        kind: RecordType,
    ) -> Result<Answer<Lookup>, NoAnswer> {
        let _place = self.places.acquire().await;
        let now = Instant::now();
        match resolver.lookup(name, kind).await {
            Ok(found) => {
                let ttl = found.valid_until().saturating_duration_since(now);
                Ok(Answer { found, ttl })
            }
            Err(error) => Err(no_answer(&error, kind)),
        }
    }

    /// The time until a question is asked again.
    pub(crate) fn wait(&self, ttl: Duration) -> Duration {
        ttl.clamp(self.settings.min_ttl, self.settings.max_ttl)
    }

    /// The addresses in the file of hosts.
    fn written(&self, name: &Name) -> BTreeSet<IpAddr> {
        let of = |kind| {
            let found = self.hosts.lookup_static_host(&Query::query(name.clone(), kind));
            let records = found.iter().flat_map(|found| found.answers());
            records.filter_map(|record| record.data.ip_addr()).collect::<Vec<IpAddr>>()
        };
        [RecordType::A, RecordType::AAAA].into_iter().flat_map(of).collect()
    }
}

fn no_answer(error: &NetError, kind: RecordType) -> NoAnswer {
    match error {
        error if error.is_nx_domain() => NoAnswer::Nothing("the name does not exist".to_owned()),
        error if error.is_no_records_found() => {
            NoAnswer::Nothing(format!("the name has no {kind} records"))
        }
        NetError::Timeout => NoAnswer::Failed("no DNS server answers in time".to_owned()),
        error => NoAnswer::Failed(error.to_string()),
    }
}

fn build(
    config: ResolverConfig,
    mut options: ResolverOpts,
    settings: &ResolverSettings,
) -> Result<TokioResolver, String> {
    // Each question is asked when its time has come, and once for all sites.
    options.cache_size = 0;
    options.timeout = settings.timeout;
    options.use_hosts_file = ResolveHosts::Never;
    let provider = TokioRuntimeProvider::default();
    let builder = TokioResolver::builder_with_config(config, provider).with_options(options);
    builder.build().map_err(|error| error.to_string())
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let at = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    let both = vec![at(ConnectionConfig::udp()), at(ConnectionConfig::tcp())];
    NameServerConfig::new(address.ip(), true, both)
}

/// The names of a file of hosts. Bytes that are no UTF-8 may stand in its comments.
fn read_hosts(file: &Path) -> Hosts {
    let (text, mut hosts) = (fs::read(file).unwrap_or_default(), Hosts::default());
    if let Err(error) = hosts.read_hosts_conf(String::from_utf8_lossy(&text).as_bytes()) {
        tracing::warn!(%error, file = %file.display(), "it is not used");
    }
    hosts
}

/// The contents of a `resolv.conf`.
fn read(file: &Path) -> (ResolverConfig, ResolverOpts) {
    let text = fs::read(file).unwrap_or_default();
    let (parsed, _) = resolv_conf::Config::parse_with_errors(&text);
    let servers = parsed.nameservers.iter().map(|ip| name_server(SocketAddr::new(ip.into(), 53)));
    let search = parsed.get_last_search_or_domain().filter_map(|domain| domain.parse().ok());
    let config = ResolverConfig::from_parts(None, search.collect(), servers.collect());
    let mut options = ResolverOpts::default();
    options.ndots = parsed.ndots as usize;
    options.attempts = parsed.attempts as usize;
    options.edns0 = parsed.edns0;
    (config, options)
}

/// The data of the records of a lookup.
pub(crate) fn data(found: &Lookup) -> impl Iterator<Item = &RData> {
    found.answers().iter().map(|record| &record.data)
}
