//! Servers that fail and return.
//!
//! A process that ends takes its memory and its connections with it; its disk stays. A request of which no
//! byte has been answered is tried again at another server, as a node does; any other is lost. A
//! front-end goes on choosing the server until it notices, or until requests in a row found it down.
//!
//! Events cannot be taken out of the agenda. A request with an event to come keeps its number as
//! [`Stage::Lost`] until then.

use levada_policy::NodeIndex;
use levada_types::Timestamp;

use super::{Event, Request, Stage, World};
use crate::slab::NONE;

impl World<'_> {
    pub(super) fn begin_failures(&mut self) {
        for (list, failure) in (0..).zip(&self.prepared.scenario.servers.failure) {
            self.agenda.schedule(Timestamp::ZERO + failure.at.0, Event::Fail(list));
        }
    }

    /// The next server of a list fails.
    pub(super) fn fail_next(&mut self, list: u32) {
        let failure = &self.prepared.scenario.servers.failure[list as usize];
        let turn = failure.every.map_or(0, |every| {
            self.agenda.schedule(self.now + every.0, Event::Fail(list));
            let since = self.now - (Timestamp::ZERO + failure.at.0);
            (since.as_nanos() / every.0.as_nanos()) as usize
        });
        let server = match failure.servers.len() {
            0 => (turn % self.servers.len()) as u32,
            listed => failure.servers[turn % listed],
        };
        if self.servers[server as usize].is_up {
            let noticed = self.prepared.scenario.servers.noticed_after.0;
            self.agenda.schedule(self.now + failure.r#for.0, Event::Return(server));
            self.agenda.schedule(self.now + noticed, Event::Notice(server));
            self.fail(server);
        }
    }

    pub(super) fn come_back(&mut self, server: u32) {
        let noticed = self.prepared.scenario.servers.noticed_after.0;
        self.servers[server as usize].is_up = true;
        self.collector.returned(self.now);
        self.agenda.schedule(self.now + noticed, Event::Notice(server));
    }

    pub(super) fn notice(&mut self, server: u32) {
        self.redirectors.notice(NodeIndex(server), self.servers[server as usize].is_up);
    }

    fn fail(&mut self, server: u32) {
        self.collector.failed(self.now);
        self.servers[server as usize].fail(self.now, &self.prepared.scenario.cache);
        for fill in self.fills.numbers() {
            if self.fills[fill].server == server {
                self.fills[fill].server = NONE;
            }
        }
        for request in self.requests.numbers() {
            if self.requests[request].server == server {
                self.cut(request);
            }
        }
    }

    /// The server of this request has failed.
    fn cut(&mut self, request: u32) {
        let Request { stage, block, .. } = self.requests[request];
        let mut is_reported = true;
        match stage {
            // It has no server yet, or none any more.
            Stage::Arriving | Stage::Lost | Stage::Gone => return,
            Stage::Closing => {}
            _ => {
                is_reported = self.network.abort(request, self.now);
                if block == 0 { self.try_again(request) } else { self.lose(request) }
            }
        }
        match stage {
            Stage::Waiting | Stage::Filling => self.remove(request),
            Stage::Sending if !is_reported => self.remove(request),
            _ => self.requests[request].stage = Stage::Lost,
        }
    }

    /// The request has found its server down.
    pub(super) fn refused(&mut self, request: u32) {
        let Request { client, server, .. } = self.requests[request];
        self.redirectors.refused(client, NodeIndex(server));
        self.network.abort(request, self.now);
        self.try_again(request);
        self.remove(request);
    }

    /// Another server gets the request, if it may be tried once more.
    fn try_again(&mut self, request: u32) {
        let Request { sent, document, client, server, tries, .. } = self.requests[request];
        let tried = u32::from(tries) + 1;
        if tried >= self.prepared.scenario.servers.tries {
            return self.lose(request);
        }
        self.requests[request].counted = None;
        match self.redirect(client, document, Some(NodeIndex(server))) {
            Some((next, counted)) => {
                self.collector.moved_on(self.now, server, next);
                let tries = u8::try_from(tried).unwrap_or(u8::MAX);
                self.open(sent, client, document, next, Some(counted), tries);
            }
            None => self.lose(request),
        }
    }

    /// The client gets no whole answer.
    fn lose(&mut self, request: u32) {
        let Request { client, server, document, .. } = self.requests[request];
        self.requests[request].counted = None;
        self.collector.left(self.now, server);
        self.collector.lost(self.now);
        self.lost_in_front(client, document);
        self.leave(client);
    }
}
