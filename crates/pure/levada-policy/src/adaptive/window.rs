//! The window over which requests are counted. Counts halve at the end of each epoch of half a
//! window, so that popularity follows demand.

/// Described at the top of this file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    epoch: u16,
    // Requests until the epoch ends.
    left: u32,
    requests: u32,
}

impl Window {
    /// Counts one request over a cluster of `nodes` nodes, up or down.
    #[inline]
    pub(super) fn count(&mut self, nodes: usize) {
        if self.left == 0 {
            self.epoch = self.epoch.wrapping_add(1);
            self.requests /= 2;
            self.left = epoch_length(nodes);
        }
        self.left -= 1;
        self.requests += 1;
    }

    /// The current epoch, modulo 2^16.
    #[inline]
    pub(super) fn epoch(&self) -> u16 {
        self.epoch
    }

    /// The share of an object in all requests of the window.
    pub(super) fn share(&self, count: u16) -> f64 {
        f64::from(count) / f64::from(self.requests.max(1))
    }

    /// Whether an object with this count has a share of at least 1/(32 n).
    #[inline]
    pub(super) fn is_hot(&self, count: u16, nodes: usize) -> bool {
        u64::from(count) * HOT_PER_NODE * nodes as u64 >= u64::from(self.requests)
    }
}

/// Half a window. A window holds at least 16 requests for each hot object.
fn epoch_length(nodes: usize) -> u32 {
    (nodes as u32).saturating_mul(16 * HOT_PER_NODE as u32 / 2).clamp(LEAST / 2, MOST / 2)
}

/// The most hot objects, per node.
const HOT_PER_NODE: u64 = 32;

/// The least and the most requests in a window.
const LEAST: u32 = 32_768;
const MOST: u32 = 1 << 30;
