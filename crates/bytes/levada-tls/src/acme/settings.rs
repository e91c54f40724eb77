//! The certificates that are ordered, the server, and how names are proved.

use std::{path::PathBuf, time::Duration};

use super::storage::Storage;

/// Certificates by ACME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeSettings {
    /// The URL of the server's directory.
    pub directory: String,
    /// A PEM file with the authorities of the server's own certificate; `None`: those of the system.
    pub authority: Option<PathBuf>,
    /// The address to which the server may write.
    pub email: Option<String>,
    /// Binds the account to one that exists outside of ACME.
    pub external_account: Option<ExternalAccount>,
    /// The profile of orders, where the server has several.
    pub profile: Option<String>,
    /// The directory of accounts and certificates.
    pub storage: PathBuf,
    /// The command for proofs in DNS.
    pub dns: Option<DnsCommand>,
    /// The certificates.
    pub certificates: Vec<WantedCertificate>,
}

impl AcmeSettings {
    /// The account at the server, with its key; `None` before the first order.
    pub fn account(&self) -> Option<String> {
        Storage::new(&self.storage).account(&self.directory).ok().flatten()
    }
}

/// A certificate that is to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCertificate {
    /// Its names, in lower case; the first one identifies it. There is one at least.
    pub names: Vec<String>,
    /// The ways to prove them; another one is tried after a failure. There is one at least.
    pub proofs: Vec<Proof>,
}

impl WantedCertificate {
    /// The name that identifies it.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}

/// How it is proved that a name belongs to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// A file at port 80 (RFC 8555 Sec. 8.3).
    Http01,
    /// A certificate at port 443 (RFC 8737).
    TlsAlpn01,
    /// A record in DNS (RFC 8555 Sec. 8.4).
    Dns01,
}

impl Proof {
    /// The name in RFCs and configurations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Dns01 => "dns-01",
        }
    }
}

/// The binding of an account (RFC 8555 Sec. 7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// The key's identifier.
    pub id: String,
    /// The key.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExternalAccount").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A command that makes and removes records in DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsCommand {
    /// The program and its first arguments.
    pub command: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
    /// How long to wait after it, until all name servers have the record.
    pub wait: Duration,
}
