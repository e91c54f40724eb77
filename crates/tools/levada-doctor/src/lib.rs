//! Checks that compare a machine with the needs of a node: what is there, what it means, and the remedy.
//!
//! ```text
//! finding       the result of one check
//! needs         what a node needs of its machine, by its settings
//! rights        the user and its capabilities
//! open_files    the limit of open files
//! memory        the memory, or that of the control group
//! clock         whether the clock is synchronised
//! sysctl        settings of the kernel's network
//! name_servers  whether name servers answer, and whether names resolve
//! ports         whether addresses are free, or who has them
//! kernel        splice, TCP_NOTSENT_LOWAT, and the parts of TCP handoff
//! origins       whether origins carry out TLS handshakes and speak the version of HTTP, if asked
//! certificates  whether certificates of files end soon, or have ended
//! acme          whether certificates can be ordered
//! disk          space and speed of the cache directory
//! ```
//!
//! Nothing is changed: sockets are bound without listening, programs are loaded without being attached,
//! and the one file that is written is a temporary one.

mod acme;
mod certificates;
mod clock;
mod disk;
mod finding;
mod kernel;
mod memory;
mod name_servers;
mod needs;
mod open_files;
mod origins;
mod ports;
mod rights;
mod sysctl;

pub use acme::AcmeNeeds;
pub use finding::{Finding, Level};
pub use needs::{NamedAddress, Needs};
pub use origins::check_origins;

/// Checks this machine. It takes a few seconds: every wait is bounded.
pub fn examine(needs: &Needs) -> Vec<Finding> {
    let mut findings = rights::check(needs);
    findings.push(open_files::check(needs.connections));
    findings.push(memory::check(needs));
    findings.push(clock::check());
    findings.extend(sysctl::check(needs));
    findings.extend(name_servers::check(&needs.names));
    findings.extend(needs.addresses.iter().map(ports::check));
    findings.extend(needs.socket.as_deref().map(ports::check_socket));
    findings.extend(kernel::check(needs));
    findings.extend(needs.certificates.iter().map(|file| certificates::check(file)));
    findings.extend(needs.acme.iter().flat_map(acme::check));
    findings.extend(needs.disk.as_ref().map(disk::check));
    findings
}
