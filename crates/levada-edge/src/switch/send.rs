//! One request to one server, or to the next where that is safe.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use http::StatusCode;
use levada_cache::strip_fields;
use levada_policy::{NodeIndex, Pick, RequestOutcome};
use levada_types::{Key, Request as PolicyRequest};

use super::{
    Switch, SwitchView,
    member::{HeldRequest, Member},
    subject::Subject,
};
use crate::{
    body::{BodyError, RequestBody},
    classes::Classes,
    clock::Clock,
    failure::{Failed, Failure},
    forward::PEERS_ONLY,
    node::Node,
    redirect::{SharedDecider, retried},
    settings::{HandoffControl, KeyFrom},
    sites::Site,
    upstream::{AdmittedRequest, UpstreamHead, UpstreamResponse},
};

/// What a request holds until the answer's body has ended: a place, a server, and what is to be learned.
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

/// Which server was chosen, and why: what a log line and `Proxy-Status` say.
#[derive(Clone, Debug)]
pub(crate) struct ChosenServer {
    pub(crate) server: Arc<str>,
    pub(crate) pick: Pick,
}

/// Asks the servers that the policy chooses, when it is the request's turn, until one answers.
///
/// A request goes to another server only if it is safe to repeat, or if not a byte of it was sent, and
/// only until the first byte of an answer's head.
pub(crate) async fn to_server(
    node: &Node,
    site: &Site,
    switch: &Arc<Switch>,
    head: &UpstreamHead,
    mut body: RequestBody,
) -> Result<UpstreamResponse, Failed> {
    let safe = head.method.is_safe() && body.is_none();
    let mut admitted = Some(switch.queue.enter(()).await?);
    let mut tried: Vec<Arc<Member>> = Vec::new();
    let mut failed = Failed::from(Failure::AllDown);
    while tried.len() < node.settings.limits.tries as usize {
        if !tried.is_empty() && !site.may_retry(&node.clock) {
            break;
        }
        // A reload between two tries shows in the second one.
        let view = switch.view.load_full();
        let (pick, held) = match choose(node, site, &view, head.subject, &tried) {
            Ok(chosen) => chosen,
            Err(failure) if tried.is_empty() => return Err(failure.into()),
            Err(_) => break,
        };
        let server = held.member().server.clone();
        let sent = Instant::now();
        let failure = match server.exchange_or_return(head, body).await {
            Ok(mut exchange) => {
                switch.report_outcome(&view, held.member(), None);
                node.metrics.upstream("server", exchange.status());
                strip_fields(exchange.headers_mut(), &PEERS_ONLY);
                exchange
                    .extensions_mut()
                    .insert(ChosenServer { server: server.name.clone(), pick });
                let answered = Some((Instant::now(), exchange.status()));
                let learns = site.classes.as_ref().filter(|classes| classes.learns());
                let classes =
                    learns.map(|classes| (classes.clone(), head.subject, head.uri.path().into()));
                if admitted.is_some() {
                    exchange.body_mut().hold_turn(Box::new(ServerTurn {
                        held,
                        _admitted: admitted.take(),
                        decider: site.decider.clone(),
                        classes,
                        clock: node.clock,
                        sent,
                        answered,
                        ended: false,
                    }));
                }
                return Ok(exchange);
            }
            Err((failure, back)) => {
                let again = safe || back.is_some();
                body = back.unwrap_or(RequestBody::None);
                held.member().failures.fetch_add(1, Relaxed);
                switch.report_outcome(&view, held.member(), Some(failure));
                node.metrics.upstream_failure("server", failure);
                tracing::info!(server = %server.name, reason = failure.as_str(), "server failed");
                failed = Failed { failure, next_hop: Some(server.name.clone()) };
                if !again {
                    break;
                }
                failure
            }
        };
        if !failure.worth_retrying() {
            break;
        }
        tried.push(held.member().clone());
    }
    Err(failed)
}

