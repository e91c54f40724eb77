//! Means over seeds, with intervals, and the differences between policies that may be chance.
//!
//! All policies meet the same seeds, so that differences are taken seed by seed: what a seed makes
//! hard is hard for all of them.

use levada_sim::Outcome;

use super::{Case, Plot, Report, ReportRow, Table};

/// The table of the means of `table` over its seeds.
pub fn means<'o>(table: &Table, outcome: &dyn Fn(&Case) -> Option<&'o Outcome>) -> Report {
    let mut report = Report::new(table, outcome);
    let mut groups: Vec<(ReportRow, Vec<ReportRow>)> = Vec::new();
    for row in std::mem::take(&mut report.rows) {
        let policy = row.series.split(" seed ").next().unwrap_or_default().to_owned();
        let key = format!("{policy} {}", row.label).trim().to_owned();
        match groups.iter_mut().find(|(mean, _)| mean.key == key) {
            Some((_, rows)) => rows.push(row),
            None => {
                let mean = ReportRow { key, series: policy, latencies: Vec::new(), ..row.clone() };
                groups.push((mean, vec![row]));
            }
        }
    }
    let notes = chance(&groups);
    for (mean, rows) in &mut groups {
        for (column, cell) in mean.cells.iter_mut().enumerate() {
            let values: Vec<f64> = rows.iter().filter_map(|row| row.cells[column].ours).collect();
            let whole = values.len() == rows.len();
            cell.ours = whole.then(|| average(&values));
            cell.spread = if whole { half_interval(&values) } else { None };
        }
    }
    report.rows = groups.into_iter().map(|(mean, _)| mean).collect();
    report.id += "-means";
    report.title = "Means over seeds, with intervals of 95 %".to_owned();
    report.note = notes;
    report.plots.retain(|plot| *plot != Plot::Latencies);
    report
}

/// A sentence about the pairs of policies whose difference in the first column may be chance.
fn chance(groups: &[(ReportRow, Vec<ReportRow>)]) -> String {
    let mut pairs = Vec::new();
    for (place, (one, ours)) in groups.iter().enumerate() {
        for (other, theirs) in groups[place + 1..].iter().filter(|(row, _)| row.x == one.x) {
            let differences: Option<Vec<f64>> = (ours.iter().zip(theirs))
                .map(|(a, b)| Some(a.cells[0].ours? - b.cells[0].ours?))
                .collect();
            if differences.is_some_and(|values| may_be_chance(&values)) {
                pairs.push(format!("{} and {}", one.key, other.key));
            }
        }
    }
    if pairs.is_empty() {
        return String::new();
    }
    format!("In the first column the difference may be chance between {}.", pairs.join("; "))
}

/// Whether the interval of the mean includes zero.
fn may_be_chance(differences: &[f64]) -> bool {
    half_interval(differences).is_none_or(|half| average(differences).abs() <= half)
}

fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Half of the interval of 95 % around the mean, by Student's distribution; `None` for one value.
fn half_interval(values: &[f64]) -> Option<f64> {
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let mean = average(values);
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    let error = (squares / freedom as f64 / values.len() as f64).sqrt();
    Some(error * STUDENT.get(freedom - 1).unwrap_or(&1.96))
}

/// The 97.5 % quantiles of Student's distribution with 1, 2, ... degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // Standard deviation 1, three values: 4.303 / sqrt(3).
        let half = half_interval(&[1.0, 2.0, 3.0]).unwrap();
        assert!((half - 4.303 / 3f64.sqrt()).abs() < 1e-9, "{half}");
        assert_eq!(half_interval(&[1.0]), None);
    }

    #[test]
    fn a_difference_that_changes_its_sign_may_be_chance() {
        assert!(may_be_chance(&[1.0, -0.5, 0.4]));
        assert!(may_be_chance(&[1.0]), "one seed shows nothing");
        assert!(!may_be_chance(&[1.0, 1.1, 0.9]));
    }
}
