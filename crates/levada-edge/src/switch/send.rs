//! One request to the servers of a switch, and its turn, which lasts until the response has ended.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use http::StatusCode;
use levada_cache::strip_fields;
use levada_policy::{NodeIndex, Pick, RequestOutcome};
use levada_types::{Key, Request as PolicyRequest};
use levada_upstream::{
    AdmittedRequest, Group, RequestBody, ResponseGuard, Retries, ServerFailure, Subject,
    UpstreamHead, UpstreamResponse,
};

use super::{
    Switch, SwitchView, WatchedMember,
    member::{HeldRequest, Member},
};
use crate::{
    classes::Classes,
    clock::Clock,
    failure::Failed,
    fields::PEERS_ONLY,
    redirect::{SharedDecider, retried},
    settings::{HandoffControl, KeyFrom},
    sites::Site,
    sizes::Sizes,
};

/// A request's turn: its place, its server, and the outcome for the policy. It lasts until the body of the
/// response has ended.
pub(crate) struct ServerTurn {
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
pub(crate) struct ChosenServer {
    pub(crate) server: Arc<str>,
    pub(crate) pick: Pick,
}

/// Sends a request to the servers that the policy chooses, when it is the request's turn, until one answers.
pub(crate) async fn to_server(
    site: &Site,
    switch: &Arc<Switch>,
    sizes: &Sizes,
    tries: usize,
    head: &UpstreamHead,
    body: RequestBody,
) -> Result<UpstreamResponse, Failed> {
    let admitted = Some(switch.queue.enter(()).await?);
    let mut servers = SwitchServers { site, switch, sizes, head, admitted, tried: Vec::new() };
    let retries = Retries {
        tries,
        budget: &site.retries,
        resends_unsent: true,
        clock: switch.clock,
        counter: &*switch.metrics,
    };
    Ok(levada_upstream::send(&mut servers, &retries, head, body).await?)
}

/// The servers of a switch, for one request.
struct SwitchServers<'a> {
    site: &'a Site,
    switch: &'a Arc<Switch>,
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
        let Self { site, switch, sizes, head, .. } = *self;
        let (pick, held) = switch.choose(site, sizes, &view, head.subject, &self.tried)?;
        let watched = switch.watched(held.member(), &view);
        self.tried.push(held.member().clone());
        Ok((watched, SwitchTry { held, pick, sent: Instant::now() }))
    }

    fn answered(&mut self, _: WatchedMember, one: SwitchTry, response: &mut UpstreamResponse) {
        strip_fields(response.headers_mut(), &PEERS_ONLY);
        let (server, pick) = (one.held.member().server.name.clone(), one.pick);
        response.extensions_mut().insert(ChosenServer { server, pick });
        let learns = self.site.classes.as_ref().filter(|classes| classes.learns());
        let path = || self.head.uri.path().into();
        let turn = ServerTurn {
            held: one.held,
            _admitted: self.admitted.take(),
            decider: self.site.decider.clone(),
            classes: learns.map(|classes| (classes.clone(), self.head.subject, path())),
            clock: self.switch.clock,
            sent: one.sent,
            answered: Some((Instant::now(), response.status())),
            ended: false,
        };
        response.body_mut().hold(Box::new(turn));
    }

    fn failed(&mut self, _: WatchedMember, one: SwitchTry) {
        one.held.member().failures.fetch_add(1, Relaxed);
    }
}

impl Switch {
    /// The policy's choice among the servers that have not been tried. A server that holds as many requests
    /// as it may is excluded, as if it were down for this request.
    fn choose(
        &self,
        site: &Site,
        sizes: &Sizes,
        view: &SwitchView,
        subject: Subject,
        tried: &[Arc<Member>],
    ) -> Result<(Pick, HeldRequest), ServerFailure> {
        let size = sizes.get(subject.key);
        let request = PolicyRequest { key: subject.key, class: subject.class, size };
        let was_tried = |(at, member): (NodeIndex, &Arc<Member>)| {
            tried.iter().any(|other| Arc::ptr_eq(other, member)).then_some(at)
        };
        let mut out: Vec<_> =
            (0..).map(NodeIndex).zip(&view.members).filter_map(was_tried).collect();
        let mut failure = ServerFailure::AllDown;
        loop {
            let now = self.clock.now();
            let pick = match out.is_empty() {
                true => site.decider.pick(&request, view.cluster(), now),
                false => site.decider.pick(&request, &view.cluster().without(&out), now),
            }
            .ok_or(failure)?;
            let pick = if tried.is_empty() { pick } else { retried(pick) };
            let (at, most) = (pick.node.get(), view.settings.servers[pick.node.get()].max_conns);
            if let Some(held) = view.members[at].hold(most) {
                self.metrics.decision(site.decider.name(), pick);
                return Ok((pick, held));
            }
            failure = ServerFailure::QueueFull;
            out.push(pick.node);
        }
    }
}

