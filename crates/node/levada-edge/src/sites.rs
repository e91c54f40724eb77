//! Sites by host, and each site's origins.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use http::HeaderValue;
use levada_access::site_access::SiteAccess;
use levada_body::files::FileDirectory;
use levada_cluster::purge::PurgedSites;
use levada_observe::log::access_log::Log;
use levada_observe::metrics::{Counter, SiteMetrics};
use levada_redirector::{Classes, Origins, SharedDecider, SitePolicy, Sources, Switch};
use levada_store::identity::{ResourceUrl, without_port};
use levada_types::hash64;
use levada_upstream::{Clock, OriginQueues, PacedQueue, RetryBudget, Server, Silence};

use crate::routes::Routes;
use levada_config::{Delivery, Handling, HostTable, LargeSettings, SiteSettings};

/// A site at work.
pub struct Site {
    /// The identifier for purges: the hash of its first host, the same on every node.
    pub(crate) id: u64,
    /// Its settings.
    pub settings: SiteSettings,
    /// How requests are handled that no route takes.
    pub(crate) handling: Arc<Handling>,
    /// The route whose servers these are; `None` for the site itself.
    pub route: Option<Arc<str>>,
    pub(crate) routes: Option<Routes>,
    /// Its policy.
    pub decider: SharedDecider,
    /// Chooses the node for a piece of a large file, where pieces have a number of replicas of their own.
    pub pieces: Option<SharedDecider>,
    /// The region that is asked before the origins, if there is one.
    pub shield: Option<Shield>,
    /// Its origins.
    pub origins: Arc<Origins>,
    /// Where the members of origins and servers come from.
    pub sources: Sources,
    /// The servers that the policy chooses among, in place of origins.
    pub switch: Option<Arc<Switch>>,
    /// The directory that this node serves, in place of origins.
    pub(crate) files: Option<FileDirectory>,
    /// The service classes of requests; `None` where all are normal.
    pub classes: Option<Arc<Classes>>,
    /// Counts requests that lack what their key is to be taken from.
    pub(crate) fallbacks: Counter,
    pub(crate) origin_host: Option<HeaderValue>,
    pub(crate) retries: RetryBudget,
    /// Whether those that its fetches ask answer.
    pub(crate) silence: Silence,
    /// The queues before the origins.
    pub(crate) misses: OriginQueues,
    /// The same for pieces of large files.
    pub(crate) piece_turns: Arc<PacedQueue>,
    /// Who may use it and each of its routes; nothing at the servers of a route.
    pub(crate) access: SiteAccess,
    /// The series of the site.
    pub(crate) metrics: Arc<SiteMetrics>,
    /// Its own access log, or none; `None`: that of the node.
    pub(crate) log: Option<Option<Arc<Log>>>,
}

/// A region that is asked before the origins of a site.
pub struct Shield {
    /// The region.
    pub region: Arc<str>,
    /// Its policy.
    pub decider: SharedDecider,
}

/// The parts of a site that are built from its settings.
pub(crate) struct SiteParts {
    pub(crate) decider: SharedDecider,
    pub(crate) pieces: Option<SharedDecider>,
    pub(crate) shield: Option<Shield>,
    pub(crate) origins: Arc<Origins>,
    pub(crate) sources: Sources,
    pub(crate) switch: Option<Arc<Switch>>,
    pub(crate) fallbacks: Counter,
    pub(crate) metrics: Arc<SiteMetrics>,
    pub(crate) retry_budget: f64,
    pub(crate) workers: usize,
    pub(crate) piece_turns: Arc<PacedQueue>,
    pub(crate) route: Option<Arc<str>>,
    pub(crate) routes: Option<Routes>,
    pub(crate) log: Option<Option<Arc<Log>>>,
}

impl Site {
    /// How large files are served, where they are served in pieces.
    pub(crate) fn serves_large_files(&self) -> Option<&LargeSettings> {
        self.settings.large.as_ref().filter(|_| self.handling.cache)
    }

    /// Tells it from all other sites of the node.
    pub(crate) fn place(&self) -> (u64, Option<Arc<str>>) {
        (self.id, self.route.clone())
    }

    /// Its name for operators: the first host, and the route if these are the servers of one.
    pub fn name(&self) -> String {
        let host = self.settings.hosts.first().map_or("", String::as_str);
        match &self.route {
            Some(route) => format!("{host} {route}"),
            None => host.to_owned(),
        }
    }

