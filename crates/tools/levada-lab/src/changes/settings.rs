//! The configuration of the nodes, as an operator would write and change it, and their certificates.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use levada_client::command::node::Addresses;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The settings that all nodes of a cluster have in common.
#[derive(Clone, Debug)]
pub(super) struct ClusterSettings {
    pub(super) origin: SocketAddr,
    pub(super) token: String,
    /// The nodes that are peers of each other.
    pub(super) peers: Vec<usize>,
    /// `limits.capacity`, `limits.connections` and `limits.retry_budget`.
    pub(super) limits: (u32, u32, f64),
    /// Minutes of `default_ttl`.
    pub(super) ttl: u32,
    pub(super) policy: &'static str,
    /// The host of a second site.
    pub(super) second: Option<String>,
    /// Whether each node has one more listener.
    pub(super) extra: bool,
}

impl ClusterSettings {
    pub(super) fn new(origin: SocketAddr, token: String, nodes: usize) -> Self {
        Self {
            origin,
            token,
            peers: (0..nodes).collect(),
            limits: (3072, 10_000, 0.2),
            ttl: 60,
            policy: "adaptive",
            second: None,
            extra: false,
        }
    }

    /// The file of one node, in the directory of its certificate.
    pub(super) fn file(&self, own: &NodePlace, all: &[NodePlace]) -> String {
        let NodePlace { addresses, https, extra, directory, name } = own;
        let (capacity, connections, budget) = self.limits;
        let directory = directory.display();
        let mut text = format!(
            r#"name = "{name}"

[runtime]
mode = "shared"
threads = 1

[[listen]]
address = "{http}"

[[listen]]
address = "{https}"

[[listen.tls]]
certificate = "{directory}/site.pem"
key = "{directory}/site.key"

[admin]
listen = "{admin}"
token = "{token}"

[log]
access = "off"

[peering]
listen = "{peers}"
secret = "{token}"

[peering.health_check]
interval = "250ms"
timeout = "1s"

[limits]
capacity = {capacity}
connections = {connections}
retry_budget = {budget}

[cache]
memory = "32MiB"

[cache.disk]
path = "{directory}/cache"
size = "256MiB"

[policy]
name = "{policy}"
"#,
            http = addresses.clients,
            admin = addresses.admin,
            peers = addresses.peers,
            token = self.token,
            policy = self.policy,
        );
        if self.extra {
            let _ = write!(text, "\n[[listen]]\naddress = \"{extra}\"\n");
        }
        for host in [Some(HOST_NAME), self.second.as_deref()].into_iter().flatten() {
            text += &site_text(host, self.origin, self.ttl);
        }
        for at in &self.peers {
            let NodePlace { name, addresses, .. } = &all[*at];
            let _ =
                write!(text, "\n[[peer]]\nname = \"{name}\"\naddress = \"{}\"\n", addresses.peers);
        }
        text
    }
}

/// A site, whose objects count for some minutes.
pub(super) fn site_text(host: &str, origin: SocketAddr, ttl: u32) -> String {
    format!(
        "\n[[site]]\nhosts = \"{host}\"\norigin = \"http://{origin}\"\ndefault_ttl = \"{ttl}m\"\n\
         [site.large]\nenabled = true\nthreshold = \"2MiB\"\n"
    )
}

/// The place of one node.
#[derive(Clone, Debug)]
pub(super) struct NodePlace {
    pub(super) name: String,
    pub(super) addresses: Addresses,
    pub(super) https: SocketAddr,
    /// Where one more listener can be.
    pub(super) extra: SocketAddr,
    pub(super) directory: PathBuf,
}

/// The authority of the certificates.
pub(super) struct LabAuthority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) certificate: CertificateDer<'static>,
}

impl LabAuthority {
    /// # Errors
    /// If no key can be made.
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self { issuer: Issuer::new(params, key), certificate })
    }

    /// Puts a new certificate and its key into a node's directory, in the place of the former ones.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn renew(&self, directory: &Path) -> anyhow::Result<CertificateDer<'static>> {
        let key = KeyPair::generate()?;
        let issued = CertificateParams::new(vec![HOST_NAME.to_owned()])?;
        let issued = issued.signed_by(&key, &self.issuer)?;
        std::fs::write(directory.join("site.pem"), issued.pem())?;
        std::fs::write(directory.join("site.key"), key.serialize_pem())?;
        Ok(issued.der().clone())
    }
}

/// The host of the site.
pub(super) const HOST_NAME: &str = "levada.test";
