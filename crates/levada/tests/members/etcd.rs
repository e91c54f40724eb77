//! A server of etcd, as a process of this machine.

use std::{
    fs,
    net::SocketAddr,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{Process, reserve, wait};

/// A server of etcd.
pub(crate) struct Etcd {
    directory: TempDir,
    pub(crate) client: SocketAddr,
    peer: SocketAddr,
    process: Option<Process>,
}

impl Etcd {
    /// `None` if there is no etcd.
    pub(crate) fn start() -> Option<Self> {
        if levada_skip::lacks("etcd", "etcd-server") || levada_skip::lacks("etcdctl", "etcd-client")
        {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let (client, peer) = (reserve(), reserve());
        let mut etcd = Self { directory, client, peer, process: None };
        etcd.spawn();
        Some(etcd)
    }

    /// Starts it, and waits until it answers.
    pub(crate) fn spawn(&mut self) {
        let (client, peer) = (format!("http://{}", self.client), format!("http://{}", self.peer));
        let process = Command::new("etcd")
            .args(["--name=s", "--unsafe-no-fsync"])
            .arg(format!("--data-dir={}", self.directory.path().join("data").display()))
            .args([
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
            ])
            .args([
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
            ])
            .arg(format!("--initial-cluster=s={peer}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(Process(process));
        wait("etcd", || self.try_control(&["get", "x"]));
    }

    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Loses everything. It is not running.
    pub(crate) fn wipe(&self) {
        fs::remove_dir_all(self.directory.path().join("data")).unwrap();
    }

    /// The revision at which a key was created, and its lease; `None` if there is no such key.
    pub(crate) fn find(&self, key: &str) -> Option<(i64, i64)> {
        let output = self.command(&["get", key, "-w", "json"]).output().unwrap();
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let pair = &found["kvs"][0];
        Some((pair["create_revision"].as_i64()?, pair["lease"].as_i64()?))
    }

    /// All keys with their values, as far as they are text.
    pub(crate) fn all(&self) -> String {
        let output = self.command(&["get", "", "--prefix"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Lets `etcdctl` do something.
    pub(crate) fn control(&self, arguments: &[&str]) {
        assert!(self.try_control(arguments), "{arguments:?}");
    }

    fn try_control(&self, arguments: &[&str]) -> bool {
        let mut command = self.command(arguments);
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.unwrap().success()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", self.client)).args(arguments);
        command
    }
}
