//! A drawn figure, and the look that all figures share.
//!
//! Axes and texts have the page's own text colour, so that a figure reads on light, on dark and on
//! paper. Series differ in colour and in the dashes of their lines.

use plotters::{
    drawing::DrawingAreaErrorKind,
    style::{IntoFont as _, RGBColor, TextStyle},
};

/// A figure that a [`Page`](crate::chart::Page) can show.
pub struct Figure {
    /// The line under it.
    pub caption: String,
    /// The drawing.
    pub svg: String,
}

pub(crate) type Drawn = Result<String, DrawingAreaErrorKind<std::io::Error>>;

pub(crate) fn drawn(caption: &str, svg: Drawn) -> Option<Figure> {
    svg.ok().map(|svg| Figure { caption: caption.to_owned(), svg })
}

pub(crate) const WIDTH: u32 = 860;

/// A placeholder for the page's text colour.
pub(crate) const TEXT: RGBColor = RGBColor(1, 1, 1);

/// Colours that also colour-blind readers can distinguish, on light and on dark (after Okabe and
/// Ito).
pub(crate) const COLOURS: &[RGBColor] = &[
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(128, 128, 128),
];

pub(crate) fn small() -> TextStyle<'static> {
    ("sans-serif", 13).into_font().color(&TEXT)
}

/// A number with few digits.
pub(crate) fn label(value: f64) -> String {
    // A value computed from an exponent may not be exactly whole.
    let whole = value.round();
    let value = if (value - whole).abs() < 1e-9 * whole.abs() { whole } else { value };
    match value.abs() {
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Uses the page's text colour and full width.
pub(crate) fn themed(svg: &str) -> String {
    svg.replacen("<svg width=", "<svg role=\"img\" data-width=", 1)
        .replace("#010101", "currentColor")
}
