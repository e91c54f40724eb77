//! The metrics of transfers in pieces.

use levada_fetch::Sources;
use levada_store::NoWindow;
use levada_types::PieceCounts;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use std::{collections::HashMap, sync::atomic::AtomicU64};

use crate::label_value::LabelValue;

/// The source of a piece, or the reason of a retry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PieceSourceLabel {
    source: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RetryReasonLabel {
    reason: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PieceServerLabel {
    server: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WindowWaitLabel {
    outcome: LabelValue,
}

/// The counters of large files.
#[derive(Default)]
pub struct LargeMetrics {
    transfers: Counter,
    pieces: Family<PieceSourceLabel, Counter>,
    bytes: Family<PieceSourceLabel, Counter>,
    retries: Family<RetryReasonLabel, Counter>,
    hedges: Counter,
    stalls: Counter,
    window_waits: Family<WindowWaitLabel, Counter>,
    windows_waiting: Gauge,
    /// By the names of nodes.
    left_out: Mutex<HashMap<String, u64>>,
    /// The same, and the next, of the nodes that are sources when a page is made.
    left_out_shown: Family<PieceServerLabel, Counter>,
    seconds: Family<PieceServerLabel, Gauge<f64, AtomicU64>>,
}

impl LargeMetrics {
    /// The counters, which `registry` shows.
    pub fn registered(registry: &mut Registry) -> Self {
        let all = Self::default();
        let mut register =
            |name, help, metric: &Counter| registry.register(name, help, metric.clone());
        register(
            "large_transfers",
            "Large files, or ranges of them, served in pieces",
            &all.transfers,
        );
        register("large_hedges", "Second requests for pieces that were slow", &all.hedges);
        register("large_window_stalls", "Times that a client waited for a piece", &all.stalls);
        registry.register(
            "large_pieces",
            "Pieces received, from this node, a peer, or shared with another transfer",
            all.pieces.clone(),
        );
        registry.register("large_piece_bytes", "Bytes of pieces received", all.bytes.clone());
        registry.register(
            "large_retries",
            "Pieces that were requested again, because they were late or failed",
            all.retries.clone(),
        );
        registry.register(
            "large_window_waits",
            "Transfers that found no memory for a window, by what they got in the end",
            all.window_waits.clone(),
        );
        registry.register(
            "large_transfers_waiting",
            "Transfers that wait for memory for a window",
            all.windows_waiting.clone(),
        );
        registry.register(
            "large_left_out",
            "Times that a node was skipped as a source for a while, because it was late or slow",
            all.left_out_shown.clone(),
        );
        registry.register(
            "large_source_seconds",
            "Recent time of a piece from a node",
            all.seconds.clone(),
        );
        all
    }

    /// Counts a piece that has arrived.
    pub fn came(&self, source: &'static str, bytes: u64) {
        let labels = PieceSourceLabel { source: LabelValue(source) };
        self.pieces.get_or_create_owned(&labels).inc();
        self.bytes.get_or_create_owned(&labels).inc_by(bytes);
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
        self.window_waits
            .get_or_create_owned(&WindowWaitLabel { outcome: LabelValue(outcome) })
            .inc();
    }

    /// Adds the counts of a transfer that has ended.
    pub fn transferred(&self, counts: PieceCounts) {
        let retries = |why, number| {
            self.retries
                .get_or_create(&RetryReasonLabel { reason: LabelValue(why) })
                .inc_by(number);
        };
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
        self.windows_waiting.set(waiting as i64);
        self.left_out_shown.clear();
        self.seconds.clear();
        let mut former = std::mem::take(&mut *self.left_out.lock());
        for (number, server) in names {
            let left_out = former.remove(&server);
            let labels = PieceServerLabel { server };
            if let Some(average) = sources.average(number) {
                self.seconds.get_or_create(&labels).set(average.as_secs_f64());
            }
            if let Some(times) = left_out {
                self.left_out_shown.get_or_create(&labels).inc_by(times);
                *self.left_out.lock().entry(labels.server).or_default() += times;
            }
        }
    }
}
