//! The page in Prometheus' protobuf format, which alone has native histograms (`io/prometheus/client/metrics.proto`).

use levada_observe::otel::{
    Family, FamilyKind, NativeBuckets, SCHEMA, Sample, families, zero_threshold,
};
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    /// 0 counter, 1 gauge, 4 histogram.
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(oneof = "Value", tags = "2, 3, 7")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Oneof)]
enum Value {
    #[prost(message, tag = "2")]
    Gauge(Number),
    #[prost(message, tag = "3")]
    Counter(Number),
    #[prost(message, tag = "7")]
    Histogram(Histogram),
}

#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(double, tag = "1")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    sample_count: u64,
    #[prost(double, tag = "2")]
    sample_sum: f64,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    schema: i32,
    #[prost(double, tag = "6")]
    zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    zero_count: u64,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, tag = "1")]
    cumulative_count: u64,
    #[prost(double, tag = "2")]
    upper_bound: f64,
}

#[derive(Clone, PartialEq, Message)]
struct BucketSpan {
    /// From the end of the span before, or the index of the first bucket.
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

/// A page in OpenMetrics in protobuf. `native` knows the native buckets of a line of a family.
pub(crate) fn page(
    text: &str,
    native: impl Fn(&Family<'_>, &Sample<'_>) -> Option<NativeBuckets>,
) -> Vec<u8> {
    let mut page = Vec::with_capacity(text.len());
    for family in families(text) {
        let metric = match family.kind {
            FamilyKind::Histogram => histograms(&family, &native),
            FamilyKind::Counter => numbers(&family, Value::Counter),
            FamilyKind::Gauge => numbers(&family, Value::Gauge),
        };
        let (suffix, kind) = match family.kind {
            FamilyKind::Counter => ("_total", 0),
            FamilyKind::Gauge => ("", 1),
            FamilyKind::Histogram => ("", 4),
        };
        let (name, help) = (format!("{}{suffix}", family.name), family.help.to_owned());
        page.extend(MetricFamily { name, help, kind, metric }.encode_length_delimited_to_vec());
    }
    page
}

fn numbers(family: &Family<'_>, value: fn(Number) -> Value) -> Vec<Metric> {
    let metric = |sample: &Sample<'_>| Metric {
        label: labels(sample),
        value: Some(value(Number { value: sample.value })),
    };
    family.samples.iter().map(metric).collect()
}

/// The bound of a bucket is no label here.
fn labels(sample: &Sample<'_>) -> Vec<LabelPair> {
    let labels = sample.labels.iter().filter(|(name, _)| *name != "le");
    labels
        .map(|(name, value)| LabelPair { name: (*name).into(), value: (**value).into() })
        .collect()
}

/// The lines of one histogram stand next to each other, its sum first.
fn histograms(
    family: &Family<'_>,
    native: impl Fn(&Family<'_>, &Sample<'_>) -> Option<NativeBuckets>,
) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for sample in &family.samples {
        if sample.suffix == "_sum" {
            let mut histogram = Histogram { sample_sum: sample.value, ..Histogram::default() };
            if let Some(native) = native(family, sample) {
                histogram.add(&native);
            }
            let value = Some(Value::Histogram(histogram));
            metrics.push(Metric { label: labels(sample), value });
        }
        let Some(Metric { value: Some(Value::Histogram(histogram)), .. }) = metrics.last_mut()
        else {
            continue;
        };
        let bound = sample.labels.iter().find(|(name, _)| *name == "le");
        match (sample.suffix, bound.and_then(|(_, bound)| bound.parse().ok())) {
            ("_count", _) if histogram.schema == 0 => histogram.sample_count = sample.value as u64,
            ("_bucket", Some(upper_bound)) => {
                let cumulative_count = sample.value as u64;
                histogram.bucket.push(Bucket { cumulative_count, upper_bound });
            }
            _ => {}
        }
    }
    metrics
}

impl Histogram {
    /// Adds native buckets, whose counts are those of one moment.
    fn add(&mut self, native: &NativeBuckets) {
        self.sample_count = native.count;
        (self.schema, self.zero_threshold) = (SCHEMA, zero_threshold());
        self.zero_count = native.zeros;
        let (mut end, mut before) = (0, 0);
        for (first, counts) in &native.runs {
            let length = counts.len() as u32;
            self.positive_span.push(BucketSpan { offset: first - end, length });
            end = first + length as i32;
            for count in counts {
                let count = *count as i64;
                self.positive_delta.push(count - before);
                before = count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_buckets_are_runs_of_differences() {
        let text = "# TYPE t histogram\nt_sum{s=\"a\"} 4.5\nt_count{s=\"a\"} 12\n\
                    t_bucket{le=\"1.0\",s=\"a\"} 3\nt_bucket{le=\"+Inf\",s=\"a\"} 12\n\
                    # TYPE c counter\nc_total 7\n# EOF\n";
        let native = |_: &Family<'_>, sample: &Sample<'_>| {
            assert_eq!(sample.labels, [("s", "a".into())]);
            let runs = vec![(-3, vec![5, 2]), (4, vec![4])];
            Some(NativeBuckets { count: 12, zeros: 1, runs })
        };
        let bytes = page(text, native);
        let mut rest = &bytes[..];
        let histogram = MetricFamily::decode_length_delimited(&mut rest).unwrap();
        let counter = MetricFamily::decode_length_delimited(&mut rest).unwrap();
        assert!(rest.is_empty());
        assert_eq!((&*counter.name, counter.metric.len()), ("c_total", 1));
        let Some(Value::Histogram(histogram)) = &histogram.metric[0].value else { panic!() };
        assert_eq!((histogram.sample_count, histogram.bucket.len()), (12, 2));
        let spans: Vec<_> =
            histogram.positive_span.iter().map(|span| (span.offset, span.length)).collect();
        assert_eq!(
            (&*spans, &*histogram.positive_delta),
            (&[(-3, 2), (5, 1)][..], &[5, -3, 2][..])
        );
    }
}
