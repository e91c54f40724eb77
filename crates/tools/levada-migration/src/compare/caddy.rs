//! Caddy with its own configuration, at other ports.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::Path, process::Command};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::{
    front::{Front, listened},
    stage::{Free, Process, Stage},
};

/// Starts Caddy.
///
/// # Errors
/// When it is not installed, or refuses the configuration.
pub(super) fn start(stage: &Stage, file: &Path) -> anyhow::Result<Front> {
    let directory = file.parent().unwrap_or(Path::new(""));
    let here = stage.like("caddy", directory)?;
    let own = stage.directory("caddy-files")?;
    let path = fs::canonicalize(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut adapt = Command::new("caddy");
    let is_json = path.extension().is_some_and(|own| own == "json");
    let text = match is_json {
        true => fs::read(&path)?,
        false => {
            adapt
                .current_dir(&here)
                .args(["adapt", "--adapter", "caddyfile", "--config"])
                .arg(&path);
            let adapted = adapt.output().context("cannot start caddy")?;
            if !adapted.status.success() {
                bail!("caddy adapt: {}", String::from_utf8_lossy(&adapted.stderr).trim());
            }
            adapted.stdout
        }
    };
    let mut configuration: Value = serde_json::from_slice(&text).context("Caddy's JSON")?;
    configuration["admin"] = json!({ "disabled": true, "config": { "persist": false } });
    if let Some(all) = configuration.as_object_mut() {
        all.remove("logging");
    }
    let plain = configuration.pointer("/apps/http/http_port").and_then(Value::as_u64).unwrap_or(80);
    let mut free = Free::default();
    let mut listeners = BTreeMap::new();
    let servers = configuration.pointer_mut("/apps/http/servers").and_then(Value::as_object_mut);
    for server in servers.into_iter().flat_map(|servers| servers.values_mut()) {
        let mut is_plain = false;
        for address in server["listen"].as_array_mut().into_iter().flatten() {
            let former = listened(address.as_str().unwrap_or_default());
            let new = free.next()?;
            is_plain |= former.ends_with(&format!(":{plain}"));
            listeners.insert(former, new);
            *address = new.to_string().into();
        }
        // At another port it would take a site with a name for one over TLS.
        if is_plain {
            server["automatic_https"] = json!({ "disable": true });
        }
    }
    let path = here.join("levada-compare.json");
    fs::write(&path, configuration.to_string())?;
    let mut command = Command::new("caddy");
    command.current_dir(&here).args(["run", "--config"]).arg(&path);
    command.env("XDG_DATA_HOME", &own).env("XDG_CONFIG_HOME", &own).env("HOME", &own);
    let addresses: Vec<SocketAddr> = listeners.values().copied().collect();
    let process = Process::start(&mut command, &own.join("messages"), free, &addresses)?;
    Ok(Front { listeners, _process: process })
}
