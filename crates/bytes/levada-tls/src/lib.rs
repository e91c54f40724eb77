//! TLS of a node, towards clients and towards origins.
//!
//! ```text
//! pem                  certificates, keys, authorities and revocation lists from files, and errors that name the file
//! handshake            versions, cipher suites and curves by their names
//! door                 accepts TLS connections of clients, with the rules of the site that they name
//! client_certificates  certificates of clients: who must show one, and what is wrong with one
//! client_fields        the header fields by which an origin gets to know a client's certificate
//! tickets              session tickets that all nodes of a cluster understand, and their rotation
//! by_name              certificates by the names that clients ask for
//! ocsp                 answers about revocation that are stapled to a certificate
//! origin               trust in origins: authorities, names, pinned keys
//! peer                 both sides between nodes
//! secret               secrets of the cluster: compared, and signed with
//! acme                 certificates that are ordered and renewed by themselves
//! probe                one handshake with an origin, to find out what is wrong with it
//! fault                why a handshake failed, in words
//! metrics              what is counted
//! ```
//!
//! The crate knows neither sites nor configuration files: it is handed settings.

pub mod acme;
pub mod by_name;
pub mod client_certificates;
pub mod client_fields;
pub mod door;
pub mod fault;
pub mod handshake;
pub mod metrics;
pub mod ocsp;
pub mod origin;
pub mod peer;
pub mod pem;
pub mod probe;
pub mod secret;
pub mod tickets;
