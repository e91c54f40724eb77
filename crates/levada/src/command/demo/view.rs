//! The view of a running demo: a screen that is redrawn on a terminal, otherwise a few lines every two
//! seconds.

use std::{
    io::{self, IsTerminal as _},
    sync::Arc,
    time::Duration,
};

use levada_types::ByteSize;
use ratatui::crossterm::terminal;
use tokio::time::Instant;

use super::{board::Board, screen::Screen, setup::Setup, watch::OBJECTS};

/// The contents of the view at one moment, as text.
pub(super) struct Picture {
    /// Phase, time, totals, the most important first.
    pub(super) head: Vec<String>,
    pub(super) nodes: Vec<[String; NODE_COLUMNS.len()]>,
    pub(super) objects: Vec<[String; OBJECT_COLUMNS.len()]>,
}

pub(super) const NODE_COLUMNS: [&str; 7] =
    ["node", "state", "req/s", "share", "hits", "outstanding", "from origin"];
pub(super) const OBJECT_COLUMNS: [&str; 4] = ["object", "req/s", "served by", "set"];

/// Shows the demo until it is dropped.
pub(super) struct View {
    task: tokio::task::JoinHandle<()>,
}

impl Drop for View {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl View {
    /// Draws on the terminal, if there is one and JSON does not use it; otherwise writes lines.
    pub(super) fn start(
        setup: &Arc<Setup>,
        board: &Arc<Board>,
        begin: Instant,
        foot: Vec<String>,
    ) -> Self {
        let (setup, board) = (setup.clone(), board.clone());
        let screen = match !setup.json && io::stdout().is_terminal() {
            true => Screen::open(foot).ok(),
            false => None,
        };
        let task = match screen {
            Some(screen) => tokio::spawn(draw(screen, setup, board, begin)),
            None => tokio::spawn(write(setup, board, begin)),
        };
        Self { task }
    }

    /// Removes the screen, so that the summary follows the command.
    pub(super) async fn end(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

async fn draw(mut screen: Screen, setup: Arc<Setup>, board: Arc<Board>, begin: Instant) {
    let mut ticks = tokio::time::interval(FRAME);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        if screen.draw(&picture(&setup, &board, begin)).is_err() {
            return;
        }
    }
}

async fn write(setup: Arc<Setup>, board: Arc<Board>, begin: Instant) {
    let mut ticks = tokio::time::interval_at(Instant::now() + LINES, LINES);
    loop {
        ticks.tick().await;
        let text = lines(&picture(&setup, &board, begin));
        // Standard error is closed: the demo continues, because its exit code still counts.
        let _ = super::say(&setup, &text);
    }
}

fn lines(picture: &Picture) -> String {
    let width = terminal::size().map_or(COLUMNS, |(columns, _)| columns.into());
    let mut text = format!("{}\n", fitted(&picture.head, width));
    for [node, state, rate, share, hits, outstanding, origin] in &picture.nodes {
        text += &format!(
            "  {node:<4} {state:<8} {rate:>5}/s  share {share:>5}  hits {hits:>6}  outstanding \
             {outstanding:>3}  origin {origin}\n"
        );
    }
    for [object, rate, by, set] in picture.objects.iter().take(2) {
        text += &format!("  {object} {rate}/s by {by}; set {set}\n");
    }
    text
}

fn picture(setup: &Setup, board: &Board, begin: Instant) -> Picture {
    let mut state = board.look();
    let rates = state.rates();
    let hottest = state.hottest(OBJECTS);
    let total: f64 = rates.iter().sum();
    let nodes = state.nodes.iter().zip(&rates).enumerate().map(|(index, (node, rate))| {
        [
            super::setup::node_name(index),
            match node.state() {
                "ramping" => format!("ramp {:.0}%", node.ramp * 100.0),
                state => state.to_owned(),
            },
            format!("{rate:.0}"),
            percent(*rate, total),
            percent(node.hits as f64, node.lookups as f64),
            node.outstanding.to_string(),
            format!("{}/s", ByteSize(node.origin_rate as u64)),
        ]
    });
    let objects = hottest.iter().map(|hot| {
        let object = setup.catalog.object(hot.object);
        let by = hot.by.iter().take(8).map(|(node, requests)| {
            let name = super::setup::node_name(*node);
            format!("{name} {}", percent(*requests as f64, hot.requests as f64))
        });
        let set = state.sets.get(&hot.object).map_or("-".to_owned(), |set| set.join(" "));
        [
            format!("{} ({})", shorten(&object.target), ByteSize(object.size)),
            format!("{:.0}", hot.requests as f64 / super::board::LATELY.as_secs_f64()),
            by.collect::<Vec<_>>().join(", "),
            set,
        ]
    });
    let (nodes, objects) = (nodes.collect(), objects.collect());
    Picture { head: head(setup, &state, begin.elapsed(), total), nodes, objects }
}

/// As many of these words as fit into the columns, with commas between them.
pub(super) fn fitted(words: &[String], columns: usize) -> String {
    let mut line = String::new();
    for word in words {
        let comma = if line.is_empty() { "" } else { ", " };
        if line.chars().count() + comma.len() + word.chars().count() > columns {
            break;
        }
        line += comma;
        line += word;
    }
    line
}

fn head(
    setup: &Setup,
    state: &super::board::BoardState,
    elapsed: Duration,
    rate: f64,
) -> Vec<String> {
    let left = setup.duration.saturating_sub(elapsed);
    let sum =
        |read: fn(&super::board::PhaseTally) -> u64| -> u64 { state.phases.iter().map(read).sum() };
    let phase = &state.phases[state.phase as usize];
    let latency = |part| {
        phase.latency_ms(part).map_or_else(|| "-".to_owned(), |millis| format!("{millis:.1} ms"))
    };
    let (elapsed, left) = (elapsed.as_secs_f64(), left.as_secs_f64());
    let mut words = vec![
        format!("{:<11} {elapsed:>3.0} s ({left:.0} s left)", state.phase.as_str()),
        format!("{rate:.0} requests/s"),
        format!("failed {}", sum(|p| p.failed)),
        format!("p50 {}", latency(0.5)),
    ];
    words.extend(phase.is_busy().then(|| "busy machine".to_owned()));
    words.push(format!("p99 {}", latency(0.99)));
    words.push(format!("retries of clients {}", sum(|p| p.client_retries)));
    words.push(format!("of nodes {}", sum(|p| p.node_retries)));
    words
}

fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.0} %", part / whole * 100.0) } else { "-".to_owned() }
}

fn shorten(target: &str) -> String {
    // Targets are ASCII: every offset is a boundary.
    if target.len() <= 40 { target.to_owned() } else { format!("{}...", &target[..37]) }
}

/// The width of a line where nothing says how wide the terminal is.
const COLUMNS: usize = 80;
const FRAME: Duration = Duration::from_millis(250);
const LINES: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_as_many_words_as_fit() {
        let words = ["warm-up", "300 requests/s", "p50 1.2 ms"].map(str::to_owned);
        assert_eq!(fitted(&words, 80), "warm-up, 300 requests/s, p50 1.2 ms");
        assert_eq!(fitted(&words, 23), "warm-up, 300 requests/s");
        assert_eq!(fitted(&words, 22), "warm-up");
        assert_eq!(fitted(&words, 3), "");
    }
}
