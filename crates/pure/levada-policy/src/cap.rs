//! The client-aware policy of WWW10 (Casalicchio and Colajanni): it considers which server
//! resources a request uses, not only how many requests a server has.
//!
//! CAP needs no feedback from the servers. It classifies requests by the resources they stress and
//! assigns each class in circular order, so that every server gets the same mix (Sec. 3.2). The
//! paper compares it with `static_partition`, which dedicates servers to each class (Sec. 3.1).

use std::{any::Any, ops::Range};

use levada_types::{Request, ServiceClass};

use crate::rotation::Rotation;
use crate::{
    Candidates, Cluster, Deployment, Kind, Need, NodeIndex, Parameter, Parameters, Pick,
    PickContext, PickReason, Policy, PolicyEntry, Setting,
};

pub(crate) const ENTRIES: &[PolicyEntry] = &[CAP, PARTITION];

const CAP: PolicyEntry = PolicyEntry {
    name: "cap",
    paper: "WWW10 Sec. 3.2",
    summary: "round robin within each service class, so that every node gets the same mix",
    keyed: false,
    needs: &[Need::Class],
    parameters: &[],
    build: |_: &Parameters, _: &Deployment| Box::new(Cap::default()),
};

const PARTITION: PolicyEntry = PolicyEntry {
    name: "static_partition",
    paper: "WWW10 Sec. 3.1",
    summary: "dedicated nodes per service class, in proportion to the classes' shares",
    keyed: false,
    needs: &[Need::Class],
    parameters: &SHARES,
    build: |parameters: &Parameters, _: &Deployment| {
        Box::new(Partition {
            shares: SHARES.map(|p| parameters.number(p.name).expect("it has a default")),
            split: Split::default(),
            rotations: [Rotation::default(); CLASSES],
        })
    },
};

/// In the order of [`ServiceClass::ALL`]. Only the proportions matter.
const SHARES: [Parameter; CLASSES] = [
    share(
        "share_normal",
        "Share of the requests that are static or lightly dynamic (WWW10 Sec. 3.2).",
    ),
    share("share_disk", "Share of the requests that are disk bound (WWW10 Sec. 3.2)."),
    share("share_cpu", "Share of the requests that are CPU bound (WWW10 Sec. 3.2)."),
    share(
        "share_disk_and_cpu",
        "Share of the requests that are both disk and CPU bound (WWW10 Sec. 3.2).",
    ),
];

/// The number of service classes.
const CLASSES: usize = ServiceClass::ALL.len();

const fn share(name: &'static str, help: &'static str) -> Parameter {
    let (kind, default) = (Kind::Number(0.0, 1.0), Setting::Number(0.25));
    Parameter { name, kind, default, unit: "share", help }
}

#[derive(Clone, Default)]
struct Cap {
    /// One circular pointer per class, independent of the others.
    rotations: [Rotation; CLASSES],
}

impl Policy for Cap {
    #[inline]
    fn pick(
        &mut self,
        request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        let rotation = &mut self.rotations[request.class as usize];
        let node = rotation.turn(cluster.up(), cluster, context.rng)?;
        Some(Pick { node, reason: PickReason::Class, set_size: cluster.up().len() as u32 })
    }

    fn candidates(&self, request: &Request, cluster: &Cluster) -> Candidates {
        self.rotations[request.class as usize].order(cluster.up())
    }
}

#[derive(Clone)]
struct Partition {
    shares: [f64; CLASSES],
    split: Split,
    rotations: [Rotation; CLASSES],
}

impl Policy for Partition {
    fn pick(
        &mut self,
        request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        if self.split.nodes != cluster.len() {
            self.split = Split::new(&self.shares, cluster.len());
        }
        let (nodes, reason) = self.split.dedicated(request.class, cluster);
        let node = self.rotations[request.class as usize].turn(nodes, cluster, context.rng)?;
        Some(Pick { node, reason, set_size: nodes.len() as u32 })
    }

