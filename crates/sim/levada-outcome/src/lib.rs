//! The result of one simulation as plain data: readings, curves, and the use of servers and links.
//!
//! The values of a scenario file, too: durations, sizes and shares. Whatever prints, compares or keeps results needs this, and not the simulator.

mod outcome;
mod value;

pub use outcome::{
    End, LinkUse, METRICS, Metric, Outcome, ParseReadingError, Reading, RegionUse, Remark, Series,
    ServerUse, Unit,
};
pub use value::{Share, Size, Time};
