//! The client side: `get`, a downloader that takes a reset, a stall or a silent connection in the
//! middle of a body as a sign that the route has moved (WWW'09), and `sync`, which keeps trees
//! equal to a published one (WORLDS'04). `warm` fills the caches of a cluster.
//!
//! `levada_fetch::resume` decides which bytes to request and how to interpret a response. This
//! crate has the sockets and the files: [`Client`] connects, always to the same address;
//! `get/transfer.rs` is the life of one transfer; `get/target.rs` has the files on disk.

pub mod command;
mod connect;
mod digest;
mod get;
mod proxy;
mod redirect;
mod sync;
mod tls;
mod warm;

pub use connect::{Client, ClientSettings, ConnectError, Versions};
pub use digest::Hasher;
pub use get::{
    ConnectionReport, DisconnectReason, DownloadProgress, GetError, GetReport, GetRequest,
    TargetError, content_disposition, name_from_url,
};
pub use proxy::{Proxy, ProxyError};
pub use sync::{
    FilterError, FilterRule, FollowSettings, PathFilter, Publication, Published, PullReport,
    PullRequest, Pulling, Round, Skipped, SyncError, SyncFailure,
};
pub use tls::{Roots, TlsError, config as tls_config};
pub use warm::{SitemapError, WarmError, WarmOutcome, WarmReport, WarmRequest, WarmedUrl};

/// The items that fuzz targets need to reach.
pub mod fuzzing {
    /// Reads a sitemap, packed or not. Returns whether it is one.
    pub fn sitemap(bytes: &[u8]) -> bool {
        crate::warm::is_sitemap(bytes)
    }
}

/// Parses a URL that can be fetched: absolute, http or https.
///
/// # Errors
/// With the error and the remedy.
pub fn parse_url(text: &str) -> Result<http::Uri, String> {
    let text = text.split('#').next().unwrap_or_default().trim();
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: http::Uri = with_scheme.parse().map_err(|error| {
        format!("`{text}` is not a URL ({error}): percent-encode special characters")
    })?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        _ => return Err(format!("`{text}`: only http and https can be fetched")),
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(format!("`{text}` has no host"));
    }
    // A URI without a path has the path "/".
    Ok(uri)
}
