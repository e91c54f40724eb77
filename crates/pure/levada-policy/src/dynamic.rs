//! Dynamic replication (OSDI'02 Sec. 3.4): as many servers of its hash order serve an object as its
//! demand keeps busy.
//!
//! CDR walks from the first server to one that is not busy, for every request. FDR remembers
//! the length of the walk, takes the least loaded server within it, and shortens it by one when
//! that length has been enough for a while. CDR is FDR without the memory, FDR-Global and NP-FDR
//! are FDR with another load view, and the large-file variants (Sec. 5.4.2) treat large files
//! differently. So one implementation with four parameters covers all of them.

mod slots;

use std::any::Any;

use levada_types::{Key, Request};

use crate::{
    Candidates, Cluster, Deployment, Kind, Need, NodeIndex, Parameter, Parameters, Pick,
    PickContext, PickReason, Policy, PolicyEntry, Setting, Tracked,
    choose::any,
    order::{Method, ORDER, ORDER_CACHE, Order, POINTS},
    view::LoadView,
};
use slots::Slots;

pub(crate) const ENTRIES: &[PolicyEntry] = &[
    PolicyEntry {
        name: "cdr",
        paper: "OSDI'02 Sec. 3.4.1",
        summary: "the first server of the hash order that is not busy",
        parameters: &[BUSY, ORDER, POINTS, ORDER_CACHE],
        build: |p, s| Dynamic::boxed(CDR, p, s),
        ..FAMILY
    },
    PolicyEntry {
        name: "cdr-t-r",
        paper: "OSDI'02 Sec. 5.4.2",
        summary: "as cdr; large files go to any server",
        needs: &[Need::Size],
        parameters: &[BUSY, LARGE, ORDER, POINTS, ORDER_CACHE],
        build: |p, s| Dynamic::boxed(Axes { large: Some(Large::Any), ..CDR }, p, s),
        ..FAMILY
    },
    PolicyEntry {
        name: "cdr-t-s",
        paper: "OSDI'02 Sec. 5.4.2",
        summary: "as cdr; large files go to the least loaded of a fixed set",
        needs: &[Need::Size],
        parameters: &[BUSY, LARGE, LARGE_SET, ORDER, POINTS, ORDER_CACHE],
        build: |p, s| Dynamic::boxed(Axes { large: Some(Large::Set), ..CDR }, p, s),
        ..FAMILY
    },
    PolicyEntry {
        name: "fdr",
        summary: "the least loaded of as many servers of the hash order as demand keeps busy",
        parameters: &[BUSY, SHRINK_AFTER, MIN_SET, SLOTS, ORDER, POINTS, ORDER_CACHE],
        build: |p, s| Dynamic::boxed(FDR, p, s),
        ..FAMILY
    },
    PolicyEntry {
        name: "fdr-t-r",
        paper: "OSDI'02 Sec. 5.4.2",
        summary: "as fdr; large files go to any server",
        needs: &[Need::Size],
        parameters: &[BUSY, SHRINK_AFTER, MIN_SET, SLOTS, LARGE, ORDER, POINTS, ORDER_CACHE],
        build: |p, s| Dynamic::boxed(Axes { large: Some(Large::Any), ..FDR }, p, s),
        ..FAMILY
    },
    PolicyEntry {
        name: "fdr-t-s",
        paper: "OSDI'02 Sec. 5.4.2",
        summary: "as fdr; large files go to the least loaded of a fixed set",
        needs: &[Need::Size],
        parameters: &[
            BUSY,
            SHRINK_AFTER,
            MIN_SET,
            SLOTS,
            LARGE,
            LARGE_SET,
            ORDER,
            POINTS,
            ORDER_CACHE,
        ],
        build: |p, s| Dynamic::boxed(Axes { large: Some(Large::Set), ..FDR }, p, s),
        ..FAMILY
    },
    PolicyEntry {
        name: "fdr-global",
        summary: "as fdr, with the load of every server over all redirectors",
        needs: &[Need::GlobalLoads],
        parameters: &[BUSY, SHRINK_AFTER, MIN_SET, SLOTS, ORDER, POINTS, ORDER_CACHE],
        build: |p, s| {
            let global = LoadView { global: true, effective: false };
            // The loads include all redirectors, so the threshold leaves no room for the others.
            let alone = Deployment { redirectors: 1, ..*s };
            let busy = busy(p, &alone);
            Box::new(Dynamic { busy, ..Dynamic::new(Axes { view: global, ..FDR }, p, s) })
        },
        ..FAMILY
    },
    PolicyEntry {
        name: "np-fdr",
        paper: "OSDI'02 Sec. 3.5",
        summary: "as fdr, with load multiplied by distance",
        parameters: &[BUSY, BUSY_VIEW, SHRINK_AFTER, MIN_SET, SLOTS, ORDER, POINTS, ORDER_CACHE],
        build: |p, s| {
            let view = LoadView { effective: true, global: false };
            let busy_view = LoadView { effective: p.choice(BUSY_VIEW.name) == "effective", ..view };
            Box::new(Dynamic { busy_view, ..Dynamic::new(Axes { view, ..FDR }, p, s) })
        },
        ..FAMILY
    },
];

