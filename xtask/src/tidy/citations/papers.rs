//! The sections, figures and tables of the five papers that this project implements, and the sections
//! in which the policies are described.
//!
//! Some headings are lost in the texts at hand. Their numbers follow from the sections around them,
//! and their titles from how the text calls them; a star marks them. Of ASPLOS'98 the text at hand
//! has almost no headings: its list is that of the published paper.

/// A paper.
pub(super) struct Paper {
    /// As citations call it.
    pub(super) name: &'static str,
    /// Number and heading.
    pub(super) sections: &'static [(&'static str, &'static str)],
    /// First and last number of figures, and the section in which they are.
    pub(super) figures: &'static [(u32, u32, &'static str)],
    pub(super) tables: &'static [(u32, u32, &'static str)],
}

pub(super) const PAPERS: &[Paper] = &[OSDI02, ASPLOS98, WWW10, WORLDS04, WWW09];

/// Wang, Pai, Peterson: The Effectiveness of Request Redirection on CDN Robustness.
const OSDI02: Paper = Paper {
    name: "OSDI'02",
    sections: &[
        ("1", "Introduction"),
        ("2", "Building Blocks"),
        ("2.1", "Redirector Mechanisms *"),
        ("2.2", "Hashing Schemes *"),
        ("3", "Strategies"),
        ("3.1", "Random *"),
        ("3.2", "Static Server Set *"),
        ("3.2.1", "Replicated Consistent Hashing"),
        ("3.2.2", "Replicated Highest Random Weight"),
        ("3.3", "Load-Aware Static Server Set *"),
        ("3.4", "Dynamic Server Set *"),
        ("3.4.1", "Coarse Dynamic Replication *"),
        ("3.4.2", "Fine Dynamic Replication"),
        ("3.5", "Network Proximity"),
        ("4", "Evaluation Methodology"),
        ("4.1", "Simulator *"),
        ("4.2", "Network Topology *"),
        ("4.3", "Workload and Stability"),
        ("5", "Results"),
        ("5.1", "Normal Workload"),
        ("5.1.1", "Optimal Static Replication"),
        ("5.1.2", "System Capacity"),
        ("5.1.3", "Response Latency"),
        ("5.1.4", "Scalability *"),
        ("5.2", "Behavior Under Flash Crowds"),
        ("5.2.1", "System Capacity *"),
        ("5.2.2", "Response Latency *"),
        ("5.2.3", "Scalability *"),
        ("5.2.4", "Various Flash Crowds"),
        ("5.3", "Proximity"),
        ("5.4", "Other Factors *"),
        ("5.4.1", "Server Heterogeneity *"),
        ("5.4.2", "Large File Effects"),
    ],
    figures: &[
        (1, 1, "3.4.1"),
        (2, 2, "3.4.2"),
        (3, 3, "4.1"),
        (4, 4, "4.2"),
        (5, 5, "5.1.2"),
        (6, 9, "5.1.3"),
        (10, 10, "5.1.4"),
        (11, 11, "5.2.1"),
        (12, 15, "5.2.2"),
        (16, 16, "5.2.3"),
        (17, 18, "5.2.4"),
    ],
    tables: &[
        (1, 1, "3"),
        (2, 2, "5.1.2"),
        (3, 3, "5.1.3"),
        (4, 4, "5.2.2"),
        (5, 7, "5.3"),
        (8, 8, "5.4.1"),
        (9, 9, "5.4.2"),
    ],
};

/// Pai et al.: Locality-Aware Request Distribution in Cluster-based Network Servers.
const ASPLOS98: Paper = Paper {
    name: "ASPLOS'98",
    sections: &[
        ("1", "Introduction"),
        ("2", "Strategies for Request Distribution"),
        ("2.1", "Aiming for Balanced Load"),
        ("2.2", "Aiming for Locality"),
        ("2.3", "Basic Locality-Aware Request Distribution"),
        ("2.4", "LARD with Replication"),
        ("2.5", "Discussion"),
        ("3", "Simulation"),
        ("3.1", "Simulation Model"),
        ("3.2", "Simulation Inputs"),
        ("3.3", "Simulation Outputs"),
        ("4", "Simulation Results"),
        ("4.1", "Rice University Trace"),
        ("4.2", "Other Workloads"),
        ("4.3", "Sensitivity to CPU and Disk Speed"),
        ("4.4", "Delay"),
        ("5", "TCP Connection Handoff"),
        ("6", "Prototype Cluster Performance"),
        ("6.1", "Experimental Environment"),
        ("6.2", "Front-end Performance Results"),
        ("6.3", "Cluster Performance Results"),
    ],
    figures: &[(1, 1, "1"), (4, 4, "3.1")],
    tables: &[],
};

