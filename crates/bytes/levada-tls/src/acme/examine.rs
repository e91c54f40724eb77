//! The server of an authority before the first order, for the checks of a machine.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;

use crate::acme::{AcmeSettings, client::AcmeClient};

/// The answer of the directory of an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryAnswer {
    /// Whether an account must belong to one outside of ACME.
    pub wants_external_account: bool,
    /// How wrong the clock of this machine is, in words, if it is.
    pub skew: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Directory {
    #[allow(dead_code, reason = "a directory is known by it")]
    new_order: String,
    #[serde(default)]
    meta: Meta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    external_account_required: bool,
}

/// Asks for the directory, as a node with these settings would. It blocks, for the time of `timeout` at most.
///
/// # Errors
/// With the reason in words.
pub fn ask_directory(
    settings: &AcmeSettings,
    timeout: Duration,
) -> Result<DirectoryAnswer, String> {
    let says = Arc::default();
    let client = AcmeClient::new(settings.authority.as_deref(), Arc::clone(&says))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let asking = async {
        tokio::time::timeout(timeout, client.get(&settings.directory))
            .await
            .map_err(|_| format!("no answer within {} s", timeout.as_secs()))?
    };
    let answer = runtime.block_on(asking);
    // A look-up of the name cannot be interrupted, and is not waited for.
    runtime.shutdown_background();
    let directory = serde_json::from_slice::<Directory>(&answer?);
    let directory =
        directory.map_err(|error| format!("the answer is no directory of ACME: {error}"))?;
    Ok(DirectoryAnswer {
        wants_external_account: directory.meta.external_account_required,
        skew: says.skew(),
    })
}