/// The policy's choice among the servers that have not been tried. One that holds as many requests as it
/// may is passed over, as if it were down for this request.
fn choose(
    node: &Node,
    site: &Site,
    view: &SwitchView,
    subject: Subject,
    tried: &[Arc<Member>],
) -> Result<(Pick, HeldRequest), Failure> {
    let request =
        PolicyRequest { key: subject.key, class: subject.class, size: node.sizes.get(subject.key) };
    let was_tried = |(at, member): (NodeIndex, &Arc<Member>)| {
        tried.iter().any(|other| Arc::ptr_eq(other, member)).then_some(at)
    };
    let mut out: Vec<_> = (0..).map(NodeIndex).zip(&view.members).filter_map(was_tried).collect();
    let mut failure = Failure::AllDown;
    loop {
        let now = node.clock.now();
        let pick = match out.is_empty() {
            true => site.decider.pick(&request, view.cluster(), now),
            false => site.decider.pick(&request, &view.cluster().without(&out), now),
        }
        .ok_or(failure)?;
        let pick = if tried.is_empty() { pick } else { retried(pick) };
        let (at, most) = (pick.node.get(), view.settings.servers[pick.node.get()].max_conns);
        if let Some(held) = view.members[at].hold(most) {
            node.metrics.decision(site.decider.name(), pick);
            return Ok((pick, held));
        }
        failure = Failure::QueueFull;
        out.push(pick.node);
    }
}

/// The key of a request whose site takes it from the body: of as much of its beginning as is asked for,
/// which is read here and sent all the same. `None` where there is no body, or it takes too long.
pub(crate) async fn body_key(site: &Site, body: &mut RequestBody) -> Result<Option<Key>, Failure> {
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
        Ok(Err(BodyError::ClientStalled | BodyError::Client(_))) => Err(Failure::RequestBody),
        Ok(Err(_)) => Err(Failure::RequestBody),
        Err(_) => {
            site.fell_back();
            Ok(None)
        }
    }
}

/// A server that was chosen for a request that is to be handed over with its connection, where connections
/// can be handed to it, and the turn.
pub(crate) type Claim = (Arc<Member>, Option<HandoffControl>, ServerTurn);

/// Chooses the server when it is the request's turn.
pub(crate) async fn claim(
    node: &Node,
    site: &Site,
    switch: &Arc<Switch>,
    subject: Subject,
) -> Option<Claim> {
    let admitted = switch.queue.enter(()).await.ok()?;
    admit(node, site, switch, subject, admitted)
}

/// The same if it is its turn at once.
pub(crate) fn claim_now(
    node: &Node,
    site: &Site,
    switch: &Arc<Switch>,
    subject: Subject,
) -> Option<Claim> {
    let admitted = switch.queue.enter_now(())?;
    admit(node, site, switch, subject, admitted)
}

fn admit(
    node: &Node,
    site: &Site,
    switch: &Switch,
    subject: Subject,
    admitted: AdmittedRequest<()>,
) -> Option<Claim> {
    let view = switch.view.load_full();
    let (pick, held) = choose(node, site, &view, subject, &[]).ok()?;
    let control = view.settings.servers[pick.node.get()].handoff;
    let member = held.member().clone();
    let turn = ServerTurn {
        held,
        _admitted: Some(admitted),
        decider: site.decider.clone(),
        classes: None,
        clock: node.clock,
        sent: Instant::now(),
        answered: None,
        ended: false,
    };
    Some((member, control, turn))
}

impl ServerTurn {
    /// Another request of a connection that is at a server already: it counts, and does not wait.
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

    /// The server has answered the client itself. How, only the server knows.
    pub(crate) fn end_elsewhere(mut self) {
        self.answered = Some((Instant::now(), StatusCode::OK));
        self.ended = true;
    }

    /// The answer has come in whole.
    pub(crate) fn end(mut self) {
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
