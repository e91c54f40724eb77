//! HAProxy: one thread. It splices what it passes on, by pipes of 1 MiB. An object of its cache may take half of it at most; 2 MiB are enough here.

use std::{fs, path::Path, process::Command};

use super::{Peer, Site, installed};
use crate::Result;

pub(super) const PEER: Peer = Peer { name: "HAProxy", find: || installed("haproxy"), configure };

fn configure(program: &Path, site: &Site) -> Result<Command> {
    let Site { dir, port, origin, setting, certificate, key } = site;
    let tls = if setting.tls {
        let both = dir.join("both.pem");
        fs::write(&both, fs::read_to_string(certificate)? + &fs::read_to_string(key)?)?;
        let alpn = if setting.http2 { " alpn h2" } else { "" };
        format!("ssl crt {} ssl-min-ver TLSv1.3{alpn}", both.display())
    } else {
        String::from(if setting.http2 { "proto h2" } else { "" })
    };
    let cache = if setting.cached {
        "http-request cache-use cache
    http-response cache-store cache"
    } else {
        ""
    };
    let text = format!(
        "global
    nbthread 1
    maxconn 4096
    tune.bufsize 65536
    tune.pipesize 1048576

defaults
    mode http
    option splice-response
    http-reuse always
    timeout connect 5s
    timeout client 60s
    timeout server 60s

cache cache
    total-max-size {memory}
    max-object-size {object}
    max-age 3600

frontend clients
    bind 127.0.0.1:{port} {tls} backlog 4096
    option forwardfor
    {cache}
    default_backend origin

backend origin
    server origin 127.0.0.1:{origin}
",
        memory = setting.memory_mib,
        object = 2 << 20,
    );
    let file = dir.join("haproxy.cfg");
    fs::write(&file, text)?;
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(file);
    Ok(command)
}
