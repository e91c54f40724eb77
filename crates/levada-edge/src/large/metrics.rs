//! What is counted of transfers in pieces.

use levada_fetch::{Counts, Sources};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use std::sync::atomic::AtomicU64;

use crate::metrics::LabelValue;

/// Where a piece came from, or why it was asked for again.
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
pub(crate) struct LargeMetrics {
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
    pub(crate) fn registered(registry: &mut Registry) -> Self {
        let all = Self::default();
        let mut register =
            |name, help, metric: &Counter| registry.register(name, help, metric.clone());
        register(
            "large_transfers",
            "Large files, or ranges of them, served in pieces",
            &all.transfers,
        );
        register("large_hedges", "Second requests for pieces that were slow", &all.hedges);
        register(
            "large_window_stalls",
            "How often a client was ready for a piece that was not there",
            &all.stalls,
        );
        registry.register(
            "large_pieces",
            "Pieces that came, from this node or a peer, or shared with another transfer",
            all.pieces.clone(),
        );
        registry.register("large_piece_bytes", "Bytes of them", all.bytes.clone());
        registry.register(
            "large_retries",
            "Pieces that were asked for again, because they were late or failed",
            all.retries.clone(),
        );
        registry.register(
            "large_left_out",
            "How often no pieces were asked of a node for a while, because it was late or slow",
            all.left_out.clone(),
        );
        registry.register(
            "large_source_seconds",
            "How long pieces from a node have taken lately",
            all.seconds.clone(),
        );
        all
    }

    /// A piece has come.
    pub(crate) fn came(&self, source: &'static str, bytes: u64) {
        let labels = PieceSourceLabel { source: LabelValue(source) };
        self.pieces.get_or_create_owned(&labels).inc();
        self.bytes.get_or_create_owned(&labels).inc_by(bytes);
    }

    /// A node is left out from now on.
    pub(crate) fn left_out(&self, server: &str) {
        self.left_out.get_or_create_owned(&PieceServerLabel { server: server.to_owned() }).inc();
    }

    /// A transfer has ended.
    pub(crate) fn transferred(&self, counts: Counts) {
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

    /// What is known of the sources now.
    pub(crate) fn look_at(&self, sources: &Sources, names: impl Iterator<Item = String>) {
        for (server, average) in names.zip(sources.averages()) {
            if let Some(average) = average {
                self.seconds.get_or_create(&PieceServerLabel { server }).set(average.as_secs_f64());
            }
        }
    }
}