const FAMILY: PolicyEntry = PolicyEntry {
    name: "",
    paper: "OSDI'02 Sec. 3.4.2",
    summary: "",
    keyed: true,
    needs: &[],
    parameters: &[],
    build: |p, s| Dynamic::boxed(CDR, p, s),
};

const BUSY: Parameter = Parameter {
    name: "busy",
    kind: Kind::IntegerOr(1, u32::MAX as u64, &[RELATIVE, CAPACITY]),
    default: Setting::Choice(RELATIVE),
    unit: "",
    help: "When a server of weight 1 is busy. \"relative\": at 1.5 times its part of the mean load, plus twice the root of that part, plus 1. A number: at so many outstanding requests from this redirector; 300 in OSDI'02 Sec. 3.4.2. Multiplied by the number of redirectors it must stay below a server's capacity. \"capacity\": at the number that is 2/5 of a server's capacity, divided by the number of redirectors.",
};

/// The value of `busy` for a threshold that follows the mean load.
const RELATIVE: &str = "relative";
/// The value of `busy` for a threshold that follows the capacity of a server.
const CAPACITY: &str = "capacity";

const BUSY_VIEW: Parameter = Parameter {
    name: "busy_view",
    kind: Kind::Choice(&["raw", "effective"]),
    default: Setting::Choice("effective"),
    unit: "",
    help: "Whether the busy threshold applies to outstanding requests or to outstanding requests times distance; OSDI'02 Sec. 3.5 leaves it open.",
};

const SHRINK_AFTER: Parameter = Parameter {
    name: "shrink_after",
    kind: Kind::Duration(std::time::Duration::ZERO, std::time::Duration::from_secs(86_400)),
    default: Setting::Duration(std::time::Duration::from_secs(20)),
    unit: "",
    help: "How long a set must stay unchanged before it loses a server; OSDI'02 Sec. 3.4.2 does not say, 20s is K of LARD/R.",
};

const MIN_SET: Parameter = Parameter {
    name: "min_set",
    kind: Kind::Integer(1, u16::MAX as u64),
    default: Setting::Integer(1),
    unit: "nodes",
    help: "The least number of servers per object (OSDI'02 Sec. 3.4.2: one).",
};

const SLOTS: Parameter = Parameter {
    name: "slots",
    kind: Kind::Integer(1, 1 << 28),
    default: Setting::Integer(65_536),
    unit: "slots",
    help: "Slots for set sizes, of 6 bytes each; objects that hash to one slot share it. Use many more slots than servers (OSDI'02 Sec. 3.4.2).",
};

const LARGE: Parameter = Parameter {
    name: "large",
    kind: Kind::Integer(0, 1 << 50),
    default: Setting::Integer(530 * 1024),
    unit: "bytes",
    help: "Files above this size are large; 99 % of all files are smaller than 530 KB (OSDI'02 Sec. 5.4.2). A file of unknown size is not large.",
};

const LARGE_SET: Parameter = Parameter {
    name: "large_set",
    kind: Kind::Integer(1, 4096),
    default: Setting::Integer(10),
    unit: "nodes",
    help: "The number of first servers of the hash order; the least loaded of them serves a large file (OSDI'02 Sec. 5.4.2).",
};

/// The parameters in which the strategies differ.
#[derive(Clone, Copy)]
struct Axes {
    /// Whether the next request starts with the walk length of this one.
    remembers: bool,
    view: LoadView,
    large: Option<Large>,
}

#[derive(Clone, Copy)]
enum Large {
    Any,
    Set,
}

const CDR: Axes =
    Axes { remembers: false, view: LoadView { effective: false, global: false }, large: None };
const FDR: Axes = Axes { remembers: true, ..CDR };

#[derive(Clone)]
struct Dynamic {
    order: Order,
    slots: Option<Slots>,
    view: LoadView,
    busy_view: LoadView,
    busy: Busy,
    large: Option<(Large, u64, usize)>,
}

/// The rule for a busy server.
#[derive(Clone, Copy)]
enum Busy {
    /// At this many outstanding requests per unit of weight.
    At(f64),
    /// Above the bound relative to the mean load.
    Relative,
}

impl Dynamic {
    fn boxed(axes: Axes, parameters: &Parameters, around: &Deployment) -> Box<dyn Policy> {
        Box::new(Self::new(axes, parameters, around))
    }

