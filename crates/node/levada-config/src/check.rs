//! Checks beyond the schema: whether the parts of a configuration fit each other, the policies and
//! this machine.

mod access;
mod acme;
mod adjustments;
mod caching;
mod classes;
mod compress;
mod destination;
mod discovery;
mod discovery_servers;
mod dns;
mod expressions;
mod files;
mod handling;
mod handoff;
mod levels;
mod log;
mod origin_tls;
mod parts;
mod peering;
mod servers;
mod site;
mod site_files;
mod site_route;
mod telemetry;
mod tls;
mod variables;

use std::{net::SocketAddr, num::NonZero, path::Path as FilePath, sync::Arc, thread};

use crate::{
    settings::{Admin, Listener, PurgeSettings, RunAs, Runtime, Settings},
    unusable::UnusableSettings,
};
use levada_access::{country::Countries, trust::TrustedProxies};
use levada_cluster::orders::PurgeAccess;
use levada_observe::redact::RedactedArguments;
use levada_rules::Mappings;
use levada_store::CacheSettings;
use levada_tls::{acme::CertificateState, pem::Certificate};
use levada_types::{
    AdminAddress, ByteSize,
    document::{Findings, Path, Said},
};

use self::parts::{each, maybe, placed};
use super::{
    file::{self, File, RuntimeMode},
    text::{Address, OperatorAddress},
};

/// Makes settings of `file`. The caller uses them only if no error was found, here or before.
pub(crate) fn settings(
    file: &File,
    directory: &FilePath,
    findings: &mut Findings<'_>,
) -> Option<Settings> {
    let root = Path::default();
    let mut check = Check {
        file,
        directory,
        findings,
        root,
        countries: None,
        route_names: Vec::new(),
        mappings: Arc::default(),
    };
    check.addresses();
    // Every site is checked before the first failure returns, so that all errors are reported.
    let listeners = check.listeners();
    let tickets = check.session_tickets();
    let acme = check.acme();
    let trusted = check.trusted();
    let discovery = check.discovery();
    let peering = check.peering();
    let dns = check.dns();
    let sites = check.sites();
    let cache = check.cache();
    let purge = check.purge();
    let admin = check.admin();
    let run_as = check.run_as();
    let handoff = check.handoff();
    let access_log = check.access_log(&file.log, &check.root.key("log"));
    let telemetry = check.telemetry();
    let place = check.root.key("route");
    let route = maybe(file.route.as_ref(), |route| route.settings(&place, check.findings));
    Some(Settings {
        name: file.name.as_ref()?.to_string(),
        runtime: runtime(&file.runtime),
        run_as: run_as?,
        splice: file.runtime.splice,
        listeners: listeners?,
        tickets: tickets?,
        acme: acme?,
        trusted: trusted?,
        discovery: discovery?,
        peering: peering?,
        dns: dns?,
        admin: admin?,
        metrics: file.admin.metrics.map(|listen| listen.0),
        cache,
        purge: purge?,
        handoff: handoff?,
        sites: sites?,
        limits: file.limits.clone(),
        access_log: access_log?,
        redact: RedactedArguments::new(&file.log.redact),
        telemetry: telemetry?,
        route: route?,
        seed: file.seed.map(i64::unsigned_abs),
    })
}

/// Reports why a node would not start by these settings, in the words of the node.
pub(crate) fn as_started(
    settings: &Settings,
    start_error: &dyn Fn(&Settings) -> Option<String>,
    findings: &mut Findings<'_>,
) {
    let root = Path::default();
    let Err(error) = settings.check() else {
        if let Some(message) = start_error(settings) {
            findings.error(&root.key("listen"), message);
        }
        return;
    };
    let place = match &error {
        UnusableSettings::Memory { .. } => root.key("limits").key("memory"),
        UnusableSettings::Disk(_) => root.key("cache").key("disk").key("path"),
        UnusableSettings::OwnListener { number, .. } => root.key("site").index(*number),
    };
    findings.error(&place, error.to_string());
}

/// The token for orders, if it can be read.
pub(crate) fn admin_token(file: &File, directory: &FilePath) -> Option<String> {
    let read = |name: &String| std::fs::read_to_string(directory.join(name)).ok();
    let in_file = || file.admin.token_file.as_ref().and_then(read);
    file.admin.token.clone().or_else(in_file).map(|token| token.trim().to_owned())
}

