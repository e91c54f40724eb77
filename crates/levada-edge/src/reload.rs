//! New settings for a node that runs: all of them, or none.
//!
//! What can change is what is served: sites, their servers, policies and rules. Requests that run end as
//! they began. Servers that stay keep their health and connections, and policies that stay what they have
//! learned, whatever becomes of their parameters.

use std::sync::Arc;

use crate::{
    node::Node,
    settings::{Settings, SettingsReader},
    stop::Stop,
};

/// Reads and applies new settings.
///
/// # Errors
/// With what is wrong with them, in words; the node goes on with those that it has.
pub(crate) async fn reload(node: &Arc<Node>, stop: &Stop) -> Result<usize, String> {
    let _alone = node.reloading.lock().await;
    let result = read(node).await.and_then(|settings| {
        let changed = node.change_sites(&settings.sites, stop);
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
