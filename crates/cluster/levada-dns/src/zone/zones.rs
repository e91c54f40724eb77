//! All zones.

use std::sync::Arc;

use hashbrown::HashMap;

use super::Zone;
use crate::wire::{Name, name::suffixes};

/// Zones by their names.
#[derive(Default)]
pub struct Zones(HashMap<Name, Arc<Zone>>);

impl Zones {
    /// Adds a zone. Returns whether there was none of its name.
    pub fn add(&mut self, zone: Zone) -> bool {
        self.0.insert(zone.apex.clone(), Arc::new(zone)).is_none()
    }

    /// The zone of a name: that with the longest name.
    pub fn find(&self, name: &[u8]) -> Option<&Arc<Zone>> {
        suffixes(name).find_map(|suffix| self.0.get(suffix))
    }

    /// All zones.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Zone>> {
        self.0.values()
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
