//! The resources of a cluster, kept up to date.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use levada_discovery::{ClusterAccess, ListError, Object, ObjectFollower, Objects, Resource};
use levada_types::Backoff;
use tokio::{sync::Notify, task::JoinSet};

use crate::resources::Cluster;

/// The wait after a failure, and after a watch that ended.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
/// The wait before a kind that the cluster does not have is asked for again.
const ABSENT_INTERVAL: Duration = Duration::from_secs(60);

/// The cluster as it is known, and news of it. It is followed until this is dropped.
pub(crate) struct Followed {
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    known: Mutex<Known>,
    news: Notify,
}

/// The resources, and the kinds of which nothing is known yet: sites made of half of them would be wrong.
struct Known {
    cluster: Cluster,
    awaited: Vec<&'static str>,
}

/// Stores the objects of one kind.
type Store<T> = fn(&mut Cluster, Objects<T>);

/// The kinds that are followed, each in the namespace, or in all.
fn kinds(namespace: Option<&str>) -> [Resource; 6] {
    const GATEWAY: &str = "apis/gateway.networking.k8s.io/v1";
    let resource = |group, plural, chosen_by: &str| Resource {
        group,
        plural,
        namespace: namespace.map(str::to_owned),
        chosen_by: chosen_by.to_owned(),
    };
    [
        resource("apis/networking.k8s.io/v1", "ingresses", ""),
        Resource { namespace: None, ..resource(GATEWAY, "gatewayclasses", "") },
        resource(GATEWAY, "gateways", ""),
        resource(GATEWAY, "httproutes", ""),
        resource("api/v1", "services", ""),
        resource("api/v1", "secrets", "fieldSelector=type%3Dkubernetes.io%2Ftls"),
    ]
}

impl Followed {
    /// Follows the resources in a namespace, or in all.
    pub(crate) fn new(access: &ClusterAccess, namespace: Option<&str>) -> Self {
        let kinds = kinds(namespace);
        let awaited = kinds.iter().map(|kind| kind.plural).collect();
        let known = Mutex::new(Known { cluster: Cluster::default(), awaited });
        let shared = Arc::new(Shared { known, news: Notify::new() });
        let mut tasks = JoinSet::new();
        let [ingresses, classes, gateways, routes, services, secrets] = kinds;
        let with = (access, &shared);
        start(&mut tasks, with, ingresses, |cluster, objects| cluster.ingresses = objects);
        start(&mut tasks, with, classes, |cluster, objects| cluster.classes = objects);
        start(&mut tasks, with, gateways, |cluster, objects| cluster.gateways = objects);
        start(&mut tasks, with, routes, |cluster, objects| cluster.routes = objects);
        start(&mut tasks, with, services, |cluster, objects| cluster.services = objects);
        start(&mut tasks, with, secrets, |cluster, objects| cluster.secrets = objects);
        Self { shared, _tasks: tasks }
    }

    /// Returns when something has changed since the last call.
    pub(crate) async fn changed(&self) {
        self.shared.news.notified().await;
    }

    /// Looks at the cluster, if all of it is known.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&Cluster) -> R) -> Option<R> {
        let known = self.shared.lock();
        known.awaited.is_empty().then(|| look(&known.cluster))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store<T>(&self, kind: &'static str, objects: Objects<T>, store: Store<T>) {
        let mut known = self.lock();
        store(&mut known.cluster, objects);
        known.awaited.retain(|awaited| *awaited != kind);
        drop(known);
        self.news.notify_one();
    }
}

fn start<T: Object + Clone + Send + Sync + 'static>(
    tasks: &mut JoinSet<()>,
    (access, shared): (&ClusterAccess, &Arc<Shared>),
    resource: Resource,
    store: Store<T>,
) {
    let (access, shared, kind) = (access.clone(), shared.clone(), resource.plural);
    tasks.spawn(async move {
        let mut follower = ObjectFollower::<T>::new(resource);
        let mut failures = 0;
        loop {
            let show = |objects: &Objects<T>| shared.store(kind, objects.clone(), store);
            match follower.list_and_watch(&access, show).await {
                Ok(()) => failures = 0,
                Err(ListError::NoSuchKind(_)) => {
                    shared.store(kind, Objects::new(), store);
                    tokio::time::sleep(ABSENT_INTERVAL).await;
                }
                Err(error) => {
                    if failures == 0 {
                        tracing::warn!(kind, %error, "the resources cannot be followed");
                    }
                    failures += 1;
                }
            }
            tokio::time::sleep(BACKOFF.after(failures.max(1))).await;
        }
    });
}