/// The common context of all checks.
struct Check<'c, 'f> {
    file: &'c File,
    directory: &'c FilePath,
    findings: &'c mut Findings<'f>,
    root: Path,
    /// The database of countries, once it has been read.
    countries: Option<Arc<Countries>>,
    /// The names of the routes of the site that is checked.
    route_names: Vec<String>,
    /// The variables that texts and expressions can name where the check is.
    mappings: Arc<Mappings>,
}

/// The default of the largest object that is kept, where there is a disk.
const MAX_OBJECT_ON_DISK: u64 = 1 << 30;

impl<'f> Check<'_, 'f> {
    /// Reports an error at `path`.
    fn error(&mut self, path: &Path, message: impl Into<String>) -> Said<'_, 'f> {
        self.findings.error(path, message)
    }

    /// Reports a warning at `path`.
    fn warning(&mut self, path: &Path, message: impl Into<String>) -> Said<'_, 'f> {
        self.findings.warning(path, message)
    }

    /// Checks that no two listeners have the same address.
    fn addresses(&mut self) {
        let mut taken: Vec<(Path, SocketAddr)> = Vec::new();
        for (path, address) in self.listening() {
            if let Some((other, _)) = taken.iter().find(|(_, other)| collide(*other, address)) {
                self.error(&path, format!("{address} is taken by {other} already"))
                    .help("choose another port");
            }
            taken.push((path, address));
        }
    }

    fn listening(&self) -> Vec<(Path, SocketAddr)> {
        let listen = self.root.key("listen");
        let clients = self.file.listen.iter().enumerate();
        let clients = clients.map(|(i, l)| (listen.index(i).key("address"), l.address));
        let peers = self.file.peering.as_ref().and_then(|peering| peering.listen);
        let control = self.file.handoff.as_ref().and_then(|handoff| handoff.listen);
        let tcp = self.file.admin.listen.as_ref().and_then(|listen| listen.0.tcp()).map(Address);
        let dns = self.root.key("dns").key("listen");
        let queries = self.file.dns.iter().filter_map(|dns| dns.listen.as_ref());
        let queries = queries.flat_map(|listen| listen.as_slice().iter().enumerate());
        let queries = queries.map(|(i, address)| (dns.index(i), Some(*address)));
        let http = self.root.key("dns").key("http");
        let redirects = self.file.dns.iter().flat_map(|dns| dns.http.iter().enumerate());
        let redirects = redirects.filter(|(_, own)| !own.alone);
        let redirects = redirects.map(|(i, own)| (http.index(i).key("address"), own.address));
        let inner = [
            (self.root.key("handoff").key("listen"), control),
            (self.root.key("peering").key("listen"), peers),
            (self.root.key("admin").key("listen"), tcp),
            (self.root.key("admin").key("metrics"), self.file.admin.metrics),
        ];
        clients
            .chain(inner)
            .chain(queries)
            .chain(redirects)
            .filter_map(|(path, address)| Some((path, address?.0)))
            .collect()
    }

    /// The outer `None` marks an error, the inner a node that stays who it is.
    fn run_as(&mut self) -> Option<Option<RunAs>> {
        let file::Runtime { user, group, .. } = self.file.runtime.clone();
        let path = self.root.key("runtime").key("group");
        match user {
            Some(user) => Some(Some(RunAs { user, group })),
            None if group.is_some() => {
                self.error(&path, "stands without `user`")
                    .help("add `user`: a node changes its group only with its user");
                None
            }
            None => Some(None),
        }
    }

    /// The outer `None` marks an error, the inner an absent listener.
    fn admin(&mut self) -> Option<Option<Admin>> {
        let file::Admin { listen, mode, token, token_file, hosts, .. } = &self.file.admin;
        let (path, hosts) = (self.root.key("admin"), hosts.clone());
        let token = self.secret(["token", "token_file"], token, token_file, &path)?;
        let Some(OperatorAddress(listen)) = listen.clone() else { return Some(None) };
        if let AdminAddress::Unix(file) = &listen {
            self.in_existing_directory(&file.to_string_lossy(), &path.key("listen"))?;
        }
        let idle: &[&str] = match listen {
            AdminAddress::Tcp(_) => &["mode"],
            AdminAddress::Unix(_) => &["token", "token_file", "hosts"],
        };
        for key in idle.iter().filter(|key| self.findings.has(&path.key(**key))).collect::<Vec<_>>()
        {
            let (message, help) = match listen {
                AdminAddress::Tcp(_) => {
                    ("has no effect without a socket", "`listen = \"unix:...\"`")
                }
                AdminAddress::Unix(_) => {
                    ("has no effect at a socket", "`mode` says who may give orders")
                }
            };
            self.warning(&path.key(*key), message).help(help);
        }
        if listen.tcp().is_some_and(|address| !address.ip().is_loopback()) {
            let message = format!("{listen} can be reached from other machines");
            let help = "reading needs no token: use 127.0.0.1, or close the port to strangers";
            self.warning(&path.key("listen"), message).help(help);
        }
        Some(Some(Admin { listen, mode: mode.0, token, hosts }))
    }

    fn listeners(&mut self) -> Option<Vec<Listener>> {
        let listen = self.root.key("listen");
        each(placed(&self.file.listen, &listen, false), |(path, table)| self.listener(table, &path))
    }

    fn listener(&mut self, listen: &file::Listen, path: &Path) -> Option<Listener> {
        let tls = path.key("tls");
        let certificates =
            each(placed(&listen.tls, &tls, false), |(path, pair)| self.of_listener(pair, &path));
        if listen.h2c && (listen.acme || !listen.tls.is_empty()) {
            self.warning(&path.key("h2c"), "has no effect beside TLS, where HTTP/2 is negotiated");
        }
        if listen.tls.is_empty() && !listen.acme && self.findings.has(&path.key("handshake")) {
            self.warning(&path.key("handshake"), "has no effect without `tls`");
        }
        let handshake = self.handshake(&listen.handshake, &path.key("handshake"));
        if listen.http3 && listen.tls.is_empty() && !listen.acme {
            self.error(&path.key("http3"), "needs `tls`: HTTP/3 is always encrypted")
                .help("list a certificate in `tls`, or remove `http3`");
        }
        Some(Listener {
            address: listen.address?.0,
            handshake: handshake?,
            tls: certificates?,
            acme: listen.acme,
            h2c: listen.h2c,
            http3: listen.http3,
            dormant_retries: listen.dormant_retries.into(),
        })
    }

    fn trusted(&mut self) -> Option<Vec<TrustedProxies>> {
        let mut trusted = Vec::new();
        for (position, table) in self.file.trusted.iter().enumerate() {
            let addresses = table.addresses.as_ref()?.as_slice();
            if addresses.iter().any(|prefix| prefix.0.is_all()) {
                let message = "trusts every client: each can choose its address and scheme";
                let path = self.root.key("trusted").index(position).key("addresses");
                self.warning(&path, message).help("list the addresses of your own proxies only");
            }
            let proxy_protocol = table.proxy_protocol;
            let proxies = |prefix: &crate::text::Prefix| TrustedProxies {
                addresses: prefix.0,
                proxy_protocol,
            };
            trusted.extend(addresses.iter().map(proxies));
        }
        Some(trusted)
    }

    /// A certificate of a listener: it must be usable now.
    pub(super) fn of_listener(
        &mut self,
        pair: &file::Certificate,
        path: &Path,
    ) -> Option<Certificate> {
        let files = self.certificate(&pair.certificate, &pair.key, path);
        let ocsp = pair.ocsp.as_ref().map(|ocsp| self.directory.join(ocsp));
        let files = Certificate { ocsp, ..files? };
        self.belongs_together(&files, path);
        Some(files)
    }

    /// A certificate and its key, or neither. The outer `None` marks an error.
    fn certificate_pair(
        &mut self,
        certificate: &Option<String>,
        key: &Option<String>,
        path: &Path,
    ) -> Option<Option<Certificate>> {
        let (one, other) = match (certificate, key) {
            (None, None) => return Some(None),
            (Some(_), Some(_)) => return self.certificate(certificate, key, path).map(Some),
            (Some(_), None) => ("certificate", "key"),
            (None, Some(_)) => ("key", "certificate"),
        };
        self.error(&path.key(one), format!("stands without `{other}`"))
            .help(format!("add `{other}`"))
            .none()
    }

    /// Reads a certificate and its key at `path`.
    fn certificate(
        &mut self,
        certificate: &Option<String>,
        key: &Option<String>,
        path: &Path,
    ) -> Option<Certificate> {
        let certificate = self.pem(certificate, "CERTIFICATE", &path.key("certificate"));
        let key = self.pem(key, "PRIVATE KEY", &path.key("key"));
        let (certificate, key) = (certificate?, key?);
        let state = CertificateState::of_file(&certificate);
        if let Some(end) = state.alarm() {
            self.warning(&path.key("certificate"), format!("the certificate {end}"))
                .help("renew it, and run `levada reload`");
        }
        Some(Certificate { certificate, key, ocsp: None })
    }

    /// The size of the memory tier. Bodies on their way take up to three quarters of it again,
    /// so it can have half of the memory at most.
    fn memory_tier(&mut self, tier: u64) -> u64 {
        let Some(limit) = self.file.limits.memory else { return tier };
        let most = limit / 2;
        let path = self.root.key("cache").key("memory");
        // A default that does not fit is no error of the user.
        if tier > most && self.findings.has(&path) {
            let (tier, limit) = (ByteSize(tier), ByteSize(limit));
            self.error(&path, format!("{tier} is more than half of `limits.memory`, {limit}"))
                .help(format!("write at most {}, or raise `limits.memory`", ByteSize(most)));
        }
        tier.min(most)
    }

    fn cache(&mut self) -> CacheSettings {
        let mut cache = self.file.cache.clone();
        cache.memory = self.memory_tier(cache.memory);
        let (block, memory) = (ByteSize(cache.block), ByteSize(cache.memory));
        let path = self.root.key("cache").key("block");
        let largest_block = cache.memory / 8;
        if cache.block > largest_block && self.findings.has(&path) {
            self.error(&path, format!("blocks of {block} are too large for a memory of {memory}"))
                .help("write at most an eighth of `cache.memory`");
        }
        cache.block = cache.block.min(largest_block);
        let path = self.root.key("cache").key("max_object");
        let given = self.findings.has(&path);
        let (room, tier) = match &cache.disk {
            Some(disk) if disk.size > cache.memory => (disk.size, "disk.size"),
            _ => (cache.memory, "memory"),
        };
        if cache.max_object > room && given {
            let (largest, room) = (ByteSize(cache.max_object), ByteSize(room));
            self.error(&path, format!("{largest} does not fit into the {tier} of {room}"))
                .help(format!("write at most {room}, or raise `cache.{tier}`"));
        }
        // A default that does not fit is no error of the user.
        if cache.disk.is_some() && !given {
            cache.max_object = MAX_OBJECT_ON_DISK;
        }
        cache.max_object = cache.max_object.min(room);
        cache
    }

    fn purge(&mut self) -> Option<PurgeSettings> {
        let file::Purge { token, token_file, expose_tags, grant } = &self.file.purge;
        let (path, expose_tags) = (self.root.key("purge"), *expose_tags);
        let token = self.secret(["token", "token_file"], token, token_file, &path)?;
        for (number, wrong) in grant.iter().enumerate().filter(|(_, grant)| !grant.is_digest()) {
            let length = wrong.digest.as_ref().map_or(0, String::len);
            let message =
                format!("is {length} characters, and no SHA-256 of 64 hexadecimal digits");
            let at = path.key("grant").index(number).key("digest");
            self.error(&at, message).help("`printf %s TOKEN | sha256sum` prints it");
        }
        let grants = grant.iter().map(file::PurgeGrant::settings).collect();
        Some(PurgeSettings { access: PurgeAccess { token, grants }, expose_tags })
    }
}

/// Whether the system would refuse to listen at both: the same port at the same or at any address.
/// Port 0 is a different one each time.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    let same_family = one.is_ipv4() == other.is_ipv4();
    one.port() != 0
        && one.port() == other.port()
        && (one.ip() == other.ip() || (any && same_family))
}

fn runtime(file: &file::Runtime) -> Runtime {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    let threads = file.threads.map_or_else(cores, |threads| threads as usize);
    match file.mode {
        RuntimeMode::Shared => Runtime::Shared(threads),
        RuntimeMode::PerCore => Runtime::PerCore(threads),
        // Beyond four threads, shared queues cost more than an idle thread.
        RuntimeMode::Auto if threads <= 4 => Runtime::Shared(threads),
        RuntimeMode::Auto => Runtime::PerCore(threads),
    }
}
