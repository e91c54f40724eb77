//! The phases of a row, in their order.

use std::{cell::Cell, ops::Range, rc::Rc, time::Duration};

use futures_util::future::join_all;
use http::HeaderMap;
use levada_testbed::cluster::load::poisson;
use levada_types::Rng;
use tokio::time::{Instant, interval, timeout};

use super::{
    RegionsOutcome,
    arrangements::Arrangement,
    load::{Answers, RegionClients},
    network::{FAR, HOME, NODES, REGIONS, RegionHosts, name, region_of},
    nodes::RegionNodes,
    objects::{ObjectKind, Target},
    origin::Origin,
};
use crate::args::regions::RegionsArgs;

/// A running arrangement, and the requests for it.
pub(super) struct Stage<'a> {
    pub(super) args: &'a RegionsArgs,
    pub(super) arrangement: &'a Arrangement,
    pub(super) hosts: &'a RegionHosts,
    pub(super) nodes: RegionNodes<'a>,
    pub(super) origin: Rc<Origin>,
    pub(super) clients: RegionClients,
    /// The number of the next object that no node has.
    pub(super) missed: Cell<u64>,
    pub(super) rng: Rng,
}

/// The answers while the region [`FAR`] is cut off.
pub(super) struct CutAnswers {
    /// Of every region, for fresh objects that its nodes have.
    pub(super) warm: [Answers; REGIONS.len()],
    /// Of the region, for objects that it has and that are stale.
    pub(super) stale: Answers,
    /// Of every region, for objects that no node has.
    pub(super) missed: [Answers; REGIONS.len()],
}

/// The times from the end of a cut until every node of the region answers requests for objects that no node has.
#[derive(Default)]
pub(super) struct Healing {
    pub(super) any_way: Option<Duration>,
    pub(super) by_shield: Option<Duration>,
}

