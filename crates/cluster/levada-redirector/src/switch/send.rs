//! One request to the servers of a switch, and its turn, which lasts until the response has ended.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use crate::handoff::HandoffControl;
use http::StatusCode;
use levada_policy::{NodeIndex, Pick};
use levada_types::Request;
use levada_upstream::{
    AdmittedRequest, Clock, Group, RequestBody, ResponseGuard, Retries, RetryBudget, SendError,
    ServerFailure, Subject, UpstreamHead, UpstreamResponse,
};

use super::{
    Switch, SwitchView, WatchedMember,
    member::{HeldRequest, Member},
};
use crate::{Classes, SharedDecider, Sizes, decider::retried, node_turn::outcome};

/// The parts of a site that choose a server for a request.
#[derive(Clone, Copy)]
pub struct SitePolicy<'a> {
    /// The policy.
    pub decider: &'a SharedDecider,
    /// The service classes, where the site tells classes apart.
    pub classes: Option<&'a Arc<Classes>>,
}

/// A request's turn: its place, its server, and the outcome for the policy. It lasts until the body of the
/// response has ended.
pub struct ServerTurn {
    held: HeldRequest,
    _admitted: Option<AdmittedRequest<()>>,
    decider: SharedDecider,
    classes: Option<(Arc<Classes>, Subject, Box<str>)>,
    clock: Clock,
    sent: Instant,
    answered: Option<(Instant, StatusCode)>,
    ended: bool,
}

/// The chosen server and the reason, for the log and `Proxy-Status`.
#[derive(Clone, Debug)]
pub struct ChosenServer {
    /// Its name.
    pub server: Arc<str>,
    /// The decision.
    pub pick: Pick,
}

/// The servers of a switch, for one request.
struct SwitchServers<'a> {
    switch: &'a Arc<Switch>,
    policy: SitePolicy<'a>,
    sizes: &'a Sizes,
    head: &'a UpstreamHead,
    admitted: Option<AdmittedRequest<()>>,
    tried: Vec<Arc<Member>>,
}

/// A server that holds the request while it is tried.
struct SwitchTry {
    held: HeldRequest,
    pick: Pick,
    sent: Instant,
}

impl Group for SwitchServers<'_> {
    type Server = WatchedMember;
    type Held = SwitchTry;

    fn next(&mut self) -> Result<(WatchedMember, SwitchTry), ServerFailure> {
        // A reload between two tries shows in the second one.
        let view = self.switch.view.load_full();
        let Self { switch, policy, sizes, head, .. } = *self;
        let (pick, held) =
            switch.choose(policy.decider, &view, (head.subject, sizes), &self.tried)?;
        let watched = switch.watched(held.member(), &view);
        self.tried.push(held.member().clone());
        Ok((watched, SwitchTry { held, pick, sent: Instant::now() }))
    }

    fn answered(&mut self, _: WatchedMember, one: SwitchTry, response: &mut UpstreamResponse) {
        let (server, pick) = (one.held.member().server.name.clone(), one.pick);
        response.extensions_mut().insert(ChosenServer { server, pick });
        let learns = self.policy.classes.filter(|classes| classes.learns());
        let path = || self.head.uri.path().into();
        let (admitted, decider) = (self.admitted.take(), self.policy.decider);
        let mut turn = ServerTurn::new(one.held, admitted, decider, self.switch.clock);
        turn.classes = learns.map(|classes| (classes.clone(), self.head.subject, path()));
        turn.sent = one.sent;
        turn.answered = Some((Instant::now(), response.status()));
        response.body_mut().hold(Box::new(turn));
    }

    fn failed(&mut self, _: WatchedMember, one: SwitchTry, _: ServerFailure) {
        one.held.member().failures.fetch_add(1, Relaxed);
    }
}

impl Switch {
    /// Sends a request to the servers that the policy chooses, when it is the request's turn, until one
    /// answers. The response has [`ChosenServer`] among its extensions.
    ///
    /// # Errors
    /// The failure of the last try.
    pub async fn send(
        self: &Arc<Self>,
        policy: SitePolicy<'_>,
        (tries, budget): (usize, &RetryBudget),
        head: &UpstreamHead,
        sizes: &Sizes,
        body: RequestBody,
    ) -> Result<UpstreamResponse, SendError> {
        let refused = |failure| SendError { failure, server: None };
        // Free again when the head of the response has come.
        let _slow = match body.has_come() && head.websocket.is_none() {
            true => None,
            false => Some(self.slow.enter(()).await.map_err(refused)?),
        };
        let admitted = self.queue.enter(()).await.map_err(refused)?;
        let admitted = Some(admitted);
        let mut servers =
            SwitchServers { switch: self, policy, sizes, head, admitted, tried: Vec::new() };
        let retries = Retries {
            tries,
            budget,
            resends_unsent: true,
            // Each server of a switch counts its requests, and a policy has chosen it for this one.
            asks_beside: false,
            clock: self.clock,
            metrics: &self.metrics.upstream,
        };
        levada_upstream::send(&mut servers, &retries, head, body).await
    }

