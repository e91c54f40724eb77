//! The redirector of a node: its policies at work.
//!
//! ```text
//! decider     a policy with its locks and its random generator: chooses the node for a request
//! shared_deciders   the same one for all sites of one policy
//! classes     the service classes of a site's requests, given by rules or learned
//! switch      servers of a site that are not Levada, which the policy chooses among
//! sizes       sizes of objects, for policies that need them
//! settings    the settings of policies, classes and switches
//! ```
//!
//! The crate does not know sites or requests of clients: it is handed the subject of a request, and
//! sends requests by `levada-upstream`.

mod classes;
mod decider;
mod settings;
mod shared_deciders;
mod sizes;
mod switch;

pub use classes::Classes;
pub use decider::{Decider, DeciderDeployment, PreparedDecider, SharedDecider, retried};
pub use settings::{
    AdmissionLimits, ClassSettings, KeyFrom, PolicyChoice, SwitchServer, SwitchSettings,
};
pub use shared_deciders::SharedDeciders;
pub use sizes::Sizes;
pub use switch::{
    ChosenServer, Claim, Member, ServerTurn, SitePolicy, Switch, SwitchMetrics, SwitchPlan,
    SwitchView,
};
