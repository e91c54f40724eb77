//! A node with the new file, at other ports and without its logs.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::Path, process::Command};

use anyhow::Context as _;

use super::{
    front::Front,
    stage::{Free, Process, Stage},
};

/// Starts a node with this file, whose relative names begin at `directory`.
///
/// # Errors
/// When it does not start.
pub(super) fn start(stage: &Stage, toml: &str, directory: &Path) -> anyhow::Result<Front> {
    let here = stage.like("node", directory)?;
    let mut table: toml::Table = toml.parse().context("the new file")?;
    let mut free = Free::default();
    let mut listeners = BTreeMap::new();
    for listen in table.get_mut("listen").and_then(|list| list.as_array_mut()).into_iter().flatten()
    {
        let Some(address) = listen.get_mut("address") else { continue };
        let new = free.next()?;
        listeners.insert(address.as_str().unwrap_or_default().to_owned(), new);
        *address = new.to_string().into();
    }
    // The process that serves clients has these.
    table.remove("admin");
    without_logs(&mut table);
    let own = stage.directory("cache")?;
    if let Some(path) = table
        .get_mut("cache")
        .and_then(|cache| cache.get_mut("disk"))
        .and_then(|disk| disk.get_mut("path"))
    {
        *path = own.display().to_string().into();
    }
    let file = here.join("levada-compare.toml");
    fs::write(&file, table.to_string())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("run").arg("-c").arg(&file);
    let addresses: Vec<SocketAddr> = listeners.values().copied().collect();
    let process = Process::start(&mut command, &own.join("messages"), free, &addresses)?;
    Ok(Front { listeners, _process: process })
}

fn without_logs(table: &mut toml::Table) {
    table.remove("log");
    for key in ["defaults", "site"] {
        match table.get_mut(key) {
            Some(toml::Value::Table(one)) => drop(one.remove("log")),
            Some(toml::Value::Array(all)) => {
                let tables = all.iter_mut().filter_map(|one| one.as_table_mut());
                tables.for_each(|one| drop(one.remove("log")));
            }
            _ => {}
        }
    }
}
