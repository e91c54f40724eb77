//! Reports drawn, as SVG that stands in a page.
//!
//! Everything that is not a series is drawn in the page's own text colour, so that a figure reads on
//! light, on dark and on paper. Series differ in colour and in the dashes of their lines.

use std::ops::Range;

use levada_sim::{
    Unit,
    paper::{Plot, Report, ReportRow},
};
use plotters::{
    backend::SVGBackend,
    chart::ChartBuilder,
    coord::ranged1d::{
        DefaultFormatting, IntoSegmentedCoord as _, KeyPointHint, Ranged, SegmentValue,
    },
    drawing::{DrawingAreaErrorKind, IntoDrawingArea as _},
    element::{Circle, PathElement, Rectangle, Text},
    series::{DashedLineSeries, LineSeries},
    style::{Color as _, IntoFont as _, RGBColor, ShapeStyle, TextStyle},
};

use super::{number, row_name};

/// A figure.
pub(crate) struct Figure {
    pub(super) caption: String,
    pub(super) svg: String,
}

/// The figures of a report; none where it has nothing to draw.
pub(super) fn figures(report: &Report) -> Vec<Figure> {
    if report.rows.iter().all(|row| !row.done) {
        return Vec::new();
    }
    let figures = |plot: &Plot| match plot {
        Plot::Bars => drawn(&report.title, bars(report)),
        Plot::Lines { x, log } => drawn(&report.title, lines(report, x, *log)),
        Plot::Latencies => latencies(report),
    };
    report.plots.iter().flat_map(figures).collect()
}

type Drawn = Result<String, DrawingAreaErrorKind<std::io::Error>>;

/// A figure that cannot be drawn is left out: the table beside it says the same.
fn drawn(caption: &str, svg: Drawn) -> Vec<Figure> {
    svg.ok().map(|svg| Figure { caption: caption.to_owned(), svg }).into_iter().collect()
}

const WIDTH: u32 = 860;

/// Stands for the page's text colour, which a drawing does not know.
const TEXT: RGBColor = RGBColor(1, 1, 1);

/// Told apart by eyes of all kinds, on light and on dark (after Okabe and Ito).
const COLOURS: &[RGBColor] = &[
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(128, 128, 128),
];

/// A bar for each row and column; the paper's number is a mark beside its bar.
fn bars(report: &Report) -> Drawn {
    let columns: Vec<usize> = drawn_columns(report);
    let unit = report.columns[columns[0]].metric.unit();
    let scale = if unit == Unit::Part { 100.0 } else { 1.0 };
    let rows = &report.rows;
    let most = rows
        .iter()
        .flat_map(|row| columns.iter().map(|c| &row.cells[*c]))
        .flat_map(|cell| [cell.ours, cell.paper])
        .flatten()
        .fold(0.0, f64::max);
    let names: Vec<String> = rows.iter().map(row_name).collect();
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as u32;
    let height = 90 + rows.len() as u32 * (8 + 16 * columns.len() as u32);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(16 + widest * 7)
            .build_cartesian_2d(0.0..most * scale * 1.08, (0..rows.len()).into_segmented())?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TEXT.mix(0.0))
            .bold_line_style(TEXT.mix(0.15))
            .axis_style(TEXT.mix(0.5))
            .label_style(small())
            .x_label_formatter(&|x| label(*x))
            .x_desc(unit.as_str())
            .y_labels(rows.len())
            .y_label_formatter(&|place| match place {
                SegmentValue::CenterOf(row) | SegmentValue::Exact(row) => {
                    // The first row on top.
                    names.iter().rev().nth(*row).cloned().unwrap_or_default()
                }
                SegmentValue::Last => String::new(),
            })
            .draw()?;
        let thick = 14_i32;
        let total = thick * columns.len() as i32;
        for (place, row) in rows.iter().rev().enumerate() {
            for (nth, column) in columns.iter().enumerate() {
                let cell = &row.cells[*column];
                let colour = COLOURS[nth % COLOURS.len()];
                let middle = SegmentValue::CenterOf(place);
                let top = -total / 2 + thick * nth as i32;
                let across = |value: f64| chart.backend_coord(&(value * scale, middle.clone())).0;
                let y = chart.backend_coord(&(0.0, middle.clone())).1 + top;
                if let Some(ours) = cell.ours {
                    let bar = [(across(0.0), y + 1), (across(ours), y + thick - 1)];
                    let style = if row.beyond { colour.mix(0.55) } else { colour.mix(1.0) };
                    area.draw(&Rectangle::new(bar, style.filled()))?;
                }
                if let Some(paper) = cell.paper {
                    let x = across(paper);
                    let stroke = ShapeStyle::from(&TEXT).stroke_width(3);
                    area.draw(&PathElement::new([(x, y - 1), (x, y + thick + 1)], stroke))?;
                }
            }
        }
        area.present()?;
    }
    Ok(themed(&svg))
}

