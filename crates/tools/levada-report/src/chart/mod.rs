//! Charts as SVG, and the page that they stand in. The papers' tables and the labs draw with this.

mod bars;
mod figure;
mod lines;
mod page;

pub use bars::{Bar, BarRow, Bars, bars};
pub use figure::Figure;
pub use lines::{Axes, Curve, lines};
pub use page::{Page, escaped};
