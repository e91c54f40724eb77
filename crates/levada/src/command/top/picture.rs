//! The picture that `levada top` draws: a table of nodes, and one pane about objects, members or events below it.

use levada_cluster::events::Event;
use levada_control::status::{
    ClusterNode, NodeStatus,
    text::{bytes, percent, state, time},
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::Line,
    widgets::{Block, Borders, Paragraph, Row, Table},
};

/// A pane of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Nodes,
    Objects,
    Members,
    Events,
}

impl Pane {
    pub(super) const ALL: [Self; 4] = [Self::Nodes, Self::Objects, Self::Members, Self::Events];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Objects => "objects",
            Self::Members => "members",
            Self::Events => "events",
        }
    }
}

/// The state that is drawn.
pub(super) struct Picture {
    nodes: Vec<ClusterNode>,
    events: Vec<Event>,
    /// Why the last question had no answer.
    error: Option<String>,
    pane: Pane,
    skipped: usize,
    /// The column of numbers that nodes and objects are sorted by; 0 keeps the order.
    sorted_by: usize,
    pub(super) has_help: bool,
    has_color: bool,
}

/// The ways to sort nodes.
const SORTS: [&str; 4] = ["name", "requests", "in service", "p99"];

impl Picture {
    pub(super) fn new(has_color: bool) -> Self {
        Self {
            nodes: Vec::new(),
            events: Vec::new(),
            error: None,
            pane: Pane::Nodes,
            skipped: 0,
            sorted_by: 0,
            has_help: false,
            has_color,
        }
    }

    /// Takes over an answer. Without one it shows the former state, and why.
    pub(super) fn update(&mut self, answer: Result<(Vec<ClusterNode>, Vec<Event>), String>) {
        match answer {
            Ok((nodes, events)) => {
                (self.nodes, self.events, self.error) = (nodes, events, None);
                self.sort();
            }
            Err(error) => self.error = Some(error),
        }
    }

    pub(super) fn turn(&mut self, by: usize) {
        let at = Pane::ALL.iter().position(|pane| *pane == self.pane).unwrap_or(0);
        (self.pane, self.skipped) = (Pane::ALL[(at + by) % Pane::ALL.len()], 0);
    }

    pub(super) fn scroll(&mut self, by: isize) {
        self.skipped = self.skipped.saturating_add_signed(by);
    }

    pub(super) fn sort_by_next(&mut self) {
        self.sorted_by = (self.sorted_by + 1) % SORTS.len();
        self.sort();
    }

