//! The certificates of a node: ordered and renewed by ACME (RFC 8555), shared in the cluster, changed while
//! listeners show them, and watched until their end.
//!
//! ```text
//! settings      what is ordered where, and how names are proved
//! certificates  all of it at work: what listeners show, states for operators, messages of peers
//! keeper        when something is done about a certificate, and by which node
//! schedule      when to renew, when to try again, when to raise an alarm
//! order         one order, from the account to the chain
//! account       the account at the server
//! client        HTTPS to the server; what it says about its limits and the time
//! challenges    proofs that the server may ask any node for (HTTP-01, TLS-ALPN-01)
//! dns_command   the operator's command for proofs in DNS (DNS-01)
//! storage       accounts and certificates on disk
//! held          a certificate with its key; leaf: what it says of itself
//! cluster       messages between nodes, sealed where the connection is not encrypted
//! shared        certificates and account in the state of a fleet
//! resolver      the certificate of a handshake
//! examine       the server before the first order, for the checks of a machine
//! watched       alarms before certificates end, of files too
//! metrics       what is counted
//! ```
//!
//! No node decides for the others, and none keeps a state for them unless they are a fleet: every node comes to the same order of nodes for
//! a certificate, the first one that is well orders, and the others take from it whatever is newer than their own.

mod account;
mod certificates;
mod challenges;
mod client;
mod cluster;
mod dns_command;
mod examine;
mod failure;
mod held;
mod keeper;
mod leaf;
mod metrics;
mod order;
mod resolver;
mod schedule;
mod settings;
mod shared;
mod storage;
mod watched;

pub use certificates::{CertificateEvent, CertificateState, Certificates, end_in_words};
pub use cluster::{OtherNodes, PEER_PATH, PeerAnswer, is_message};
pub use examine::{DirectoryAnswer, ask_directory};
pub use metrics::CertificateMetrics;
pub use resolver::{FindCertificate, PROOF_PROTOCOL};
pub use settings::{AcmeSettings, DnsCommand, ExternalAccount, Proof, WantedCertificate};
pub use shared::{SharedAnswer, SharedLock, SharedStorage};
