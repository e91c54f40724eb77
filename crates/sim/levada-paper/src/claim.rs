//! A paper's statements about its numbers, in a form that a run can be compared with.
//!
//! Absolute numbers depend on parameters that a paper leaves open; its claims are which strategy is
//! better, and by how much. So claims are about rows of one table, and each can be printed as a
//! sentence.

use super::report::{Judged, Verdict};

/// A statement about the rows of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// Rows in order of a column: `random < r-hrw <= r-chash < lr-chash ~ lr-hrw`. `<` is exact, `<=`
    /// allows for the resolution of the ramp, `~` is for equals.
    Order {
        /// The column.
        column: usize,
        /// The rows and their relations.
        chain: String,
    },
    /// One row's number divided by another's.
    Ratio {
        /// The column.
        column: usize,
        /// The row of the numerator.
        of: String,
        /// The row of the denominator.
        to: String,
        /// The paper's ratio.
        paper: f64,
        /// The tolerance, as a part of the ratio.
        tolerance: f64,
    },
    /// One row's number divided by another's lies within bounds.
    RatioWithin {
        /// The column.
        column: usize,
        /// The row of the numerator.
        of: String,
        /// The row of the denominator.
        to: String,
        /// The lower bound.
        low: f64,
        /// The upper bound.
        high: f64,
    },
    /// The ratio of one series to another grows, or falls, from the first to the last `x`.
    RatioTrend {
        /// The column.
        column: usize,
        /// The series of the numerator.
        of: String,
        /// The series of the denominator.
        to: String,
        /// Whether the ratio grows or falls.
        rises: bool,
    },
    /// A row's number lies within bounds.
    Within {
        /// The column.
        column: usize,
        /// The row.
        row: String,
        /// The lower bound.
        low: f64,
        /// The upper bound.
        high: f64,
    },
    /// A row's number is below another number, of any row and column.
    Below {
        /// The lower row and column.
        low: (String, usize),
        /// The higher row and column.
        high: (String, usize),
        /// The description of both, for a reader.
        text: String,
    },
    /// The slope of a series on logarithmic axes: 1 is linear scaling.
    Slope {
        /// The column.
        column: usize,
        /// The series.
        series: String,
        /// The lower bound.
        low: f64,
        /// The upper bound.
        high: f64,
    },
    /// A series rises, or falls, from its first to its last row.
    Trend {
        /// The column.
        column: usize,
        /// The series.
        series: String,
        /// Whether the series rises or falls.
        rises: bool,
    },
    /// The maximum of a series is at this `x`, or one step away.
    Peak {
        /// The column.
        column: usize,
        /// The series.
        series: String,
        /// The paper's `x`.
        x: f64,
    },
}

/// The resolution of the 1 % steps of the papers' ramps.
const STEP: f64 = 0.01;

/// The largest difference of equals, as a part of the smaller one.
const EQUAL: f64 = 0.10;

/// Numbers of a table by row and by series.
pub(super) trait Numbers {
    /// Our number in a row.
    fn row(&self, row: &str, column: usize) -> Option<f64>;
    /// Our numbers in a series, by ascending `x`. `None` if one is missing.
    fn series(&self, series: &str, column: usize) -> Option<Vec<(f64, f64)>>;
}

impl Claim {
    /// The column of the claim, if it has only one.
    pub(super) fn column(&self) -> Option<usize> {
        match self {
            Self::Order { column, .. }
            | Self::Ratio { column, .. }
            | Self::RatioWithin { column, .. }
            | Self::RatioTrend { column, .. }
            | Self::Within { column, .. }
            | Self::Slope { column, .. }
            | Self::Trend { column, .. }
            | Self::Peak { column, .. } => Some(*column),
            Self::Below { .. } => None,
        }
    }

