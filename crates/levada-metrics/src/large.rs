//! The metrics of transfers in pieces.

use levada_fetch::{Counts, Sources};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use std::sync::atomic::AtomicU64;

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

/// The counters of large files.
#[derive(Default)]
pub struct LargeMetrics {
    transfers: Counter,
    pieces: Family<PieceSourceLabel, Counter>,
    bytes: Family<PieceSourceLabel, Counter>,
    retries: Family<RetryReasonLabel, Counter>,
    hedges: Counter,
    stalls: Counter,
    left_out: Family<PieceServerLabel, Counter>,
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
            "large_left_out",
            "Times that a node was skipped as a source for a while, because it was late or slow",
            all.left_out.clone(),
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
        self.left_out.get_or_create_owned(&PieceServerLabel { server: server.to_owned() }).inc();
    }

    pub(crate) fn server_gone(&self, server: &str) {
        let labels = PieceServerLabel { server: server.to_owned() };
        self.left_out.remove(&labels);
        self.seconds.remove(&labels);
    }

    /// Adds the counts of a transfer that has ended.
    pub fn transferred(&self, counts: Counts) {
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

    /// Sets the gauges of the sources with these numbers and names.
    pub fn look_at(&self, sources: &Sources, names: impl Iterator<Item = (usize, String)>) {
        for (number, server) in names {
            if let Some(average) = sources.average(number) {
                self.seconds.get_or_create(&PieceServerLabel { server }).set(average.as_secs_f64());
            }
        }
    }
}
