//! Traffic Server with its own files, at another port.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use levada_convert::InputFile;

use super::{
    front::Front,
    stage::{Free, Process, Stage},
};

/// Starts Traffic Server.
///
/// # Errors
/// When it is not installed, or refuses the files.
pub(super) fn start(stage: &Stage, files: &[InputFile], node: &Front) -> anyhow::Result<Front> {
    let own = stage.directory("trafficserver")?;
    let root = own.join("root");
    let layout =
        Command::new("traffic_layout").arg("init").arg("--force").arg("-p").arg(&root).output();
    let layout = layout.context("cannot start traffic_layout")?;
    if !layout.status.success() {
        bail!("traffic_layout init: {}", String::from_utf8_lossy(&layout.stderr).trim());
    }
    let settings = settings_of(&root)?;
    for file in files {
        let name = Path::new(&file.name).file_name().unwrap_or_default();
        fs::write(settings.join(name), &file.text)?;
    }
    // The other process has its own cache on disk.
    fs::write(settings.join("storage.config"), format!("{} 64M\n", own.display()))?;
    let mut free = Free::default();
    let address = free.next()?;
    let mut command = Command::new("traffic_server");
    command.arg(format!("--run-root={}", root.display()));
    command.env("PROXY_CONFIG_HTTP_SERVER_PORTS", format!("{}:ip-in=127.0.0.1", address.port()));
    command.env("PROXY_CONFIG_ADMIN_USER_ID", "#-1");
    let process = Process::start(&mut command, &own.join("messages"), free, &[address])?;
    Ok(Front::for_all_of(node, address, process))
}

/// The directory of its settings, wherever a distribution has it below the root.
fn settings_of(root: &Path) -> anyhow::Result<PathBuf> {
    let text = fs::read_to_string(root.join("runroot.yaml")).context("runroot.yaml")?;
    let line = text.lines().find_map(|line| line.strip_prefix("sysconfdir:"));
    let path = line.map(|path| PathBuf::from(path.trim()));
    path.context("runroot.yaml has no sysconfdir")
}
