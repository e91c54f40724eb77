//! Members are the ready endpoints of a service in Kubernetes, as its EndpointSlices have them.

mod access;
mod kubeconfig;
mod objects;
mod slices;

use self::{access::Access, slices::Slice};
pub use self::{
    access::AccessError,
    objects::{ListError, Metadata, Object, ObjectFollower, Objects, Resource},
};
use crate::{ClusterAccess, KubernetesSource, Report, backoff::Pauses};

/// Reports the ready endpoints of a service. It never returns.
pub(crate) async fn follow(source: &KubernetesSource, report: &Report) {
    let mut pauses = Pauses::new();
    let mut follower: Option<ObjectFollower<Slice>> = None;
    loop {
        if let Err(error) = list_and_watch(source, report, &mut follower).await {
            report.failed(error.to_string());
        }
        pauses.pause().await;
    }
}

async fn list_and_watch(
    source: &KubernetesSource,
    report: &Report,
    follower: &mut Option<ObjectFollower<Slice>>,
) -> Result<(), ListError> {
    let follower = match follower {
        Some(follower) => follower,
        None => follower.insert(ObjectFollower::new(Resource {
            group: "apis/discovery.k8s.io/v1",
            plural: "endpointslices",
            namespace: Some(namespace(source).await?),
            chosen_by: format!("labelSelector=kubernetes.io%2Fservice-name%3D{}", source.service),
        })),
    };
    follower.list_and_watch(&source.access, |slices| show(source, slices, report)).await
}

/// The namespace of the service.
async fn namespace(source: &KubernetesSource) -> Result<String, AccessError> {
    match &source.namespace {
        Some(namespace) => Ok(namespace.to_string()),
        None => Ok(Access::open(&source.access).await?.namespace),
    }
}

fn show(source: &KubernetesSource, known: &Objects<Slice>, report: &Report) {
    match slices::members(known.values(), source.port.as_ref()) {
        Ok(members) if members.is_empty() => {
            report.failed(format!("service {} has no ready endpoint", source.service));
        }
        Ok(members) => report.members(members),
        Err(error) => report.failed(format!("service {}: {error}", source.service)),
    }
}

/// Changes a part of an object: a merge patch (RFC 7396) at a path of the API server, such as
/// `/apis/networking.k8s.io/v1/namespaces/a/ingresses/b/status`.
///
/// # Errors
/// If the server cannot be asked, or refuses.
pub async fn patch(
    access: &ClusterAccess,
    path: &str,
    change: &serde_json::Value,
) -> Result<(), ListError> {
    let access = Access::open(access).await?;
    Ok(access.patch(path, change).await?)
}
