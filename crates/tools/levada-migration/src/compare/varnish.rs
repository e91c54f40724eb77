//! Varnish with its own VCL, at another port.

use std::{fs, path::Path, process::Command};

use anyhow::Context as _;

use super::{
    front::Front,
    stage::{Free, Process, Stage},
};

/// Starts Varnish.
///
/// # Errors
/// When it is not installed, or refuses the VCL.
pub(super) fn start(stage: &Stage, file: &Path, node: &Front) -> anyhow::Result<Front> {
    let own = stage.directory("varnish")?;
    let mut free = Free::default();
    let address = free.next()?;
    let path = fs::canonicalize(file).with_context(|| format!("cannot read {}", file.display()))?;
    let here = path.parent().unwrap_or(Path::new("/"));
    let mut command = Command::new("varnishd");
    // Without its jail it can use a directory of this user.
    command.args(["-j", "none", "-F", "-s", "malloc,64m", "-a"]).arg(address.to_string());
    command.arg("-n").arg(own.join("work")).arg("-f").arg(&path);
    command
        .arg("-p")
        .arg(format!("vcl_path={}:/etc/varnish:/usr/share/varnish/vcl", here.display()));
    let process = Process::start(&mut command, &own.join("messages"), free, &[address])?;
    Ok(Front::for_all_of(node, address, process))
}
