//! Values of metric labels.

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use std::fmt::Write as _;

/// A label value from a small fixed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LabelValue(pub(crate) &'static str);

impl EncodeLabelValue for LabelValue {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(self.0)
    }
}
