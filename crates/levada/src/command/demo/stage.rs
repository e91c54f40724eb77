//! The course of the demo: its phases one after another, and what viewers of its page order meanwhile.

use std::{future::Future, sync::Arc, time::Duration};

use levada_client::command::node::Node;
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, sleep_until},
};

use super::{
    board::Board,
    client::Clients,
    load,
    nodes::Cluster,
    origin::Origin,
    page::{DemoOrder, DemoPage},
    plan::Phase,
    setup::{MINUTE, Part, Setup},
    summary::Killed,
};

/// All that takes part in the demo.
pub(super) struct Stage<'a> {
    pub(super) setup: &'a Arc<Setup>,
    pub(super) origin: &'a Origin,
    pub(super) cluster: &'a mut Cluster,
    pub(super) clients: Arc<Clients>,
    pub(super) board: Arc<Board>,
    pub(super) page: Arc<DemoPage>,
    pub(super) orders: &'a mut mpsc::Receiver<DemoOrder>,
    pub(super) places: Arc<Semaphore>,
    pub(super) begin: Instant,
    /// The node that the story kills.
    pub(super) killed: Option<Killed>,
    /// Nodes that a viewer has killed, with the times at which they start again.
    pub(super) away: Vec<(usize, Instant)>,
}

impl Stage<'_> {
    /// Plays the phases, one after another, while the load runs.
    ///
    /// # Errors
    /// If a node does not start again.
    pub(super) async fn play(&mut self) -> anyhow::Result<()> {
        for phase in Phase::ALL {
            self.board.enter(phase, self.origin.count());
            self.page.enter(phase);
            match phase {
                Phase::NodeDown => {
                    let victim = victim(&self.board);
                    self.kill(victim).await;
                    let at_seconds = self.begin.elapsed().as_secs_f64();
                    let node = self.cluster.nodes.all[victim].name.clone();
                    self.killed = Some(Killed { node, at_seconds, back_after_seconds: None });
                }
                Phase::NodeBack => self.revive_killed().await?,
                _ => {}
            }
            self.until(self.begin + phase.end(self.setup.duration)).await?;
        }
        Ok(())
    }

    /// Goes on with the trace, a minute at a time.
    ///
    /// # Errors
    /// If a node does not start again.
    pub(super) async fn hold(&mut self) -> anyhow::Result<()> {
        self.page
            .scene(HELD, "The story is over. The trace goes on until ctrl-c: try the buttons.");
        loop {
            let from = self.begin.elapsed();
            let end = self.begin + from + MINUTE;
            let sent = tokio::spawn(self.send(Part::Minute(from)));
            let held = self.until(end).await;
            sent.abort();
            held?;
        }
    }

    pub(super) fn send(&self, part: Part) -> impl Future<Output = ()> + Send + use<> {
        let (setup, clients) = (self.setup.clone(), self.clients.clone());
        let (board, begin, places) = (self.board.clone(), self.begin, self.places.clone());
        load::send(setup, part, clients, board, begin, places)
    }

    /// Carries out orders until then, and starts nodes that viewers have killed.
    pub(super) async fn until(&mut self, end: Instant) -> anyhow::Result<()> {
        loop {
            let back = self.away.iter().map(|(_, at)| *at).min().unwrap_or(end).min(end);
            tokio::select! {
                () = sleep_until(back) => {}
                Some(order) = self.orders.recv() => self.carry_out(order).await,
            }
            let now = Instant::now();
            let due = |(_, at): &mut (usize, Instant)| *at <= now;
            for (node, _) in self.away.extract_if(.., due).collect::<Vec<_>>() {
                self.revive(node).await?;
            }
            if now >= end {
                return Ok(());
            }
        }
    }

    async fn carry_out(&mut self, order: DemoOrder) {
        match order {
            DemoOrder::Kill(node) => {
                // One that is killed already stays so.
                if self.cluster.nodes.all[node].pid().is_some() {
                    self.kill(node).await;
                    self.away.push((node, Instant::now() + AWAY));
                }
            }
            DemoOrder::Crowd => {
                self.page.happened("a crowd comes for the hot object", "crowd", "warn");
                tokio::spawn(self.send(Part::Crowd(self.begin.elapsed())));
            }
            DemoOrder::Policy(policy) => {
                let name = policy.name.clone();
                let changed = self.cluster.change_policy(self.setup, policy).await;
                match changed {
                    Ok(()) => {
                        self.page.decides_by(&name);
                        self.page.happened(&format!("the nodes decide by {name}"), &name, "warn");
                    }
                    Err(error) => self.page.happened(&format!("{name}: {error:#}"), "", "bad"),
                }
            }
        }
    }

    async fn kill(&mut self, node: usize) {
        let node = &mut self.cluster.nodes.all[node];
        node.kill().await;
        let name = &node.name;
        self.page.happened(&format!("{name} is killed"), &format!("{name} killed"), "bad");
    }

    /// Starts a node again, as a service manager would.
    async fn revive(&mut self, node: usize) -> anyhow::Result<()> {
        let node: &mut Node = &mut self.cluster.nodes.all[node];
        if node.pid().is_none() {
            node.spawn()?;
            node.ready().await?;
            let name = &node.name;
            let text = format!("{name} is back, with an empty cache");
            self.page.happened(&text, &format!("{name} back"), "good");
        }
        Ok(())
    }

    async fn revive_killed(&mut self) -> anyhow::Result<()> {
        let Some(name) = self.killed.as_ref().map(|killed| killed.node.clone()) else {
            return Ok(());
        };
        let Some(node) = self.cluster.nodes.all.iter().position(|node| node.name == name) else {
            return Ok(());
        };
        let started = Instant::now();
        self.revive(node).await?;
        if let Some(killed) = &mut self.killed {
            killed.back_after_seconds = Some(started.elapsed().as_secs_f64());
        }
        Ok(())
    }
}

/// The node to kill: the one that served the hottest object most often after the crowd had gone.
fn victim(board: &Board) -> usize {
    let state = board.look();
    let hot = &state.phases[Phase::After as usize].hot;
    let most = hot.iter().enumerate().max_by_key(|(index, n)| (**n, std::cmp::Reverse(*index)));
    most.map_or(0, |(index, _)| index)
}

const HELD: &str = "held";
/// How long a node is away that a viewer has killed.
const AWAY: Duration = Duration::from_secs(5);
