//! Predicted figures next to measured ones, with the bounds within which a plan is right.

use levada_plan::{Figures, Range};

use crate::measure::Measured;

/// A figure that is compared.
pub(crate) struct ComparedFigure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// The factor from the plan's unit to the shown one.
    scale: f64,
    pub(crate) bound: Bound,
    predicted: fn(&Figures) -> Range,
    measured: fn(&Measured) -> f64,
}

/// The largest difference between the predicted and the measured figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// Points of a percentage.
    Points(f64),
    /// Percent of the measured figure.
    Percent(f64),
}

/// A figure of a cluster, predicted and measured, in its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Comparison {
    pub(crate) predicted: Range,
    /// Predicted from logs that have the measured requests, too.
    pub(crate) informed: f64,
    pub(crate) measured: f64,
    /// Of the prediction to what was measured, in points or percent, as the bound.
    pub(crate) difference: f64,
    /// `None` if the bound does not apply.
    pub(crate) is_within: Option<bool>,
}

/// All figures.
pub(crate) const FIGURES: [ComparedFigure; 6] = [
    ComparedFigure {
        name: "hit ratio",
        unit: "%",
        scale: 100.0,
        bound: Bound::Points(2.0),
        predicted: |figures| figures.hit,
        measured: |measured| measured.hit,
    },
    ComparedFigure {
        name: "byte-hit ratio",
        unit: "%",
        scale: 100.0,
        bound: Bound::Points(2.0),
        predicted: |figures| figures.byte_hit,
        measured: |measured| measured.byte_hit,
    },
    ComparedFigure {
        name: "origin egress",
        unit: "Mbit/s",
        scale: 1.0,
        bound: Bound::Percent(5.0),
        predicted: |figures| figures.origin,
        measured: |measured| measured.origin,
    },
    ComparedFigure {
        name: "busiest CPU",
        unit: "%",
        scale: 100.0,
        bound: Bound::Percent(15.0),
        predicted: |figures| figures.cpu,
        measured: |measured| measured.cpu,
    },
    ComparedFigure {
        name: "CPU per node",
        unit: "%",
        scale: 100.0,
        bound: Bound::Percent(15.0),
        predicted: |figures| figures.mean_cpu,
        measured: |measured| measured.mean_cpu,
    },
    ComparedFigure {
        name: P99,
        unit: "ms",
        scale: 1e3,
        bound: Bound::Percent(25.0),
        predicted: |figures| figures.p99,
        measured: |measured| measured.p99,
    },
];

impl Bound {
    /// The number and its unit.
    pub(crate) const fn parts(self) -> (f64, &'static str) {
        match self {
            Self::Points(bound) => (bound, "points"),
            Self::Percent(bound) => (bound, "%"),
        }
    }
}

impl ComparedFigure {
    /// Compares the figure of a cluster.
    pub(crate) fn compare(
        &self,
        predicted: &Figures,
        informed: &Figures,
        measured: &Measured,
    ) -> Comparison {
        let Range { mean, least, most } = (self.predicted)(predicted);
        let scaled = |value: f64| value * self.scale;
        let (mean, real) = (scaled(mean), scaled((self.measured)(measured)));
        let (difference, bound) = match self.bound {
            Bound::Points(bound) => (mean - real, bound),
            Bound::Percent(bound) => ((mean / real.max(f64::MIN_POSITIVE) - 1.0) * 100.0, bound),
        };
        let applies = self.name != P99 || measured.cpu < SATURATED;
        Comparison {
            predicted: Range { mean, least: scaled(least), most: scaled(most) },
            informed: scaled((self.predicted)(informed).mean),
            measured: real,
            difference,
            is_within: applies.then_some(difference.abs() <= bound),
        }
    }
}

const P99: &str = "p99";
/// A node whose CPU works for a larger share of the time is saturated, and its latency has no bound.
const SATURATED: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(name: &str, predicted: f64, measured: &Measured) -> Comparison {
        let range = Range { mean: predicted, least: predicted, most: predicted };
        let figures = Figures {
            disk: Range::default(),
            disk_hit: Range::default(),
            confirmed: Range::default(),
            hit: range,
            byte_hit: range,
            origin: range,
            cpu: range,
            mean_cpu: range,
            p99: range,
            overloaded: false,
        };
        let figure = FIGURES.iter().find(|figure| figure.name == name).unwrap();
        figure.compare(&figures, &figures, measured)
    }

    #[test]
    fn ratios_differ_by_points_and_rates_by_percent() {
        let measured = Measured { hit: 0.85, origin: 2.0, cpu: 0.5, ..Measured::default() };
        let hit = compared("hit ratio", 0.87, &measured);
        assert!((hit.difference - 2.0).abs() < 1e-9 && hit.predicted.mean == 87.0, "{hit:?}");
        assert_eq!(compared("hit ratio", 0.825, &measured).is_within, Some(false));
        let origin = compared("origin egress", 1.92, &measured);
        assert!((origin.difference + 4.0).abs() < 1e-9, "{origin:?}");
        assert_eq!(origin.is_within, Some(true));
        assert_eq!(compared("busiest CPU", 0.58, &measured).is_within, Some(false));
    }

    #[test]
    fn latency_has_a_bound_below_saturation_only() {
        let at = |cpu| Measured { p99: 0.1, cpu, ..Measured::default() };
        assert_eq!(compared("p99", 0.12, &at(0.5)).is_within, Some(true));
        assert_eq!(compared("p99", 0.13, &at(0.5)).is_within, Some(false));
        assert_eq!(compared("p99", 0.13, &at(0.9)).is_within, None);
    }

    #[test]
    fn nothing_measured_is_no_error_of_the_lab() {
        let none = compared("origin egress", 1.0, &Measured::default());
        assert_eq!(none.is_within, Some(false));
    }
}
