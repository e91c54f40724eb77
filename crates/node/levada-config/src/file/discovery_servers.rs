//! `etcd` and `kubernetes` of a `[[discovery]]` table.

use levada_discovery::ServicePort;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OneOrMany;
use crate::text::{Address, Root};

/// Keys of etcd. See docs/operate/discovery.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["endpoints", "prefix"]))]
pub struct Etcd {
    /// The servers of etcd. When one fails, another is asked.
    #[schemars(extend("examples" = [["http://10.0.0.5:2379", "http://10.0.0.6:2379"]]))]
    pub endpoints: OneOrMany<Root>,
    /// The beginning of the keys. The rest of a key is the name of a member. A `/` at its end may be left out.
    #[schemars(length(min = 1, max = 512), extend("examples" = ["/levada/app/"]))]
    pub prefix: Option<String>,
    /// The user that reads the keys. The default is none.
    #[schemars(length(min = 1), extend("examples" = ["levada"]))]
    pub user: Option<String>,
    /// The user's password. Prefer `${NAME}` or `password_file` to a literal value.
    #[schemars(extend("writeOnly" = true, "examples" = ["${ETCD_PASSWORD}"]))]
    pub password: Option<String>,
    /// A file with the password; white space around it is ignored.
    #[schemars(extend("examples" = ["/etc/levada/etcd-password"]))]
    pub password_file: Option<String>,
    /// A PEM file with the authorities of the servers' certificates. The default are those of the system.
    #[schemars(extend("examples" = ["/etc/levada/etcd-ca.pem"]))]
    pub authority: Option<String>,
    /// A PEM file with this node's certificate, if the servers ask for one.
    #[schemars(extend("examples" = ["/etc/levada/etcd.pem"]))]
    pub certificate: Option<String>,
    /// A PEM file with its private key.
    #[schemars(extend("examples" = ["/etc/levada/etcd.key"]))]
    pub key: Option<String>,
    /// Writes a key of this node with a lease of ten seconds, which the node renews. For the source of
    /// `[peering]` only.
    pub register: bool,
    /// The address that `register` writes. The default is `peering.listen`.
    #[schemars(extend("examples" = ["10.0.0.1:7070"]))]
    pub advertise: Option<Address>,
}

/// The ready endpoints of a service in Kubernetes. See docs/operate/discovery.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["service"]))]
pub struct Kubernetes {
    /// The service.
    #[schemars(length(min = 1, max = 63), extend("examples" = ["app"]))]
    pub service: Option<String>,
    /// Its namespace. The default is that of the pod in which the node runs, or of the kubeconfig's context.
    #[schemars(length(min = 1, max = 63), extend("examples" = ["default"]))]
    pub namespace: Option<String>,
    /// The port of its pods: the name that the service gives it, or its number at the pods. It may be left out
    /// if there is one.
    #[schemars(extend("examples" = ["http", 8080]))]
    pub port: Option<ServicePort>,
    /// A kubeconfig file. The default is the service account of the pod in which the node runs.
    #[schemars(extend("examples" = ["/etc/levada/kubeconfig"]))]
    pub kubeconfig: Option<String>,
    /// The context in that file. The default is its current one.
    #[schemars(length(min = 1), extend("examples" = ["production"]))]
    pub context: Option<String>,
}