    fn new(axes: Axes, parameters: &Parameters, around: &Deployment) -> Self {
        let integer = |p: &Parameter| parameters.integer(p.name).unwrap_or_default();
        Self {
            order: Order::new(Method::named(parameters), USUAL_WALK, parameters, around),
            slots: axes.remembers.then(|| {
                let slots = integer(&SLOTS) / u64::from(around.shards);
                let shrink_after = parameters.duration(SHRINK_AFTER.name);
                Slots::new(slots as usize, integer(&MIN_SET) as u16, shrink_after)
            }),
            view: axes.view,
            busy_view: axes.view,
            busy: busy(parameters, around),
            large: axes.large.map(|large| match large {
                Large::Any => (large, integer(&LARGE), 0),
                Large::Set => (large, integer(&LARGE), integer(&LARGE_SET) as usize),
            }),
        }
    }

    /// FDR as in Figure 2 of the paper. Without slots every walk begins with length 1, which is
    /// CDR.
    fn walk(&mut self, key: Key, cluster: &Cluster, context: &mut PickContext<'_>) -> Option<Pick> {
        let (view, busy_view) = (self.view, self.busy_view);
        let threshold = match self.busy {
            Busy::At(threshold) => threshold,
            Busy::Relative => busy_view.mean(cluster),
        };
        let busy = |node: &NodeIndex| match self.busy {
            Busy::At(_) => busy_view.busy(*node, cluster, threshold),
            Busy::Relative => busy_view.is_far_above(*node, cluster, threshold),
        };
        let slot = self.slots.as_ref().map(|slots| slots.of(key));
        let length = slot.map_or(1, |slot| slot.length);

        let set = self.order.first(key, cluster, length);
        let (first, mut steps) = (*set.first()?, set.len());
        let least = view.least(set, cluster, context.rng)?;
        if !busy(&least) {
            let reason = if steps == 1 { PickReason::Hash } else { PickReason::Replica };
            if let (Some(slots), Some(slot)) = (&mut self.slots, slot) {
                steps = slots.shrink(slot, steps, context.now);
            }
            return Some(Pick { node: least, reason, set_size: steps as u32 });
        }
        // Extend the walk. The new length is the number of steps: all nodes, if all are busy.
        let mut further = self.order.walk(key, cluster).skip(steps).inspect(|_| steps += 1);
        let idle = further.find(|node| !busy(node));
        if let (Some(slots), Some(slot)) = (&mut self.slots, slot) {
            slots.grow(slot, steps, context.now);
        }
        let (node, reason) =
            idle.map_or((first, PickReason::Hash), |node| (node, PickReason::Spill));
        Some(Pick { node, reason, set_size: steps as u32 })
    }

    /// Large files: T-R and T-S of the paper.
    fn pick_for_large(
        &mut self,
        (large, _, most): (Large, u64, usize),
        key: Key,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        match large {
            Large::Any => {
                let node = any(key, cluster, context.rng)?;
                Some(Pick { node, reason: PickReason::Chance, set_size: cluster.up().len() as u32 })
            }
            Large::Set => {
                let set = self.order.first(key, cluster, most);
                let node = self.view.least(set, cluster, context.rng)?;
                Some(Pick { node, reason: PickReason::Replica, set_size: set.len() as u32 })
            }
        }
    }

    fn large(&self, request: &Request) -> Option<(Large, u64, usize)> {
        self.large.filter(|(_, above, _)| request.size.is_some_and(|size| size > *above))
    }
}

impl Policy for Dynamic {
    fn pick(
        &mut self,
        request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        match self.large(request) {
            Some(large) => self.pick_for_large(large, request.key, cluster, context),
            None => self.walk(request.key, cluster, context),
        }
    }

    fn candidates(&self, request: &Request, cluster: &Cluster) -> Candidates {
        let set = match (self.large(request), &self.slots) {
            (Some((Large::Any, ..)), _) => usize::MAX,
            (Some((Large::Set, _, most)), _) => most,
            (None, Some(slots)) => slots.of(request.key).length,
            (None, None) => 1,
        };
        self.order.candidates(request.key, cluster, set)
    }

    fn tracked(&self) -> Tracked {
        self.slots.as_ref().map(Slots::tracked).unwrap_or_default()
    }

    fn inherit(&mut self, former: Box<dyn Any>) {
        let Ok(former) = former.downcast::<Self>() else { return };
        if let (Some(mine), Some(learned)) = (&mut self.slots, former.slots) {
            mine.inherit(learned);
        }
    }

    fn join(&mut self, first: &dyn Any) {
        if let Some(first) = first.downcast_ref::<Self>() {
            self.order.join(&first.order);
        }
    }
}

fn busy(parameters: &Parameters, around: &Deployment) -> Busy {
    match parameters.setting(BUSY.name) {
        Some(Setting::Integer(threshold)) => Busy::At(threshold as f64),
        Some(Setting::Choice(CAPACITY)) => Busy::At(around.busy_threshold() as f64),
        _ => Busy::Relative,
    }
}

/// The number of nodes of an order that are computed at first. This takes one pass over the nodes,
/// as for the first node alone, and busy nodes are so few that a second pass is rare.
const USUAL_WALK: usize = 4;

#[cfg(test)]
mod tests;
