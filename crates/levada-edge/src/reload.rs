//! New settings for a node that runs: all of them, or none.
//!
//! What can change is what is served: sites, their servers, policies and rules. Requests that run end as
//! they began. Servers that stay keep their health and connections, and policies that stay what they have
//! learned, whatever becomes of their parameters.

use std::sync::Arc;

use levada_net::stop::Stop;

use crate::{
    node::Node,
    settings::{Settings, SettingsReader, SiteSettings},
    site_builder::{SiteBuilder, make_sites},
    sites::WatchedOrigin,
    spawn::spawn_until,
    start_error::StartError,
    tend::tend_sites,
};

/// Reads and applies new settings.
///
/// # Errors
/// With what is wrong with them, in words; the node goes on with those that it has.
pub(crate) async fn reload(node: &Arc<Node>, stop: &Stop) -> Result<usize, String> {
    let _alone = node.reloading.lock().await;
    let result = read(node).await.and_then(|settings| {
        let changed = change_sites(node, &settings.sites, stop);
        changed.map(|()| settings.sites.len()).map_err(|error| error.to_string())
    });
    node.metrics.reloaded(result.is_ok());
    match &result {
        Ok(sites) => tracing::info!(sites, "reloaded"),
        Err(reason) => tracing::error!("not reloaded, everything stays as it was:\n{reason}"),
    }
    result
}

/// Files are read where nobody waits.
async fn read(node: &Arc<Node>) -> Result<Settings, String> {
    let node = node.clone();
    let read = move || match &node.reader {
        Some(SettingsReader(read)) => read(),
        None => Err("this node was not started from a file".to_owned()),
    };
    tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?
}

/// Serves other sites from now on. Requests that are being answered end as they began.
///
/// # Errors
/// When a policy cannot be built; nothing has changed then.
fn change_sites(node: &Node, settings: &[SiteSettings], stop: &Stop) -> Result<(), StartError> {
    let before = node.sites.load_full();
    let (clock, metrics, workers) = (node.clock, &node.metrics, node.workers);
    let around = SiteBuilder { settings: &node.settings, clock, metrics, workers };
    let after = Arc::new(make_sites(&around, settings, &before)?);
    node.sites.store(after.clone());
    for old in before.iter() {
        let new = || after.iter().filter(|new| new.id == old.id);
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
