//! Lines: series of points over two axes, linear or logarithmic, with a legend.

use std::ops::Range;

use plotters::{
    backend::SVGBackend,
    chart::ChartBuilder,
    coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged},
    drawing::IntoDrawingArea as _,
    element::{Circle, PathElement, Text},
    series::{DashedLineSeries, LineSeries},
    style::{Color as _, ShapeStyle},
};

use crate::chart::figure::{COLOURS, Drawn, Figure, TEXT, WIDTH, drawn, label, small, themed};

/// A series: its name, and its points.
pub type Curve = (String, Vec<(f64, f64)>);

/// The axes of a figure of lines.
#[derive(Default)]
pub struct Axes {
    /// Description of the horizontal axis.
    pub x: String,
    /// Description of the vertical axis.
    pub y: String,
    /// The horizontal axis is logarithmic.
    pub log_x: bool,
    /// The vertical axis is logarithmic.
    pub log_y: bool,
    /// Each point has a marker.
    pub markers: bool,
}

/// Draws the series; nothing if they cannot be drawn: the table next to a figure says the same.
pub fn lines(caption: &str, curves: &[Curve], axes: &Axes) -> Option<Figure> {
    drawn(caption, draw_lines(curves, axes))
}

/// Logarithmic axes are drawn as axes of exponents, so that one code draws both kinds. The legend
/// is next to the lines, where no line runs.
fn draw_lines(curves: &[Curve], axes: &Axes) -> Drawn {
    let place = |value: f64, log: bool| if log { value.max(1e-9).log10() } else { value };
    let all = || curves.iter().flat_map(|(_, points)| points);
    let bounds = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
    };
    let (left, right) = bounds(&mut all().map(|p| place(p.0, axes.log_x)));
    let (low, high) = bounds(&mut all().map(|p| place(p.1, axes.log_y)));
    if !(left.is_finite() && low.is_finite()) {
        return Ok(String::new());
    }
    let (right, high) = (right.max(left + 1e-9), high.max(low + 1e-9));
    // A linear axis begins at zero, so that twice as high is twice as much.
    let low = if axes.log_y { low - 0.05 * (high - low) } else { low.min(0.0) };
    let high = high + 0.05 * (high - low);
    let (x_ticks, y_ticks) = (x_ticks(curves, axes, left, right), ticks(low, high, axes.log_y));
    let counts = (x_ticks.len().max(2), y_ticks.len().max(2));
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let (area, legend) = area.split_horizontally(WIDTH - LEGEND);
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .margin_right(20)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(
                Axis { range: left..right, ticks: x_ticks },
                Axis { range: low..high, ticks: y_ticks },
            )?;
        let name = |value: f64, log: bool| label(if log { 10_f64.powf(value) } else { value });
        chart
            .configure_mesh()
            .light_line_style(TEXT.mix(0.0))
            .bold_line_style(TEXT.mix(0.15))
            .axis_style(TEXT.mix(0.5))
            .label_style(small())
            .x_labels(counts.0)
            .y_labels(counts.1)
            .x_desc(&axes.x)
            .y_desc(&axes.y)
            .x_label_formatter(&|v| name(*v, axes.log_x))
            .y_label_formatter(&|v| name(*v, axes.log_y))
            .draw()?;
        let with_points = curves.iter().filter(|(_, points)| !points.is_empty());
        for (nth, (series, points)) in with_points.enumerate() {
            let colour = COLOURS[nth % COLOURS.len()];
            let points =
                || points.iter().map(|(x, y)| (place(*x, axes.log_x), place(*y, axes.log_y)));
            let style = ShapeStyle::from(&colour).stroke_width(2);
            let y = 20 + 18 * nth as i32;
            // With more series than colours, the second round is dashed.
            if nth < COLOURS.len() {
                chart.draw_series(LineSeries::new(points(), style))?;
                legend.draw(&PathElement::new([(0, y), (22, y)], style))?;
            } else {
                chart.draw_series(DashedLineSeries::new(points(), 6, 4, style))?;
                for x in [0, 8, 16] {
                    legend.draw(&PathElement::new([(x, y), (x + 5, y)], style))?;
                }
            }
            legend.draw(&Text::new(series.clone(), (28, y - 6), small()))?;
            if axes.markers {
                chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
            }
        }
        area.present()?;
    }
    Ok(themed(&svg))
}

/// An axis with ticks at given places.
struct Axis {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (begin, end): (i32, i32)) -> i32 {
        let part = (value - self.range.start) / (self.range.end - self.range.start);
        begin + (f64::from(end - begin) * part).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

const HEIGHT: u32 = 420;

/// Width of the legend.
const LEGEND: u32 = 150;

/// Ticks at the points, if they are few; otherwise at round numbers.
fn x_ticks(curves: &[Curve], axes: &Axes, left: f64, right: f64) -> Vec<f64> {
    let mut places: Vec<f64> = curves.iter().flat_map(|c| c.1.iter().map(|p| p.0)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    match places.len() {
        few if axes.markers && few <= 10 => {
            places.iter().map(|x| if axes.log_x { x.log10() } else { *x }).collect()
        }
        _ => ticks(left, right, axes.log_x),
    }
}

/// Round numbers between two places of an axis. A logarithmic one is given in exponents.
fn ticks(low: f64, high: f64, log: bool) -> Vec<f64> {
    if log {
        let decades = low.floor() as i32..=high.ceil() as i32;
        let steps: &[f64] = match high - low {
            narrow if narrow < 1.5 => &[1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0],
            usual if usual < 3.5 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let within = |tick: &f64| (low - 1e-9..=high + 1e-9).contains(tick);
        let ticks = decades.flat_map(|d| steps.iter().map(move |s| f64::from(d) + s.log10()));
        return ticks.filter(within).collect();
    }
    let rough = (high - low) / 8.0;
    let decade = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * decade).into_iter().find(|s| *s >= rough);
    let Some(step) = step else { return Vec::new() };
    let first = (low / step).ceil() as i64;
    (first..).map(|n| n as f64 * step).take_while(|tick| *tick <= high + 1e-9).take(100).collect()
}
