//! `site.shield`: the region that is asked before the origin.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Policy;
use crate::text::NodeName;

/// The region through which nodes of other regions ask the origin: its name, or a table.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ShieldOrRegion {
    /// The region.
    Region(NodeName),
    /// All settings.
    Table(Shield),
}

/// The region through which nodes of other regions ask the origin: docs/operate/regions.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, extend("required" = ["region"]))]
pub struct Shield {
    /// Its name.
    #[schemars(extend("examples" = ["us"]))]
    pub region: Option<NodeName>,
    /// The policy that chooses the node of the shield that is asked. The default is `hrw`.
    pub policy: Option<Policy>,
}

impl ShieldOrRegion {
    /// The table, also of the short form.
    pub fn table(&self) -> Shield {
        match self {
            Self::Region(region) => Shield { region: Some(region.clone()), policy: None },
            Self::Table(table) => table.clone(),
        }
    }
}
