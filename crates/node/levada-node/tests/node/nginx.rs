//! A node before real nginx servers, where nginx is installed.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use levada_access::signed::{Digest, Link, RequestUrl, SignedUrls};
use levada_config::{HealthCheck, ProxyVersion};

use crate::{
    support::{nodes::*, *},
    switch::{by, server, server_of, switch, switching},
};

/// An nginx on a port of its own, with its files below one directory. Dropping it ends the process.
struct Nginx {
    address: SocketAddr,
    process: Child,
}

impl Nginx {
    /// Starts an nginx that serves `files`, and sends its name in a field of every answer.
    async fn start(directory: &Path, name: &str, files: &Path) -> Self {
        Self::start_with(directory, name, files, "").await
    }

    /// `listen`: what follows the address that it listens at.
    async fn start_with(directory: &Path, name: &str, files: &Path, listen: &str) -> Self {
        let own = directory.join(name);
        fs::create_dir(&own).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};", own.display()))
            .concat();
        let configuration = format!(
            "daemon off; master_process off; pid {own}/pid; error_log {own}/error.log;
            events {{ worker_connections 64; }}
            http {{
                access_log off; {temporary}
                server {{
                    listen {address}{listen}; root {files}; add_header X-By {name} always;
                    add_header X-Client $proxy_protocol_addr always;
                    location /gone {{ return 410; }}
                }}
            }}",
            own = own.display(),
            files = files.display(),
        );
        let path = own.join("nginx.conf");
        fs::write(&path, configuration).unwrap();
        let process = Command::new("nginx")
            .args(["-e", &format!("{}/error.log", own.display()), "-c"])
            .arg(&path)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("nginx listens", || TcpStream::connect(address).is_ok()).await;
        Self { address, process }
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.kill();
    }
}

fn nginx_is_here() -> bool {
    !levada_skip::lacks("nginx", "nginx-light")
}

#[tokio::test]
async fn files_of_nginx_are_switched_whole_in_part_and_not_again() {
    if !nginx_is_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let files = directory.path().join("files");
    fs::create_dir(&files).unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    fs::write(files.join("large"), &large).unwrap();
    for n in 0..20 {
        fs::write(files.join(n.to_string()), format!("file {n}")).unwrap();
    }
    let mut servers = Vec::new();
    for name in ["a", "b"] {
        servers.push(Nginx::start(directory.path(), name, &files).await);
    }
    let mut settings = switching("lard/r", &[]);
    switch(&mut settings).servers =
        ["a", "b"].iter().zip(&servers).map(|(name, nginx)| server(name, nginx.address)).collect();
    settings.sites[0].servers.health = HealthCheck { eject_after: 1, ..watched() };
    let node = start(settings).await;
    let at = node.addresses.clients[0];

    for n in 0..20 {
        let answer = get(at, &format!("/{n}")).await;
        assert_eq!((answer.status, answer.text()), (200, format!("file {n}")));
        assert_eq!(by(&answer), answer.field("x-by"), "what is said is where it came from");
        assert_eq!(server_of(at, &format!("/{n}")).await, by(&answer));
    }
    let whole = get(at, "/large").await;
    assert!(whole.body == large);
    let part = get_with(at, "/large", &[("Range", "bytes=1000000-1999999")]).await;
    assert!(part.status == 206 && part.body == large[1_000_000..2_000_000]);
    let known = [("If-None-Match", &*whole.field("etag"))];
    assert_eq!(get_with(at, "/large", &known).await.status, 304);
    assert_eq!(get(at, "/gone").await.status, 410);
    assert_eq!(get(at, "/absent").await.status, 404);

    servers[0].kill();
    for n in 0..20 {
        let answer = get(at, &format!("/{n}")).await;
        assert_eq!((answer.status, &*by(&answer)), (200, "b"), "nobody sees that one is dead");
    }
    settled(&node).await;
}

#[tokio::test]
async fn nginx_learns_the_client_by_the_proxy_protocol() {
    if !nginx_is_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "a file").unwrap();
    let listen = " proxy_protocol";
    let nginx = Nginx::start_with(directory.path(), "a", directory.path(), listen).await;
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let mut settings = single(&[nginx.address]);
        settings.sites[0].servers.protocols.states_client = Some(version);
        settings.sites[0].handling.cache = false;
        let node = start(settings).await;
        for client in [7, 8, 7] {
            let mut wire = Wire::over(connect_from(client, node.addresses.clients[0]).await);
            wire.send(head_of("GET", "/file", &[])).await;
            let answer = wire.answer().await;
            assert_eq!((answer.status, answer.text()), (200, "a file".to_owned()));
            assert_eq!(answer.field("x-client"), format!("127.0.0.{client}"), "{version:?}");
        }
        settled(&node).await;
    }
}

#[tokio::test]
async fn links_are_valid_at_the_node_as_they_are_at_nginx() {
    if !nginx_is_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let files = directory.path().join("files");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("a b"), "x").unwrap();
    let checks = "; secure_link $arg_md5,$arg_expires;
        secure_link_md5 \"$secure_link_expires$uri$remote_addr secret\";
        if ($secure_link = \"\") { return 403; }
        if ($secure_link = \"0\") { return 403; }
        set $checked 1";
    let nginx = Nginx::start_with(directory.path(), "a", &files, checks).await;
    let link = Link {
        digest: Digest::Md5,
        message: "{expires}{path}{client} {secret}".parse().unwrap(),
        secrets: vec!["secret".to_owned()],
        signature: "md5".to_owned(),
        expires: "expires".to_owned(),
    };
    let urls = SignedUrls::Link(link);
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.sites[0].handling.access.signed = Some(Arc::new(urls.clone()));
    let node = start(settings).await;
    let url = RequestUrl { scheme: "http", host: HOST, target: "/a%20b?x=1" };
    let sign = |client: [u8; 4], end| urls.sign(&url, Some(client.into()), end).unwrap();
    let own = sign([127, 0, 0, 1], 4_000_000_000);
    for (target, status) in [
        (own.clone(), 200),
        (own.replace("a%20b", "a%20%62"), 200),
        (own.replace("x=1", "x=2"), 200),
        (own.replace("a%20b", "c"), 403),
        (own.replace("=4", "=5"), 403),
        (own.replace("expires", "end"), 403),
        (own.replace("md5", "md4"), 403),
        (own.clone() + "==", 200),
        (sign([127, 0, 0, 2], 4_000_000_000), 403),
        (sign([127, 0, 0, 1], 1_000_000_000), 403),
        ("/a%20b".to_owned(), 403),
    ] {
        let there = get(nginx.address, &target).await.status;
        let here = get(node.addresses.clients[0], &target).await.status;
        assert_eq!((there, here), (status, status), "nginx, the node: {target}");
    }
    settled(&node).await;
}
