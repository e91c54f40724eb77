//! Bars: rows of horizontal bars, each with a mark next to it where there is a value to compare with.

use plotters::{
    backend::SVGBackend,
    chart::ChartBuilder,
    coord::ranged1d::{IntoSegmentedCoord as _, SegmentValue},
    drawing::IntoDrawingArea as _,
    element::{PathElement, Rectangle},
    style::{Color as _, ShapeStyle},
};

use crate::chart::figure::{COLOURS, Drawn, Figure, TEXT, WIDTH, drawn, label, small, themed};

/// All rows of a figure, the first on top.
pub struct Bars {
    /// Description of the horizontal axis.
    pub x: String,
    /// The rows; each has as many bars as the others.
    pub rows: Vec<BarRow>,
}

/// The bars next to one name.
pub struct BarRow {
    /// The name.
    pub name: String,
    /// The bars have a fainter colour.
    pub faint: bool,
    /// The bars, in the order of their colours.
    pub bars: Vec<Bar>,
}

/// One bar.
pub struct Bar {
    /// Its length.
    pub value: Option<f64>,
    /// The value to compare with.
    pub mark: Option<f64>,
}

/// Draws the rows; nothing if they cannot be drawn: the table next to a figure says the same.
pub fn bars(caption: &str, bars: &Bars) -> Option<Figure> {
    drawn(caption, draw(bars))
}

fn draw(Bars { x, rows }: &Bars) -> Drawn {
    let per_row = rows.iter().map(|row| row.bars.len()).max().unwrap_or(0);
    let values = rows.iter().flat_map(|row| &row.bars).flat_map(|bar| [bar.value, bar.mark]);
    let most = values.flatten().fold(0.0, f64::max);
    let widest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0) as u32;
    let height = 90 + rows.len() as u32 * (8 + 16 * per_row as u32);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(16 + widest * 7)
            .build_cartesian_2d(0.0..most * 1.08, (0..rows.len()).into_segmented())?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TEXT.mix(0.0))
            .bold_line_style(TEXT.mix(0.15))
            .axis_style(TEXT.mix(0.5))
            .label_style(small())
            .x_label_formatter(&|x| label(*x))
            .x_desc(x)
            .y_labels(rows.len())
            .y_label_formatter(&|place| match place {
                SegmentValue::CenterOf(row) | SegmentValue::Exact(row) => {
                    // The first row on top.
                    rows.iter().rev().nth(*row).map(|row| row.name.clone()).unwrap_or_default()
                }
                SegmentValue::Last => String::new(),
            })
            .draw()?;
        let thick = 14_i32;
        let total = thick * per_row as i32;
        for (place, row) in rows.iter().rev().enumerate() {
            for (nth, bar) in row.bars.iter().enumerate() {
                let colour = COLOURS[nth % COLOURS.len()];
                let middle = SegmentValue::CenterOf(place);
                let top = -total / 2 + thick * nth as i32;
                let across = |value: f64| chart.backend_coord(&(value, middle.clone())).0;
                let y = chart.backend_coord(&(0.0, middle.clone())).1 + top;
                if let Some(value) = bar.value {
                    let corners = [(across(0.0), y + 1), (across(value), y + thick - 1)];
                    let style = if row.faint { colour.mix(0.55) } else { colour.mix(1.0) };
                    area.draw(&Rectangle::new(corners, style.filled()))?;
                }
                if let Some(mark) = bar.mark {
                    let x = across(mark);
                    let stroke = ShapeStyle::from(&TEXT).stroke_width(3);
                    area.draw(&PathElement::new([(x, y - 1), (x, y + thick + 1)], stroke))?;
                }
            }
        }
        area.present()?;
    }
    Ok(themed(&svg))
}
