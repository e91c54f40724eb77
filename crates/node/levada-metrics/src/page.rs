//! The page that Prometheus scrapes, in the two text formats of the field; and the choice of a format.

use std::fmt::Write as _;

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

    /// A page in OpenMetrics in this text format.
    ///
    /// In the text format the name of a counter has its suffix in the metadata, too, and there are no units and
    /// no end.
    pub(crate) fn of(self, page: String) -> String {
        if self != Self::Text {
            return page;
        }
        let (mut text, mut help) = (String::with_capacity(page.len()), None);
        for line in page.lines() {
            if let Some(of) = line.strip_prefix("# HELP ") {
                help = of.split_once(' ');
            } else if let Some(of) = line.strip_prefix("# TYPE ") {
                let (name, kind) = of.split_once(' ').unwrap_or((of, "unknown"));
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                if let Some((_, words)) = help.take_if(|(helped, _)| *helped == name) {
                    let _ = writeln!(text, "# HELP {name}{suffix} {words}");
                }
                let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
            } else if !line.starts_with('#') {
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_their_suffix_in_the_metadata_of_the_text_format() {
        let page = "# HELP a_b Bytes.\n# TYPE a_b counter\n# UNIT a_b bytes\na_b_total{x=\"# y\"} 1\n# HELP g G.\n# TYPE g gauge\ng 2\n# EOF\n";
        let text = "# HELP a_b_total Bytes.\n# TYPE a_b_total counter\na_b_total{x=\"# y\"} 1\n# HELP g G.\n# TYPE g gauge\ng 2\n";
        assert_eq!(PageFormat::Text.of(page.to_owned()), text);
        assert_eq!(PageFormat::OpenMetrics.of(page.to_owned()), page);
    }

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
