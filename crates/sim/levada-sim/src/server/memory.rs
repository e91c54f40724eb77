//! A server's memory: an eviction algorithm of levada-cache and an index by document.

use hashbrown::{HashTable, hash_table::Entry};
use levada_cache::eviction::{Eviction, Handle};
use levada_types::Key;

pub(crate) struct Memory {
    eviction: Box<dyn Eviction>,
    largest: u64,
    index: HashTable<(u32, Place)>,
    /// Documents by the handle of the eviction algorithm.
    documents: Vec<u32>,
    free: Vec<Handle>,
    victims: Vec<Handle>,
}

/// Where a server has a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In memory.
    Memory(Handle),
    /// On the disk of the server's cache only.
    Disk,
    /// A fill with this number is in progress.
    Fill(u32),
}

impl Memory {
    /// Objects larger than `largest` are not kept.
    pub(crate) fn new(eviction: Box<dyn Eviction>, largest: u64) -> Self {
        let largest = largest.min(eviction.capacity());
        let (documents, free, victims) = (Vec::new(), Vec::new(), Vec::new());
        Self { eviction, largest, index: HashTable::new(), documents, free, victims }
    }

    /// Looks up `document`. Finding it in memory counts as a hit.
    pub(crate) fn find(&mut self, document: u32) -> Option<Place> {
        let place = self.index.find(mix(document), |(known, _)| *known == document)?.1;
        if let Place::Memory(handle) = place {
            self.eviction.touch(handle);
        }
        Some(place)
    }

    /// Where `document` is. This is no use of it.
    pub(crate) fn place(&self, document: u32) -> Option<Place> {
        Some(self.index.find(mix(document), |(known, _)| *known == document)?.1)
    }

    /// Removes a document, if it is in memory.
    pub(crate) fn remove(&mut self, document: u32) {
        if let Some(Place::Memory(handle)) = self.place(document) {
            self.eviction.remove(handle);
            self.free.push(handle);
            self.forget(document);
        }
    }

    /// Records that `document` is being read.
    pub(crate) fn begin_fill(&mut self, document: u32, fill: u32) {
        self.index.insert_unique(mix(document), (document, Place::Fill(fill)), |(d, _)| mix(*d));
    }

    /// Records that `document` has been read. It is kept if it is not too large.
    pub(crate) fn end_fill(&mut self, document: u32, key: Key, bytes: u64) {
        if bytes > self.largest {
            self.forget(document);
            return;
        }
        let handle = self.free.pop().unwrap_or(Handle(self.documents.len() as u32));
        match self.documents.get_mut(handle.0 as usize) {
            Some(known) => *known = document,
            None => self.documents.push(document),
        }
        // The document is no larger than the capacity, so the algorithm accepts it.
        let _ = self.eviction.insert(handle, key, bytes, &mut self.victims);
        if let Some(known) = self.index.find_mut(mix(document), |(known, _)| *known == document) {
            known.1 = Place::Memory(handle);
        }
        while let Some(victim) = self.victims.pop() {
            self.forget(self.documents[victim.0 as usize]);
            self.free.push(victim);
        }
    }

    /// Documents in memory.
    pub(crate) fn documents(&self) -> impl Iterator<Item = u32> + '_ {
        let held = |(_, place): &&(u32, Place)| matches!(place, Place::Memory(_));
        self.index.iter().filter(held).map(|(document, _)| *document)
    }

    /// Records that the read of `document` ended without keeping it.
    pub(crate) fn forget(&mut self, document: u32) {
        let hash = |(known, _): &(u32, Place)| mix(*known);
        if let Entry::Occupied(known) =
            self.index.entry(mix(document), |(known, _)| *known == document, hash)
        {
            known.remove();
        }
    }
}

/// Document numbers are dense; a multiplication spreads them (Knuth, TAOCP 3, 6.4).
fn mix(document: u32) -> u64 {
    let spread = u64::from(document).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    spread ^ spread >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_cache::eviction::find_eviction;

    fn read(memory: &mut Memory, document: u32, bytes: u64) {
        memory.begin_fill(document, 0);
        memory.end_fill(document, Key(u64::from(document)), bytes);
    }

    #[test]
    fn what_was_read_is_held_until_it_is_evicted() {
        let mut memory = Memory::new((find_eviction("lru").unwrap().build)(100), 80);
        memory.begin_fill(7, 3);
        assert_eq!(memory.find(7), Some(Place::Fill(3)));
        memory.end_fill(7, Key(7), 60);
        assert!(matches!(memory.find(7), Some(Place::Memory(_))));
        read(&mut memory, 8, 60);
        assert_eq!(memory.documents().collect::<Vec<_>>(), [8], "no room for both");
        read(&mut memory, 9, 81);
        assert_eq!(memory.find(9), None, "too large to be kept");
        assert_eq!(memory.documents().collect::<Vec<_>>(), [8]);
    }
}
