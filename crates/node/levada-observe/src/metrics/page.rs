//! The page that Prometheus scrapes, and the choice of its format.

use crate::metrics::{MetricSnapshot, protobuf::protobuf, text};

/// The media type of protobuf, as Prometheus asks for it.
const PROTOBUF: &str = "application/vnd.google.protobuf";

/// A format of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageFormat {
    /// Prometheus' text format 0.0.4, for clients that do not ask for another one.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' protobuf, with native histograms.
    Protobuf,
}

impl PageFormat {
    /// The format for a client with this `Accept`.
    pub fn accepted(accept: &str) -> Self {
        let place = |wanted: &str| accept.split(',').position(|kind| kind.contains(wanted));
        // Prometheus names first what it likes best.
        match (place(PROTOBUF), place("application/openmetrics-text")) {
            (Some(protobuf), text) if text.is_none_or(|text| protobuf < text) => Self::Protobuf,
            (_, Some(_)) => Self::OpenMetrics,
            _ => Self::Text,
        }
    }

    /// The value of `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// The page with these metrics.
    pub fn page(self, metrics: &[MetricSnapshot]) -> Vec<u8> {
        match self {
            Self::Protobuf => protobuf(metrics),
            Self::Text | Self::OpenMetrics => text(metrics, self).into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_those_who_ask_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(PageFormat::accepted(prometheus), PageFormat::OpenMetrics);
        let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6";
        let (first, last) =
            (format!("{protobuf},{prometheus}"), format!("{prometheus},{protobuf}"));
        assert_eq!(PageFormat::accepted(&first), PageFormat::Protobuf);
        assert_eq!(PageFormat::accepted(&last), PageFormat::OpenMetrics);
        assert_eq!(PageFormat::accepted("*/*"), PageFormat::Text);
    }
}
