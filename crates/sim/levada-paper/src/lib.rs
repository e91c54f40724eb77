//! The papers' tables and figures as data: scenarios, published numbers, and reports that compare
//! runs with them.
//!
//! A [`Table`] lists the cases to run. The caller runs them, keeps the outcomes, and makes a
//! [`Report`] of table and outcomes, which all forms of output show.
//!
//! To add a paper: one file with its tables, one line in [`PAPERS`].

mod cap;
mod claim;
mod data;
mod lard;
mod osdi02;
mod paper;
mod regions;
pub mod render;
mod report;
mod spread;
mod strategy;
mod table;

pub use claim::Claim;
pub use paper::Paper;
pub use regions::{OF_ALL_REGIONS, of_regions};
pub use report::{Cell, Judged, Report, ReportColumn, ReportRow, Verdict};
pub use spread::means;
pub use table::{Case, Column, Plot, Row, Table};

/// Every paper that is reproduced.
pub const PAPERS: &[Paper] = &[osdi02::PAPER, lard::PAPER, cap::PAPER];

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use levada_sim::Library;

    fn all() -> impl Iterator<Item = Table> {
        PAPERS.iter().flat_map(|paper| (paper.tables)().into_iter().chain((paper.quick)()))
    }

    #[test]
    fn tables_and_rows_have_names_of_their_own() {
        for paper in PAPERS {
            let mut names = BTreeSet::new();
            for table in (paper.tables)() {
                assert!(table.id.starts_with(paper.name), "{}", table.id);
                for name in [&table.id].into_iter().chain(&table.also) {
                    assert!(names.insert(name.clone()), "{name}");
                }
            }
        }
        for table in all() {
            let keys: BTreeSet<_> = table.rows.iter().map(|row| &row.key).collect();
            assert_eq!(keys.len(), table.rows.len(), "{}", table.id);
            assert!(table.rows.iter().all(|row| row.paper.len() <= table.columns.len()));
        }
    }

    #[test]
    fn claims_are_about_rows_that_exist_and_have_names_of_their_own() {
        // Every row has a number, so that a claim that finds its rows is judged.
        for table in all() {
            let mut outcomes = BTreeMap::new();
            for (place, row) in table.rows.iter().enumerate() {
                let outcome: &mut levada_sim::Outcome = outcomes.entry(&row.case.id).or_default();
                for column in &table.columns {
                    let reading = levada_sim::Reading { metric: column.metric, rate: row.at };
                    outcome.readings.insert(reading, (place + 1) as f64);
                }
            }
            let report = Report::new(&table, &|case| outcomes.get(&case.id));
            let mut names = BTreeSet::new();
            for claim in &report.claims {
                assert_ne!(claim.verdict, Verdict::Missing, "{}: {}", table.id, claim.claim);
                assert!(names.insert(&claim.claim), "{}: {} twice", table.id, claim.claim);
            }
        }
    }

    #[test]
    fn every_case_can_be_prepared() {
        let mut library = Library::without_files();
        let mut seen = BTreeSet::new();
        for row in all().flat_map(|table| table.rows) {
            // Policies and numbers are checked once for each scenario; the trace is the same for all.
            if seen.insert(row.case.id.clone()) {
                let small = row.case.scenario;
                assert_eq!(small.prepare(&mut library).map(|_| ()), Ok(()), "{}", row.case.id);
            }
        }
    }
}