    fn sort(&mut self) {
        let number = |node: &ClusterNode| {
            let status = node.status.as_ref();
            let now = status.and_then(|status| status.now).unwrap_or_default();
            match self.sorted_by {
                1 => now.requests,
                2 => status.map_or(0.0, |status| f64::from(status.in_service)),
                _ => now.p99.unwrap_or(0.0),
            }
        };
        match self.sorted_by {
            0 => self.nodes.sort_by(|a, b| a.name.cmp(&b.name)),
            _ => self.nodes.sort_by(|a, b| number(b).total_cmp(&number(a))),
        }
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(2), Constraint::Min(3), Constraint::Length(1)])
                .areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        if self.has_help {
            frame.render_widget(Paragraph::new(HELP).block(self.block("keys")), body);
        } else {
            self.pane(frame, body);
        }
        let foot_text = match &self.error {
            Some(error) => Line::from(format!("no answer: {error}")).style(self.bad()),
            None => Line::from("q ends  Tab pane  s sort  ? help"),
        };
        frame.render_widget(Paragraph::new(foot_text), foot);
    }

    fn head(&self) -> Vec<Line<'static>> {
        let known = || self.nodes.iter().filter_map(|node| node.status.as_ref());
        let now = || known().filter_map(|status| status.now);
        let sum = |part: fn(&levada_control::status::Sample) -> f64| {
            now().map(|sample| part(&sample)).sum::<f64>()
        };
        let (hits, misses) = (sum(|s| s.hits), sum(|s| s.misses));
        let ratio = (hits + misses > 0.0).then(|| hits / (hits + misses));
        let slowest = now().filter_map(|sample| sample.p99).reduce(f64::max);
        let (up, all) = (known().filter(|status| status.ready).count(), self.nodes.len());
        let first = format!(
            "levada  {up} of {all} nodes ready  {:.0} requests/s  hits {}  p99 {}",
            sum(|s| s.requests - s.peer_requests),
            percent(ratio),
            time(slowest)
        );
        let (sent, origin) = (bytes(sum(|s| s.bytes)), bytes(sum(|s| s.origin_bytes)));
        let panes = Pane::ALL.map(|pane| match pane == self.pane {
            true => format!("[{}]", pane.as_str()),
            false => format!(" {} ", pane.as_str()),
        });
        let second = format!("{}   {sent}/s sent  {origin}/s from origins", panes.join(""));
        vec![Line::from(first).style(Style::new().add_modifier(Modifier::BOLD)), Line::from(second)]
    }

    fn pane(&self, frame: &mut Frame<'_>, area: Rect) {
        match self.pane {
            Pane::Nodes => frame.render_widget(self.node_table(), area),
            Pane::Objects => frame.render_widget(self.object_table(), area),
            Pane::Members => frame.render_widget(self.member_table(), area),
            Pane::Events => {
                let shown = self.events.iter().rev().skip(self.skipped);
                let lines: Vec<_> = shown
                    .map(|event| Line::from(format!("{}  {}", event.clock(), event.text)))
                    .collect();
                frame
                    .render_widget(Paragraph::new(lines).block(self.block("events, in UTC")), area);
            }
        }
    }

    fn node_table(&self) -> Table<'static> {
        let row = |node: &ClusterNode| match &node.status {
            None => {
                let error = node.error.clone().unwrap_or_else(|| "no answer yet".to_owned());
                let empty = std::iter::repeat_n(String::new(), 6);
                let cells = [node.name.clone()].into_iter().chain(empty).chain([error]);
                Row::new(cells.collect::<Vec<_>>()).style(self.bad())
            }
            Some(status) => {
                let now = status.now.unwrap_or_default();
                let row = Row::new(vec![
                    node.name.clone(),
                    format!("{:.0}", now.requests),
                    percent(now.hit_ratio),
                    format!("{}/{}", status.in_service, status.capacity),
                    bytes(now.bytes),
                    bytes(now.origin_bytes),
                    time(now.p99),
                    state(status),
                ]);
                if status.ready { row } else { row.style(self.bad()) }
            }
        };
        let widths = [12, 7, 5, 11, 9, 9, 8].map(Constraint::Length);
        let widths = widths.into_iter().chain([Constraint::Min(10)]);
        let head = ["NODE", "REQ/S", "HITS", "IN SERVICE", "SENT/S", "ORIGIN/S", "P99", "STATE"];
        let rows = self.nodes.iter().skip(self.skipped).map(row);
        let title = format!("nodes, by {}", SORTS[self.sorted_by]);
        Table::new(rows, widths).header(self.header(head)).block(self.block(title))
    }

    fn object_table(&self) -> Table<'static> {
        let mut objects: Vec<_> = self
            .statuses()
            .flat_map(|status| status.hottest.iter().map(|object| (status.name.clone(), object)))
            .collect();
        objects.sort_by(|(_, a), (_, b)| b.rate.total_cmp(&a.rate));
        let rows = objects.into_iter().skip(self.skipped).map(|(node, object)| {
            let set = if object.set.is_empty() { "-".to_owned() } else { object.set.join(" ") };
            Row::new(vec![format!("{:.1}", object.rate), node, set, object.url.clone()])
        });
        let widths = [
            Constraint::Length(8),
            Constraint::Length(10),
            Constraint::Length(22),
            Constraint::Min(20),
        ];
        let head = ["REQ/S", "SEEN BY", "NODES NOW", "URL"];
        Table::new(rows, widths).header(self.header(head)).block(self.block("hottest objects"))
    }

    fn member_table(&self) -> Table<'static> {
        let rows = self.statuses().flat_map(|status| {
            let origins = status.origins.iter().map(|server| {
                let state = if server.up { "up" } else { "down" };
                let why = server.why.clone().unwrap_or_default();
                (server.name.clone(), state.to_owned(), server.connections.to_string(), why)
            });
            let switched = status.switches.iter().flat_map(|site| &site.servers).map(|server| {
                let why = server.why.clone().unwrap_or_default();
                (server.name.clone(), server.state.to_string(), server.outstanding.to_string(), why)
            });
            let rows = origins.chain(switched).map(|(name, state, load, why)| {
                let row = Row::new(vec![status.name.clone(), name, state.clone(), load, why]);
                if state == "down" { row.style(self.bad()) } else { row }
            });
            rows.collect::<Vec<_>>()
        });
        let widths =
            [12, 24, 10, 11].map(Constraint::Length).into_iter().chain([Constraint::Min(10)]);
        let head = ["SEEN BY", "SERVER", "STATE", "OUTSTANDING", "WHY"];
        let rows = rows.skip(self.skipped);
        Table::new(rows, widths).header(self.header(head)).block(self.block("members of sites"))
    }

    fn statuses(&self) -> impl Iterator<Item = &NodeStatus> {
        self.nodes.iter().filter_map(|node| node.status.as_ref())
    }

    fn header<const N: usize>(&self, names: [&'static str; N]) -> Row<'static> {
        Row::new(names).style(Style::new().add_modifier(Modifier::BOLD))
    }

    fn block(&self, title: impl Into<Line<'static>>) -> Block<'static> {
        Block::new().borders(Borders::TOP).title(title)
    }

    fn bad(&self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.has_color { style.fg(Color::Red) } else { style }
    }
}

const HELP: &str = "\
Tab, Right   the next pane: nodes, objects, members, events
Left         the pane before
Up, Down     scroll
s            sort nodes by name, requests, requests in service, p99
?            this text
q, Esc       end

Hottest objects: requests per second of the clients of one node, and the nodes that
are responsible for the object now.";

#[cfg(test)]
mod tests {
    use levada_cluster::events::EventKind;
    use levada_control::status::{HotObject, Sample, ServerStatus};
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    fn picture() -> Picture {
        let node = |name: &str, requests: f64| ClusterNode {
            name: name.to_owned(),
            up: true,
            status: Some(NodeStatus {
                name: name.to_owned(),
                ready: true,
                capacity: 1_000,
                now: Some(Sample { requests, p99: Some(0.02), ..Sample::default() }),
                hottest: vec![HotObject {
                    url: "http://x.test/hot".to_owned(),
                    rate: requests,
                    set: vec!["a".to_owned(), "b".to_owned()],
                    ..HotObject::default()
                }],
                origins: vec![ServerStatus {
                    name: "origin-1".to_owned(),
                    why: Some("2 probes in a row failed".to_owned()),
                    ..ServerStatus::default()
                }],
                ..NodeStatus::default()
            }),
            ..ClusterNode::default()
        };
        let silent = ClusterNode {
            name: "c".to_owned(),
            error: Some("it does not answer in time".to_owned()),
            ..ClusterNode::default()
        };
        let event = Event {
            number: 1,
            time: 3_723.0,
            kind: EventKind::PeerDown,
            text: "node c is down".to_owned(),
            fields: Default::default(),
        };
        let mut picture = Picture::new(false);
        picture.update(Ok((vec![node("a", 12.0), node("b", 30.0), silent], vec![event])));
        picture
    }

    fn drawn(picture: &Picture, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| picture.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let cells: Vec<_> = buffer.content().iter().map(|cell| cell.symbol()).collect();
        cells.chunks(width.into()).map(|line| line.concat().trim_end().to_owned()).collect()
    }

    #[test]
    fn every_pane_fits_a_terminal_of_80_columns_and_a_large_one() {
        for (width, height) in [(80, 24), (200, 60)] {
            let mut picture = picture();
            let wanted = [
                ["a            12", "c"],
                ["30.0     b          a b", "http://x.test/hot"],
                ["origin-1                 down", "2 probes"],
                ["01:02:03  node c is down", "events, in UTC"],
            ];
            for words in wanted {
                let lines = drawn(&picture, width, height);
                let text = lines.join("\n");
                assert_eq!(lines.len(), usize::from(height));
                assert!(words.iter().all(|word| text.contains(word)), "{words:?}\n{text}");
                assert!(
                    lines[0].starts_with("levada  2 of 3 nodes ready  42 requests/s"),
                    "{text}"
                );
                assert_eq!(lines[usize::from(height) - 1], "q ends  Tab pane  s sort  ? help");
                picture.turn(1);
            }
        }
    }

    #[test]
    fn nodes_are_sorted_by_the_chosen_column_and_panes_turn_round() {
        let mut picture = picture();
        let first = |picture: &Picture| picture.nodes[0].name.clone();
        assert_eq!(first(&picture), "a");
        picture.sort_by_next();
        assert_eq!(first(&picture), "b");
        picture.turn(3);
        assert_eq!(picture.pane, Pane::Events);
        picture.turn(1);
        assert_eq!(picture.pane, Pane::Nodes);
    }

    #[test]
    fn state_stays_when_the_node_is_gone_and_the_reason_is_shown() {
        let mut picture = picture();
        picture.update(Err("connection refused".to_owned()));
        let lines = drawn(&picture, 80, 24);
        assert_eq!(lines[23], "no answer: connection refused");
        assert!(lines.iter().any(|line| line.starts_with("a ")));
    }
}