    /// A site that takes over the state of `before`.
    pub(crate) fn new(settings: SiteSettings, parts: SiteParts, before: Option<&Self>) -> Self {
        let limits = &settings.servers.misses;
        let misses = before.filter(|before| before.settings.servers.misses == *limits);
        let misses = misses.map_or_else(
            || OriginQueues::new(limits.at_once, limits.queue, limits.wait),
            |before| before.misses.clone(),
        );
        let known = before.and_then(|before| before.classes.clone());
        let classes = known.filter(|known| known.same_as(&settings.classes));
        let classes = classes.or_else(|| Classes::new(&settings.classes).map(Arc::new));
        let access = match &parts.route {
            Some(_) => SiteAccess::default(),
            None => {
                let routes = settings.routes.all.iter().map(|route| &route.handling.access);
                let known = before.map(|site| &site.access);
                SiteAccess::new(&settings.handling.access, routes, known, parts.workers)
            }
        };
        let origin_host = settings.servers.origin_host.as_deref().and_then(|h| h.parse().ok());
        Self {
            id: Self::id_of(&settings),
            decider: parts.decider,
            pieces: parts.pieces,
            shield: parts.shield,
            origins: parts.origins,
            sources: parts.sources,
            switch: parts.switch,
            files: settings.servers.files.as_ref().map(FileDirectory::new),
            classes,
            fallbacks: parts.fallbacks,
            metrics: parts.metrics,
            log: parts.log,
            origin_host,
            misses,
            piece_turns: parts.piece_turns,
            access,
            retries: RetryBudget::new(parts.retry_budget),
            silence: Silence::default(),
            handling: Arc::new(settings.handling.clone()),
            route: parts.route,
            routes: parts.routes,
            settings,
        }
    }

    /// The identifier of the site with these settings.
    pub(crate) fn id_of(settings: &SiteSettings) -> u64 {
        hash64(settings.hosts.first().map_or(&b""[..], |host| host.as_bytes()))
    }

    /// The parts that choose a server of its switch.
    pub(crate) fn policy(&self) -> SitePolicy<'_> {
        SitePolicy { decider: &self.decider, classes: self.classes.as_ref() }
    }

    /// Its policies, each with the region whose nodes it chooses from; `""` is that of this node.
    pub(crate) fn deciders(&self) -> impl Iterator<Item = (&str, &SharedDecider)> {
        let own = self.pieces.iter().chain([&self.decider]).map(|decider| ("", decider));
        own.chain(self.shield.iter().map(|shield| (&*shield.region, &shield.decider)))
    }

    /// Its servers: origins, or those of its switch.
    pub fn servers(&self) -> Vec<Arc<Server>> {
        let origins = self.origins.list();
        let switched = self.switch.as_ref().map(|switch| switch.view().members.clone());
        let switched = switched.iter().flatten().map(|member| member.server.clone());
        origins.all().iter().map(|origin| origin.server.clone()).chain(switched).collect()
    }

    /// Whether all its servers are down.
    pub(crate) fn is_down(&self) -> bool {
        self.servers().iter().all(|server| !server.health.is_up())
    }

    pub(crate) fn redirects(&self) -> bool {
        self.settings.delivery == Delivery::Redirect
    }

    /// Counts a request towards the retry budget.
    pub(crate) fn count(&self) {
        self.retries.count();
    }

    /// Whether one more retry is within the budget.
    pub(crate) fn may_retry(&self, clock: &Clock) -> bool {
        self.retries.take(clock.now())
    }

    /// The time after which the head of a fetch that others follow is late. By then, the fetch itself has asked
    /// another origin.
    pub(crate) fn fetch_is_late_after(&self) -> Duration {
        let origins = self.origins.list();
        let late = origins.all().iter().map(|origin| origin.server.late_after()).max();
        late.unwrap_or(LATE) * 3 / 2
    }

    /// The time that the fastest of its servers that are up usually takes; without end while none is.
    pub(crate) fn usual_time(&self) -> Duration {
        self.servers()
            .iter()
            .filter_map(|server| server.usual_time())
            .min()
            .unwrap_or(Duration::MAX)
    }

    /// Whether an origin has sent anything lately.
    pub(crate) fn origin_moves(&self) -> bool {
        self.servers().iter().any(|server| server.health.is_moving())
    }

    /// The time that a response of an origin may take to begin.
    pub(crate) fn response_timeout(&self) -> Duration {
        self.servers().first().map_or(LATE, |server| server.response_timeout())
    }
}

/// The time after which a server of a switch is late.
const LATE: Duration = Duration::from_secs(3);

/// The sites of a running node, as purge orders find them.
pub(crate) struct SitesNow(pub(crate) Arc<ArcSwap<Sites>>);

impl PurgedSites for SitesNow {
    fn number(&self, host: &str) -> Option<u64> {
        Some(self.0.load().find(host)?.id)
    }

    fn identities(&self, url: &ResourceUrl) -> BTreeSet<String> {
        let sites = self.0.load();
        let site = sites.find(without_port(url.host()));
        site.map(|site| site.settings.forms.identities(url)).unwrap_or_default()
    }
}

/// All sites of a node.
pub struct Sites {
    by_host: HostTable<Arc<Site>>,
    all: Vec<Arc<Site>>,
}

impl Sites {
    pub(crate) fn new(all: Vec<Arc<Site>>) -> Self {
        let own = all.iter().filter(|site| site.route.is_none());
        let by_host = HostTable::new(own.map(|site| (&*site.settings.hosts, site.clone())));
        Self { by_host, all }
    }

    /// The site that answers to `host`, which is in lower case and has no port.
    pub fn find(&self, host: &str) -> Option<&Arc<Site>> {
        self.by_host.find(host)
    }

    /// All sites; those of routes come before theirs.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Site>> {
        self.all.iter()
    }
}