    /// Chooses the server of a request that is to be handed over, when it is the request's turn.
    pub async fn claim(
        &self,
        decider: &SharedDecider,
        subject: Subject,
        sizes: &Sizes,
    ) -> Option<Claim> {
        let admitted = self.queue.enter(()).await.ok()?;
        self.admit(decider, (subject, sizes), admitted)
    }

    /// The same if it is its turn at once.
    pub fn claim_now(
        &self,
        decider: &SharedDecider,
        subject: Subject,
        sizes: &Sizes,
    ) -> Option<Claim> {
        let admitted = self.queue.enter_now(())?;
        self.admit(decider, (subject, sizes), admitted)
    }

    fn admit(
        &self,
        decider: &SharedDecider,
        of: (Subject, &Sizes),
        admitted: AdmittedRequest<()>,
    ) -> Option<Claim> {
        let view = self.view.load_full();
        let (pick, held) = self.choose(decider, &view, of, &[]).ok()?;
        let control = view.settings.servers[pick.node.get()].handoff;
        let member = held.member().clone();
        let turn = ServerTurn::new(held, Some(admitted), decider, self.clock);
        Some(Claim { member, control, turn })
    }

    /// The policy's choice among the servers that have not been tried. A server that holds as many requests
    /// as it may is excluded, as if it were down for this request.
    fn choose(
        &self,
        decider: &SharedDecider,
        view: &SwitchView,
        (subject, sizes): (Subject, &Sizes),
        tried: &[Arc<Member>],
    ) -> Result<(Pick, HeldRequest), ServerFailure> {
        if view.members.is_empty() {
            return Err(ServerFailure::NoMembers);
        }
        let size = sizes.get(subject.key);
        let request = Request { key: subject.key, class: subject.class, size };
        let was_tried = |(at, member): (NodeIndex, &Arc<Member>)| {
            tried.iter().any(|other| Arc::ptr_eq(other, member)).then_some(at)
        };
        let mut out: Vec<_> =
            (0..).map(NodeIndex).zip(&view.members).filter_map(was_tried).collect();
        let mut failure = ServerFailure::AllDown;
        loop {
            let now = self.clock.now();
            let pick = match out.is_empty() {
                true => decider.pick(&request, view.cluster(), now),
                false => decider.pick(&request, &view.cluster().without(&out), now),
            }
            .ok_or(failure)?;
            let pick = if tried.is_empty() { pick } else { retried(pick) };
            let (at, most) = (pick.node.get(), view.settings.servers[pick.node.get()].max_conns);
            if let Some(held) = view.members[at].hold(most) {
                self.metrics.decision(decider, pick);
                return Ok((pick, held));
            }
            failure = ServerFailure::QueueFull;
            out.push(pick.node);
        }
    }
}

/// The server chosen for a request that is to be handed over with its connection.
pub struct Claim {
    /// The server.
    pub member: Arc<Member>,
    /// Its address for handoff, if it has one.
    pub control: Option<HandoffControl>,
    /// The turn of the request.
    pub turn: ServerTurn,
}

impl ServerTurn {
    /// Counts another request of a connection that a server has already. It does not wait.
    pub fn again(clock: Clock, decider: &SharedDecider, member: &Arc<Member>) -> Option<Self> {
        Some(Self::new(member.hold(u32::MAX)?, None, decider, clock))
    }

    fn new(
        held: HeldRequest,
        admitted: Option<AdmittedRequest<()>>,
        decider: &SharedDecider,
        clock: Clock,
    ) -> Self {
        Self {
            held,
            _admitted: admitted,
            decider: decider.clone(),
            classes: None,
            clock,
            sent: Instant::now(),
            answered: None,
            ended: false,
        }
    }

    /// Ends the turn of a request that the server has answered to the client itself. Its status is not known.
    pub fn end_elsewhere(mut self) {
        self.answered = Some((Instant::now(), StatusCode::OK));
        self.ended = true;
    }
}

impl ResponseGuard for ServerTurn {
    fn complete(mut self: Box<Self>) {
        self.ended = true;
    }
}

impl Drop for ServerTurn {
    fn drop(&mut self) {
        let Some(answered) = self.answered else { return };
        let at = if self.decider.observes() { self.held.member().at() } else { None };
        if at.is_none() && self.classes.is_none() {
            return;
        }
        let outcome = outcome(at.unwrap_or_default(), self.sent, answered, self.ended);
        if let Some((classes, subject, path)) = self.classes.take().filter(|_| outcome.ok) {
            classes.observe(subject.rule, &path, outcome.latency);
        }
        if at.is_some() {
            self.decider.observe(&outcome, self.clock.now());
        }
    }
}
