//! `warm`: requests objects, so that a cluster's caches have them before clients ask.
//!
//! Every request is an ordinary GET that is read to its end. The node that gets it forwards it to the
//! node that the policy chooses, so that this client needs to know nothing of the cluster. The
//! `Cache-Status` of the response says what became of the object (RFC 9211).

mod outcome;
mod sitemap;

use std::{
    collections::HashSet,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::{
    connect::{Client, HttpConnection, ResponseBody},
    redirect,
};

pub use outcome::{WarmOutcome, WarmReport, WarmedUrl};
pub use sitemap::SitemapError;
pub(crate) use sitemap::is_sitemap;

/// The URLs to request, and the bounds on the run.
#[derive(Clone, Debug)]
pub struct WarmRequest {
    /// URLs.
    pub urls: Vec<Uri>,
    /// Sitemaps and sitemap indexes.
    pub sitemaps: Vec<Uri>,
    /// Fields of every request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Requests at a time.
    pub concurrency: usize,
    /// The most URLs.
    pub max_urls: usize,
    /// The most bytes of all bodies together.
    pub max_bytes: Option<u64>,
    /// Time without data after which a request has failed.
    pub stall: Duration,
}

/// Why nothing was requested.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    /// A sitemap is of no use.
    #[error("{url}: {why}")]
    Sitemap {
        /// The sitemap.
        url: String,
        /// The reason.
        why: Box<SitemapError>,
    },
    /// There are more URLs than allowed.
    #[error("more than {0} URLs: raise --max-urls, or divide the list")]
    TooMany(usize),
}

/// A response that is of no use to a sitemap's reader or a warmer.
type Failure = String;

impl WarmRequest {
    /// Reads the sitemaps, then requests every URL once. `told` learns of each result.
    ///
    /// # Errors
    /// When a sitemap cannot be read, or there are too many URLs. Nothing but sitemaps was requested then.
    pub async fn run(
        self,
        client: &Client,
        mut told: impl FnMut(&WarmedUrl),
    ) -> Result<WarmReport, WarmError> {
        let mut seen = HashSet::new();
        let mut urls: Vec<Uri> = Vec::new();
        let mut add = |url: Uri| {
            if seen.insert(url.to_string()) {
                urls.push(url);
            }
            if urls.len() > self.max_urls { Err(WarmError::TooMany(self.max_urls)) } else { Ok(()) }
        };
        self.urls.iter().cloned().try_for_each(&mut add)?;
        for sitemap in &self.sitemaps {
            let read = sitemap::read(client, &self, sitemap).await;
            let read = read
                .map_err(|why| WarmError::Sitemap { url: sitemap.to_string(), why: why.into() })?;
            read.into_iter().try_for_each(&mut add)?;
        }
        let left = AtomicU64::new(self.max_bytes.unwrap_or(u64::MAX));
        let mut report = WarmReport::default();
        let warming = urls.iter().map(|url| self.one(client, url, &left));
        let mut warming = stream::iter(warming).buffer_unordered(self.concurrency.max(1));
        while let Some(one) = warming.next().await {
            told(&one);
            report.add(one);
        }
        Ok(report)
    }

    async fn one(&self, client: &Client, url: &Uri, left: &AtomicU64) -> WarmedUrl {
        let mut bytes = 0;
        let outcome = match self.ask_and_read(client, url, left, &mut bytes).await {
            Ok(outcome) => outcome,
            Err(why) => WarmOutcome::Failed { why },
        };
        WarmedUrl { url: url.to_string(), outcome, bytes }
    }

    async fn ask_and_read(
        &self,
        client: &Client,
        url: &Uri,
        left: &AtomicU64,
        bytes: &mut u64,
    ) -> Result<WarmOutcome, Failure> {
        if left.load(Relaxed) == 0 {
            return Ok(WarmOutcome::NotTried);
        }
        let (connection, response) = self.ask(client, url).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let ended = self.read(client, response, |piece| {
            let piece = piece.len() as u64;
            *bytes += piece;
            let spend = |left: u64| Some(left.saturating_sub(piece));
            left.fetch_update(Relaxed, Relaxed, spend).is_ok_and(|before| before > piece)
        });
        match ended.await? {
            false => Ok(WarmOutcome::NotTried),
            true => {
                client.keep(connection);
                judge(status, &headers)
            }
        }
    }

    /// The response to a GET. A node that sends clients to the chosen one is followed there.
    async fn ask(
        &self,
        client: &Client,
        url: &Uri,
    ) -> Result<(HttpConnection, Response<ResponseBody>), Failure> {
        let mut url = url.clone();
        for _ in 0..=MOST_REDIRECTS {
            let (connection, response) = self.ask_once(client, &url).await?;
            let is_pass = response.status() == StatusCode::TEMPORARY_REDIRECT
                && !response.headers().contains_key(outcome::CACHE_STATUS);
            if !is_pass {
                return Ok((connection, response));
            }
            url = redirect::target(&url, response.headers(), false)
                .map_err(|_| "a redirect that leads nowhere".to_owned())?;
            client.connect_directly(&url);
        }
        Err("too many redirects".to_owned())
    }

    async fn ask_once(
        &self,
        client: &Client,
        url: &Uri,
    ) -> Result<(HttpConnection, Response<ResponseBody>), Failure> {
        let mut fresh = false;
        loop {
            let mut connection =
                client.link(url, fresh).await.map_err(|error| error.to_string())?;
            let asked = timeout(self.stall, connection.get(url, &self.headers, None)).await;
            match asked {
                Ok(Ok(response)) => return Ok((connection, response)),
                // The server may have closed it while it was idle.
                Ok(Err(_)) if connection.used => fresh = true,
                Ok(Err(error)) => return Err(error.to_string()),
                Err(_) => return Err(self.stalled()),
            }
        }
    }

    /// Reads a body, as long as `take` wants more. Returns whether it was read to its end.
    async fn read(
        &self,
        client: &Client,
        response: Response<ResponseBody>,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<bool, Failure> {
        let mut body = response.into_body();
        loop {
            let next = timeout(self.stall, body.frame()).await.map_err(|_| self.stalled())?;
            let Some(frame) = next else { return Ok(true) };
            let frame = frame.map_err(|error| format!("the body broke off: {error}"))?;
            let Ok(piece) = frame.into_data() else { continue };
            if !take(&piece) {
                return Ok(false);
            }
            client.pace.spent(piece.len()).await;
        }
    }

    fn stalled(&self) -> Failure {
        format!("nothing came for {} s", self.stall.as_secs_f64())
    }
}

/// The redirects by which a node sends clients to another one.
const MOST_REDIRECTS: u32 = 2;

fn judge(status: StatusCode, headers: &HeaderMap) -> Result<WarmOutcome, Failure> {
    if status.is_client_error() || status.is_server_error() {
        return Err(status.to_string());
    }
    Ok(WarmOutcome::of(headers))
}
