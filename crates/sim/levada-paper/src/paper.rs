//! A paper and its tables.

use crate::Table;

/// A paper that is reproduced.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// The name on the command line.
    pub name: &'static str,
    /// The title of the paper, and its conference.
    pub title: &'static str,
    /// Every table and figure that is reproduced.
    pub tables: fn() -> Vec<Table>,
    /// The main comparisons with few servers: for order and ratios only.
    pub quick: fn() -> Vec<Table>,
}
