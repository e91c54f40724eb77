//! Windows (RFC 9113 Sec. 5.2): the bytes of bodies that one side may send before the other asks for more.

/// The first window of a connection and of its streams.
pub(super) const FIRST: u32 = 65_535;
/// No window may be larger.
const LARGEST: i64 = (1 << 31) - 1;

/// The window of what this side sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendWindow(i64);

impl SendWindow {
    pub(super) fn new(first: u32) -> Self {
        Self(first.into())
    }

    /// The bytes that may be sent now.
    pub(super) fn left(&self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Notes bytes that are sent.
    pub(super) fn sent(&mut self, count: usize) {
        self.0 -= count as i64;
    }

    /// Adds to the window, or takes from it after a change of the client's settings. False if it becomes too large.
    pub(super) fn grow(&mut self, more: i64) -> bool {
        self.0 += more;
        self.0 <= LARGEST
    }
}

/// The window of what a client sends.
///
/// It grows with the bytes that were taken: a client that has brought much which was taken may have as much on
/// its way at once. So no memory is promised to those that only open connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveWindow {
    /// The bytes that the client may send.
    left: u32,
    /// The bytes that were taken, and that it may not send again yet.
    taken: u32,
    /// The bytes that it may have on its way and waiting here.
    size: u32,
    /// All bytes that were taken, as long as they matter.
    all: u32,
    largest: u32,
}

impl ReceiveWindow {
    /// A window that may grow to this size.
    pub(super) fn new(largest: u32) -> Self {
        Self { left: FIRST, taken: 0, size: FIRST, all: 0, largest }
    }

    /// Notes bytes that have come. False if the client may not send so many.
    pub(super) fn came(&mut self, count: usize) -> bool {
        let left = u32::try_from(count).ok().and_then(|count| self.left.checked_sub(count));
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Notes bytes that were taken. Returns how many more the client may send, once this is worth a frame.
    pub(super) fn took(&mut self, count: usize) -> Option<u32> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.taken = self.taken.saturating_add(count);
        self.all = self.all.saturating_add(count);
        let size = self.all.clamp(self.size, self.largest);
        if self.taken < self.size / 2 {
            return None;
        }
        let more = self.taken + (size - self.size);
        self.left += more;
        (self.taken, self.size) = (0, size);
        Some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_clients_shrink_and_grow_within_bounds() {
        let mut window = SendWindow::new(10);
        window.sent(10);
        assert_eq!(window.left(), 0);
        assert!(window.grow(-10) && window.left() == 0, "settings may make it negative");
        assert!(window.grow(15) && window.left() == 5);
        assert!(window.grow(LARGEST - 5) && !window.grow(1));
    }

    #[test]
    fn window_opens_by_what_is_taken_and_grows_up_to_its_bound() {
        let mut window = ReceiveWindow::new(1 << 20);
        assert!(window.came(65_535) && !window.came(1));
        let (mut window, mut held) = (ReceiveWindow::new(1 << 20), 0_u32);
        let mut sizes = Vec::new();
        for _ in 0..400 {
            let count = window.left.min(16 << 10);
            assert!(window.came(count as usize));
            held += count;
            assert!(held <= window.size);
            held -= count;
            let more = window.took(count as usize);
            assert!(more.is_none_or(|more| more > 0));
            assert_eq!(window.left + window.taken, window.size);
            sizes.push(window.size);
        }
        assert_eq!(sizes[0], FIRST);
        assert!(sizes.is_sorted() && sizes.last() == Some(&(1 << 20)));
    }

    #[test]
    fn bytes_that_nobody_takes_open_no_window() {
        let mut window = ReceiveWindow::new(1 << 20);
        assert!(window.came(60_000));
        assert_eq!(window.took(10_000), None);
        assert!(!window.came(6_000));
    }
}
