//! URIs with several objects, selected by request fields (RFC 9111 Sec. 4.1).
//!
//! An object that does not vary stands under the key of its URI. One that varies stands under a key
//! of URI and variant, and the URI's own entry says by which fields. Two URIs may share a key, and with
//! it that entry: only objects know their URI.
//!
//! A client chooses the values of the fields by which a URI varies, and could fill the store with variants of one URI.
//! So the entry lists the variants that were stored, with their uses, and the least used one goes when there are too
//! many. The list lives in memory alone: variants on disk of an earlier run are not on it.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use levada_cache::Vary;
use levada_types::{Key, hash64, weigh};

use crate::{object::Object, weight::ARC};

/// By which fields a URI varies.
#[derive(Debug)]
pub(crate) struct Varies {
    pub(crate) vary: Vary,
    /// Part of the variants' keys: when the URI is forgotten and stored again, the variants from
    /// before must not come back with it.
    pub(crate) generation: u64,
    /// In the order in which they were stored.
    variants: Box<[KnownVariant]>,
}

/// A variant that was stored.
#[derive(Debug)]
struct KnownVariant {
    key: Key,
    /// Requests that it has answered since.
    uses: AtomicU32,
}

impl Varies {
    /// The entry that leads to the variants of `object`'s URI.
    pub(crate) fn of(object: &Object, generation: u64) -> Self {
        Self::with(Vary::of_key(object.variant()), generation)
    }

    /// An entry that knows of no variants.
    pub(crate) fn with(vary: Vary, generation: u64) -> Self {
        Self { vary, generation, variants: Box::default() }
    }

    /// Counts a use of the variant under this key.
    pub(crate) fn used(&self, key: Key) {
        if let Some(variant) = self.variants.iter().find(|variant| variant.key == key) {
            let uses = variant.uses.load(Relaxed);
            // A use that is lost to another at the same time does not matter.
            variant.uses.store(uses.saturating_add(1), Relaxed);
        }
    }

    /// The entry with a variant more, and the key of the one that goes for it: the least used, of several the oldest.
    /// `None` if it is known.
    pub(crate) fn and(&self, key: Key, most: usize) -> Option<(Self, Option<Key>)> {
        if self.variants.iter().any(|variant| variant.key == key) {
            return None;
        }
        let uses = |variant: &KnownVariant| variant.uses.load(Relaxed);
        let is_full = self.variants.len() >= most;
        let least = self.variants.iter().min_by_key(|variant| uses(variant));
        let gone = least.filter(|_| is_full).map(|variant| variant.key);
        let stay = self.variants.iter().filter(|variant| Some(variant.key) != gone);
        let stay = stay.map(|variant| (variant.key, uses(variant)));
        let variants = stay.chain([(key, 0)]);
        let variants =
            variants.map(|(key, uses)| KnownVariant { key, uses: AtomicU32::new(uses) }).collect();
        Some((Self { vary: self.vary.clone(), generation: self.generation, variants }, gone))
    }

    /// Whether it leads to `object`, which has the same key.
    pub(crate) fn leads_to(&self, object: &Object) -> bool {
        self.vary == Vary::of_key(object.variant())
    }

    /// The key of a variant of the URI whose key is `key`.
    pub(crate) fn key(&self, key: Key, variant: &[u8]) -> Key {
        Key(weigh(Key(weigh(key, hash64(variant))), self.generation))
    }

    /// Its size in memory.
    pub(crate) fn weight(&self) -> u64 {
        let lists = size_of_val(self.vary.fields()) + size_of_val(&*self.variants);
        (size_of::<Self>() + ARC + lists) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_used_variant_goes_when_there_are_too_many() {
        let none = Varies::with(Vary::of_key(b""), 1);
        let (one, gone) = none.and(Key(1), 2).unwrap();
        assert_eq!(gone, None);
        one.used(Key(1));
        let (two, gone) = one.and(Key(2), 2).unwrap();
        assert_eq!(gone, None);
        assert!(two.and(Key(1), 2).is_none() && two.and(Key(2), 2).is_none(), "both are known");
        let (other, gone) = two.and(Key(3), 2).unwrap();
        assert_eq!(gone, Some(Key(2)));
        assert_eq!(other.and(Key(4), 2).unwrap().1, Some(Key(3)), "uses go over to the next list");
    }

    #[test]
    fn weight_counts_the_owners_and_every_variant() {
        let none = Varies::with(Vary::of_key(b""), 1);
        assert!(none.weight() > size_of::<Varies>() as u64);
        let (one, _) = none.and(Key(1), 2).unwrap();
        assert_eq!(one.weight() - none.weight(), size_of::<KnownVariant>() as u64);
    }
}