    fn candidates(&self, request: &Request, cluster: &Cluster) -> Candidates {
        let split = Split::new(&self.shares, cluster.len());
        let (nodes, _) = split.dedicated(request.class, cluster);
        self.rotations[request.class as usize].order(nodes)
    }

    fn inherit(&mut self, former: Box<dyn Any>) {
        if let Ok(former) = former.downcast::<Self>() {
            self.rotations = former.rotations;
        }
    }
}

/// The part of the cluster's list that is dedicated to each class.
#[derive(Clone, Default)]
struct Split {
    nodes: usize,
    parts: [Range<usize>; CLASSES],
}

impl Split {
    fn new(shares: &[f64; CLASSES], nodes: usize) -> Self {
        let present = shares.iter().filter(|share| **share > 0.0).count();
        let parts = if nodes >= present {
            consecutive(apportion(shares, nodes))
        } else {
            crowded(shares, nodes)
        };
        Self { nodes, parts }
    }

    /// The nodes that are up among the nodes of `class`. A class without any, because its share is
    /// 0 or because all of them are down, uses all the nodes that are up.
    fn dedicated<'a>(
        &self,
        class: ServiceClass,
        cluster: &'a Cluster,
    ) -> (&'a [NodeIndex], PickReason) {
        let part = &self.parts[class as usize];
        let below = |end: usize| cluster.up().partition_point(|node| node.get() < end);
        // If all nodes are up, which is the usual case, each node is at its own index.
        let part = if cluster.up().len() == cluster.len() {
            part.clone()
        } else {
            below(part.start)..below(part.end)
        };
        match &cluster.up()[part] {
            [] => (cluster.up(), PickReason::Spill),
            nodes => (nodes, PickReason::Class),
        }
    }
}

/// Divides `seats` by largest remainder; every class with a share gets at least one. There are at
/// least as many seats as classes with a share.
fn apportion(shares: &[f64; CLASSES], seats: usize) -> [usize; CLASSES] {
    let total: f64 = shares.iter().sum();
    let quota = shares.map(|share| if total > 0.0 { share / total * seats as f64 } else { 0.0 });
    let mut counts = quota.map(|q| if q > 0.0 { (q as usize).max(1) } else { 0 });
    // Give a seat to the class that is furthest below its quota, or take one from the class
    // furthest above it that has more than one. Of equal classes the earlier one is chosen.
    let lack = |counts: &[usize; CLASSES], class: usize| quota[class] - counts[class] as f64;
    while total > 0.0 && counts.iter().sum::<usize>() < seats {
        let gains =
            (0..CLASSES).rev().max_by(|&a, &b| lack(&counts, a).total_cmp(&lack(&counts, b)));
        counts[gains.expect("there are classes")] += 1;
    }
    while counts.iter().sum::<usize>() > seats {
        let spare = (0..CLASSES).filter(|&class| counts[class] > 1);
        let loses = spare.min_by(|&a, &b| lack(&counts, a).total_cmp(&lack(&counts, b)));
        counts[loses.expect("seats suffice for one each")] -= 1;
    }
    counts
}

fn consecutive(counts: [usize; CLASSES]) -> [Range<usize>; CLASSES] {
    let mut end = 0;
    counts.map(|count| {
        let start = end;
        end += count;
        start..end
    })
}

