//! The tries of one request at the origins of a site.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use levada_upstream::{Group, OriginPlaces, ServerFailure, UpstreamResponse};

use crate::origins::{OriginOrder, WatchedOrigin};

/// The origins of a site in the order in which a request tries them, and its places there.
pub struct OriginTries<'a> {
    order: OriginOrder,
    /// The origin that was asked last. If its response is late, or if it closes the connection without one, it may
    /// be asked on another connection.
    again: Option<Arc<WatchedOrigin>>,
    places: OriginPlaces<'a>,
}

impl<'a> OriginTries<'a> {
    /// No origin has been tried yet.
    pub fn new(order: OriginOrder, places: OriginPlaces<'a>) -> Self {
        Self { order, again: None, places }
    }
}

impl Group for OriginTries<'_> {
    type Server = Arc<WatchedOrigin>;
    type Held = ();

    fn next(&mut self) -> Result<(Arc<WatchedOrigin>, ()), ServerFailure> {
        let next = self.order.next();
        let asked =
            next.clone().or_else(|| self.again.take_if(|origin| origin.server.health.is_up()));
        self.again = next;
        if asked.is_none() {
            self.places.leave_second();
        }
        Ok((asked.ok_or(self.order.why_none())?, ()))
    }

    /// A second request to the same origin would only add to the load of one that sends all the time. Without a free
    /// place there is none.
    fn waits_for(&self, origin: &Arc<WatchedOrigin>) -> bool {
        (origin.server.health.is_moving() && !self.order.has_other()) || self.places.all_are_taken()
    }

    fn takes_another(&mut self) -> bool {
        self.places.takes_second()
    }

    fn is_late(&mut self) {
        self.places.are_late();
    }

    fn poll_gives_way(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.places.poll_gives_way(cx)
    }

    fn failed(&mut self, _: Arc<WatchedOrigin>, (): (), failure: ServerFailure) {
        self.places.leave_second();
        // One that closed the connection may take the next.
        if failure != ServerFailure::NoResponse {
            self.again = None;
        }
    }

    fn answered(&mut self, _: Arc<WatchedOrigin>, (): (), response: &mut UpstreamResponse) {
        self.places.are_answered(response);
    }
}
