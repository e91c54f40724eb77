//! The redirector of a node: its policies at work.
//!
//! ```text
//! decider     a policy with its locks and its random generator: chooses the node for a request
//! shared_deciders   the same one for all sites of one policy
//! classes     the service classes of a site's requests, given by rules or learned
//! node_turn   a request at a node of the cluster, and its outcome for the policy
//! origins     the origins of a site, and the order in which a request tries them
//! metrics     the counters of policies, and the state of servers on a page
//! sources     the members that stand in the places of origins and servers, from levada-discovery
//! switch      servers of a site that are not Levada, which the policy chooses among
//! sizes       sizes of objects, for policies that need them
//! settings    the settings of policies, classes and switches
//! ```
//!
//! The crate does not know sites or requests of clients: it is handed the subject of a request, and
//! sends requests by `levada-upstream`.

mod classes;
mod decider;
pub mod handoff;
mod metrics;
mod node_turn;
mod origin_tries;
mod origins;
mod server_plan;
mod settings;
mod shared_deciders;
mod sizes;
mod sources;
mod switch;

pub use classes::Classes;
pub use decider::{Decider, DeciderDeployment, PreparedDecider, SharedDecider};
pub use metrics::{PolicyMetrics, ServerMetrics, ShownServers};
pub use node_turn::NodeTurn;
pub use origin_tries::OriginTries;
pub use origins::{OriginList, OriginOrder, Origins, WatchedOrigin};
pub use server_plan::{Connect, ServerPlan};
pub use settings::{
    AdmissionLimits, ClassSettings, FoundBy, InBody, KeyFrom, PolicyChoice, SwitchServer,
    SwitchSettings,
};
pub use shared_deciders::SharedDeciders;
pub use sizes::Sizes;
pub use sources::{Found, Sources};
pub use switch::{
    ChosenServer, Claim, Member, ServerTurn, SitePolicy, Switch, SwitchPlan, SwitchView,
};
