//! Checks of rates and catalogues that grow within a run.

use super::{Arrivals, Problems, Scenario};

impl Scenario {
    /// `documents`: those of the trace, 0 if it could not be read.
    pub(super) fn check_growth(&self, documents: usize, problems: &mut Problems) {
        let workload = &self.workload;
        let is_endless = self.measure.duration.is_none();
        if let Some(rate) = workload.rate_at_end {
            let key = "workload.rate_at_end";
            problems.add_if(
                !(rate.is_finite() && rate > 0.0),
                key,
                "it must be a number of requests per second above 0",
            );
            problems.add_if(
                workload.arrivals != Arrivals::Constant || !workload.steps.is_empty(),
                key,
                "it is where a constant rate goes to: choose `workload.arrivals = \"constant\"` without `steps`",
            );
            problems.add_if(is_endless, key, "the end is that of `measure.duration`: give it");
        }
        let Some(catalogue) = &workload.catalogue else { return };
        let end = catalogue.end.unwrap_or(documents);
        problems.add_if(
            documents > 0 && end > documents,
            "workload.catalogue.end",
            &format!("the trace has {documents} documents only"),
        );
        let hot = workload.flash.as_ref().map_or(1, |flash| flash.urls);
        problems.add_if(
            catalogue.start < hot || documents > 0 && catalogue.start > end,
            "workload.catalogue.start",
            "there must be a document at least, all of `workload.flash`, and no more than at the end",
        );
        problems.add_if(
            catalogue.over.map_or(is_endless, |over| over.0.is_zero()),
            "workload.catalogue.over",
            "give a time above 0 until all documents are there, or `measure.duration`",
        );
    }
}
