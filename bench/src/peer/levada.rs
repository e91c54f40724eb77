//! Levada: what a configuration without further thought gives, on one thread.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Peer, Site};
use crate::Result;

pub(super) const PEER: Peer = Peer { name: "Levada", find, configure };

/// The build next to this program, or what LEVADA names.
fn find() -> std::result::Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("LEVADA") {
        return Ok(path.into());
    }
    let path = std::env::current_exe().map_err(|e| e.to_string())?.with_file_name("levada");
    if !path.exists() {
        return Err("build the binary first: cargo xtask dist".into());
    }
    Ok(path)
}

fn configure(program: &Path, site: &Site) -> Result<Command> {
    let Site { dir, port, origin, setting, certificate, key } = site;
    let mut text = format!(
        r#"
name = "bench"

[runtime]
mode = "shared"
threads = 1

[log]
access = "off"

[[site]]
hosts = "*"
{source}

[[listen]]
address = "127.0.0.1:{port}"
"#,
        source = if setting.files {
            // The others keep the file open, and do not look at it for each request.
            let root = dir.join("files");
            format!("files = {{ root = \"{}\", recheck = \"1s\" }}", root.display())
        } else {
            format!("origin = \"http://127.0.0.1:{origin}\"\ncache = {}", setting.cached)
        },
    );
    if setting.tls {
        let (certificate, key) = (certificate.display(), key.display());
        writeln!(text, r#"tls = [{{ certificate = "{certificate}", key = "{key}" }}]"#)?;
    }
    if setting.http2 && !setting.tls {
        writeln!(text, "h2c = true")?;
    }
    writeln!(text, "\n[cache]\nmemory = \"{}MiB\"", setting.memory_mib)?;
    if let Some(disk) = setting.disk_mib {
        let path = dir.join("cache");
        writeln!(text, "\n[cache.disk]\npath = \"{}\"\nsize = \"{disk}MiB\"", path.display())?;
    }
    let file = dir.join("levada.toml");
    fs::write(&file, text)?;
    let mut command = Command::new(program);
    command.arg("run").arg("-c").arg(file);
    Ok(command)
}
