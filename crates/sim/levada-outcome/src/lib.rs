//! The result of one simulation as plain data: readings, curves, and the use of servers and links.
//!
//! Whatever prints, compares or keeps results needs this, and not the simulator.

mod outcome;

pub use outcome::{
    End, LinkUse, METRICS, Metric, Outcome, ParseReadingError, Reading, RegionUse, Remark, Series,
    ServerUse, Unit,
};
