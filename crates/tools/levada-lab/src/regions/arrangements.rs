//! Arrangements of the nodes, each with the part of a node's configuration that it differs in.

use super::network::{HOME, NODES, REGIONS, addresses, name, region_of};

/// How the nodes of all regions work together.
pub(super) struct Arrangement {
    pub(super) name: &'static str,
    /// Whether each region is a cluster of its own.
    is_split: bool,
    /// The keys of the site's policy.
    policy: &'static str,
    /// Whether nodes have regions, and the origin's shields it.
    pub(super) has_shield: bool,
}

/// All arrangements; limits hold for the first.
pub(super) const ARRANGEMENTS: &[Arrangement] = &[
    Arrangement {
        name: "shield",
        is_split: false,
        policy: r#"name = "adaptive""#,
        has_shield: true,
    },
    Arrangement { name: "one", is_split: false, policy: r#"name = "adaptive""#, has_shield: false },
    Arrangement {
        name: "near",
        is_split: false,
        policy: r#"name = "np-fdr", busy = "capacity""#,
        has_shield: false,
    },
    Arrangement {
        name: "three",
        is_split: true,
        policy: r#"name = "adaptive""#,
        has_shield: false,
    },
];

impl Arrangement {
    /// The nodes of the cluster that a node is in.
    pub(super) fn cluster_of(&self, node: usize) -> Vec<usize> {
        (0..NODES).filter(|at| !self.is_split || region_of(*at) == region_of(node)).collect()
    }

    /// Keys of the site.
    pub(super) fn site(&self) -> String {
        let policy = format!("policy = {{ {} }}\n", self.policy);
        match self.has_shield {
            true => format!("{policy}shield = \"{}\"\n", REGIONS[HOME].name),
            false => policy,
        }
    }

    /// The tables of all nodes of a node's cluster.
    pub(super) fn peers(&self, node: usize) -> String {
        let peer = |at: usize| {
            let (name, address) = (name(at), addresses(at).peers);
            let region = match self.has_shield {
                true => format!("region = \"{}\"\n", REGIONS[region_of(at)].name),
                false => String::new(),
            };
            format!("\n[[peer]]\nname = \"{name}\"\naddress = \"{address}\"\n{region}")
        };
        self.cluster_of(node).into_iter().map(peer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arrangement_has_its_row_in_the_documentation() {
        let page = include_str!("../../../../../docs/lab/regions.md");
        for arrangement in ARRANGEMENTS {
            let row = format!("\n| `{}` | ", arrangement.name);
            assert!(page.contains(&row), "{}", arrangement.name);
        }
    }
}
