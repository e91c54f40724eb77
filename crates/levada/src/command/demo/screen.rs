//! The live view on a terminal.
//!
//! The terminal stays in its usual mode, on its alternate screen: ctrl-c is a signal as usual, and
//! the shell works after any end of this process.

use std::{
    io::{self, Stdout, stdout},
    sync::Once,
};

use ratatui::{
    Frame, Terminal,
    crossterm::{
        cursor::{Hide, Show},
        execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen},
    },
    layout::{Constraint, Layout},
    prelude::CrosstermBackend,
    style::{Color, Modifier, Style},
    text::Line,
    widgets::{Block, Cell, Paragraph, Row, Table},
};

use super::view::{NODE_COLUMNS, OBJECT_COLUMNS, Picture, fitted};

/// The alternate screen of the terminal, until it is dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    foot: Vec<String>,
}

impl Screen {
    /// Switches to it; `foot` is the line at its bottom.
    pub(super) fn open(foot: Vec<String>) -> io::Result<Self> {
        static ON_PANIC: Once = Once::new();
        ON_PANIC.call_once(|| {
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                usual(panic);
            }));
        });
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout())).inspect_err(|_| leave())?;
        Ok(Self { terminal, foot })
    }

    pub(super) fn draw(&mut self, picture: &Picture) -> io::Result<()> {
        let foot = &self.foot;
        self.terminal.draw(|frame| paint(frame, picture, foot)).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn leave() {
    // The terminal may be gone.
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
}

fn paint(frame: &mut Frame<'_>, picture: &Picture, foot: &[String]) {
    let nodes = picture.nodes.len() as u16 + 3;
    let objects = picture.objects.len() as u16 + 3;
    let rows = [1, nodes, objects, foot.len() as u16].map(Constraint::Length);
    let line = fitted(&picture.head, frame.area().width.into());
    let [head, node_area, object_area, foot_area] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(Line::styled(line, BOLD), head);
    let widths = [6, 10, 8, 8, 8, 12, 14].map(Constraint::Length);
    frame.render_widget(table("nodes", NODE_COLUMNS, &picture.nodes, &widths), node_area);
    let widths = [
        Constraint::Percentage(35),
        Constraint::Length(6),
        Constraint::Percentage(40),
        Constraint::Percentage(25),
    ];
    let objects = table("hottest objects, last 2 s", OBJECT_COLUMNS, &picture.objects, &widths);
    frame.render_widget(objects, object_area);
    let foot: Vec<Line<'_>> = foot.iter().map(|line| Line::from(line.as_str())).collect();
    frame.render_widget(Paragraph::new(foot), foot_area);
}

fn table<'a, const N: usize>(
    title: &'a str,
    columns: [&'a str; N],
    rows: &'a [[String; N]],
    widths: &[Constraint],
) -> Table<'a> {
    let row = |cells: &'a [String; N]| Row::new(cells.iter().map(|text| cell(text)));
    Table::new(rows.iter().map(row), widths.to_vec())
        .header(Row::new(columns).style(BOLD))
        .block(Block::bordered().title(title))
}

/// Highlights the states of nodes.
fn cell(text: &str) -> Cell<'_> {
    let colour = match text {
        "up" => Color::Green,
        "down" => Color::Red,
        text if text.starts_with("ramp ") => Color::Yellow,
        _ => return Cell::new(text),
    };
    Cell::new(text).style(Style::new().fg(colour))
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
