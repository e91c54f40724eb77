//! The names, help texts and order of metrics.

use std::sync::Arc;

use crate::metrics::{Family, Label, Labels, MetricKind, MetricSnapshot, Reading, Sample};

/// A metric that a registry shows. Clones share its value.
pub trait Metric: Clone + Default + Send + Sync + 'static {
    /// Its type.
    const KIND: MetricKind;

    /// Adds its sample with these labels.
    fn read(&self, labels: &[Label], samples: &mut Vec<Sample>);
}

/// The metrics of a node. Each crate registers those that it counts.
#[derive(Default)]
pub struct Registry {
    prefix: String,
    metrics: Vec<Registered>,
    parts: Vec<Registry>,
}

struct Registered {
    name: Arc<str>,
    help: Arc<str>,
    kind: MetricKind,
    read: Box<Read>,
}

/// Adds the samples of a metric.
type Read = dyn Fn(&mut Vec<Sample>) + Send + Sync;

impl Registry {
    /// A part, whose metrics are shown after all others and have this prefix in their names.
    pub fn part(&mut self, prefix: &str) -> &mut Self {
        let part = Self { prefix: format!("{}{prefix}_", self.prefix), ..Self::default() };
        self.parts.push(part);
        let last = self.parts.len() - 1;
        &mut self.parts[last]
    }

    /// A new metric, shown with this name and help.
    pub fn metric<M: Metric>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        let shown = metric.clone();
        self.add(name, help, M::KIND, move |samples| shown.read(&[], samples));
        metric
    }

    /// A new family with labels of these names, shown with this name and help.
    pub fn family<L: Labels, M: Metric>(
        &mut self,
        name: &str,
        help: &str,
        labels: L::Names,
    ) -> Family<L, M> {
        let family = Family::new(labels);
        self.show(name, help, &family);
        family
    }

    /// Shows a family.
    pub fn show<L: Labels, M: Metric>(&mut self, name: &str, help: &str, family: &Family<L, M>) {
        let family = family.clone();
        self.add(name, help, Family::<L, M>::KIND, move |samples| family.read(samples));
    }

    /// Shows a value that is read for each page, if there is one.
    pub fn value(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricKind,
        read: impl Fn() -> Option<Reading> + Send + Sync + 'static,
    ) {
        let sample = move || Some(Sample { labels: Vec::new(), value: read()? });
        self.add(name, help, kind, move |samples| samples.extend(sample()));
    }

    fn add(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricKind,
        read: impl Fn(&mut Vec<Sample>) + Send + Sync + 'static,
    ) {
        let (name, help) = (format!("{}{name}", self.prefix), format!("{help}."));
        let (name, help, read) = (name.into(), help.into(), Box::new(read));
        self.metrics.push(Registered { name, help, kind, read });
    }

    /// All metrics at this moment. Families without metrics are left out.
    pub fn read(&self) -> Vec<MetricSnapshot> {
        let mut all = Vec::new();
        self.read_to(&mut all);
        all
    }

    fn read_to(&self, all: &mut Vec<MetricSnapshot>) {
        for Registered { name, help, kind, read } in &self.metrics {
            let mut samples = Vec::new();
            read(&mut samples);
            if !samples.is_empty() {
                let (name, help) = (name.clone(), help.clone());
                all.push(MetricSnapshot { name, help, kind: *kind, samples });
            }
        }
        self.parts.iter().for_each(|part| part.read_to(all));
    }
}
