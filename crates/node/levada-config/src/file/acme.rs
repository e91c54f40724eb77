//! `[acme]`: certificates that the node orders and renews by itself.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::Time;

/// Certificates by ACME for the hosts of all sites, shown by listeners with `acme = true`:
/// docs/operate/certificates.md.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["agree"]))]
pub struct Acme {
    /// An address to which the authority may write.
    #[schemars(length(min = 1), extend("examples" = ["ops@example.com"]))]
    pub email: Option<String>,
    /// Whether you agree to the terms of service of the authority. It must be `true`.
    pub agree: bool,
    /// The URL of the authority's directory. The default is that of Let's Encrypt.
    #[schemars(length(min = 1), extend("examples" = ["https://acme-staging-v02.api.letsencrypt.org/directory"]))]
    pub directory: String,
    /// A PEM file with the authorities of the directory's own certificate. The default are those of the system.
    #[schemars(extend("examples" = ["/etc/levada/private-ca.pem"]))]
    pub authority: Option<String>,
    /// How names are proved.
    pub challenge: AcmeChallenge,
    /// The directory of accounts and certificates. The node must be able to write there.
    #[schemars(length(min = 1))]
    pub storage: String,
    /// The command that makes and removes records in DNS, for `dns-01`: a program and its arguments.
    #[schemars(length(min = 1), extend("examples" = [["/usr/local/bin/levada-dns"]]))]
    pub dns_command: Option<Vec<String>>,
    /// How long the command may take.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "10m"))]
    pub dns_timeout: Time,
    /// How long to wait after it, until all name servers have the record.
    #[schemars(extend("x-maximum" = "10m"))]
    pub dns_wait: Time,
    /// The profile of orders, where the authority has several.
    #[schemars(length(min = 1), extend("examples" = ["shortlived"]))]
    pub profile: Option<String>,
    /// The account that you have at the authority already (external account binding), where it needs one.
    pub external_account: Option<AcmeExternalAccount>,
}

impl Default for Acme {
    fn default() -> Self {
        Self {
            email: None,
            agree: false,
            directory: "https://acme-v02.api.letsencrypt.org/directory".to_owned(),
            authority: None,
            challenge: AcmeChallenge::Auto,
            storage: "/var/lib/levada/acme".to_owned(),
            dns_command: None,
            dns_timeout: Time(Duration::from_secs(120)),
            dns_wait: Time(Duration::from_secs(30)),
            profile: None,
            external_account: None,
        }
    }
}

/// An account that exists outside of ACME.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["id"]))]
pub struct AcmeExternalAccount {
    /// The identifier of its key.
    #[schemars(length(min = 1), extend("examples" = ["kid-1"]))]
    pub id: Option<String>,
    /// The key, in base64url. Prefer `${NAME}` or `key_file` to a literal value.
    #[schemars(extend("writeOnly" = true, "examples" = ["${EAB_KEY}"]))]
    pub key: Option<String>,
    /// A file with the key; white space around it is ignored.
    #[schemars(extend("examples" = ["/etc/levada/eab-key"]))]
    pub key_file: Option<String>,
}

/// A way to prove names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AcmeChallenge {
    /// The ways that the listeners allow, one after the other: `http-01`, then `tls-alpn-01`, then `dns-01`.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// A file at port 80.
    #[serde(rename = "http-01")]
    Http01,
    /// A certificate at port 443.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// A record in DNS: the only way for names with a wildcard.
    #[serde(rename = "dns-01")]
    Dns01,
}

/// The certificate of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum SiteAcme {
    /// None is ordered.
    #[serde(rename = "off")]
    Off,
    /// See `acme.challenge`.
    #[serde(rename = "auto")]
    Auto,
    /// A file at port 80.
    #[serde(rename = "http-01")]
    Http01,
    /// A certificate at port 443.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// A record in DNS.
    #[serde(rename = "dns-01")]
    Dns01,
}

impl SiteAcme {
    /// How names are proved; `None`: not at all.
    pub fn challenge(self) -> Option<AcmeChallenge> {
        match self {
            Self::Off => None,
            Self::Auto => Some(AcmeChallenge::Auto),
            Self::Http01 => Some(AcmeChallenge::Http01),
            Self::TlsAlpn01 => Some(AcmeChallenge::TlsAlpn01),
            Self::Dns01 => Some(AcmeChallenge::Dns01),
        }
    }
}