    /// Compares the claim with the runs.
    pub(super) fn judge(&self, numbers: &dyn Numbers) -> Judged {
        match self {
            Self::Order { column, chain } => order(chain, |row| numbers.row(row, *column)),
            Self::Ratio { column, of, to, paper, tolerance } => {
                let both = numbers.row(of, *column).zip(numbers.row(to, *column));
                let ours =
                    both.filter(|(_, below)| *below > 0.0).map(|(above, below)| above / below);
                let off = |ours: f64| (ours / paper - 1.0).abs();
                Judged {
                    claim: format!("{of} / {to}"),
                    paper: format!("{paper:.2} +-{:.0} %", tolerance * 100.0),
                    ours: ours.map(|ours| format!("{ours:.2}")),
                    verdict: Verdict::of(ours.map(|ours| off(ours) <= *tolerance)),
                }
            }
            Self::RatioWithin { column, of, to, low, high } => {
                let both = numbers.row(of, *column).zip(numbers.row(to, *column));
                let ours = both.filter(|(_, below)| *below > 0.0).map(|(a, b)| a / b);
                judged_within(format!("{of} / {to}"), ours, *low, *high, 2)
            }
            Self::RatioTrend { column, of, to, rises } => {
                let of_points = numbers.series(of, *column);
                let both = of_points.zip(numbers.series(to, *column));
                let ends = both.as_ref().and_then(|(of, to)| {
                    let first = of.first()?.1 / to.first()?.1;
                    Some((first, of.last()?.1 / to.last()?.1))
                });
                Judged {
                    claim: format!("{of} / {to}, from first to last"),
                    paper: if *rises { "grows" } else { "falls" }.to_owned(),
                    ours: ends.map(|(first, last)| format!("{first:.2} to {last:.2}")),
                    verdict: Verdict::of(ends.map(|(f, l)| if *rises { l > f } else { l < f })),
                }
            }
            Self::Within { column, row, low, high } => {
                let ours = numbers.row(row, *column);
                judged_within(row.clone(), ours, *low, *high, 1)
            }
            Self::Below { low, high, text } => {
                let both = numbers.row(&low.0, low.1).zip(numbers.row(&high.0, high.1));
                Judged {
                    claim: text.clone(),
                    paper: "below".to_owned(),
                    ours: both.map(|(low, high)| format!("{low:.2} and {high:.2}")),
                    verdict: Verdict::of(both.map(|(low, high)| low < high)),
                }
            }
            Self::Slope { column, series, low, high } => {
                let ours = numbers.series(series, *column).and_then(|points| slope(&points));
                let claim = format!("{series}: slope on logarithmic axes");
                judged_within(claim, ours, *low, *high, 2)
            }
            Self::Trend { column, series, rises } => {
                let points = numbers.series(series, *column);
                let ends = points.as_deref().and_then(|p| p.first().zip(p.last()));
                let ours = ends.filter(|(first, _)| first.1 > 0.0).map(|(f, l)| l.1 / f.1);
                Judged {
                    claim: format!("{series}: last / first"),
                    paper: if *rises { "above 1" } else { "below 1" }.to_owned(),
                    ours: ours.map(|ours| format!("{ours:.2}")),
                    verdict: Verdict::of(
                        ours.map(|ours| if *rises { ours > 1.0 } else { ours < 1.0 }),
                    ),
                }
            }
            Self::Peak { column, series, x } => {
                let points = numbers.series(series, *column);
                let peak = points.as_deref().and_then(highest);
                let near = points.as_deref().zip(peak).map(|(points, peak)| {
                    let steps = |x: f64| points.iter().filter(|p| p.0 < x).count();
                    steps(*x).abs_diff(steps(peak)) <= 1
                });
                Judged {
                    claim: format!("{series}: highest at"),
                    paper: format!("{x} +- one step"),
                    ours: peak.map(|x| x.to_string()),
                    verdict: Verdict::of(near),
                }
            }
        }
    }
}

