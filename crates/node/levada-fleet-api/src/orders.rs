//! The orders, by the code that the commands run.

use std::{net::IpAddr, time::Duration};

use bytes::Bytes;
use http::{Response, StatusCode};
use levada_fleet::{
    Caller, CheckError, Directory, FleetCheck, History, KEPT_REVISIONS, Overview, Tolerance,
    apply::{Canary, Plan, Seen},
    archive, bound, check as check_fleet, content,
    difference::{changed_files, changed_settings, head_files},
    enrol::{self, Grant},
    rotate::rotate,
    state::Followed,
};
use levada_types::parse_duration;

use crate::{
    answer::{Body, Problems, Refused, empty, json, problems, versioned},
    openapi::description,
    progress::bring,
    request::Parameters,
    routes::{
        AT_ONCE, CANARY, CHECK, Changes, Checked, HOLD, IF_MATCH, KEEP, NOTE, NodeOrder, Order,
        REVISION, TIMEOUT, TokenMade, TokenOrder,
    },
    server::Server,
};

/// An order, as it has come.
pub(crate) struct Asked<'a> {
    pub(crate) server: &'a Server,
    pub(crate) caller: Caller,
    pub(crate) client: IpAddr,
    pub(crate) parameters: Parameters,
    /// The part of the path that the route has a name for.
    pub(crate) name: String,
    pub(crate) body: Bytes,
}

/// A directory that was checked, and the head that it was compared with.
struct Candidate {
    followed: Followed,
    former: Directory,
    directory: Directory,
    check: FleetCheck,
}