/// The columns that a figure shows: the first one, and those that count in the same and that the paper
/// has as well.
fn drawn_columns(report: &Report) -> Vec<usize> {
    let unit = report.columns[0].metric.unit();
    let fits = |column: &usize| {
        let has_paper = report.rows.iter().any(|row| row.cells[*column].paper.is_some());
        *column == 0 || (has_paper && report.columns[*column].metric.unit() == unit)
    };
    (0..report.columns.len()).filter(fits).collect()
}

/// The first column over `x`, a line for each series.
fn lines(report: &Report, x: &str, log: bool) -> Drawn {
    let metric = report.columns[0].metric;
    let scale = if metric.unit() == Unit::Part { 100.0 } else { 1.0 };
    let point = |row: &&ReportRow| Some((row.x?, row.cells[0].ours? * scale));
    let curves = by_series(report.rows.iter(), |rows| {
        let mut points: Vec<(f64, f64)> = rows.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    });
    let y = format!("{}, {}", metric.as_str(), metric.unit().as_str());
    draw_lines(&curves, &Axes { x: x.to_owned(), y, log_x: log, log_y: log, markers: true })
}

/// A figure for each rate: the part of the requests over their latency.
fn latencies(report: &Report) -> Vec<Figure> {
    let mut rates: Vec<_> = report.rows.iter().map(|row| row.at).collect();
    rates.sort_unstable();
    rates.dedup();
    let figure = |rate: Option<u32>| {
        let rows = report.rows.iter().filter(|row| row.at == rate);
        let curves = by_series(rows, |rows| {
            rows.iter().flat_map(|row| row.latencies.iter().copied()).collect()
        });
        let axes = Axes {
            x: "latency, s".to_owned(),
            y: "part of the requests".to_owned(),
            log_x: true,
            log_y: false,
            markers: false,
        };
        let caption = match rate {
            Some(rate) => format!("{} at {rate} req/s", report.title),
            None => report.title.clone(),
        };
        let drawn_at_all = curves.iter().any(|curve| !curve.1.is_empty());
        drawn_at_all.then(|| drawn(&caption, draw_lines(&curves, &axes))).into_iter().flatten()
    };
    rates.into_iter().flat_map(figure).collect()
}

/// A series: its name, and its points.
pub(crate) type Curve = (String, Vec<(f64, f64)>);

/// The series in the order of their first rows, each with its points.
fn by_series<'r>(
    rows: impl Iterator<Item = &'r ReportRow>,
    points: impl Fn(&[&'r ReportRow]) -> Vec<(f64, f64)>,
) -> Vec<Curve> {
    let mut series: Vec<(String, Vec<&ReportRow>)> = Vec::new();
    for row in rows {
        match series.iter_mut().find(|(name, _)| *name == row.series) {
            Some((_, rows)) => rows.push(row),
            None => series.push((row.series.clone(), vec![row])),
        }
    }
    series.into_iter().map(|(name, rows)| (name, points(&rows))).collect()
}

/// What a figure of lines has around it.
#[derive(Default)]
pub(crate) struct Axes {
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) log_x: bool,
    pub(crate) log_y: bool,
    /// Whether each point is marked.
    pub(crate) markers: bool,
}

/// A figure of these series.
pub(crate) fn chart(caption: &str, curves: &[Curve], axes: &Axes) -> Vec<Figure> {
    drawn(caption, draw_lines(curves, axes))
}

/// Logarithmic axes are drawn as axes of exponents: so one code draws both kinds. The legend has a
/// place of its own, where no line runs.
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
            // More series than colours: the second round is dashed.
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

/// An axis with ticks at places of our own choice.
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

/// How wide the legend is.
const LEGEND: u32 = 150;

fn small() -> TextStyle<'static> {
    ("sans-serif", 13).into_font().color(&TEXT)
}

/// Where there are points, if they are few; round numbers otherwise.
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

/// As few digits as tell it.
fn label(value: f64) -> String {
    // What came from an exponent is not quite whole.
    let whole = value.round();
    let value = if (value - whole).abs() < 1e-9 * whole.abs() { whole } else { value };
    match value.abs() {
        size if size >= 100.0 || value.fract() == 0.0 => number(value, Unit::Count),
        size if size >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// In the page's text colour, and as wide as the page lets it be.
fn themed(svg: &str) -> String {
    svg.replacen("<svg width=", "<svg role=\"img\" data-width=", 1)
        .replace("#010101", "currentColor")
}
