//! The parts that all simulations share. The result of a simulation is plain data: readings, curves, and the use of servers
//! and links. So are the values of a scenario file: durations, sizes and shares. Code that prints, compares or keeps
//! results needs these, and no simulator. Simulators need the event queue and the progress of a run as well.

pub mod kernel;
mod outcome;
mod progress;
mod value;

pub use outcome::{
    End, LinkUse, METRICS, Metric, Outcome, ParseReadingError, Reading, RegionUse, Remark, Series,
    ServerUse, Unit,
};
pub use progress::Progress;
pub use value::{Share, Size, Time};
