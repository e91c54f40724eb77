//! Files on their way into a server's memory: from the origin, from its disk, or from another server's memory.
//!
//! One request starts the fill, block by block; requests for the same file meanwhile follow it and are
//! served as its blocks arrive.

use levada_types::Timestamp;

use super::{Event, Request, Stage, World};
use crate::{
    server::{Line, Place, block_bytes, blocks},
    slab::NONE,
    workload::Document,
};

/// A file on its way into a server's memory. Requests for the same file meanwhile become followers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    /// The server that reads it; [`NONE`] after this server has failed.
    pub(super) server: u32,
    pub(super) document: u32,
    pub(super) source: FillSource,
    pub(super) kind: FillKind,
    /// Blocks read so far.
    pub(super) done: u32,
    pub(super) followers: Line,
}

/// Where a file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FillSource {
    /// The origin, or the server's disk where there is none.
    Origin,
    /// The disk tier of the server's cache.
    Tier,
    /// The memory of another server.
    Memory(u32),
}

/// The purpose of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FillKind {
    /// Memory keeps it.
    Kept,
    /// It answers its requests only.
    Passing,
    /// The origin is asked whether a document in memory has changed.
    Renewal,
}

impl World<'_> {
    /// Begins a fill and serves the request from it.
    pub(super) fn fill(&mut self, request: u32, source: FillSource, kind: FillKind) {
        let Request { document, server, .. } = self.requests[request];
        if source == FillSource::Origin && self.has_most_misses(server) {
            return self.refuse(request);
        }
        let fill = self.begin_fill(server, document, source, kind);
        if kind == FillKind::Kept {
            self.servers[server as usize].memory.begin_fill(document, fill);
        }
        self.serve_from_fill(request, fill);
    }

    pub(super) fn begin_fill(
        &mut self,
        server: u32,
        document: u32,
        source: FillSource,
        kind: FillKind,
    ) -> u32 {
        let followers = Line::default();
        self.servers[server as usize].asking += u32::from(source == FillSource::Origin);
        let fill = self.fills.insert(Fill { server, document, source, kind, done: 0, followers });
        self.fetch_block(fill);
        fill
    }

    /// Whether a server has as many requests at the origin as it may (OSDI'02 Sec. 5.2.4: "throttling the number
    /// of URL-misses they forward").
    fn has_most_misses(&self, server: u32) -> bool {
        let limit = self.prepared.scenario.origin.as_ref().and_then(|o| o.misses_per_server);
        limit.is_some_and(|most| self.servers[server as usize].asking >= most)
    }

    /// The client gets an error instead of the document.
    fn refuse(&mut self, request: u32) {
        self.collector.lost(self.now);
        self.requests[request].document = self.documents.len() as u32 - 1;
        self.transmit(request);
    }

    /// The request follows the fill.
    pub(super) fn serve_from_fill(&mut self, request: u32, fill: u32) {
        self.requests[request].fill = fill;
        self.fills[fill].followers.push(request, &mut self.requests);
        self.respond(request);
    }

    /// Another server that has `document` in memory, where servers fetch from each other (WRR/GMS of
    /// ASPLOS'98). The lookup counts as a use at the holder.
    pub(super) fn holder(&mut self, document: u32, asking: u32) -> Option<u32> {
        if !self.global_memory {
            return None;
        }
        let others = (0..).zip(&mut self.servers).filter(|(server, _)| *server != asking);
        let mut having =
            others.filter_map(|(server, at)| Some((server, at.memory.find(document)?)));
        having.find(|(_, place)| matches!(place, Place::Memory(_))).map(|(server, _)| server)
    }

    /// The disk reads the next block, the origin sends it, or the server that has it in memory does, at the
    /// cost of sending it to a client. Receiving costs nothing: LARD's paper leaves this open, and zero
    /// favours WRR/GMS.
    pub(super) fn fetch_block(&mut self, fill: u32) {
        let Fill { server, document, source, done, .. } = self.fills[fill];
        let bytes = block_bytes(self.documents[document as usize].size, done);
        let at = match (source, &mut self.origin) {
            (FillSource::Memory(holder), _) => {
                let cost = self.costs[holder as usize].transmit(bytes);
                self.servers[holder as usize].cpu.take(self.now, cost)
            }
            (FillSource::Origin, Some(origin)) => {
                if done == 0 {
                    return origin.ask(self.now, fill, &mut self.agenda);
                }
                origin.send(self.now, bytes)
            }
            (FillSource::Tier, _) | (FillSource::Origin, None) => {
                let cost = self.costs[server as usize].read(done, bytes);
                self.servers[server as usize].disk_of(document).take(self.now, cost)
            }
        };
        self.agenda.schedule(at, Event::Block(fill));
    }

    /// The origin has the answer: its first block is sent.
    pub(super) fn answered(&mut self, fill: u32) {
        let Fill { server, document, kind, .. } = self.fills[fill];
        if let Some(origin) = &mut self.origin {
            origin.answers(self.now);
        }
        if server == NONE {
            return self.give_up(fill);
        }
        if kind == FillKind::Renewal && self.is_confirmed(fill) {
            return;
        }
        let bytes = block_bytes(self.documents[document as usize].size, 0);
        let origin = self.origin.as_mut().expect("it has answered");
        let at = origin.send(self.now, bytes);
        self.agenda.schedule(at, Event::Block(fill));
    }

    /// The server of a fill has failed.
    fn give_up(&mut self, fill: u32) {
        self.left_origin(fill);
        self.fills.remove(fill);
    }

    /// A fill that came from the origin asks it no more.
    pub(super) fn left_origin(&mut self, fill: u32) {
        if let Some(origin) = &mut self.origin
            && self.fills[fill].source == FillSource::Origin
        {
            let server = self.fills[fill].server;
            if server != NONE {
                self.servers[server as usize].asking -= 1;
            }
            origin.leave(self.now, &mut self.fills, &mut self.agenda);
        }
    }

    /// A block was read: the fill goes on, and so do the requests that wait for this block.
    pub(super) fn block_fetched(&mut self, fill: u32) {
        let Fill { server, document, source, done, .. } = self.fills[fill];
        if let Some(origin) = self.origin.as_mut().filter(|_| source == FillSource::Origin) {
            origin.sent(self.now, block_bytes(self.documents[document as usize].size, done));
        }
        if server == NONE {
            return self.give_up(fill);
        }
        self.fills[fill].done += 1;
        let Fill { server, document, source, kind, done, followers } = self.fills[fill];
        let size = self.documents[document as usize].size;
        if done == blocks(size) {
            if kind == FillKind::Kept {
                self.keep(server, document, source, Some(self.now));
            }
            return self.end_fill(fill);
        }
        self.fetch_block(fill);
        self.go_on(followers);
    }

    /// A server keeps a document that has come: in memory, and one from the origin on its disk as well. Without
    /// `now` that takes no time.
    pub(super) fn keep(
        &mut self,
        server: u32,
        document: u32,
        source: FillSource,
        now: Option<Timestamp>,
    ) {
        let Document { key, size } = self.documents[document as usize];
        let (at, cost) = (&mut self.servers[server as usize], &self.costs[server as usize]);
        let weight = size + self.prepared.scenario.cache.head.0;
        match source {
            // WRR/GMS keeps one copy in all memories together, as one large memory would.
            FillSource::Memory(_) => at.memory.forget(document),
            FillSource::Tier => at.memory.end_fill(document, key, weight),
            FillSource::Origin if !at.admits(key) => at.memory.forget(document),
            FillSource::Origin => {
                at.memory.end_fill(document, key, weight);
                at.write((document, key), size, now, cost);
                let freshness = self.freshness.as_ref();
                if let Some(stored) =
                    freshness.and_then(|all| all.stored(document, self.now.0 as i64))
                {
                    at.expiring.insert(document, stored);
                }
            }
        }
    }

    /// A fill is over: what follows it has all.
    pub(super) fn end_fill(&mut self, fill: u32) {
        self.left_origin(fill);
        let followers = self.fills[fill].followers;
        self.fills.remove(fill);
        let mut follower = followers.first;
        while follower != NONE {
            self.requests[follower].fill = NONE;
            follower = self.requests[follower].next;
        }
        self.go_on(followers);
    }

    /// Requests that wait for the next block, or for all of them, go on.
    fn go_on(&mut self, followers: Line) {
        let mut follower = followers.first;
        while follower != NONE {
            let next = self.requests[follower].next;
            if self.requests[follower].stage == Stage::Filling {
                self.transmit(follower);
            }
            follower = next;
        }
    }
}
