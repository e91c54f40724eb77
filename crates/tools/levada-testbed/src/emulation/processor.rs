//! Processor times of processes, which show whether the machine was the limit.

use std::time::Duration;

use anyhow::Context as _;

/// Processor time of a process so far, all its threads together.
///
/// # Errors
/// If there is no such process, or the system shows no processes.
pub(super) fn time_of(pid: u32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    ticks(&text).map(|ticks| TICK * ticks).with_context(|| format!("{path} is not as expected"))
}

/// Fields 14 and 15, counted from the name of the program, which may contain anything (proc(5)).
fn ticks(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u32>().ok();
    Some(next()? + next()?)
}

/// Number of cores.
pub(super) fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}

/// Linux shows processor time in hundredths of a second on every machine (USER_HZ).
const TICK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_that_of_user_and_system() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 2 0 1";
        assert_eq!(ticks(stat), Some(200));
        assert_eq!(ticks("7 (x) S 1"), None);
        assert!(time_of(std::process::id()).is_ok());
    }
}
