//! A connection that is opened while the one in use is silent: if the route has moved, it is ready about
//! a round trip before the reset of the old one arrives.

use std::future::{pending, ready};

use futures_util::future::BoxFuture;
use http::Uri;

use crate::{
    connect::{ConnectError, HttpConnection},
    get::transfer::ActiveTransfer,
};

type Opening<'a> = BoxFuture<'a, Result<HttpConnection, ConnectError>>;

/// The spare connection of a lane, if it has one.
#[derive(Default)]
pub(super) struct Spare<'a>(Option<Opening<'a>>);

impl<'a> Spare<'a> {
    /// Begins to open a connection.
    pub(super) fn open(&mut self, work: &'a ActiveTransfer<'a>) {
        let uri = work.state.lock().location.clone();
        self.0 = Some(Box::pin(async move { work.fresh_link(&uri).await }));
    }

    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Waits until the connection is open; for ever if there is none, or it fails.
    pub(super) async fn opened(&mut self) {
        if let Some(opening) = &mut self.0 {
            let result = opening.await;
            self.0 = None;
            if let Ok(link) = result {
                self.0 = Some(Box::pin(ready(Ok(link))));
                return;
            }
        }
        pending().await
    }

    /// The connection, if it is open or being opened, and leads to the server of `uri`.
    pub(super) async fn take(&mut self, uri: &Uri) -> Option<HttpConnection> {
        let link = self.0.take()?.await.ok()?;
        link.is_to(uri).then_some(link)
    }

    /// Gives the connection up; returns whether there was one.
    pub(super) fn discard(&mut self) -> bool {
        self.0.take().is_some()
    }
}
