//! Servers of etcd, as processes of this machine.

use std::{
    fs::File,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Request;
use levada_discovery::{ClientTls, Endpoint, EtcdSource, EtcdUser};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{TEST_TIMEOUT, certificates::Certificates, request, reserve};

/// Each server of etcd allocates 128 MB of disk at its start: as many run at once as a small disk has room for.
static ROOM: Semaphore = Semaphore::const_new(4);

/// A cluster of etcd. Its processes end when it is dropped.
pub(crate) struct EtcdServers {
    directory: TempDir,
    servers: Vec<Server>,
    arguments: Vec<String>,
    pub(crate) certificates: Option<Certificates>,
    /// The token of the tests' own calls.
    token: Option<String>,
    /// Given back when the directory is gone.
    _room: SemaphorePermit<'static>,
}

struct Server {
    client: SocketAddr,
    peer: SocketAddr,
    process: Option<Child>,
}

impl EtcdServers {
    /// Starts `count` servers with further arguments, and waits until they have a leader. `None` if there is no etcd.
    pub(crate) async fn start(count: usize, arguments: &[&str]) -> Option<Self> {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self::launch(count, arguments, None).await
    }

    /// Starts one server that asks for certificates.
    pub(crate) async fn start_with_certificates() -> Option<Self> {
        let certificates = Certificates::new(reserve(1)[0].ip(), "levada");
        let arguments = vec![
            format!("--cert-file={}", certificates.text("server.pem")),
            format!("--key-file={}", certificates.text("server.key")),
            format!("--trusted-ca-file={}", certificates.text("ca.pem")),
            "--client-cert-auth".to_owned(),
        ];
        Self::launch(1, arguments, Some(certificates)).await
    }

    async fn launch(
        count: usize,
        arguments: Vec<String>,
        certificates: Option<Certificates>,
    ) -> Option<Self> {
        if levada_skip::lacks("etcd", "etcd-server") {
            return None;
        }
        let room = ROOM.acquire_many(count as u32).await.unwrap();
        let addresses = reserve(2 * count);
        let servers = addresses.chunks(2).map(|pair| Server {
            client: pair[0],
            peer: pair[1],
            process: None,
        });
        let servers = servers.collect();
        let directory = tempfile::tempdir().unwrap();
        let mut cluster =
            Self { directory, servers, arguments, certificates, token: None, _room: room };
        cluster.start_all().await;
        Some(cluster)
    }

    /// Starts all servers that do not run, and waits until they have a leader.
    pub(crate) async fn start_all(&mut self) {
        for index in 0..self.servers.len() {
            self.spawn(index);
        }
        self.call("/v3/kv/range", &json!({ "key": encode("x") })).await;
    }

    /// Starts a server that does not run.
    pub(crate) fn spawn(&mut self, index: usize) {
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        let peers = self.servers.iter().enumerate();
        let peers = peers.map(|(index, server)| format!("s{index}=http://{}", server.peer));
        let peers = peers.collect::<Vec<_>>().join(",");
        let log = self.log(index);
        let server = &mut self.servers[index];
        if server.process.is_some() {
            return;
        }
        let (client, peer) =
            (format!("{scheme}://{}", server.client), format!("http://{}", server.peer));
        let process = Command::new("etcd")
            .arg(format!("--name=s{index}"))
            .arg(format!(
                "--data-dir={}",
                self.directory.path().join(format!("s{index}")).display()
            ))
            .args([
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
            ])
            .args([
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
            ])
            .arg(format!("--initial-cluster={peers}"))
            .arg("--unsafe-no-fsync")
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::options().create(true).append(true).open(log).unwrap())
            .spawn()
            .unwrap();
        server.process = Some(process);
    }

    /// Kills a server.
    pub(crate) fn kill(&mut self, index: usize) {
        if let Some(mut process) = self.servers[index].process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Lets a server hang, which keeps its connections.
    pub(crate) fn freeze(&self, index: usize) {
        let process = self.servers[index].process.as_ref().unwrap();
        kill_process(Pid::from_child(process), Signal::STOP).unwrap();
    }

    /// The server that leads.
    pub(crate) async fn leader(&self) -> usize {
        for index in 0..self.servers.len() {
            let status = self.try_call(index, "/v3/maintenance/status", &json!({})).await;
            let (_, status) = status.unwrap();
            if status["leader"] == status["header"]["member_id"] {
                return index;
            }
        }
        panic!("no server leads")
    }

    /// A source of the keys with a prefix.
    pub(crate) fn source(&self, prefix: &str) -> EtcdSource {
        let endpoints = (0..self.servers.len()).map(|index| self.endpoint(index)).collect();
        let tls = match &self.certificates {
            None => ClientTls::default(),
            Some(files) => ClientTls {
                authority: Some(files.path("ca.pem")),
                identity: Some((files.path("client.pem"), files.path("client.key"))),
            },
        };
        EtcdSource { endpoints, prefix: prefix.into(), user: None, tls }
    }

    fn endpoint(&self, index: usize) -> Endpoint {
        let address = self.servers[index].client;
        let (tls, host) = (self.certificates.is_some(), address.ip().to_string().into());
        Endpoint { tls, host, port: address.port() }
    }

    pub(crate) fn url(&self) -> String {
        self.endpoint(0).to_string()
    }

    pub(crate) async fn put(&self, key: &str, value: &str) {
        self.call("/v3/kv/put", &json!({ "key": encode(key), "value": encode(value) })).await;
    }

    pub(crate) async fn delete(&self, key: &str) {
        self.call("/v3/kv/deleterange", &json!({ "key": encode(key) })).await;
    }

    /// Writes a key with a lease that nobody renews.
    pub(crate) async fn put_leased(&self, key: &str, value: &str, seconds: u32) {
        let lease = self.call("/v3/lease/grant", &json!({ "TTL": seconds.to_string() })).await;
        let put = json!({ "key": encode(key), "value": encode(value), "lease": lease["ID"] });
        self.call("/v3/kv/put", &put).await;
    }

    /// A key's value and lease, if the key is there.
    pub(crate) async fn get(&self, key: &str) -> Option<(String, String)> {
        let found = self.call("/v3/kv/range", &json!({ "key": encode(key) })).await;
        let pair = found["kvs"].get(0)?;
        let value = BASE64_STANDARD.decode(pair["value"].as_str().unwrap()).unwrap();
        let lease = pair["lease"].as_str().unwrap_or_default().to_owned();
        Some((String::from_utf8(value).unwrap(), lease))
    }

    /// Ends a lease, as its expiry does.
    pub(crate) async fn revoke(&self, lease: &str) {
        self.call("/v3/lease/revoke", &json!({ "ID": lease })).await;
    }

    /// Forgets all revisions but the last.
    pub(crate) async fn compact(&self) {
        let found = self.call("/v3/kv/range", &json!({ "key": encode("x") })).await;
        let revision = &found["header"]["revision"];
        self.call("/v3/kv/compaction", &json!({ "revision": revision, "physical": true })).await;
    }

    /// Writes until etcd takes no more.
    pub(crate) async fn fill(&self) {
        let value = encode(&"x".repeat(1 << 20));
        for number in 0..1000 {
            let put = json!({ "key": encode(&format!("/filler/{number}")), "value": value });
            let (status, answer) = self.try_call(0, "/v3/kv/put", &put).await.unwrap();
            if !status.is_success() {
                assert!(answer.to_string().contains("database space exceeded"), "{answer}");
                return;
            }
        }
        panic!("etcd takes everything")
    }

    /// Lets nobody in without a password; the tests use the user `root`.
    pub(crate) async fn ask_for_passwords(&mut self) {
        let root = json!({ "name": "root", "password": "root secret" });
        self.call("/v3/auth/user/add", &root).await;
        self.call("/v3/auth/role/add", &json!({ "name": "root" })).await;
        self.call("/v3/auth/user/grant", &json!({ "user": "root", "role": "root" })).await;
        self.call("/v3/auth/enable", &json!({})).await;
        let granted = self.call("/v3/auth/authenticate", &root).await;
        self.token = Some(granted["token"].as_str().unwrap().to_owned());
    }

    /// Adds a user who may read and write the keys with a prefix.
    pub(crate) async fn add_user(&self, name: &str, password: &str, prefix: &str) -> EtcdUser {
        self.call("/v3/auth/user/add", &json!({ "name": name, "password": password })).await;
        self.call("/v3/auth/role/add", &json!({ "name": name })).await;
        let end = format!("{}0", prefix.strip_suffix('/').unwrap());
        let may =
            json!({ "permType": "READWRITE", "key": encode(prefix), "range_end": encode(&end) });
        self.call("/v3/auth/role/grant", &json!({ "name": name, "perm": may })).await;
        self.call("/v3/auth/user/grant", &json!({ "user": name, "role": name })).await;
        EtcdUser { name: name.into(), password: password.into() }
    }

    /// Calls any server until one succeeds.
    async fn call(&self, path: &str, body: &Value) -> Value {
        let end = Instant::now() + TEST_TIMEOUT;
        loop {
            let mut failures = Vec::new();
            for index in 0..self.servers.len() {
                match self.try_call(index, path, body).await {
                    Ok((status, answer)) if status.is_success() => return answer,
                    other => failures.push(other),
                }
            }
            assert!(Instant::now() < end, "{path}: {failures:?}\n{}", self.logs());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The end of what each server wrote.
    fn logs(&self) -> String {
        let logs = (0..self.servers.len()).map(|index| {
            let log = std::fs::read_to_string(self.log(index)).unwrap_or_default();
            let lines = log.lines().collect::<Vec<_>>();
            lines[lines.len().saturating_sub(20)..].join("\n")
        });
        logs.collect::<Vec<_>>().join("\n\n")
    }

    fn log(&self, index: usize) -> PathBuf {
        self.directory.path().join(format!("s{index}.log"))
    }

    async fn try_call(
        &self,
        index: usize,
        path: &str,
        body: &Value,
    ) -> Result<(http::StatusCode, Value), String> {
        let mut request = Request::post(path);
        if let Some(token) = &self.token {
            request = request.header("authorization", token);
        }
        let endpoint = self.endpoint(index);
        let sending = request::send(&endpoint, self.certificates.as_ref(), request, body);
        let sent = tokio::time::timeout(Duration::from_secs(10), sending).await;
        sent.unwrap_or_else(|_| Err("no answer".to_owned()))
    }
}

impl Drop for EtcdServers {
    fn drop(&mut self) {
        for index in 0..self.servers.len() {
            self.kill(index);
        }
    }
}

fn encode(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}
