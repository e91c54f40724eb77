//! The page of metrics as a message of OTLP.
//!
//! A counter becomes a sum since the start of the process, a gauge a gauge, and a histogram one with the same buckets.
//! Names are those of the page without `_total`: Prometheus adds that again, and a collector may.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{
    metrics::{Buckets, Label, MetricKind, MetricSnapshot, Reading},
    otel::message::{
        ExportRequest, KeyValue, Resource, attribute,
        metrics::{
            CUMULATIVE, Data, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
        },
    },
};

/// The message for metrics, and the number of its data points.
pub(crate) fn message(
    resource: &Resource,
    metrics: &[MetricSnapshot],
    start: SystemTime,
    now: SystemTime,
) -> (u64, ExportRequest<Metric>) {
    let at = Moment { start: nanos(start), now: nanos(now) };
    let points = metrics.iter().map(|metric| metric.samples.len() as u64).sum();
    let metrics = metrics.iter().map(|metric| at.metric(metric)).collect();
    (points, ExportRequest::new(resource.clone(), metrics))
}

/// Nanoseconds since 1970.
pub(crate) fn nanos(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

#[derive(Clone, Copy)]
struct Moment {
    start: u64,
    now: u64,
}

impl Moment {
    fn metric(self, MetricSnapshot { name, help, kind, samples }: &MetricSnapshot) -> Metric {
        let (mut numbers, mut histograms) = (Vec::new(), Vec::new());
        for sample in samples {
            match &sample.value {
                Reading::Whole(value) => numbers.push(self.number(&sample.labels, *value as f64)),
                Reading::Number(value) => numbers.push(self.number(&sample.labels, *value)),
                Reading::Histogram(value) => histograms.push(self.histogram(&sample.labels, value)),
            }
        }
        let data = match kind {
            MetricKind::Gauge => Data::Gauge(Gauge { data_points: numbers }),
            MetricKind::Counter => Data::Sum(Sum {
                data_points: numbers,
                aggregation_temporality: CUMULATIVE,
                is_monotonic: true,
            }),
            MetricKind::Histogram => Data::Histogram(Histogram {
                data_points: histograms,
                aggregation_temporality: CUMULATIVE,
            }),
        };
        Metric {
            name: name.to_string(),
            description: help.to_string(),
            unit: unit(name).to_owned(),
            data: Some(data),
        }
    }

    fn number(self, labels: &[Label], value: f64) -> NumberDataPoint {
        NumberDataPoint {
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            as_double: Some(value),
            attributes: attributes(labels),
        }
    }

    fn histogram(self, labels: &[Label], buckets: &Buckets) -> HistogramDataPoint {
        let bounds = buckets.counts.iter().map(|(bound, _)| *bound);
        HistogramDataPoint {
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            count: buckets.count(),
            sum: Some(buckets.sum),
            bucket_counts: buckets.counts.iter().map(|(_, count)| *count).collect(),
            explicit_bounds: bounds.filter(|bound| bound.is_finite()).collect(),
            attributes: attributes(labels),
        }
    }
}

fn attributes(labels: &[Label]) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| attribute(name, value.as_str())).collect()
}

/// The unit of UCUM for names that end in a base unit of Prometheus.
fn unit(name: &str) -> &'static str {
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::metrics::Sample;

    #[test]
    fn counters_gauges_and_histograms_keep_their_values() {
        let sample = |label: Option<(&'static str, &str)>, value| {
            let labels = label.map(|(name, value)| (name, value.to_owned()));
            Sample { labels: labels.into_iter().collect(), value }
        };
        let times = |sum, [first, second, third]: [u64; 3]| {
            let counts = vec![(0.5, first), (2.0, second), (f64::INFINITY, third)];
            Reading::Histogram(Buckets { sum, counts, native: None })
        };
        let metric = |name, kind, samples| MetricSnapshot {
            name: Arc::from(name),
            help: "".into(),
            kind,
            samples,
        };
        let histograms = vec![
            sample(Some(("s", "a")), times(4.5, [1, 2, 0])),
            sample(Some(("s", "b")), times(9.0, [0, 0, 1])),
        ];
        let page = [
            metric(
                "a_bytes",
                MetricKind::Counter,
                vec![sample(Some(("x", "y")), Reading::Whole(12))],
            ),
            metric("g", MetricKind::Gauge, vec![sample(None, Reading::Number(2.5))]),
            metric("h_seconds", MetricKind::Histogram, histograms),
        ];
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let (points, message) = message(&Resource::default(), &page, at(1), at(2));
        assert_eq!(points, 4);
        let metrics = &message.resources[0].scopes[0].items;
        let names: Vec<_> = metrics.iter().map(|m| (m.name.as_str(), m.unit.as_str())).collect();
        assert_eq!(names, [("a_bytes", "By"), ("g", ""), ("h_seconds", "s")]);
        let Some(Data::Sum(sum)) = &metrics[0].data else { panic!() };
        assert_eq!((sum.data_points[0].as_double, sum.is_monotonic), (Some(12.0), true));
        assert_eq!(sum.data_points[0].start_time_unix_nano, 1_000_000_000);
        assert_eq!(sum.data_points[0].attributes, [attribute("x", "y")]);
        let Some(Data::Histogram(histogram)) = &metrics[2].data else { panic!() };
        let [first, second] = &histogram.data_points[..] else { panic!() };
        assert_eq!((first.count, first.sum), (3, Some(4.5)));
        assert_eq!(
            (&*first.bucket_counts, &*first.explicit_bounds),
            (&[1, 2, 0][..], &[0.5, 2.0][..])
        );
        assert_eq!((&*second.bucket_counts, second.attributes.len()), (&[0, 0, 1][..], 1));
    }
}