/// Casalicchio, Colajanni: A Client-Aware Dispatching Algorithm for Web Clusters Providing Multiple
/// Services.
const WWW10: Paper = Paper {
    name: "WWW10",
    sections: &[
        ("1", "Introduction"),
        ("2", "Web clusters"),
        ("3", "Web switch algorithms"),
        ("3.1", "Server-aware policies *"),
        ("3.2", "Client-aware policy"),
        ("4", "Simulation experiments"),
        ("4.1", "System model"),
        ("4.2", "Workload model"),
        ("4.3", "Simulation results"),
        ("4.3.1", "Optimal tuning of server-aware policies"),
        ("4.3.2", "Web publishing *"),
        ("4.3.3", "Web transaction *"),
        ("4.3.4", "Web commerce *"),
        ("5", "Prototype experiments"),
        ("5.1", "System architecture *"),
        ("5.2", "Experimental results"),
        ("6", "Conclusions"),
    ],
    figures: &[
        (1, 1, "2"),
        (2, 2, "3.2"),
        (3, 3, "4.3.1"),
        (4, 4, "4.3.2"),
        (5, 5, "4.3.3"),
        (6, 6, "4.3.4"),
        (7, 10, "5.2"),
    ],
    tables: &[(1, 2, "4.2")],
};

/// Park, Pai: Deploying Large File Transfer on an HTTP Content Distribution Network.
const WORLDS04: Paper = Paper {
    name: "WORLDS'04",
    sections: &[
        ("1", "Introduction *"),
        ("2", "Background *"),
        ("3", "CoDeploy *"),
        ("4", "Evaluation *"),
        ("5", "Related Work *"),
        ("6", "Conclusion *"),
    ],
    figures: &[(1, 1, "3"), (2, 2, "4")],
    tables: &[(1, 3, "4")],
};

/// Al Qudah et al.: Anycast-Aware Transport for Content Delivery Networks.
const WWW09: Paper = Paper {
    name: "WWW'09",
    sections: &[
        ("1", "Introduction"),
        ("2", "Background"),
        ("2.1", "Anycast and TCP"),
        ("2.2", "Related Work"),
        ("3", "Anycast-Aware Transport"),
        ("3.1", "Mechanism *"),
        ("3.1.1", "Client side"),
        ("3.1.2", "Server side"),
        ("3.1.3", "Detecting Connection Disruption"),
        ("3.2", "Performance Implications"),
        ("3.3", "Security Implications"),
        ("4", "Performance Evaluation"),
        ("4.1", "Download Throughput *"),
        ("4.2", "Quick State Purging"),
        ("4.3", "Synchronization *"),
        ("5", "Conclusions"),
    ],
    figures: &[(1, 1, "2.1"), (2, 3, "3.1.3"), (4, 5, "4.1"), (6, 6, "4.2"), (7, 8, "4.3")],
    tables: &[(1, 1, "4.2")],
};

/// Policies and topologies, with the section that describes each.
pub(super) const SUBJECTS: &[(&str, &str, &str)] = &[
    ("random", "OSDI'02", "3.1"),
    ("r-chash", "OSDI'02", "3.2.1"),
    ("r-hrw", "OSDI'02", "3.2.2"),
    ("lr-chash", "OSDI'02", "3.3"),
    ("lr-hrw", "OSDI'02", "3.3"),
    ("cdr", "OSDI'02", "3.4.1"),
    ("fdr", "OSDI'02", "3.4.2"),
    ("fdr-global", "OSDI'02", "3.4.2"),
    ("npr-chash", "OSDI'02", "3.5"),
    ("nplr-chash", "OSDI'02", "3.5"),
    ("np-fdr", "OSDI'02", "3.5"),
    ("cdr-t-r", "OSDI'02", "5.4.2"),
    ("cdr-t-s", "OSDI'02", "5.4.2"),
    ("fdr-t-r", "OSDI'02", "5.4.2"),
    ("fdr-t-s", "OSDI'02", "5.4.2"),
    ("nsfnet_t3", "OSDI'02", "4.2"),
    ("wrr", "ASPLOS'98", "2.1"),
    ("wrr/gms", "ASPLOS'98", "4"),
    ("lb", "ASPLOS'98", "2.2"),
    ("lb/gc", "ASPLOS'98", "4"),
    ("lard", "ASPLOS'98", "2.3"),
    ("lard/r", "ASPLOS'98", "2.4"),
    ("cap", "WWW10", "3.2"),
    ("round_robin", "WWW10", "3"),
    ("weighted_round_robin", "WWW10", "3.1"),
    ("static_partition", "WWW10", "3.1"),
];

impl Paper {
    /// Whether it has this section.
    pub(super) fn has_section(&self, number: &str) -> bool {
        self.sections.iter().any(|(known, _)| *known == number)
    }

    /// The section in which a figure or table is.
    pub(super) fn home(places: &[(u32, u32, &'static str)], number: u32) -> Option<&'static str> {
        let place = places.iter().find(|(first, last, _)| (*first..=*last).contains(&number));
        place.map(|(_, _, section)| *section)
    }
}
