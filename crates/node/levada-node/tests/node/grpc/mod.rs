//! Clients and servers of gRPC, those of Python's grpcio, with a node between them.

use std::{
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use levada_config::{ServerProtocols, Settings};

use crate::support::{nodes::*, *};

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/grpc/call.py")
}

/// Whether Python has grpcio. A test without it says so.
fn is_there() -> bool {
    !levada_skip::lacks_module("grpc", "python3-grpcio")
}

/// A server of gRPC. Dropping it ends the process.
struct GrpcServer {
    address: SocketAddr,
    process: Child,
}

impl GrpcServer {
    fn start() -> Self {
        let mut process = Command::new(levada_skip::python("grpc").unwrap())
            .arg(program())
            .arg("server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let address = format!("127.0.0.1:{}", port.trim()).parse().unwrap();
        Self { address, process }
    }
}

impl Drop for GrpcServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The output of a client that ends well.
async fn client(arguments: &[&str]) -> String {
    let mut command = Command::new(levada_skip::python("grpc").unwrap());
    command.arg(program()).args(arguments);
    let run = tokio::task::spawn_blocking(move || command.output().unwrap());
    let Output { status, stdout, stderr } = run.await.unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn before(server: SocketAddr) -> Settings {
    let mut settings = single(&[server]);
    settings.listeners[0].h2c = true;
    settings.sites[0].servers.protocols = ServerProtocols { h2: true, states_client: None };
    settings
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_every_kind_pass() {
    if !is_there() {
        return;
    }
    let server = GrpcServer::start();
    let node = start(before(server.address)).await;
    let at = node.addresses.clients[0].to_string();
    assert_eq!(client(&["client", &at]).await, "all is well\n");
    settled(&node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_every_kind_pass_over_tls() {
    if !is_there() {
        return;
    }
    let (server, authority) = (GrpcServer::start(), secure::Authority::new());
    let mut settings = before(server.address);
    settings.listeners[0].h2c = false;
    settings.listeners[0].tls = vec![authority.issue(&[HOST])];
    let node = start(settings).await;
    let at = node.addresses.clients[0].to_string();
    let authority = authority.path();
    assert_eq!(client(&["client", &at, authority.to_str().unwrap()]).await, "all is well\n");
    settled(&node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_of_the_node_has_a_status_of_grpc() {
    if !is_there() {
        return;
    }
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let node = start(before(nobody)).await;
    let at = node.addresses.clients[0].to_string();
    let details = client(&["refused", &at, "UNAVAILABLE"]).await;
    assert!(details.contains("the server refuses connections"), "{details}");
    settled(&node).await;
}
