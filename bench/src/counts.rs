//! Instructions and system calls of a server under load, counted by perf in the kernel. Neither depends
//! on what else the machine does, so that they show a change that CPU time hides on a busy machine.

use std::{
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::{Result, server::signal};

/// Counts per request. A machine without a performance counter has no instructions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counts {
    pub(crate) instructions: Option<f64>,
    pub(crate) calls: Option<f64>,
}

/// perf, attached to a server.
pub(crate) struct Counter(Child);

const INSTRUCTIONS: &str = "instructions";
const CALLS: &str = "raw_syscalls:sys_enter";
/// The time until perf is attached to every thread.
const ATTACHING: Duration = Duration::from_millis(300);

impl Counter {
    /// Begins to count for all threads of these processes.
    pub(crate) fn attach(processes: &[u32]) -> Result<Self> {
        let processes: Vec<_> = processes.iter().map(u32::to_string).collect();
        let child = Command::new("perf")
            .args(["stat", "--field-separator", ",", "--event", INSTRUCTIONS, "--event", CALLS])
            .arg("--pid")
            .arg(processes.join(","))
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("perf: {e}; install linux-perf"))?;
        thread::sleep(ATTACHING);
        Ok(Self(child))
    }

    /// Ends counting. So many requests were answered meanwhile.
    pub(crate) fn read(self, requests: u64) -> Result<Counts> {
        signal("INT", &[self.0.id()]);
        let output = self.0.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        let counts = parse(&text, requests);
        match counts {
            Counts { instructions: None, calls: None } => Err(format!("perf: {text}").into()),
            _ => Ok(counts),
        }
    }
}

/// Reads lines such as `145,,raw_syscalls:sys_enter,1989078,100.00,,`. An event that cannot be counted
/// has `<not supported>` in place of its number.
fn parse(text: &str, requests: u64) -> Counts {
    let count = |event: &str| {
        let line = text.lines().find(|line| line.split(',').nth(2) == Some(event))?;
        let count: f64 = line.split(',').next()?.parse().ok()?;
        Some(count / requests as f64)
    };
    Counts { instructions: count(INSTRUCTIONS), calls: count(CALLS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_where_they_are_supported() {
        let text = "<not supported>,,instructions,0,100.00,,\n\
                    145,,raw_syscalls:sys_enter,1989078,100.00,,\n";
        assert_eq!(parse(text, 10), Counts { instructions: None, calls: Some(14.5) });
        let text = "3000,,instructions,7,100.00,,\n<not counted>,,raw_syscalls:sys_enter,0,,,\n";
        assert_eq!(parse(text, 10), Counts { instructions: Some(300.0), calls: None });
    }
}
