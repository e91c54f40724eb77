//! Reloads the settings of a running node: all of them, or none.
//!
//! A reload can change the sites, with their servers, policies and rules. Running requests end as they
//! began. Servers that stay keep their health and connections, and policies that stay keep what they
//! have learned, even when their parameters change. The access log is opened anew even when the settings
//! cannot be used.

use std::sync::Arc;

use levada_log::access_log::Log;
use levada_net::stop::{Stop, spawn_until};

use crate::{
    node::Node,
    settings::{Settings, SettingsReader, SiteSettings},
    site_builder::{SiteBuilder, make_sites},
    sites::WatchedOrigin,
    start_error::StartError,
    tend::tend_sites,
};

/// Reads and applies new settings.
///
/// # Errors
/// With the reason in words when the settings cannot be used; the node keeps its settings.
pub(crate) async fn reload(node: &Arc<Node>, stop: &Stop) -> Result<usize, String> {
    let _guard = node.reloading.lock().await;
    node.telemetry.log.iter().for_each(Log::reopen);
    let result = read(node).await.and_then(|settings| {
        let changed = change_sites(node, &settings.sites, stop);
        changed.map(|()| settings.sites.len()).map_err(|error| error.to_string())
    });
    node.metrics.reloaded(result.is_ok());
    match &result {
        Ok(sites) => tracing::info!(sites, "reloaded"),
        Err(reason) => {
            tracing::error!("reload failed, the previous settings stay in use:\n{reason}")
        }
    }
    result
}

/// Reads the settings on a thread for blocking calls.
async fn read(node: &Arc<Node>) -> Result<Settings, String> {
    let node = node.clone();
    let read = move || match &node.reader {
        Some(SettingsReader(read)) => read(),
        None => Err("this node was not started from a file".to_owned()),
    };
    tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?
}

/// Replaces the sites. Running requests end as they began.
///
/// # Errors
/// When a policy cannot be built; nothing has changed then.
fn change_sites(node: &Node, settings: &[SiteSettings], stop: &Stop) -> Result<(), StartError> {
    let before = node.sites.load_full();
    let (clock, metrics, workers) = (node.clock, &node.metrics, node.workers);
    let builder = SiteBuilder { settings: &node.settings, clock, metrics, workers };
    let after = Arc::new(make_sites(&builder, settings, &before)?);
    node.sites.store(after.clone());
    for old in before.iter() {
        let new = || after.iter().filter(|new| new.place() == old.place());
        let stays = |one: &Arc<WatchedOrigin>| {
            new().any(|site| site.origins.iter().any(|other| Arc::ptr_eq(one, other)))
        };
        for gone in old.origins.iter().filter(|origin| !stays(origin)) {
            if let Some(watch) = gone.watch.lock().take() {
                watch.abort();
            }
        }
        if let Some(switch) = &old.switch
            && !new().any(|site| site.switch.is_some())
        {
            switch.retire();
        }
    }
    tend_sites(node, &|task| spawn_until(stop, task));
    Ok(())
}
