//! The options of `levada lab backend`, and those that the labs of emulated servers share.

use std::{net::SocketAddr, time::Duration};

use clap::{Args, ValueEnum};
use levada_cache::eviction::{self, EVICTIONS, find_eviction};

use levada_client::command::option::{size, time};
use levada_types::ByteSize;

/// Runs a Web server whose CPU and disk are emulated, with real memory and a real socket.
///
/// It answers `/file/NAME/BYTES` and `/service/NAME/BYTES` with this many bytes, at the time when a
/// server of the papers' years would have. `/-/usage` reports its totals. It prints its address when
/// it is ready.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BackendArgs {
    /// The address to listen on; port 0 takes a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Capacity of its memory for files.
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = size)]
    pub memory: ByteSize,
    /// The hardware.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// A service with its CPU and disk time, such as search=10ms+140ms; may be repeated.
    #[arg(long = "service", value_name = "NAME=CPU[+DISK]", value_parser = service)]
    pub services: Vec<(String, ServiceCost)>,
    /// Seconds of real time per emulated second.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub time_scale: f64,
    /// Ends when standard input does, for a parent program that must leave no process behind.
    #[arg(long, hide = true)]
    pub stop_with_stdin: bool,
}

/// Options of both prototypes' labs; each lab has its own defaults for most of them.
#[derive(Args, Debug)]
pub struct PrototypeArgs {
    /// Policies of the front-end.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub policy: Vec<String>,
    /// The hardware of the servers.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Time before the measurement.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub warm_up: Duration,
    /// Length of the measurement.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub duration: Duration,
    /// Seconds of real time per emulated second: more where the machine is the limit.
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    pub time_scale: f64,
    /// How requests reach servers: through the front-end, or by handing their connections over, on an
    /// emulated network (as root).
    #[arg(long, value_name = "HOW", default_value = "proxy")]
    pub transport: Transport,
    /// Makes clients open a connection for each request; with the transport `handoff`, they always do.
    #[arg(long)]
    pub connection_per_request: bool,
    /// The seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u32,
    /// Prints JSON; progress goes to standard error.
    #[arg(long)]
    pub json: bool,
}

/// How requests reach servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// The front-end passes requests and answers on.
    Proxy,
    /// The front-end hands the connection over, and the server's machine answers the client
    /// (ASPLOS'98, Sec. 5). Clients have a connection for each request.
    Handoff,
    /// Connections are kept, and stay at the server of their first request.
    HandoffStay,
    /// Connections are kept, and the front-end takes them back for each request.
    HandoffBack,
    /// Connections are kept, and go on to another server if the front-end chooses another one for a request (the
    /// multiple handoff of USENIX'99).
    HandoffOn,
}

impl Transport {
    /// The front-end's `after` in `[handoff]`; `None` where nothing is handed over.
    pub(crate) fn after(self) -> Option<&'static str> {
        match self {
            Self::Proxy => None,
            Self::Handoff | Self::HandoffStay => Some("stay"),
            Self::HandoffBack => Some("back"),
            Self::HandoffOn => Some("on"),
        }
    }
}

impl PrototypeArgs {
    /// Whether clients open a connection for each request.
    pub fn asks_once(&self) -> bool {
        self.connection_per_request || self.transport == Transport::Handoff
    }

    /// The options of a back-end with this memory.
    pub fn backend(&self, memory: u64) -> Vec<String> {
        let MachineArgs { cpu, disk, eviction } = self.machine;
        vec![
            format!("--memory={memory}B"),
            format!("--time-scale={}", self.time_scale),
            format!("--cpu={cpu}"),
            format!("--disk={disk}"),
            format!("--eviction={}", eviction.name),
        ]
    }

    /// The sentence about the hardware for reports.
    pub fn hardware(&self, memory: u64) -> String {
        let MachineArgs { cpu, disk, eviction } = self.machine;
        format!(
            "a process each, {} of memory ({}), CPU {cpu} and disk {disk} times as fast as ASPLOS'98's",
            ByteSize(memory),
            eviction.name
        )
    }

