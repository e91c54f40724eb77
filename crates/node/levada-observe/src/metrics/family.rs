//! Metrics of one name, by their labels.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::metrics::{Label, Metric, MetricKind, Sample};

/// The values of a family's labels: an array, or a tuple where they are of several types.
pub trait Labels: Clone + Eq + Hash + Send + Sync + 'static {
    /// As many names.
    type Names: AsRef<[&'static str]> + Clone + Send + Sync + 'static;

    /// The values in the order of the names.
    fn values(&self) -> Vec<String>;
}

impl<V: ToString + Clone + Eq + Hash + Send + Sync + 'static, const N: usize> Labels for [V; N] {
    type Names = [&'static str; N];

    fn values(&self) -> Vec<String> {
        self.iter().map(ToString::to_string).collect()
    }
}

macro_rules! labels {
    ($number:literal, $($label:ident)*) => {
        impl<$($label: ToString + Clone + Eq + Hash + Send + Sync + 'static),*> Labels for ($($label),*) {
            type Names = [&'static str; $number];

            #[allow(non_snake_case)]
            fn values(&self) -> Vec<String> {
                let ($($label),*) = self;
                vec![$($label.to_string()),*]
            }
        }
    };
}

labels!(2, A B);
labels!(4, A B C D);

/// Metrics of one name. Clones share them.
#[derive(Clone, Debug)]
pub struct Family<L: Labels, M> {
    names: L::Names,
    metrics: Arc<RwLock<HashMap<L, M>>>,
}

impl<L: Labels, M: Metric> Family<L, M> {
    /// A family without metrics.
    pub fn new(names: L::Names) -> Self {
        Self { names, metrics: Arc::default() }
    }

    /// The metric with these labels, which is a new one if there was none.
    pub fn get_or_create(&self, labels: &L) -> MappedRwLockReadGuard<'_, M> {
        if let Some(known) = self.get(labels) {
            return known;
        }
        let mut metrics = self.metrics.write();
        metrics.entry(labels.clone()).or_default();
        let metrics = RwLockWriteGuard::downgrade(metrics);
        RwLockReadGuard::map(metrics, |metrics| &metrics[labels])
    }

    /// The metric with these labels, if there is one.
    pub fn get(&self, labels: &L) -> Option<MappedRwLockReadGuard<'_, M>> {
        RwLockReadGuard::try_map(self.metrics.read(), |metrics| metrics.get(labels)).ok()
    }

    /// Removes the metric with these labels.
    pub fn remove(&self, labels: &L) {
        self.metrics.write().remove(labels);
    }

    /// Removes all metrics.
    pub fn clear(&self) {
        self.metrics.write().clear();
    }

    /// The type of the metrics.
    pub(crate) const KIND: MetricKind = M::KIND;

    /// Adds the samples of all metrics.
    pub(crate) fn read(&self, samples: &mut Vec<Sample>) {
        for (values, metric) in &*self.metrics.read() {
            let names = self.names.as_ref().iter().copied();
            let labels: Vec<Label> = names.zip(values.values()).collect();
            metric.read(&labels, samples);
        }
    }
}