impl Asked<'_> {
    pub(crate) async fn carry_out(self, order: Order) -> Result<Response<Body>, Refused> {
        let state = &self.caller.state;
        match order {
            // It needs no token, and is answered before.
            Order::Description => Ok(json(StatusCode::OK, &description())),
            Order::Status => {
                let overview = Overview::of(state, &self.server.token.fleet).await?;
                let version = state.followed().await?.version();
                Ok(versioned(json(StatusCode::OK, &overview), &version))
            }
            Order::History => Ok(json(StatusCode::OK, &History::of(state).await?)),
            Order::Check => {
                let candidate = self.candidate().await?;
                if !candidate.check.is_usable() {
                    return Ok(unusable(&candidate.check));
                }
                let answer = json(StatusCode::OK, &checked(&candidate.check));
                Ok(versioned(answer, &candidate.followed.version()))
            }
            Order::Diff => self.differ(self.candidate().await?).await,
            Order::Apply => self.apply().await,
            Order::Rollback => self.roll_back().await,
            Order::Rotate => {
                let patience = self.parameters.time(&TIMEOUT, PATIENCE)?;
                Ok(json(StatusCode::OK, &rotate(state, &self.from(), patience).await?))
            }
            Order::Drain | Order::Undrain => {
                let drained = order == Order::Drain;
                enrol::drain(state, &self.name, drained, &self.from()).await?;
                Ok(json(StatusCode::OK, &NodeOrder { node: self.name, drained, member: true }))
            }
            Order::Remove => {
                enrol::remove(state, &self.name, &self.from()).await?;
                let removed = NodeOrder { node: self.name, drained: true, member: false };
                Ok(json(StatusCode::OK, &removed))
            }
            Order::Tokens => {
                let tokens = state.tokens().await?.into_iter().map(|(_, record)| record);
                Ok(json(StatusCode::OK, &tokens.collect::<Vec<_>>()))
            }
            Order::MakeToken => self.make_token().await,
            Order::RevokeToken => {
                enrol::revoke_token(state, &self.name, &self.from()).await?;
                Ok(empty(StatusCode::NO_CONTENT))
            }
        }
    }

    /// The client, for the audit.
    fn from(&self) -> String {
        format!("{} by HTTP", self.client)
    }

    /// The directory of the body, checked for every node.
    async fn candidate(&self) -> Result<Candidate, Refused> {
        let unusable = |error: &dyn std::fmt::Display| {
            Refused::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
        };
        let sent = archive::unpack(&self.body).map_err(|error| unusable(&error))?;
        let followed = self.caller.state.followed().await?;
        let former = head_files(&self.caller.state, &followed).await?;
        let directory = if self.caller.sites.is_empty() {
            Directory::of(sent)
        } else {
            let replaced = bound::replaced(&former, sent, &self.caller.sites);
            replaced.map_err(|error| Refused::new(StatusCode::FORBIDDEN, error.to_string()))?
        };
        let check = self.check(&directory, &followed).await?;
        Ok(Candidate { followed, former, directory, check })
    }

    async fn check(
        &self,
        directory: &Directory,
        followed: &Followed,
    ) -> Result<FleetCheck, Refused> {
        let (directory, members) = (directory.clone(), followed.members.clone());
        let start_error = self.server.start_error;
        aside(move || check_fleet(&directory, &members, start_error)).await
    }

    async fn differ(&self, candidate: Candidate) -> Result<Response<Body>, Refused> {
        let Candidate { followed, former, directory, check } = candidate;
        if !check.is_usable() {
            return Ok(unusable(&check));
        }
        let [before, after] = [&former, &directory].map(content::stored_files);
        let (files, checked, version) =
            (changed_files(&before, &after), checked(&check), followed.version());
        let start_error = self.server.start_error;
        let compare = move || changed_settings(&former, &check, &followed.members, start_error);
        let settings = aside(compare).await?;
        Ok(versioned(json(StatusCode::OK, &Changes { files, settings, checked }), &version))
    }

    async fn apply(self) -> Result<Response<Body>, Refused> {
        let parameters = &self.parameters;
        let canary = Canary {
            share: parameters.percent(&CANARY, 25)?,
            hold: parameters.time(&HOLD, HOLD_TIME)?,
            tolerance: Tolerance::default(),
        };
        let (at_once, only_check) = (parameters.switch(&AT_ONCE)?, parameters.switch(&CHECK)?);
        let mut plan = self.plan((!at_once).then_some(canary))?;
        let candidate = self.candidate().await?;
        let version = candidate.followed.version();
        if plan.base.as_ref().is_some_and(|base| *base != version) {
            return Err(moved(&version));
        }
        if only_check || !candidate.check.is_usable() {
            return self.differ(candidate).await;
        }
        // The files of other sites are those of this head.
        if !self.caller.sites.is_empty() {
            plan.base = Some(version);
        }
        bring(self.caller.state, candidate.directory, plan).await
    }

    async fn roll_back(self) -> Result<Response<Body>, Refused> {
        let plan = self.plan(None)?;
        let seen = Seen::of(&self.caller.state).await?;
        let version = seen.followed.version();
        if plan.base.as_ref().is_some_and(|base| *base != version) {
            return Err(moved(&version));
        }
        let number = self.parameters.number(&REVISION)?;
        let absent = || Refused::new(StatusCode::NOT_FOUND, "there is no such revision");
        let wanted = seen.earlier(number).ok_or_else(absent)?;
        let directory = content::fetch(&self.caller.state, wanted, &Directory::default()).await?;
        let check = self.check(&directory, &seen.followed).await?;
        if !check.is_usable() {
            return Ok(unusable(&check));
        }
        bring(self.caller.state, directory, plan).await
    }

    fn plan(&self, canary: Option<Canary>) -> Result<Plan, Refused> {
        let parameters = &self.parameters;
        let kept = parameters.number(&KEEP)?.map_or(KEPT_REVISIONS, |count| count as usize);
        let base = parameters.text(&IF_MATCH).map(|tag| tag.trim_matches('"').to_owned());
        Ok(Plan {
            from: self.from(),
            note: parameters.text(&NOTE).unwrap_or_default().to_owned(),
            canary,
            patience: parameters.time(&TIMEOUT, PATIENCE)?,
            // Any head that there is.
            base: base.filter(|base| base != "*"),
            kept,
        })
    }

    async fn make_token(self) -> Result<Response<Body>, Refused> {
        let wrong = |words: String| Refused::new(StatusCode::BAD_REQUEST, words);
        let order: TokenOrder = serde_json::from_slice(&self.body)
            .map_err(|error| wrong(format!("the body is no token to be made: {error}")))?;
        let expires = order.expires.as_deref().map(parse_duration).transpose();
        let expires = expires.map_err(|error| wrong(format!("expires: {error}")))?;
        let (role, seconds) = (order.role, expires.map(|time| time.as_secs()));
        let grant = Grant { role, seconds, note: order.note, sites: order.sites };
        let made =
            enrol::make_token(&self.caller.state, &self.server.token, &grant, &self.from()).await?;
        let made = TokenMade { id: made.id, token: made.text };
        Ok(json(StatusCode::CREATED, &made))
    }
}

/// Checks on another thread: that of many nodes takes seconds, in which the locks of other orders must be renewed.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CheckError> + Send + 'static,
) -> Result<T, Refused> {
    let failed = |status, error: &dyn std::fmt::Display| Refused::new(status, error.to_string());
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| failed(StatusCode::INTERNAL_SERVER_ERROR, &error))?
        .map_err(|error| failed(StatusCode::UNPROCESSABLE_ENTITY, &error))
}

fn checked(check: &FleetCheck) -> Checked {
    let (problems, notes) = (problems(check), check.notes.clone());
    Checked { nodes: check.settings.len(), problems, notes }
}

fn unusable(check: &FleetCheck) -> Response<Body> {
    let error = "the directory cannot be used; nothing has changed".to_owned();
    let problems = Problems { error, problems: problems(check), notes: check.notes.clone() };
    json(StatusCode::UNPROCESSABLE_ENTITY, &problems)
}

fn moved(version: &str) -> Refused {
    let words =
        format!("the head is \"{version}\", another one than If-Match names: nothing has changed");
    Refused::new(StatusCode::PRECONDITION_FAILED, words)
}

/// As of the commands.
const HOLD_TIME: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(30);