    /// The sentence about the transport.
    pub fn transport(&self) -> &'static str {
        match self.transport {
            Transport::Handoff => {
                "transport: connections are handed over, one for each request, on an emulated network"
            }
            Transport::HandoffStay => {
                "transport: connections are kept at the server of their first request, on an emulated network"
            }
            Transport::HandoffBack => {
                "transport: connections are kept and come back for each request, on an emulated network"
            }
            Transport::HandoffOn => {
                "transport: connections are kept and go on to the server of each request, on an emulated network"
            }
            Transport::Proxy if self.connection_per_request => {
                "transport: the front-end passes on, with a connection for each request of a client"
            }
            Transport::Proxy => {
                "transport: the front-end passes on, over connections that are kept"
            }
        }
    }
}

/// The hardware of emulated servers.
#[derive(Args, Clone, Copy, Debug)]
pub struct MachineArgs {
    /// Speed of the emulated CPU; 1 is that of ASPLOS'98, 930 us for 8 KB from memory.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub cpu: f64,
    /// Speed of the emulated disk; 1 is that of ASPLOS'98, 28 ms and 410 us for every 4 KB.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub disk: f64,
    /// The eviction algorithm of the memory; `levada sim list evictions` lists them.
    #[arg(long, value_name = "NAME", default_value = "gds-packets", value_parser = eviction)]
    pub eviction: &'static eviction::EvictionEntry,
}

/// The cost of a service at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceCost {
    /// Time of the CPU.
    pub cpu: Duration,
    /// Time of the disk.
    pub disk: Duration,
}

/// Parses a factor: a number from 0.001 to 1000.
///
/// # Errors
/// If it is none.
pub fn factor(text: &str) -> Result<f64, &'static str> {
    let factor = text.parse().ok().filter(|factor| (0.001..=1000.0).contains(factor));
    factor.ok_or("a factor is a number from 0.001 to 1000")
}

fn eviction(name: &str) -> Result<&'static eviction::EvictionEntry, String> {
    find_eviction(name).ok_or_else(|| {
        let known: Vec<_> = EVICTIONS.iter().map(|entry| entry.name).collect();
        format!("there is {}", known.join(", "))
    })
}

fn service(text: &str) -> Result<(String, ServiceCost), &'static str> {
    const FORM: &str = "write it as NAME=CPU or NAME=CPU+DISK, such as search=10ms+140ms";
    let (name, cost) = text.split_once('=').ok_or(FORM)?;
    let (cpu, disk) = cost.split_once('+').unwrap_or((cost, "0ms"));
    let [cpu, disk] = [cpu, disk].map(time);
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match (cpu, disk) {
        (Ok(cpu), Ok(disk)) if plain => Ok((name.to_owned(), ServiceCost { cpu, disk })),
        _ => Err(FORM),
    }
}

const EXAMPLES: &str = "\
Examples:
  levada lab backend --listen 127.0.0.1:9001 --memory 8MiB --service search=10ms+140ms
  curl -o /dev/null http://127.0.0.1:9001/file/a/8192
  curl http://127.0.0.1:9001/-/usage

Exit codes:
  0  it was stopped
  2  it could not run: the address is taken";

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn service_has_a_name_and_costs() {
        let ms = Duration::from_millis;
        let cost = |cpu, disk| ServiceCost { cpu: ms(cpu), disk: ms(disk) };
        assert_eq!(service("a=10ms"), Ok(("a".to_owned(), cost(10, 0))));
        assert_eq!(service("b=0ms+1s"), Ok(("b".to_owned(), cost(0, 1000))));
        for wrong in ["a", "=1ms", "a/b=1ms", "a=1", "a=1ms+"] {
            assert!(service(wrong).is_err(), "{wrong}");
        }
    }
}
