//! Varnish: its own threads and defaults. It has in memory the bytes that others may put on disk.

use std::{fs, path::Path, process::Command};

use super::{Peer, Site, installed};
use crate::Result;

pub(super) const PEER: Peer = Peer { name: "Varnish", find: || installed("varnishd"), configure };

fn configure(program: &Path, site: &Site) -> Result<Command> {
    let Site { dir, port, origin, setting, .. } = site;
    let pass = if setting.cached { "" } else { "sub vcl_recv { return (pass); }\n" };
    let vcl = dir.join("site.vcl");
    let text = format!(
        "vcl 4.1;\nbackend origin {{ .host = \"127.0.0.1\"; .port = \"{origin}\"; }}\n{pass}"
    );
    fs::write(&vcl, text)?;
    let storage = setting.memory_mib + setting.disk_mib.unwrap_or(0);
    let mut command = Command::new(program);
    // Without its jails, it needs no users of its own.
    command.args(["-F", "-j", "none", "-n"]).arg(dir.join("varnish")).arg("-f").arg(vcl);
    if setting.http2 {
        command.args(["-p", "feature=+http2"]);
    }
    command.arg("-a").arg(format!("127.0.0.1:{port}"));
    command.arg("-s").arg(format!("malloc,{storage}m"));
    Ok(command)
}
