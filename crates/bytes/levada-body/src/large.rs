//! The metrics of transfers in pieces.

use std::collections::HashMap;

use levada_fetch::{PieceCounts, Sources};
use levada_observe::metrics::{Counter, Family, Gauge, NumberGauge, Registry};
use levada_store::NoWindow;
use parking_lot::Mutex;

/// The counters of large files.
pub struct LargeMetrics {
    transfers: Counter,
    hedges: Counter,
    stalls: Counter,
    pieces: Family<[&'static str; 1], Counter>,
    bytes: Family<[&'static str; 1], Counter>,
    retries: Family<[&'static str; 1], Counter>,
    window_waits: Family<[&'static str; 1], Counter>,
    windows_waiting: Gauge,
    /// By the names of nodes.
    left_out: Mutex<HashMap<String, u64>>,
    /// The same, and the next, of the nodes that are sources when a page is made.
    left_out_shown: Family<[String; 1], Counter>,
    seconds: Family<[String; 1], NumberGauge>,
}

impl LargeMetrics {
    /// The counters, which `registry` shows.
    pub fn registered(registry: &mut Registry) -> Self {
        Self {
            transfers: registry.metric(
                "large_transfers",
                "Large files, or ranges of them, served in pieces",
            ),
            hedges: registry
                .metric("large_hedges", "Second requests for pieces that were slow"),
            stalls: registry
                .metric("large_window_stalls", "Times that a client waited for a piece"),
            pieces: registry.family(
                "large_pieces",
                "Pieces received, from this node, a peer, or shared with another transfer",
                ["source"],
            ),
            bytes: registry.family("large_piece_bytes", "Bytes of pieces received", ["source"]),
            retries: registry.family(
                "large_retries",
                "Pieces that were requested again, because they were late or failed",
                ["reason"],
            ),
            window_waits: registry.family(
                "large_window_waits",
                "Transfers that found no memory for a window, by what they got in the end",
                ["outcome"],
            ),
            windows_waiting: registry.metric(
                "large_transfers_waiting",
                "Transfers that wait for memory for a window",
            ),
            left_out: Mutex::default(),
            left_out_shown: registry.family(
                "large_left_out",
                "Times that a node was skipped as a source for a while, because it was late or slow",
                ["server"],
            ),
            seconds: registry.family(
                "large_source_seconds",
                "Recent time of a piece from a node",
                ["server"],
            ),
        }
    }

    /// Counts a piece that has arrived.
    pub fn came(&self, source: &'static str, bytes: u64) {
        self.pieces.get_or_create(&[source]).inc();
        self.bytes.get_or_create(&[source]).inc_by(bytes);
    }

    /// Counts a node that is skipped from now on.
    pub fn left_out(&self, server: &str) {
        *self.left_out.lock().entry(server.to_owned()).or_default() += 1;
    }

    /// Counts a transfer that found no memory for a window, and why it got none in the end.
    pub fn waited_for_window(&self, failed: Option<NoWindow>) {
        let outcome = match failed {
            None => "window",
            Some(NoWindow::TooSmall) => "too_small",
            Some(NoWindow::QueueFull) => "queue_full",
            Some(NoWindow::QueueTimeout) => "queue_timeout",
        };
        self.window_waits.get_or_create(&[outcome]).inc();
    }

    /// Adds the counts of a transfer that has ended.
    pub fn transferred(&self, counts: PieceCounts) {
        let retries = |why, number| self.retries.get_or_create(&[why]).inc_by(number);
        self.transfers.inc();
        retries("late", counts.late);
        retries("failed", counts.retries.saturating_sub(counts.late));
        self.hedges.inc_by(counts.hedges);
        self.stalls.inc_by(counts.stalls);
    }

    /// Shows the sources with these numbers and names on the next page, and no others; and how many transfers
    /// wait for a window.
    pub fn show(
        &self,
        sources: &Sources,
        names: impl Iterator<Item = (usize, String)>,
        waiting: usize,
    ) {
        self.windows_waiting.set(waiting);
        self.left_out_shown.clear();
        self.seconds.clear();
        let mut former = std::mem::take(&mut *self.left_out.lock());
        for (number, server) in names {
            let left_out = former.remove(&server);
            let labels = [server];
            if let Some(average) = sources.average(number) {
                self.seconds.get_or_create(&labels).set(average.as_secs_f64());
            }
            if let Some(times) = left_out {
                self.left_out_shown.get_or_create(&labels).inc_by(times);
                let [server] = labels;
                *self.left_out.lock().entry(server).or_default() += times;
            }
        }
    }
}
