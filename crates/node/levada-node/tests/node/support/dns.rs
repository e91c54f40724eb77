//! A real DNS server, Knot, with a zone that tests change.

use std::{
    fmt::Write as _,
    fs,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use tempfile::TempDir;

use super::{eventually, nodes::reserve};

/// The zone `test.`. Dropping it ends the process.
pub(crate) struct Dns {
    pub(crate) address: SocketAddr,
    directory: TempDir,
    serial: AtomicU32,
    process: Child,
}

impl Dns {
    /// Starts the server with these records, such as `app 1 A 127.0.0.1`. `None` if there is no Knot.
    pub(crate) async fn start(records: &[&str]) -> Option<Self> {
        if levada_skip::lacks("knotd", "knot") {
            return None;
        }
        let (directory, address) = (tempfile::tempdir().unwrap(), reserve(1)[0]);
        let serial = AtomicU32::new(1);
        write(directory.path(), &serial, records);
        let process = spawn(directory.path(), address);
        let dns = Self { address, directory, serial, process };
        eventually("the DNS server knows its zone", || dns.control("zone-status")).await;
        Some(dns)
    }

    /// Goes on with other records.
    pub(crate) fn change(&self, records: &[&str]) {
        write(self.directory.path(), &self.serial, records);
        assert!(self.control("zone-reload"), "knotc zone-reload");
    }

    /// Ends the server; its address refuses from now on.
    pub(crate) fn stop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts the server again.
    pub(crate) async fn revive(&mut self) {
        self.process = spawn(self.directory.path(), self.address);
        eventually("the DNS server knows its zone", || self.control("zone-status")).await;
    }

    fn control(&self, command: &str) -> bool {
        let socket = self.directory.path().join("knot.sock");
        let mut knotc = Command::new("knotc");
        knotc.arg("-b").arg("-s").arg(socket).args([command, "test."]);
        let answer = knotc.stdin(Stdio::null()).output().unwrap();
        answer.status.success() && !String::from_utf8_lossy(&answer.stdout).contains("serial: -")
    }
}

fn write(directory: &Path, serial: &AtomicU32, records: &[&str]) {
    let serial = serial.fetch_add(1, Relaxed);
    let mut zone = format!("$ORIGIN test.\n@ 1 SOA ns root {serial} 60 60 60 1\n@ 1 NS ns\n");
    writeln!(zone, "ns 1 A 127.0.0.1").unwrap();
    zone.extend(records.iter().flat_map(|record| [*record, "\n"]));
    let file = directory.join("test.zone");
    fs::write(file.with_extension("new"), zone).unwrap();
    fs::rename(file.with_extension("new"), file).unwrap();
}

fn spawn(directory: &Path, address: SocketAddr) -> Child {
    let own = directory.display();
    let (ip, port) = (address.ip(), address.port());
    let configuration = format!(
        "server:\n  rundir: \"{own}\"\n  listen: {ip}@{port}\n  udp-workers: 1\n  tcp-workers: 1\n  \
         background-workers: 1\n\
         database:\n  storage: \"{own}/db\"\n\
         zone:\n  - domain: test.\n    storage: \"{own}\"\n    file: test.zone\n    \
         journal-content: none\n    zonefile-sync: -1\n"
    );
    let file = directory.join("knot.conf");
    fs::write(&file, configuration).unwrap();
    let mut knotd = Command::new("knotd");
    knotd.arg("-c").arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    knotd.spawn().unwrap()
}

impl Drop for Dns {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
