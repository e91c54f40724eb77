//! Nodes that order their certificates.

use std::{
    fs::{self, File},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    client::{Secure, get, post},
    pebble::{HTTP, Process, TLS},
    wait,
};

/// The plan of a node: its directory stays when its process ends.
pub(crate) struct Node {
    pub(crate) directory: TempDir,
    pub(crate) at: IpAddr,
    process: Option<Process>,
    /// Variables that change the clock.
    clock: Vec<(String, String)>,
}

impl Node {
    /// A node without listeners of peers.
    pub(crate) fn alone(at: IpAddr, acme: &str, sites: &[&str]) -> Self {
        Self::new("a", at, acme, sites, "")
    }

    pub(crate) fn new(name: &str, at: IpAddr, acme: &str, sites: &[&str], more: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("index.html"), "hello").unwrap();
        let node = Self { directory, at, process: None, clock: Vec::new() };
        node.configure(name, acme, sites, more);
        node
    }

    pub(crate) fn configure(&self, name: &str, acme: &str, sites: &[&str], more: &str) {
        let Self { at, directory, .. } = self;
        let mut text = format!(
            "name = \"{name}\"\n[[listen]]\naddress = \"{at}:{HTTP}\"\n\
             [[listen]]\naddress = \"{at}:{TLS}\"\nacme = true\n\
             [admin]\nlisten = \"{at}:9180\"\n{acme}\n{more}\n"
        );
        for site in sites {
            text += &format!("[[site]]\nfiles = \"{}\"\n{site}\n", directory.path().display());
        }
        fs::write(self.file("levada.toml"), text).unwrap();
    }

    /// Nodes of one cluster, each at an address of its own.
    pub(crate) fn cluster(at: &[IpAddr], acme: &str, sites: &[&str]) -> Vec<Self> {
        let names = ["a", "b", "c"];
        let list: String = (names.iter().zip(at))
            .map(|(name, at)| format!("[[peer]]\nname = \"{name}\"\naddress = \"{at}:7070\"\n"))
            .collect();
        let node = |(name, at): (&&str, &IpAddr)| {
            let more = format!(
                "[peering]\nlisten = \"{at}:7070\"\nsecret = \"a secret of some length\"\n{list}"
            );
            Self::new(name, *at, acme, sites, &more)
        };
        names.iter().zip(at).map(node).collect()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts it, and waits until it serves.
    pub(crate) fn start(&mut self) {
        self.process = None;
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        command.args(["run", "-c"]).arg(self.file("levada.toml"));
        command.envs(self.clock.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let log = File::options().create(true).append(true).open(self.file("log")).unwrap();
        self.process = Some(Process(command.stderr(log).spawn().unwrap()));
        wait("the node serves", || self.plain("/").is_ok_and(|(status, _)| status != 503));
    }

    /// Starts it with a clock that is wrong.
    pub(crate) fn start_at(&mut self, time: &str) {
        let variables = Command::new("faketime").args(["-f", time, "env"]).output().unwrap().stdout;
        let variables = String::from_utf8(variables).unwrap();
        let variables = variables.lines().filter_map(|line| line.split_once('='));
        // Not run by the program itself, which would leave the node behind when it is killed.
        self.clock = variables
            .filter(|(name, _)| matches!(*name, "LD_PRELOAD" | "FAKETIME"))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        self.start();
    }

    pub(crate) fn stop(&mut self) {
        self.process = None;
    }

    pub(crate) fn reload(&self) {
        let (status, answer) = post(SocketAddr::from((self.at, 9180)), "/reload", "{}");
        assert_eq!(status, 200, "{answer}");
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    pub(crate) fn plain(&self, path: &str) -> std::io::Result<(u16, String)> {
        get(SocketAddr::from((self.at, HTTP)), "localhost", path)
    }

    pub(crate) fn secure(&self, name: &str) -> std::io::Result<Secure> {
        Secure::connect(SocketAddr::from((self.at, TLS)), name)
    }

    /// The certificate of a name, when it is there.
    pub(crate) fn certificate(&self, name: &str) -> Vec<u8> {
        let mut found = None;
        wait(&format!("a certificate of {name}"), || {
            found = self.secure(name).ok();
            found.is_some()
        });
        found.unwrap().certificate
    }

    /// Waits for the file of a certificate: handshakes show it before it is written.
    pub(crate) fn wait_until_stored(&self, name: &str) {
        let file = self.file("acme/certificates").join(format!("{name}.pem"));
        wait("the certificate is stored", || {
            fs::read_to_string(&file).is_ok_and(|text| text.contains("-----BEGIN CERT"))
        });
    }

    pub(crate) fn admin(&self, path: &str) -> Value {
        let (_, body) = get(SocketAddr::from((self.at, 9180)), "localhost", path).unwrap();
        serde_json::from_str(&body).unwrap()
    }

    /// The certificates of `/status`.
    pub(crate) fn states(&self) -> Vec<Value> {
        self.admin("/status")["certificates"].as_array().unwrap().clone()
    }

    /// The texts of the events of a kind.
    pub(crate) fn events(&self, kind: &str) -> Vec<String> {
        let events = self.admin("/events");
        let of_kind = events.as_array().unwrap().iter().filter(|event| event["kind"] == kind);
        of_kind.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
    }

    /// A metric, 0 if it is not shown.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let (_, text) = get(SocketAddr::from((self.at, 9180)), "localhost", "/metrics").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0.0, |value| value.trim().parse().unwrap())
    }

    pub(crate) fn orders(&self) -> f64 {
        self.metric("levada_acme_orders_total{result=\"issued\"}")
    }
}
