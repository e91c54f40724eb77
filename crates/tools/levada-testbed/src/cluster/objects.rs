//! The objects of the load. Each has versions, whose bytes follow from name and number.
//!
//! The purger makes versions, the origin serves the last one, and clients may receive any that is not
//! older than the last one whose purge was confirmed.

use std::cell::Cell;

use levada_types::{Key, Rng};

/// All objects.
pub struct Objects(Vec<VersionedObject>);

/// An object with versions.
pub struct VersionedObject {
    number: usize,
    /// Its bytes.
    pub size: u64,
    newest: Cell<u64>,
    confirmed: Cell<u64>,
}

impl Default for Objects {
    /// Small, medium and large objects, in their first version. Buffers of connections between nodes
    /// hold some 10 MB: shorter bodies would be on their way as a whole before a node dies.
    fn default() -> Self {
        let small = (0..SMALL).map(|at| 1_000 + at as u64 * 9_000 / SMALL as u64);
        let medium = (0..MEDIUM).map(|at| HIT_SIZE - at as u64);
        let large = (0..LARGE).map(|at| 6_000_000 + at as u64 * 8_000_000);
        let object = |(number, size)| VersionedObject {
            number,
            size,
            newest: Cell::new(1),
            confirmed: Cell::new(1),
        };
        Self(small.chain(medium).chain(large).enumerate().map(object).collect())
    }
}

impl Objects {
    /// The object of a request. Objects with low numbers are requested more often.
    pub fn choose(&self, rng: &mut Rng) -> usize {
        let (first, count) = match rng.unit() {
            part if part < PART_OF_LARGE => (SMALL + MEDIUM, LARGE),
            part if part < PART_OF_LARGE + PART_OF_MEDIUM => (SMALL, MEDIUM),
            _ => (0, SMALL),
        };
        let at = (rng.unit() * rng.unit() * count as f64) as usize;
        first + at.min(count - 1)
    }

    /// The number of objects.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The object with this number.
    pub fn get(&self, number: usize) -> Option<&VersionedObject> {
        self.0.get(number)
    }

    /// The object that is requested by this path.
    pub fn find(&self, path: &str) -> Option<&VersionedObject> {
        self.get(path.strip_prefix(PREFIX)?.parse().ok()?)
    }
}

impl VersionedObject {
    /// The path of its URL.
    pub fn target(&self) -> String {
        format!("{PREFIX}{}", self.number)
    }

    /// Begins the next version at the origin.
    pub fn publish(&self) -> u64 {
        self.newest.set(self.newest.get() + 1);
        self.newest.get()
    }

    /// The version at the origin.
    pub fn newest(&self) -> u64 {
        self.newest.get()
    }

    /// Notes that the purge of all versions before this one was confirmed.
    pub fn confirm(&self, version: u64) {
        self.confirmed.set(self.confirmed.get().max(version));
    }

    /// The oldest version that a request may get which begins now.
    pub fn oldest(&self) -> u64 {
        self.confirmed.get()
    }

    /// The key of the bytes of a version.
    pub fn key(&self, version: u64) -> Key {
        Key::of(format!("{}/{version}", self.number).as_bytes())
    }

    /// The entity tag of a version.
    pub fn etag(&self, version: u64) -> String {
        format!("\"{}-{version}\"", self.number)
    }

    /// The version that has this entity tag.
    pub fn version_of(&self, etag: &str) -> Option<u64> {
        let (number, version) = etag.strip_prefix('"')?.strip_suffix('"')?.split_once('-')?;
        let is_own = number.parse() == Ok(self.number);
        version.parse().ok().filter(|version| is_own && (1..=self.newest.get()).contains(version))
    }
}

/// Objects up to this size count for the times of hits.
pub const HIT_SIZE: u64 = 100_000;
const SMALL: usize = 240;
const MEDIUM: usize = 100;
const LARGE: usize = 4;
const PART_OF_LARGE: f64 = 0.01;
const PART_OF_MEDIUM: f64 = 0.19;
const PREFIX: &str = "/object/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_known_by_their_tags() {
        let objects = Objects::default();
        let object = objects.find("/object/7").unwrap();
        assert_eq!((object.target(), object.publish()), ("/object/7".to_owned(), 2));
        assert_eq!(object.version_of(&object.etag(2)), Some(2));
        for other in ["\"7-3\"", "\"8-1\"", "\"7-0\"", "7-1", "\"7\"", ""] {
            assert_eq!(object.version_of(other), None, "{other}");
        }
        assert_ne!(object.key(1), object.key(2));
        assert!(objects.find("/object/344").is_none() && objects.find("/object/x").is_none());
    }

    #[test]
    fn confirmed_version_never_goes_back() {
        let objects = Objects::default();
        let object = objects.get(0).unwrap();
        object.confirm(5);
        object.confirm(3);
        assert_eq!(object.oldest(), 5);
    }
}
