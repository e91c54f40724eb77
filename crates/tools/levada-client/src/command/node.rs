//! A node as a child process of this same executable, with a configuration file of its own.

use std::{
    ffi::OsString,
    fs::File,
    io,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use tokio::process::{Child, ChildStdin, Command};

use crate::command::admin_client;

/// One node and its addresses. Its process ends when this is dropped, and also when this process is
/// killed: it reads its standard input, a pipe that the system closes then.
pub struct Node {
    /// Its name in its configuration.
    pub name: String,
    /// Its addresses, which its configuration must have as well.
    pub addresses: Addresses,
    config: PathBuf,
    log: PathBuf,
    wrapper: Vec<OsString>,
    prepare: Option<Box<Prepare>>,
    output: fn() -> Stdio,
    process: Option<Process>,
}

/// Changes the command that starts a node.
type Prepare = dyn Fn(&mut std::process::Command) -> io::Result<()> + Send + Sync;

/// The addresses of one node.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// For clients.
    pub clients: SocketAddr,
    /// For its peers.
    pub peers: SocketAddr,
    /// For operators.
    pub admin: SocketAddr,
}

struct Process {
    child: Child,
    /// The system closes this pipe when this process ends, even when it is killed.
    _leash: Option<ChildStdin>,
}

impl Node {
    /// A node with its configuration and log file; it does not run yet.
    pub fn new(name: String, addresses: Addresses, config: PathBuf, log: PathBuf) -> Self {
        let (wrapper, output) = (Vec::new(), Stdio::null as fn() -> Stdio);
        Self { name, addresses, config, log, wrapper, prepare: None, output, process: None }
    }

    /// The node run by this program and its arguments, which must replace itself with the node.
    #[must_use]
    pub fn wrapped_by(self, wrapper: Vec<OsString>) -> Self {
        Self { wrapper, ..self }
    }

    /// The node started by a command that this changes before.
    #[must_use]
    pub fn prepared_by(
        self,
        prepare: impl Fn(&mut std::process::Command) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { prepare: Some(Box::new(prepare)), ..self }
    }

    /// The node with a standard output that is never read.
    #[must_use]
    pub fn with_unread_output(self) -> Self {
        Self { output: Stdio::piped, ..self }
    }

    /// The number of its process, while there is one.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref()?.child.id()
    }

    /// Starts the process. It may not be ready yet.
    ///
    /// # Errors
    /// If this executable cannot be run.
    pub fn spawn(&mut self) -> anyhow::Result<()> {
        let executable = std::env::current_exe().context("cannot find this executable")?;
        let mut words = self.wrapper.iter().cloned().chain([executable.into_os_string()]);
        let program = words.next().context("there is no program")?;
        let mut command = Command::new(program);
        if let Some(prepare) = &self.prepare {
            prepare(command.as_std_mut()).context("the start of a node cannot be prepared")?;
        }
        let mut child = command
            .args(words)
            .args(["--log-level", "warn", "run", "--stop-with-stdin", "-c"])
            .arg(&self.config)
            .stdin(Stdio::piped())
            .stdout((self.output)())
            .stderr(File::options().create(true).append(true).open(&self.log)?)
            // Ctrl-c is for the parent, which then ends its nodes.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start node {}", self.name))?;
        let leash = child.stdin.take();
        self.process = Some(Process { child, _leash: leash });
        Ok(())
    }

    /// Waits until the node is ready.
    ///
    /// # Errors
    /// If it ends instead, or takes too long; with the end of its log.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            if admin_client::get(self.addresses.admin, "/readyz", ANSWER_TIMEOUT).await.is_ok() {
                return Ok(());
            }
            let ended = match &mut self.process {
                Some(process) => process.child.try_wait()?,
                None => bail!("node {} is not running", self.name),
            };
            if let Some(status) = ended {
                bail!("node {} ended with {status}: {}", self.name, self.last_words());
            }
            if begun.elapsed() > START_TIMEOUT {
                bail!(
                    "node {} did not start within {START_TIMEOUT:?}: {}",
                    self.name,
                    self.last_words()
                );
            }
            tokio::time::sleep(READY_INTERVAL).await;
        }
    }

    /// Kills the process, as `kill -9` does, and waits for its end.
    pub async fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // An error means that it has ended already.
            let _ = process.child.kill().await;
        }
    }

    /// Waits until the process ends, as after a signal.
    ///
    /// # Errors
    /// If it does not run.
    pub async fn end(&mut self) -> anyhow::Result<ExitStatus> {
        let process = self.process.as_mut();
        let process = process.with_context(|| format!("node {} is not running", self.name))?;
        let status = process.child.wait().await?;
        self.process = None;
        Ok(status)
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

/// Three free ports for each node. All are held before any is released, so that no port occurs twice.
///
/// # Errors
/// When the system has no free port.
pub fn free_addresses(nodes: usize) -> std::io::Result<Vec<Addresses>> {
    let mut held = Vec::new();
    let mut take = || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr();
        held.push(listener);
        address
    };
    (0..nodes).map(|_| Ok(Addresses { clients: take()?, peers: take()?, admin: take()? })).collect()
}

/// The head of a node's configuration: one thread, its addresses, no access log. Only keys of the top
/// level may stand before it.
pub fn configuration_head(name: &str, clients: SocketAddr, admin: SocketAddr) -> String {
    format!(
        r#"name = "{name}"

[runtime]
mode = "shared"
threads = 1

[[listen]]
address = "{clients}"

[admin]
listen = "{admin}"

[log]
access = "off"
"#
    )
}

/// Whether a node did not start because another process took its port between its release and its use.
pub fn port_was_taken(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}").to_lowercase();
    text.contains("address already in use") || text.contains("address in use")
}

/// How often a cluster is started with fresh ports.
pub const PORT_TRIES: usize = 5;
/// The timeout for the answer whether a node is ready. Until then it is asked again.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// The interval at which a node is asked whether it is ready.
const READY_INTERVAL: Duration = Duration::from_millis(20);
/// The timeout for a node to start: it takes less than a second, on a busy machine some.
const START_TIMEOUT: Duration = Duration::from_secs(20);