/// The key of a request whose site takes it from the beginning of the body. The bytes are read here, and are
/// sent all the same. `None` where there is no body, or it takes too long.
pub(crate) async fn body_key(
    site: &Site,
    body: &mut RequestBody,
) -> Result<Option<Key>, ServerFailure> {
    let Some(KeyFrom::Body { bytes, wait }) = site.settings.switch.as_ref().map(|s| &s.key) else {
        return Ok(None);
    };
    let read = match body {
        RequestBody::Client(upload) => tokio::time::timeout(*wait, upload.read_ahead(*bytes)).await,
        RequestBody::None | RequestBody::Text(_) => {
            site.fell_back();
            return Ok(None);
        }
    };
    match read {
        Ok(Ok(beginning)) if beginning.is_empty() => Ok(None),
        Ok(Ok(beginning)) => Ok(Some(Key::of(&beginning))),
        Ok(Err(_)) => Err(ServerFailure::RequestBody),
        Err(_) => {
            site.fell_back();
            Ok(None)
        }
    }
}

/// The server chosen for a request that is to be handed over with its connection, its back-end if it has
/// one, and the turn.
pub(crate) type Claim = (Arc<Member>, Option<HandoffControl>, ServerTurn);

/// Chooses the server when it is the request's turn.
pub(crate) async fn claim(
    site: &Site,
    switch: &Switch,
    sizes: &Sizes,
    subject: Subject,
) -> Option<Claim> {
    let admitted = switch.queue.enter(()).await.ok()?;
    admit(site, switch, sizes, subject, admitted)
}

/// The same if it is its turn at once.
pub(crate) fn claim_now(
    site: &Site,
    switch: &Switch,
    sizes: &Sizes,
    subject: Subject,
) -> Option<Claim> {
    let admitted = switch.queue.enter_now(())?;
    admit(site, switch, sizes, subject, admitted)
}

fn admit(
    site: &Site,
    switch: &Switch,
    sizes: &Sizes,
    subject: Subject,
    admitted: AdmittedRequest<()>,
) -> Option<Claim> {
    let view = switch.view.load_full();
    let (pick, held) = switch.choose(site, sizes, &view, subject, &[]).ok()?;
    let control = view.settings.servers[pick.node.get()].handoff;
    let member = held.member().clone();
    let turn = ServerTurn {
        held,
        _admitted: Some(admitted),
        decider: site.decider.clone(),
        classes: None,
        clock: switch.clock,
        sent: Instant::now(),
        answered: None,
        ended: false,
    };
    Some((member, control, turn))
}

impl ServerTurn {
    /// Counts another request of a connection that a server has already. It does not wait.
    pub(crate) fn again(clock: Clock, site: &Site, member: &Arc<Member>) -> Option<Self> {
        Some(Self {
            held: member.hold(u32::MAX)?,
            _admitted: None,
            decider: site.decider.clone(),
            classes: None,
            clock,
            sent: Instant::now(),
            answered: None,
            ended: false,
        })
    }

    /// Ends the turn of a request that the server has answered to the client itself. Its status is not known.
    pub(crate) fn end_elsewhere(mut self) {
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
        let Some((answered, status)) = self.answered else { return };
        let latency = answered - self.sent;
        let ok = self.ended && !status.is_server_error();
        if let Some((classes, subject, path)) = self.classes.take().filter(|_| ok) {
            classes.observe(subject.rule, &path, latency);
        }
        if self.decider.observes()
            && let Some(node) = self.held.member().at()
        {
            let service_time = self.sent.elapsed();
            let outcome = RequestOutcome { node, latency, service_time, ok };
            self.decider.observe(&outcome, self.clock.now());
        }
    }
}
