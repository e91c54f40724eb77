//! A table of fixed length that takes memory as it is written.
//!
//! A node may have thousands of sites with a policy each, and most of them have few requests. So a
//! table has room for its entries in pages, and a page is made when one of its entries is first
//! written. Until then all of its entries have the value that the table began with.

#[derive(Clone)]
pub(crate) struct LazyTable<T> {
    len: usize,
    unwritten: T,
    // Empty until the first entry is written.
    pages: Vec<Option<Box<[T; PAGE]>>>,
}

/// Entries of a page. Few, since keys are spread over all pages: each of the first keys makes one.
const PAGE: usize = 32;

impl<T: Clone> LazyTable<T> {
    /// A table of `len` entries that are `unwritten`.
    pub(crate) fn new(len: usize, unwritten: T) -> Self {
        Self { len, unwritten, pages: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> &T {
        match self.pages.get(index / PAGE) {
            Some(Some(page)) => &page[index % PAGE],
            _ => &self.unwritten,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> &mut T {
        if !matches!(self.pages.get(index / PAGE), Some(Some(_))) {
            self.make_page(index / PAGE);
        }
        let page = self.pages[index / PAGE].as_mut().expect("it was made");
        &mut page[index % PAGE]
    }

    #[cold]
    fn make_page(&mut self, page: usize) {
        if self.pages.is_empty() {
            self.pages.resize_with(self.len.div_ceil(PAGE), || None);
        }
        self.pages[page] = Some(Box::new(std::array::from_fn(|_| self.unwritten.clone())));
    }

    /// The entries of all pages that have been made.
    pub(crate) fn written(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten().flat_map(|page| page.iter())
    }

    /// Changes every entry.
    pub(crate) fn update(&mut self, mut change: impl FnMut(&mut T)) {
        change(&mut self.unwritten);
        let written = self.pages.iter_mut().flatten().flat_map(|page| page.iter_mut());
        written.for_each(change);
    }

    /// Makes all entries unwritten again.
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
    }

    /// The bytes of memory it uses, without memory that the entries point to.
    pub(crate) fn bytes(&self) -> usize {
        let made = self.pages.iter().flatten().count();
        made * size_of::<[T; PAGE]>() + self.pages.capacity() * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_take_memory_when_their_page_is_first_written() {
        let mut table = LazyTable::new(100, 7u32);
        assert_eq!((*table.get(0), *table.get(99), table.bytes()), (7, 7, 0));
        *table.get_mut(99) = 1;
        *table.get_mut(98) = 2;
        let one = table.bytes();
        assert_eq!([0, 97, 98, 99].map(|index| *table.get(index)), [7, 7, 2, 1]);
        *table.get_mut(0) = 3;
        assert_eq!(table.bytes() - one, 4 * PAGE);
        table.update(|value| *value += 10);
        assert_eq!([0, 50, 98, 99].map(|index| *table.get(index)), [13, 17, 12, 11]);
        table.clear();
        assert_eq!((*table.get(0), table.len()), (17, 100));
    }
}
