//! The page in Prometheus' protobuf format, which alone has native histograms (`io/prometheus/client/metrics.proto`).

use prost::{Message, Oneof};

use crate::metrics::{
    Buckets, MetricKind, MetricSnapshot, NativeBuckets, Reading, SCHEMA, Sample, zero_threshold,
};

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

/// The page with these metrics.
pub(crate) fn protobuf(metrics: &[MetricSnapshot]) -> Vec<u8> {
    let mut page = Vec::new();
    for MetricSnapshot { name, help, kind, samples } in metrics {
        let metric = samples.iter().map(|sample| metric(*kind, sample)).collect();
        let (name, help) = (format!("{name}{}", kind.suffix()), help.to_string());
        let kind = match kind {
            MetricKind::Counter => 0,
            MetricKind::Gauge => 1,
            MetricKind::Histogram => 4,
        };
        page.extend(MetricFamily { name, help, kind, metric }.encode_length_delimited_to_vec());
    }
    page
}

fn metric(kind: MetricKind, Sample { labels, value }: &Sample) -> Metric {
    let pair = |(name, value): &(&str, String)| {
        let (name, value) = ((*name).to_owned(), value.clone());
        LabelPair { name, value }
    };
    let number = |value| {
        let number = Number { value };
        if kind == MetricKind::Counter { Value::Counter(number) } else { Value::Gauge(number) }
    };
    let value = match value {
        Reading::Whole(value) => number(*value as f64),
        Reading::Number(value) => number(*value),
        Reading::Histogram(buckets) => Value::Histogram(Histogram::new(buckets)),
    };
    Metric { label: labels.iter().map(pair).collect(), value: Some(value) }
}

impl Histogram {
    fn new(buckets: &Buckets) -> Self {
        let bucket = |(upper_bound, cumulative_count)| Bucket { cumulative_count, upper_bound };
        let mut histogram = Self {
            sample_count: buckets.count(),
            sample_sum: buckets.sum,
            bucket: buckets.cumulative().map(bucket).collect(),
            ..Self::default()
        };
        if let Some(native) = &buckets.native {
            histogram.add(native);
        }
        histogram
    }

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
    use std::sync::Arc;

    use super::*;

    #[test]
    fn native_buckets_are_runs_of_differences() {
        let runs = vec![(-3, vec![5, 2]), (4, vec![4])];
        let native = Some(NativeBuckets { count: 12, zeros: 1, runs });
        let counts = vec![(1.0, 3), (f64::INFINITY, 9)];
        let sample = |value| vec![Sample { labels: vec![("s", "a".to_owned())], value }];
        let histogram = sample(Reading::Histogram(Buckets { sum: 4.5, counts, native }));
        let metric = |name, kind, samples| MetricSnapshot {
            name: Arc::from(name),
            help: "".into(),
            kind,
            samples,
        };
        let bytes = protobuf(&[
            metric("t", MetricKind::Histogram, histogram),
            metric("c", MetricKind::Counter, sample(Reading::Whole(7))),
        ]);
        let mut rest = &bytes[..];
        let histogram = MetricFamily::decode_length_delimited(&mut rest).unwrap();
        let counter = MetricFamily::decode_length_delimited(&mut rest).unwrap();
        assert!(rest.is_empty());
        assert_eq!((&*counter.name, counter.metric.len()), ("c_total", 1));
        assert_eq!(counter.metric[0].value, Some(Value::Counter(Number { value: 7.0 })));
        assert_eq!(
            (&*counter.metric[0].label[0].name, &*counter.metric[0].label[0].value),
            ("s", "a")
        );
        let Some(Value::Histogram(histogram)) = &histogram.metric[0].value else { panic!() };
        assert_eq!((histogram.sample_count, histogram.sample_sum), (12, 4.5));
        assert_eq!((histogram.bucket.len(), histogram.bucket[1].cumulative_count), (2, 12));
        let spans: Vec<_> =
            histogram.positive_span.iter().map(|span| (span.offset, span.length)).collect();
        assert_eq!(
            (&*spans, &*histogram.positive_delta),
            (&[(-3, 2), (5, 1)][..], &[5, -3, 2][..])
        );
    }
}