fn judged_within(claim: String, ours: Option<f64>, low: f64, high: f64, digits: usize) -> Judged {
    Judged {
        claim,
        paper: match (low.is_finite(), high.is_finite()) {
            (true, true) => format!("{low} to {high}"),
            (true, false) => format!("at least {low}"),
            _ => format!("at most {high}"),
        },
        ours: ours.map(|ours| format!("{ours:.digits$}")),
        verdict: Verdict::of(ours.map(|ours| (low..=high).contains(&ours))),
    }
}

/// Each relation of the chain must hold between all rows before it, up to the previous `<`, and the
/// next row. The report names the first relation that does not.
fn order(chain: &str, ours: impl Fn(&str) -> Option<f64>) -> Judged {
    let words: Vec<&str> = chain.split_whitespace().collect();
    let rows: Vec<&str> = words.iter().step_by(2).copied().collect();
    let known = rows.iter().all(|row| ours(row).is_some());
    let number = |row: &str| ours(row).unwrap_or_default();
    let broken = words.windows(3).step_by(2).find_map(|window| {
        let [left, relation, right] = window else { return None };
        let (a, b) = (number(left), number(right));
        let holds = match *relation {
            "<" => a < b,
            "<=" => a <= b * (1.0 + STEP),
            _ => (a - b).abs() <= a.min(b) * EQUAL,
        };
        (!holds).then(|| format!("not {left} {relation} {right}: {} and {}", short(a), short(b)))
    });
    let verdict = Verdict::of(known.then_some(broken.is_none()));
    let ours = known.then(|| broken.unwrap_or_else(|| "holds".to_owned()));
    Judged { claim: chain.to_owned(), paper: "this order".to_owned(), ours, verdict }
}

/// Capacities are read to the unit, seconds and parts of one to the thousandth.
fn short(number: f64) -> String {
    if number.abs() < 100.0 { format!("{number:.3}") } else { format!("{number:.0}") }
}

/// Least squares of the logarithms.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < 2 || points.iter().any(|(x, y)| *x <= 0.0 || *y <= 0.0) {
        return None;
    }
    let logs: Vec<(f64, f64)> =
        points.iter().map(|(x, y)| (libm::log(*x), libm::log(*y))).collect();
    let count = logs.len() as f64;
    let mean_x = logs.iter().map(|p| p.0).sum::<f64>() / count;
    let mean_y = logs.iter().map(|p| p.1).sum::<f64>() / count;
    let across: f64 = logs.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
    let along: f64 = logs.iter().map(|p| (p.0 - mean_x) * (p.0 - mean_x)).sum();
    (along > 0.0).then(|| across / along)
}

