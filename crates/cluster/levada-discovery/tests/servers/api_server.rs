//! An API server of Kubernetes with its etcd, as processes of this machine.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use http::{Method, Request, StatusCode};
use levada_discovery::{ClusterAccess, Endpoint, KubernetesSource};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::Notify};

use crate::{
    TEST_TIMEOUT, certificates::Certificates, etcd_servers::EtcdServers, request, reserve,
};

/// An API server. Its processes end when it is dropped.
pub(crate) struct ApiServer {
    program: OsString,
    pub(crate) etcd: EtcdServers,
    directory: TempDir,
    certificates: Certificates,
    address: SocketAddr,
    process: Option<Child>,
}

/// The tokens of the file that the server is started with: may do everything, may do nothing.
const TOKENS: &str = "all,admin,1,\"system:masters\"\nnothing,nobody,2\n";

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

impl ApiServer {
    /// Starts it, unless this machine has none.
    pub(crate) async fn start() -> Option<Self> {
        let program = program()?;
        let address = reserve(1)[0];
        let certificates = Certificates::new(address.ip(), "admin");
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("tokens.csv"), TOKENS).unwrap();
        let etcd = EtcdServers::start(1, &[]).await?;
        let mut server = Self { program, etcd, directory, certificates, address, process: None };
        server.start_again().await;
        Some(server)
    }

    /// Starts it when it does not run, and waits until it answers.
    pub(crate) async fn start_again(&mut self) {
        let path = |name: &str| self.directory.path().join(name).display().to_string();
        let log = File::options().create(true).append(true).open(path("log")).unwrap();
        let process = Command::new(&self.program)
            .arg(format!("--etcd-servers={}", self.etcd.url()))
            .arg(format!("--bind-address={}", self.address.ip()))
            .arg(format!("--secure-port={}", self.address.port()))
            .arg(format!("--tls-cert-file={}", self.certificates.text("server.pem")))
            .arg(format!("--tls-private-key-file={}", self.certificates.text("server.key")))
            .arg(format!("--client-ca-file={}", self.certificates.text("ca.pem")))
            .arg(format!("--token-auth-file={}", path("tokens.csv")))
            .arg(format!("--service-account-key-file={}", self.certificates.text("server.pem")))
            .arg(format!(
                "--service-account-signing-key-file={}",
                self.certificates.text("server.key")
            ))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg("--service-cluster-ip-range=10.0.0.0/24")
            .arg("--authorization-mode=RBAC")
            .arg("--disable-admission-plugins=ServiceAccount")
            .arg("--endpoint-reconciler-type=none")
            .env("GOMAXPROCS", "2")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        self.process = Some(process);
        let end = Instant::now() + 2 * TEST_TIMEOUT;
        loop {
            match self.try_call(Method::GET, "/readyz", &Value::Null).await {
                Ok((StatusCode::OK, _)) => return,
                other => assert!(Instant::now() < end, "{other:?}, {}", self.log()),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Kills it; etcd goes on.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// A source of a service that is reached by a kubeconfig file with a token.
    pub(crate) fn source(&self, service: &str) -> KubernetesSource {
        let user = "    token: all\n";
        self.source_by(service, user, self.address)
    }

    /// The same, by other keys of the user, and perhaps by a relay.
    pub(crate) fn source_by(
        &self,
        service: &str,
        user: &str,
        server: SocketAddr,
    ) -> KubernetesSource {
        KubernetesSource {
            service: service.into(),
            namespace: None,
            port: None,
            access: ClusterAccess::Kubeconfig {
                path: self.kubeconfig(user, server),
                context: None,
            },
        }
    }

    fn kubeconfig(&self, user: &str, server: SocketAddr) -> PathBuf {
        let authority = self.certificates.text("ca.pem");
        let text = format!(
            "apiVersion: v1\nkind: Config\npreferences: {{}}\ncurrent-context: here\n\
             contexts:\n- name: here\n  context:\n    cluster: c\n    user: u\n\
             clusters:\n- name: c\n  cluster:\n    server: https://{server}\n    certificate-authority: {authority}\n\
             users:\n- name: u\n  user:\n{user}"
        );
        let path = tempfile::NamedTempFile::new_in(self.directory.path()).unwrap();
        fs::write(path.path(), text).unwrap();
        path.keep().unwrap().1
    }

    /// The keys of a user with the client's certificate.
    pub(crate) fn user_with_certificate(&self) -> String {
        let (certificate, key) =
            (self.certificates.text("client.pem"), self.certificates.text("client.key"));
        format!("    client-certificate: {certificate}\n    client-key: {key}\n")
    }

    /// Writes a slice of a service: each endpoint an address and whether it is ready.
    pub(crate) async fn put_slice(&self, service: &str, name: &str, endpoints: &[(&str, bool)]) {
        let list: Vec<Value> = endpoints
            .iter()
            .map(|(ip, ready)| {
                let pod = format!("pod-{}", ip.rsplit('.').next().unwrap());
                json!({
                    "addresses": [ip],
                    "conditions": { "ready": ready },
                    "targetRef": { "kind": "Pod", "name": pod, "namespace": "default" },
                })
            })
            .collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": { "name": name, "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4",
            "endpoints": list,
            "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
        });
        let path = format!("{SLICES}/{name}");
        let (status, answer) = self.call(Method::PUT, &path, &slice).await;
        if status == StatusCode::NOT_FOUND {
            let (status, answer) = self.call(Method::POST, SLICES, &slice).await;
            assert!(status.is_success(), "{answer}");
        } else {
            assert!(status.is_success(), "{answer}");
        }
    }

    pub(crate) async fn delete_slice(&self, name: &str) {
        let (status, answer) =
            self.call(Method::DELETE, &format!("{SLICES}/{name}"), &Value::Null).await;
        assert!(status.is_success(), "{answer}");
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        self.try_call(method, path, body).await.unwrap()
    }

    async fn try_call(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<(StatusCode, Value), String> {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("authorization", "Bearer all");
        let host = self.address.ip().to_string().into();
        let endpoint = Endpoint { tls: true, host, port: self.address.port() };
        request::send(&endpoint, Some(&self.certificates), request, body).await
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// A relay before the server, which resets connections on demand.
    pub(crate) async fn relay(&self) -> Relay {
        let address = reserve(1)[0];
        let listener = TcpListener::bind(address).await.unwrap();
        let server = self.address;
        let reset = Arc::new(Notify::new());
        let told = reset.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let told = told.clone();
                tokio::spawn(async move {
                    let mut server = tokio::net::TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        () = told.notified() => client.set_zero_linger().unwrap(),
                    }
                });
            }
        });
        Relay { address, reset }
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A relay before an API server.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    reset: Arc<Notify>,
}

impl Relay {
    /// Resets all connections.
    pub(crate) fn reset(&self) {
        self.reset.notify_waiters();
    }
}

/// The program, or a sentence that says what is left out.
fn program() -> Option<OsString> {
    if let Some(named) = env::var_os("LEVADA_KUBE_APISERVER") {
        return Some(named);
    }
    let paths = env::var_os("PATH").unwrap_or_default();
    let found =
        env::split_paths(&paths).map(|path| path.join("kube-apiserver")).find(|p| p.exists());
    if found.is_none() {
        levada_skip::skipped(
            "kube-apiserver is missing: put one on the PATH, or name it with LEVADA_KUBE_APISERVER",
        );
    }
    found.map(OsString::from)
}
