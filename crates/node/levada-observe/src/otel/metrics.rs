//! The page of metrics as a message of OTLP.
//!
//! A counter becomes a sum since the start of the process, a gauge a gauge, and a histogram one with the same buckets.
//! Names are those of the page without `_total`: Prometheus adds that again, and a collector may.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::otel::{
    families::{Family, FamilyKind, Label, Sample, families},
    message::{
        InstrumentationScope, KeyValue, Resource, attribute,
        metrics::{
            CUMULATIVE, Data, ExportMetricsServiceRequest, Gauge, Histogram, HistogramDataPoint,
            Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
        },
    },
};

/// The message for a page in OpenMetrics, and the number of its data points.
pub(crate) fn message(
    resource: &Resource,
    page: &str,
    start: SystemTime,
    now: SystemTime,
) -> (u64, ExportMetricsServiceRequest) {
    let at = Moment { start: nanos(start), now: nanos(now) };
    let metrics: Vec<_> = families(page).iter().map(|family| at.metric(family)).collect();
    let points = metrics.iter().map(points).sum::<usize>() as u64;
    let scope_metrics = vec![ScopeMetrics { scope: Some(InstrumentationScope::levada()), metrics }];
    let resource = Some(resource.clone());
    let resource_metrics = vec![ResourceMetrics { resource, scope_metrics }];
    (points, ExportMetricsServiceRequest { resource_metrics })
}

/// Nanoseconds since 1970.
pub(crate) fn nanos(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

fn points(metric: &Metric) -> usize {
    match &metric.data {
        Some(Data::Gauge(gauge)) => gauge.data_points.len(),
        Some(Data::Sum(sum)) => sum.data_points.len(),
        Some(Data::Histogram(histogram)) => histogram.data_points.len(),
        None => 0,
    }
}

#[derive(Clone, Copy)]
struct Moment {
    start: u64,
    now: u64,
}

impl Moment {
    fn metric(self, family: &Family<'_>) -> Metric {
        let numbers = || family.samples.iter().map(|sample| self.number(sample)).collect();
        let data = match family.kind {
            FamilyKind::Gauge => Data::Gauge(Gauge { data_points: numbers() }),
            FamilyKind::Counter => Data::Sum(Sum {
                data_points: numbers(),
                aggregation_temporality: CUMULATIVE,
                is_monotonic: true,
            }),
            FamilyKind::Histogram => Data::Histogram(Histogram {
                data_points: self.histograms(&family.samples),
                aggregation_temporality: CUMULATIVE,
            }),
        };
        Metric {
            name: family.name.to_owned(),
            description: family.help.to_owned(),
            unit: unit(family.name).to_owned(),
            data: Some(data),
        }
    }

    fn number(self, sample: &Sample<'_>) -> NumberDataPoint {
        NumberDataPoint {
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            as_double: Some(sample.value),
            attributes: attributes(&sample.labels),
        }
    }

    /// The lines of one histogram stand next to each other, and have the same labels but for the bound.
    fn histograms(self, samples: &[Sample<'_>]) -> Vec<HistogramDataPoint> {
        let mut points: Vec<HistogramDataPoint> = Vec::new();
        let (mut labels, mut below) = (None, 0);
        for sample in samples {
            let own: Vec<_> = sample.labels.iter().filter(|(name, _)| *name != "le").collect();
            if labels.as_ref() != Some(&own) {
                let attributes = attributes(own.iter().copied());
                (labels, below) = (Some(own), 0);
                points.push(HistogramDataPoint {
                    start_time_unix_nano: self.start,
                    time_unix_nano: self.now,
                    attributes,
                    ..HistogramDataPoint::default()
                });
            }
            let Some(point) = points.last_mut() else { continue };
            match sample.suffix {
                "_sum" => point.sum = Some(sample.value),
                "_count" => point.count = sample.value as u64,
                "_bucket" => {
                    // Buckets of the page count all below their bound, those of OTLP what they have alone.
                    let count = sample.value as u64;
                    point.bucket_counts.push(count.saturating_sub(below));
                    below = count;
                    let bound = sample.labels.iter().find(|(name, _)| *name == "le");
                    let bound = bound.and_then(|(_, bound)| bound.parse().ok());
                    point.explicit_bounds.extend(bound.filter(|bound: &f64| bound.is_finite()));
                }
                _ => {}
            }
        }
        points
    }
}

fn attributes<'l>(labels: impl IntoIterator<Item = &'l Label<'l>>) -> Vec<KeyValue> {
    labels.into_iter().map(|(name, value)| attribute(name, &**value)).collect()
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn counters_gauges_and_histograms_keep_their_values() {
        let page = "# HELP a_bytes B.\n# TYPE a_bytes counter\na_bytes_total{x=\"y\"} 12\n\
                    # TYPE g gauge\ng 2.5\n# TYPE h_seconds histogram\n\
                    h_seconds_sum{s=\"a\"} 4.5\nh_seconds_count{s=\"a\"} 3\n\
                    h_seconds_bucket{le=\"0.5\",s=\"a\"} 1\nh_seconds_bucket{le=\"2.0\",s=\"a\"} 3\n\
                    h_seconds_bucket{le=\"+Inf\",s=\"a\"} 3\n\
                    h_seconds_sum{s=\"b\"} 9.0\nh_seconds_count{s=\"b\"} 1\n\
                    h_seconds_bucket{le=\"0.5\",s=\"b\"} 0\nh_seconds_bucket{le=\"2.0\",s=\"b\"} 0\n\
                    h_seconds_bucket{le=\"+Inf\",s=\"b\"} 1\n# EOF\n";
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let (points, message) = message(&Resource::default(), page, at(1), at(2));
        assert_eq!(points, 4);
        let metrics = &message.resource_metrics[0].scope_metrics[0].metrics;
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
