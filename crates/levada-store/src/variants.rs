//! URIs with several objects, selected by request fields (RFC 9111 Sec. 4.1).
//!
//! An object that does not vary stands under the key of its URI. One that varies stands under a key
//! of URI and variant, and the URI's own entry says by which fields. Two URIs may share a key, and with
//! it that entry: only objects know their URI.

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
}

impl Varies {
    /// The entry that leads to the variants of `object`'s URI.
    pub(crate) fn of(object: &Object, generation: u64) -> Self {
        Self { vary: Vary::of_key(object.variant()), generation }
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
        (size_of::<Self>() + ARC + size_of_val(self.vary.fields())) as u64
    }
}