impl Stage<'_> {
    /// All phases.
    ///
    /// # Errors
    /// If a node cannot be purged.
    pub(super) async fn play(mut self) -> anyhow::Result<RegionsOutcome> {
        let cold = self.fill().await;
        let asked = self.origin.asked(ObjectKind::Fresh.prefix());
        let warm = self.warm().await;
        let cut = self.cut().await;
        let healing = self.heal().await;
        let path = ObjectKind::Fresh.number(0).path;
        let tag = self.origin.publish(&path);
        let purge = self.nodes.purge(PURGING, &path).await?;
        let old = self.old(&tag).await;
        let away = self.arrangement.cluster_of(PURGING).pop().unwrap_or(PURGING);
        self.nodes.kill(away).await;
        self.origin.publish(&path);
        let purge_without = self.nodes.purge(PURGING, &path).await?;
        Ok(RegionsOutcome {
            cold,
            per_object: asked as f64 / f64::from(self.args.objects),
            warm,
            cut,
            healing,
            purge,
            old,
            away: name(away),
            purge_without,
        })
    }

    /// Every region requests every object at the same time. The region that will be cut off gets some that become stale.
    async fn fill(&mut self) -> [Answers; REGIONS.len()] {
        let count = u64::from(self.args.objects);
        let all = (0..count).flat_map(|number| {
            let due = FILL_INTERVAL * number as u32;
            let stale =
                (number < self.stale().end).then(|| (FAR, ObjectKind::Stale.number(number)));
            let fresh = (0..REGIONS.len()).map(move |at| (at, ObjectKind::Fresh.number(number)));
            fresh.chain(stale).map(move |asked| (due, asked))
        });
        self.clients.offer(all).await
    }

    /// The numbers of the objects that become stale.
    fn stale(&self) -> Range<u64> {
        0..u64::from(self.args.objects.div_ceil(5))
    }

    /// Every region requests what its nodes have.
    async fn warm(&mut self) -> [Answers; REGIONS.len()] {
        let requests = self.args.requests as usize * REGIONS.len();
        let all = self.fresh(Duration::MAX).take(requests).collect::<Vec<_>>();
        self.clients.offer(all.into_iter()).await
    }

    /// The long links of a region are cut. It requests what it has, fresh and stale, and what it has not.
    async fn cut(&mut self) -> CutAnswers {
        let length = self.args.cut;
        let (fresh, stale) = (self.fresh(length).collect::<Vec<_>>(), self.stale());
        let mut choice = Rng::new(self.rng.bits());
        let times = poisson(STALE_RATE, (Duration::ZERO, length), Rng::new(self.rng.bits()));
        let stale = times.map(|at| {
            let number = choice.below(stale.end as usize) as u64;
            (at, (FAR, ObjectKind::Stale.number(number)))
        });
        let times = poisson(MISS_RATE, (Duration::ZERO, length), Rng::new(self.rng.bits()));
        let missed = times.flat_map(|at| (0..REGIONS.len()).map(move |region| (at, region)));
        let missed = missed.map(|(at, region)| (at, (region, self.miss())));
        self.hosts.cut(FAR, true);
        let (warm, stale, missed) = tokio::join!(
            self.clients.offer(fresh.into_iter()),
            self.clients.offer(stale),
            self.clients.offer(missed),
        );
        self.hosts.cut(FAR, false);
        let [.., stale] = stale;
        CutAnswers { warm, stale, missed }
    }

    /// Requests for fresh objects, each of any region.
    fn fresh(
        &mut self,
        length: Duration,
    ) -> impl Iterator<Item = (Duration, (usize, Target))> + use<> {
        let (mut choice, times) = (Rng::new(self.rng.bits()), Rng::new(self.rng.bits()));
        let count = self.args.objects as usize;
        let times = poisson(WARM_RATE * REGIONS.len() as f64, (Duration::ZERO, length), times);
        times.enumerate().map(move |(number, at)| {
            let object = ObjectKind::Fresh.number(choice.below(count) as u64);
            (at, (number % REGIONS.len(), object))
        })
    }

    /// An object that no node has.
    fn miss(&self) -> Target {
        self.missed.set(self.missed.get() + 1);
        ObjectKind::Missed.number(self.missed.get())
    }

    /// Requests what no node has at all nodes of the region, until all of them answer.
    async fn heal(&self) -> Healing {
        let (begun, mut round, mut healing) = (Instant::now(), interval(ROUND), Healing::default());
        let own: Vec<_> = (0..NODES).filter(|at| region_of(*at) == FAR).collect();
        while begun.elapsed() < LONGEST_HEALING {
            round.tick().await;
            let all = own.iter().map(|at| async { self.clients.ask(*at, &self.miss()).await });
            let Ok(answers) = timeout(LATE, join_all(all)).await else { continue };
            let Ok(answers) = answers.into_iter().collect::<Result<Vec<_>, _>>() else { continue };
            healing.any_way.get_or_insert(begun.elapsed());
            let by_shield = answers.iter().all(is_by_shield);
            if by_shield {
                healing.by_shield = Some(begun.elapsed());
            }
            if by_shield || !self.arrangement.has_shield {
                break;
            }
        }
        healing
    }

    /// The nodes that answer with another version than this one, or not at all.
    async fn old(&self, tag: &str) -> usize {
        let object = ObjectKind::Fresh.number(0);
        let mut old = 0;
        for node in self.arrangement.cluster_of(PURGING) {
            let answer = self.clients.ask(node, &object).await;
            let is_new =
                answer.is_ok_and(|fields| fields.get("etag").is_some_and(|own| own == tag));
            old += usize::from(!is_new);
        }
        old
    }
}

/// Whether a node of the shield has passed an answer on (RFC 9211).
fn is_by_shield(fields: &HeaderMap) -> bool {
    let all = fields.get_all("cache-status").iter().filter_map(|value| value.to_str().ok());
    let mut members = all.flat_map(|value| value.split(','));
    members.any(|member| member.trim().starts_with(REGIONS[HOME].name))
}

/// The node at which the operator purges.
pub(super) const PURGING: usize = 0;
/// The interval at which the next object is requested by all regions.
const FILL_INTERVAL: Duration = Duration::from_millis(50);
/// Requests per second of each region for what its nodes have.
pub(super) const WARM_RATE: f64 = 40.0;
/// Requests per second for stale objects, and of each region for what no node has.
const STALE_RATE: f64 = 10.0;
const MISS_RATE: f64 = 2.0;
const ROUND: Duration = Duration::from_millis(250);
/// The time after which a round of requests is given up: many round trips.
const LATE: Duration = Duration::from_secs(2);
const LONGEST_HEALING: Duration = Duration::from_secs(60);
