//! The papers' tables and figures as data: scenarios, the numbers that were published, and what a run
//! makes of both.
//!
//! A [`Table`] says what to run. Whoever runs it keeps the outcomes, and makes a [`Report`] of table
//! and outcomes, which all forms of output show.

mod claim;
mod report;
mod table;

pub use claim::Claim;
pub use report::{Cell, Judged, Report, ReportColumn, ReportRow, Verdict};
pub use table::{Case, Column, Plot, Row, Table};
