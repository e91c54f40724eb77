//! A slab: entries with numbers. The number of a removed entry is used again, so nothing is
//! allocated after the first peak.

use std::ops::{Index, IndexMut};

#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<T>,
    free: Vec<u32>,
}

/// No number.
pub(crate) const NONE: u32 = u32::MAX;

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// Number of entries in use.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// All numbers that were ever in use. The entries of those that are free are old.
    pub(crate) fn numbers(&self) -> std::ops::Range<u32> {
        0..self.places.len() as u32
    }

    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = thing;
                number
            }
            None => {
                self.places.push(thing);
                self.places.len() as u32 - 1
            }
        }
    }

    /// Frees the number. The entry itself stays until the number is used again.
    pub(crate) fn remove(&mut self, number: u32) {
        self.free.push(number);
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, number: u32) -> &T {
        &self.places[number as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.places[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut slab = Slab::new();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        slab.remove(a);
        assert_eq!((slab.insert('c'), slab[b], slab.len()), (a, 'b', 2));
    }
}
