//! The tries of one request that are under way: usually one, two when the first is late.
//!
//! ```text
//!   event ─┬─ Answered ──> the others are dropped; those that began earlier were outrun
//!          ├─ Failed ────> another server, when no other try is under way
//!          ├─ Waited ────> another server as well, if the try is late
//!          ├─ GivesWay ──> the request ends: it is late, and others need its place
//!          └─ Down ──────> another server in its place
//! ```
//!
//! A server that is declared down is not waited for, and neither is a late one alone.

use std::{
    borrow::Cow,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
};

use levada_observe::otel::{Attempt, TRACEPARENT, TraceContext};
use tokio::time::{Instant, timeout_at};

use crate::{
    Group, RequestBody, Retries, SendError, ServerFailure, UpstreamHead, UpstreamResponse,
    WatchedServer, group::log, health::WAIT_CHECK_INTERVAL, report_outcome,
};

type Exchanged = Result<UpstreamResponse, (ServerFailure, Option<RequestBody>)>;

/// The tries of one request.
pub(crate) struct Tries<'a, G: Group> {
    group: &'a mut G,
    retries: &'a Retries<'a>,
    head: &'a UpstreamHead,
    /// Whether it may be sent to several servers.
    safe: bool,
    /// Whether its body has come.
    is_whole: bool,
    /// How many servers were asked.
    asked: usize,
    under_way: Vec<Try<'a, G>>,
    /// When to look after the tries next; `None`: never.
    look: Option<Instant>,
    error: SendError,
}

/// A try under way.
struct Try<'a, G: Group> {
    server: G::Server,
    held: G::Held,
    exchange: Pin<Box<dyn Future<Output = Exchanged> + Send + 'a>>,
    begun: Instant,
    late: Instant,
    /// How many were asked before it.
    earlier: usize,
    /// Its span, if the request is traced.
    span: Option<TraceContext>,
    /// One that is down already may be asked all the same.
    was_up: bool,
    /// Ready when the server is declared down; `None` while that is not watched.
    down: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// An event of one of the tries.
pub(crate) enum Event {
    /// It was answered.
    Answered(usize, UpstreamResponse),
    /// It failed. The body comes back if no byte of it was sent.
    Failed(usize, ServerFailure, Option<RequestBody>),
    /// The request has waited for some time.
    Waited,
    /// The server was declared down.
    Down(usize),
    /// The request has to end for others.
    GivesWay,
}

/// No further try: the request has failed.
pub(crate) struct Over;

impl<'a, G: Group> Tries<'a, G> {
    /// Begins the first try.
    pub(crate) fn begin(
        group: &'a mut G,
        retries: &'a Retries<'a>,
        head: &'a UpstreamHead,
        body: RequestBody,
    ) -> Result<Self, SendError> {
        let next = group.next().map_err(|failure| SendError { failure, server: None })?;
        let error = SendError { failure: ServerFailure::AllDown, server: None };
        let (safe, is_whole) = (head.method.is_safe() && body.is_none(), body.has_come());
        let under_way = Vec::with_capacity(1);
        let look = None;
        let mut tries =
            Self { group, retries, head, safe, is_whole, asked: 0, under_way, look, error };
        tries.ask(next, body);
        Ok(tries)
    }

    pub(crate) fn error(self) -> SendError {
        self.error
    }

    fn ask(&mut self, (server, held): (G::Server, G::Held), body: RequestBody) {
        let asked = server.server().clone();
        let span = self.head.trace.as_ref().map(|trace| trace.ask());
        let head = match span {
            None => Cow::Borrowed(self.head),
            Some(span) => {
                let mut own = self.head.clone();
                own.headers.insert(TRACEPARENT, span.field());
                Cow::Owned(own)
            }
        };
        let (begun, earlier) = (Instant::now(), self.asked);
        let late = begun + asked.late_after();
        let look = if self.asked == 0 { late.min(begun + WAIT_CHECK_INTERVAL) } else { late };
        self.look = self.is_whole.then_some(look);
        self.asked += 1;
        let was_up = asked.health.is_up();
        let exchange = Box::pin(async move { asked.exchange(&head, body).await });
        let mut one =
            Try { server, held, exchange, begun, late, earlier, span, was_up, down: None };
        if self.asked > 1 {
            one.watch();
        }
        self.under_way.push(one);
    }

    /// The next thing that happens.
    pub(crate) async fn event(&mut self) -> Event {
        let (under_way, group) = (&mut self.under_way, &mut *self.group);
        let happens = poll_fn(|cx| match poll(under_way, cx) {
            Poll::Pending => group.poll_gives_way(cx).map(|()| Event::GivesWay),
            event => event,
        });
        let event = match self.look {
            None => happens.await,
            Some(look) => timeout_at(look, happens).await.unwrap_or(Event::Waited),
        };
        match event {
            Event::Answered(at, response) => match self.group.check(&response) {
                Ok(()) => Event::Answered(at, response),
                Err(failure) => Event::Failed(at, failure, None),
            },
            other => other,
        }
    }

    /// Hands the response over, and drops the other tries.
    pub(crate) fn answered(
        mut self,
        at: usize,
        mut response: UpstreamResponse,
    ) -> UpstreamResponse {
        let one = self.under_way.swap_remove(at);
        let (asked, took) = (one.server.server(), one.begun.elapsed());
        asked.took(took);
        one.trace(self.head, Ok(response.status().as_u16()));
        report_outcome(&one.server, None, self.retries.clock);
        self.retries.metrics.answered(asked, G::Server::KIND, response.status(), took);
        if let Some(received) = self.retries.metrics.received(G::Server::KIND) {
            response.body_mut().count_into(received.clone());
        }
        for other in std::mem::take(&mut self.under_way) {
            match other.begun < one.begun {
                true => self.outrun(other),
                false => drop(other),
            }
        }
        self.group.answered(one.server, one.held, &mut response);
        response
    }

