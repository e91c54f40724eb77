//! h2o: one thread. It has no cache: files, which it keeps open, take the place of what others have stored.

use std::{fs, path::Path, process::Command};

use super::{Peer, Site, installed};
use crate::Result;

pub(super) const PEER: Peer = Peer { name: "h2o", find: || installed("h2o"), configure };

fn configure(program: &Path, site: &Site) -> Result<Command> {
    let Site { dir, port, origin, setting, certificate, key } = site;
    // Its own process for the key would cost each handshake two messages.
    let tls = if setting.tls {
        format!(
            "
  ssl:
    certificate-file: {}
    key-file: {}
    minimum-version: TLSv1.3
    neverbleed: OFF",
            certificate.display(),
            key.display()
        )
    } else {
        String::new()
    };
    let handler = if setting.cached {
        format!("file.dir: {}", dir.join("files").display())
    } else {
        format!("proxy.reverse.url: \"http://127.0.0.1:{origin}/\"")
    };
    let text = format!(
        "num-threads: 1
max-connections: 4096
user: root
proxy.preserve-host: ON
proxy.timeout.keepalive: 60000
listen:
  host: 127.0.0.1
  port: {port}{tls}
hosts:
  default:
    paths:
      /:
        {handler}
"
    );
    let file = dir.join("h2o.conf");
    fs::write(&file, text)?;
    let mut command = Command::new(program);
    command.arg("-c").arg(file);
    Ok(command)
}
