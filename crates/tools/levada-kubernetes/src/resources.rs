//! The resources of Kubernetes, with the fields that matter here.

pub(crate) mod core;
pub(crate) mod gateway;
pub(crate) mod ingress;

use levada_discovery::{Metadata, Objects};

use self::{
    core::{Secret, Service},
    gateway::{Gateway, GatewayClass, HttpRoute},
    ingress::Ingress,
};

/// All that is known of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) ingresses: Objects<Ingress>,
    pub(crate) classes: Objects<GatewayClass>,
    pub(crate) gateways: Objects<Gateway>,
    pub(crate) routes: Objects<HttpRoute>,
    pub(crate) services: Objects<Service>,
    pub(crate) secrets: Objects<Secret>,
}

/// A resource that people wrote, for messages and for the order of rules: the older one counts first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    created: Option<String>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) kind: &'static str,
}

impl Owner {
    pub(crate) fn new(kind: &'static str, metadata: &Metadata) -> Self {
        Self {
            created: metadata.creation_timestamp.clone(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            kind,
        }
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// Lets the types have their metadata.
macro_rules! objects {
    ($($type:ty),*) => {
        $(impl levada_discovery::Object for $type {
            fn metadata(&self) -> &levada_discovery::Metadata {
                &self.metadata
            }
        })*
    };
}

objects!(Ingress, GatewayClass, Gateway, HttpRoute, Service, Secret);
