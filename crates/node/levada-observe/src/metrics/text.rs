//! The page in the two text formats of the field.

use std::fmt::{self, Display, Formatter, Write as _};

use crate::metrics::{Label, MetricSnapshot, PageFormat, Reading};

/// The page in OpenMetrics, or else in Prometheus' text format: there the name of a counter has its suffix in the
/// metadata, too, and the page has no end.
pub fn text(metrics: &[MetricSnapshot], format: PageFormat) -> String {
    let mut page = String::new();
    // A string takes all that is written to it.
    let _ = write(&mut page, metrics, format == PageFormat::OpenMetrics);
    page
}

fn write(page: &mut String, metrics: &[MetricSnapshot], open: bool) -> fmt::Result {
    for MetricSnapshot { name, help, kind, samples } in metrics {
        let suffix = kind.suffix();
        let described = if open { "" } else { suffix };
        writeln!(page, "# HELP {name}{described} {help}")?;
        writeln!(page, "# TYPE {name}{described} {}", kind.as_str())?;
        for sample in samples {
            let labels = Shown { bound: None, labels: &sample.labels };
            match &sample.value {
                Reading::Whole(number) => writeln!(page, "{name}{suffix}{labels} {number}")?,
                Reading::Number(number) => writeln!(page, "{name}{suffix}{labels} {number:?}")?,
                Reading::Histogram(buckets) => {
                    writeln!(page, "{name}_sum{labels} {:?}", buckets.sum)?;
                    writeln!(page, "{name}_count{labels} {}", buckets.count())?;
                    for (bound, count) in buckets.cumulative() {
                        let labels = Shown { bound: Some(bound), ..labels };
                        writeln!(page, "{name}_bucket{labels} {count}")?;
                    }
                }
            }
        }
    }
    if open { page.write_str("# EOF\n") } else { Ok(()) }
}

/// Labels in braces, the bound of a bucket first.
struct Shown<'a> {
    bound: Option<f64>,
    labels: &'a [Label],
}

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut before = '{';
        match self.bound {
            Some(f64::INFINITY) => write!(f, "{{le=\"+Inf\"")?,
            Some(bound) => write!(f, "{{le=\"{bound:?}\"")?,
            None if self.labels.is_empty() => return Ok(()),
            None => {}
        }
        if self.bound.is_some() {
            before = ',';
        }
        for (name, value) in self.labels {
            write!(f, "{before}{name}=\"")?;
            before = ',';
            for c in value.chars() {
                match c {
                    '\\' | '"' => write!(f, "\\{c}")?,
                    '\n' => f.write_str("\\n")?,
                    c => f.write_char(c)?,
                }
            }
            f.write_char('"')?;
        }
        f.write_char('}')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Counter, Family, Gauge, Registry, SizeHistogram, TimeCounter};

    #[test]
    fn both_formats_show_names_help_labels_and_values() {
        let mut all = Registry::default();
        let registry = all.part("a");
        let bytes: Family<(String, u16), Counter> = registry.family("b", "Bytes", ["x", "code"]);
        let _empty: Family<[&str; 1], Counter> = registry.family("empty", "None", ["x"]);
        let gauge: Gauge = registry.metric("g", "G");
        let _time: TimeCounter = registry.metric("t_seconds", "T");
        let sizes: SizeHistogram = registry.metric("h", "H");
        bytes.get_or_create(&("a \"b\"\\\n{c}".to_owned(), 200)).inc_by(7);
        gauge.set(-2);
        sizes.observe(1);
        sizes.observe(200);
        let metrics = all.read();
        let counter = "a_b_total{x=\"a \\\"b\\\"\\\\\\n{c}\",code=\"200\"} 7\n";
        let gauge = "# HELP a_g G.\n# TYPE a_g gauge\na_g -2\n";
        let open = text(&metrics, PageFormat::OpenMetrics);
        assert!(open.starts_with(&format!(
            "# HELP a_b Bytes.\n# TYPE a_b counter\n{counter}{gauge}\
             # HELP a_t_seconds T.\n# TYPE a_t_seconds counter\na_t_seconds_total 0.0\n\
             # HELP a_h H.\n# TYPE a_h histogram\na_h_sum 201.0\na_h_count 2\n\
             a_h_bucket{{le=\"1.0\"}} 1\n"
        )));
        assert!(open.ends_with("a_h_bucket{le=\"128.0\"} 1\na_h_bucket{le=\"+Inf\"} 2\n# EOF\n"));
        let plain = text(&metrics, PageFormat::Text);
        let start = "# HELP a_b_total Bytes.\n# TYPE a_b_total counter\n";
        assert!(plain.starts_with(&format!("{start}{counter}{gauge}")));
        assert!(plain.ends_with("le=\"+Inf\"} 2\n"));
    }
}
