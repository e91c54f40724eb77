//! Coded copies of stored objects: each is made once, and read meanwhile by all who want it.
//!
//! A copy is an object like any other, and it is received as one: from its original instead of an origin,
//! block by block, by a writer that its readers follow.

use std::{future::poll_fn, sync::Arc};

use crate::{
    BlockReader, BlockTiers, BlockedBody, BodyWriter, FlightLeader, FlightStart, Follower,
    LongBody, Representation, Script, SingleFlight, StoredReader,
};
use bytes::Bytes;
use levada_store::{Blocks, Label, Object, new_version};
use levada_types::{Key, hash64, weigh};

use crate::compress::{
    coder::{Coder, CoderError},
    coding::Coding,
    settings::Levels,
    workers::Workers,
};

/// The key of a copy of the URI with this key: of one version of it.
pub fn copy_key(uri: Key, version: u64, coding: Coding) -> Key {
    Key(weigh(Key(weigh(uri, version)), hash64(coding.as_str().as_bytes())))
}

type CopyLeader = FlightLeader<Arc<BlockedBody>>;
type WholeBody = Box<Script<dyn crate::ReadAt>>;

/// The copies that are being made.
pub struct Copies {
    flights: Arc<SingleFlight<Arc<BlockedBody>>>,
    workers: Arc<Workers>,
    tiers: Arc<BlockTiers>,
}

/// The body of an original.
pub enum CopySource {
    /// It is being received, or kept in blocks.
    Blocks(Arc<BlockedBody>),
    /// It is in memory.
    Object(Arc<Object>),
}

impl Copies {
    /// No copies yet.
    pub fn new(workers: Arc<Workers>, tiers: Arc<BlockTiers>) -> Self {
        Self { flights: SingleFlight::new(), workers, tiers }
    }

    /// The bound on the work.
    pub fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// Copies that are being made.
    pub fn count(&self) -> usize {
        self.flights.count()
    }

    /// Follows the making of a copy, or begins it: its key is from [`copy_key`], its head from
    /// [`Coding::head_of`], its length unknown. `keep` stores it when it is whole. `None` when it cannot
    /// be made now: its client gets the original.
    pub async fn make(
        &self,
        key: Key,
        of: Representation,
        source: CopySource,
        (coding, levels): (Coding, &Levels),
        keep: impl Fn(Arc<Object>) + Send + 'static,
    ) -> Option<Arc<BlockedBody>> {
        let start = FlightStart::now(Label::new(0, 0), 0);
        let (follower, leader) = self.flights.join(key, &of.identity, start, |_, _| true)?;
        let Some(leader) = leader else { return followed(follower).await };
        let coder = Coder::new(coding, levels, self.workers.admit_copy()?)?;
        let kept = match &source {
            CopySource::Blocks(body) => body.is_kept(),
            CopySource::Object(_) => true,
        };
        let (body, writer) = BlockedBody::arriving(&self.tiers, of, kept);
        leader.settle(body.clone());
        let making = Making { body: body.clone(), writer, leader };
        tokio::spawn(making.run(coder, source, keep));
        drop(follower);
        Some(body)
    }
}

async fn followed(follower: Follower<Arc<BlockedBody>>) -> Option<Arc<BlockedBody>> {
    follower.outcome().await
}

/// A copy on its way into the store.
struct Making {
    body: Arc<BlockedBody>,
    writer: BodyWriter,
    leader: CopyLeader,
}

impl Making {
    async fn run(
        mut self,
        mut coder: Coder,
        source: CopySource,
        keep: impl Fn(Arc<Object>) + Send + 'static,
    ) {
        let mut source = script(source);
        loop {
            let next = poll_fn(|cx| coder.poll(cx, |cx| source.poll(cx))).await;
            match next {
                None => break,
                Some(Ok(coded)) => {
                    if !self.push(coded).await {
                        return;
                    }
                }
                // The writer drops: the copy has broken off for its readers as well.
                Some(Err(CoderError::Source(_) | CoderError::Encoder)) => return,
            }
        }
        self.finish(keep);
    }

    /// Adds coded bytes. Returns whether they are for anyone.
    async fn push(&mut self, coded: Bytes) -> bool {
        let written = self.writer.written() + coded.len() as u64;
        if written > self.body.of.block {
            self.body.set_long(|| LongBody { version: new_version(), origin: None });
        }
        let leader = &self.leader;
        let pushed = self.writer.push(coded, || leader.has_followers()).await;
        if self.body.is_long() && !self.writer.is_kept() {
            leader.end_following();
        }
        pushed.is_ok()
    }

    fn finish(self, keep: impl Fn(Arc<Object>)) {
        let Self { body, writer, leader } = self;
        let (identity, head) = (&*body.of.identity, body.of.head.clone());
        match body.long().map(|long| long.version) {
            None => {
                let pieces = writer.pieces();
                let object = Object::new(identity, head, pieces.iter(), writer.written());
                let object = Arc::new(object);
                if writer.is_kept() {
                    keep(object.clone());
                }
                writer.finish_as(object.body());
            }
            Some(version) => {
                if let Some(length) = writer.finish() {
                    let blocks = Blocks { version, block: body.of.block, length };
                    keep(Arc::new(Object::blocked(identity, head, blocks)));
                }
            }
        }
        drop(leader);
    }
}

fn script(source: CopySource) -> WholeBody {
    match source {
        CopySource::Blocks(body) => {
            let length = body.of.length;
            let reader = BlockReader::new(body, length.unwrap_or(u64::MAX));
            Box::new(Script::whole(length, reader))
        }
        CopySource::Object(object) => {
            let length = Some(object.length());
            Box::new(Script::whole(length, StoredReader::new(&object, None)))
        }
    }
}