/// The place of a series' maximum; the first of several.
fn highest(points: &[(f64, f64)]) -> Option<f64> {
    let mut best: Option<(f64, f64)> = None;
    for point in points {
        if best.is_none_or(|best| best.1 < point.1) {
            best = Some(*point);
        }
    }
    best.map(|best| best.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Rows by key, and one series "s".
    struct Given(BTreeMap<&'static str, f64>, Vec<(f64, f64)>);

    impl Numbers for Given {
        fn row(&self, row: &str, _: usize) -> Option<f64> {
            self.0.get(row).copied()
        }
        fn series(&self, series: &str, _: usize) -> Option<Vec<(f64, f64)>> {
            (series == "s").then(|| self.1.clone())
        }
    }

    fn verdict(claim: &Claim, rows: &[(&'static str, f64)], series: &[(f64, f64)]) -> Verdict {
        claim.judge(&Given(rows.iter().copied().collect(), series.to_vec())).verdict
    }

    fn in_order(chain: &str, rows: &[(&'static str, f64)]) -> Verdict {
        verdict(&Claim::Order { column: 0, chain: chain.to_owned() }, rows, &[])
    }

    #[test]
    fn an_order_is_strict_where_it_says_so() {
        let rows = [("a", 100.0), ("b", 101.0), ("c", 100.5)];
        assert_eq!(in_order("a < b", &rows), Verdict::Pass);
        assert_eq!(in_order("b < c", &rows), Verdict::Fail);
        assert_eq!(in_order("b <= c", &rows), Verdict::Pass, "half a step of the ramp");
        assert_eq!(in_order("b ~ c", &rows), Verdict::Pass);
        assert_eq!(in_order("a < b ~ c", &rows), Verdict::Pass);
    }

    #[test]
    fn equals_are_at_most_a_tenth_apart() {
        assert_eq!(in_order("a ~ b", &[("a", 100.0), ("b", 110.0)]), Verdict::Pass);
        assert_eq!(in_order("b ~ a", &[("a", 100.0), ("b", 111.0)]), Verdict::Fail);
    }

    #[test]
    fn what_was_not_run_is_not_judged() {
        assert_eq!(in_order("a < b", &[("a", 1.0)]), Verdict::Missing);
    }

    #[test]
    fn a_ratio_is_held_against_the_papers() {
        let ratio = |paper| Claim::Ratio {
            column: 0,
            of: "a".to_owned(),
            to: "b".to_owned(),
            paper,
            tolerance: 0.2,
        };
        let rows = [("a", 300.0), ("b", 100.0)];
        assert_eq!(verdict(&ratio(3.5), &rows, &[]), Verdict::Pass);
        assert_eq!(verdict(&ratio(4.0), &rows, &[]), Verdict::Fail);
        assert_eq!(verdict(&ratio(1.0), &[("a", 1.0), ("b", 0.0)], &[]), Verdict::Missing);
    }

    #[test]
    fn a_ratio_may_have_one_bound() {
        let at_most = |high| Claim::RatioWithin {
            column: 0,
            of: "a".to_owned(),
            to: "b".to_owned(),
            low: f64::NEG_INFINITY,
            high,
        };
        let rows = [("a", 50.0), ("b", 100.0)];
        assert_eq!(verdict(&at_most(0.5), &rows, &[]), Verdict::Pass);
        assert_eq!(verdict(&at_most(0.3), &rows, &[]), Verdict::Fail);
    }

    #[test]
    fn a_ratio_of_series_grows_or_does_not() {
        let trend =
            Claim::RatioTrend { column: 0, of: "s".to_owned(), to: "s".to_owned(), rises: true };
        let series = [(1.0, 10.0), (2.0, 30.0)];
        assert_eq!(verdict(&trend, &[], &series), Verdict::Fail, "one to one throughout");
        let to_none =
            Claim::RatioTrend { column: 0, of: "s".to_owned(), to: "none".to_owned(), rises: true };
        assert_eq!(verdict(&to_none, &[], &series), Verdict::Missing);
    }

    #[test]
    fn linear_growth_has_slope_one() {
        let claim = Claim::Slope { column: 0, series: "s".to_owned(), low: 0.9, high: 1.1 };
        let linear = [(8.0, 80.0), (16.0, 160.0), (32.0, 320.0)];
        assert_eq!(verdict(&claim, &[], &linear), Verdict::Pass);
        assert_eq!(slope(&linear).map(|s| (s * 1e6).round()), Some(1e6));
        let square = [(8.0, 64.0), (16.0, 256.0)];
        assert_eq!(verdict(&claim, &[], &square), Verdict::Fail);
    }

    #[test]
    fn a_peak_may_be_one_step_off() {
        let peak = |x| Claim::Peak { column: 0, series: "s".to_owned(), x };
        let points = [(2.0, 1.0), (4.0, 3.0), (8.0, 5.0), (10.0, 4.0), (16.0, 2.0)];
        assert_eq!(verdict(&peak(10.0), &[], &points), Verdict::Pass);
        assert_eq!(verdict(&peak(16.0), &[], &points), Verdict::Fail);
    }

    #[test]
    fn a_trend_goes_from_first_to_last() {
        let trend = |rises| Claim::Trend { column: 0, series: "s".to_owned(), rises };
        let points = [(10.0, 5.0), (20.0, 4.0), (80.0, 6.0)];
        assert_eq!(verdict(&trend(true), &[], &points), Verdict::Pass);
        assert_eq!(verdict(&trend(false), &[], &points), Verdict::Fail);
    }
}