    /// Goes on after a failed try.
    pub(crate) fn failed(
        &mut self,
        at: usize,
        failure: ServerFailure,
        back: Option<RequestBody>,
    ) -> Result<(), Over> {
        let again = self.safe || (self.retries.resends_unsent && back.is_some());
        let one = self.under_way.remove(at);
        self.failure(one, failure);
        if !self.under_way.is_empty() {
            return Ok(());
        }
        if !again || !failure.worth_retrying() || !self.may_ask() || !self.affords() {
            return Err(Over);
        }
        let next = self.group.next().map_err(|_| Over)?;
        self.ask(next, back.unwrap_or(RequestBody::None));
        Ok(())
    }

    /// Looks after the tries: watches the health of their servers from now on, and asks a second server for
    /// one that is late.
    pub(crate) fn waited(&mut self) -> Result<(), Over> {
        if self.safe {
            self.under_way.iter_mut().for_each(Try::watch);
        }
        let (now, late) = (Instant::now(), self.under_way.last().map(|one| one.late));
        self.look = late.filter(|late| *late > now);
        if self.look.is_some() {
            return Ok(());
        }
        self.group.is_late();
        let may_leave = self.may_ask() || self.group.caller_answers();
        if !self.safe || !self.retries.asks_beside || !may_leave {
            return Ok(());
        }
        if self.under_way.last().is_some_and(|one| self.group.waits_for(&one.server)) {
            self.look = Some(now + WAIT_CHECK_INTERVAL);
            return Ok(());
        }
        if !(self.affords() && self.group.takes_another()) {
            self.look = Some(now + WAIT_CHECK_INTERVAL);
            return Ok(());
        }
        match self.next() {
            Some(next) => self.ask(next, RequestBody::None),
            None if self.group.caller_answers() => {
                std::mem::take(&mut self.under_way).into_iter().for_each(|one| self.outrun(one));
                return Err(Over);
            }
            None => {}
        }
        Ok(())
    }

    /// Leaves a server that was declared down, if there is another one to ask. This takes nothing from the
    /// budget: the servers that are up get no more requests than clients sent.
    pub(crate) fn down(&mut self, at: usize) -> Result<(), Over> {
        let next = if self.under_way.len() > 1 { None } else { self.next() };
        if next.is_none() && self.under_way.len() == 1 && !self.group.caller_answers() {
            // It may come back.
            (self.under_way[at].down, self.under_way[at].was_up) = (None, false);
            return Ok(());
        }
        let one = self.under_way.remove(at);
        self.failure(one, ServerFailure::WentDown);
        match next {
            Some(next) => self.ask(next, RequestBody::None),
            None if self.under_way.is_empty() => return Err(Over),
            None => {}
        }
        Ok(())
    }

    /// Ends all tries.
    pub(crate) fn gives_way(&mut self) -> Result<(), Over> {
        for one in std::mem::take(&mut self.under_way) {
            self.failure(one, ServerFailure::GaveWay);
        }
        Err(Over)
    }

    fn next(&mut self) -> Option<(G::Server, G::Held)> {
        if self.may_ask() { self.group.next().ok() } else { None }
    }

    fn may_ask(&self) -> bool {
        self.asked < self.retries.tries
    }

    fn affords(&self) -> bool {
        self.retries.budget.take(self.retries.clock.now())
    }

    /// Takes in that another server was quicker.
    fn outrun(&mut self, one: Try<'a, G>) {
        one.server.server().outrun();
        self.failure(one, ServerFailure::Late);
    }

    fn failure(&mut self, one: Try<'a, G>, failure: ServerFailure) {
        one.trace(self.head, Err(failure.proxy_error()));
        let Try { server, held, exchange, .. } = one;
        // Its connection ends before its place is free.
        drop(exchange);
        self.error = SendError { failure, server: Some(server.server().name.clone()) };
        if failure.is_clients() {
            return;
        }
        report_outcome(&server, Some(failure), self.retries.clock);
        self.retries.metrics.failed(G::Server::KIND, failure);
        log(&server, failure);
        self.group.failed(server, held, failure);
    }
}

impl<G: Group> Try<'_, G> {
    /// Adds its span to the trace of the request, if there is one.
    fn trace(&self, head: &UpstreamHead, outcome: Result<u16, &'static str>) {
        let (Some(trace), Some(span)) = (&head.trace, self.span) else { return };
        let (kind, server) = (G::Server::KIND.as_str(), &*self.server.server().name);
        let (began, earlier) = (self.begun.into_std(), self.earlier);
        trace.asked(span, &Attempt { kind, server, began, earlier, outcome });
    }

    fn watch(&mut self) {
        if self.down.is_none() && self.was_up {
            let server = self.server.server().clone();
            self.down = Some(Box::pin(async move { server.health.down().await }));
        }
    }
}

fn poll<G: Group>(under_way: &mut [Try<'_, G>], cx: &mut Context<'_>) -> Poll<Event> {
    for (at, one) in under_way.iter_mut().enumerate() {
        match one.exchange.as_mut().poll(cx) {
            Poll::Ready(Ok(response)) => return Poll::Ready(Event::Answered(at, response)),
            Poll::Ready(Err((failure, back))) => {
                return Poll::Ready(Event::Failed(at, failure, back));
            }
            Poll::Pending => {}
        }
        if one.down.as_mut().is_some_and(|down| down.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Event::Down(at));
        }
    }
    Poll::Pending
}