/// There are more classes than nodes, so classes share nodes. The largest class chooses first, and
/// each class joins the node with the smallest share so far; so the sums of the nodes become about
/// equal.
fn crowded(shares: &[f64; CLASSES], nodes: usize) -> [Range<usize>; CLASSES] {
    let mut parts: [Range<usize>; CLASSES] = Default::default();
    let mut sums = vec![0.0; nodes];
    let mut classes: Vec<usize> = (0..CLASSES).filter(|&class| shares[class] > 0.0).collect();
    classes.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]));
    for class in classes {
        let emptiest = (0..nodes).min_by(|&a, &b| f64::total_cmp(&sums[a], &sums[b]));
        let Some(node) = emptiest else { break };
        sums[node] += shares[class];
        parts[class] = node..node + 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParameterValue;
    use crate::testing::{World, cluster, nodes};
    use ServiceClass::{CpuBound as CB, DiskAndCpuBound as DCB, DiskBound as DB, Normal as N};
    use levada_types::{Key, Rng};

    fn request(class: ServiceClass) -> Request {
        Request { class, ..Request::new(Key(0)) }
    }

    fn picks(world: &mut World, cluster: &Cluster, classes: &[ServiceClass]) -> Vec<u32> {
        classes.iter().map(|c| world.pick(&request(*c), cluster).unwrap().node.0).collect()
    }

    /// The paper's Figure 2 is lost. This reconstruction satisfies its text: server A had the last
    /// CB and DCB, server B the last N and DB.
    #[test]
    fn two_servers_share_every_class() {
        let (mut world, two, a, b) = (World::new("cap", &[]), cluster(nodes(2)), 0, 1);
        assert_eq!(picks(&mut world, &two, &[CB, DCB, N, N, DB, DB]), [a, a, a, b, a, b]);
        let sequence = [DB, N, CB, CB, DCB, N, DB, N];
        assert_eq!(picks(&mut world, &two, &sequence), [a, a, b, a, b, b, b, a]);
    }

    #[test]
    fn within_a_class_no_two_nodes_differ_by_more_than_one() {
        let (mut world, five, mut chance) =
            (World::new("cap", &[]), cluster(nodes(5)), Rng::new(3));
        let mut counts = [[0u32; 5]; CLASSES];
        for _ in 0..2_000 {
            let class = ServiceClass::ALL[chance.below(CLASSES)];
            let node = world.pick(&request(class), &five).unwrap().node;
            counts[class as usize][node.get()] += 1;
            for of_class in &counts {
                let (low, high) = (of_class.iter().min().unwrap(), of_class.iter().max().unwrap());
                assert!(high - low <= 1, "{of_class:?}");
            }
        }
    }

    #[test]
    fn nodes_are_divided_by_largest_remainder() {
        assert_eq!(apportion(&[0.25; 4], 8), [2, 2, 2, 2]);
        assert_eq!(apportion(&[0.25; 4], 10), [3, 3, 2, 2]);
        assert_eq!(apportion(&[0.5, 0.3, 0.2, 0.0], 7), [4, 2, 1, 0]);
        assert_eq!(apportion(&[0.97, 0.01, 0.01, 0.01], 8), [5, 1, 1, 1]);
        assert_eq!(apportion(&[0.0; 4], 8), [0; 4]);
    }

    #[test]
    fn with_fewer_nodes_than_classes_the_largest_class_is_least_disturbed() {
        let parts = crowded(&[0.5, 0.2, 0.2, 0.1], 2);
        assert_eq!(parts, [0..1, 1..2, 1..2, 1..2]);
    }

    fn partitioned() -> World {
        World::new(
            "static_partition",
            &[
                ("share_normal", ParameterValue::Number(0.5)),
                ("share_disk", ParameterValue::Number(0.25)),
                ("share_cpu", ParameterValue::Number(0.25)),
                ("share_disk_and_cpu", ParameterValue::Integer(0)),
            ],
        )
    }

    #[test]
    fn each_class_stays_within_its_nodes() {
        let four = cluster(nodes(4));
        let classes = [N, N, N, DB, DB, CB, CB];
        assert_eq!(picks(&mut partitioned(), &four, &classes), [0, 1, 0, 2, 2, 3, 3]);
    }

    #[test]
    fn a_class_without_nodes_spills_over_all() {
        let four = cluster(nodes(4));
        assert_eq!(picks(&mut partitioned(), &four, &[DCB, DCB]), [0, 1]);
        let without_disk = four.without(&[NodeIndex(2)]);
        let pick = partitioned().pick(&request(DB), &without_disk).unwrap();
        assert_eq!((pick.node, pick.reason, pick.set_size), (NodeIndex(0), PickReason::Spill, 3));
    }
}
