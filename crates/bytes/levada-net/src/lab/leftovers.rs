//! Programs that were left behind by ended networks.
//!
//! Every program of a network has a variable in its environment that names the owning process, and
//! passes it on to its own children. A program is left over if its owner no longer exists.

use std::{fs, io, path::Path, process, thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process};

/// The owner of a program: `PID-START-NETWORK`. The start time is in kernel ticks, and
/// distinguishes processes that have the same PID.
pub(super) const VARIABLE: &str = "LEVADA_LAB";

/// How many milliseconds a program may take to execute another one.
const EXECUTION: u32 = 20;

/// The name of this process and its `number`-th network.
pub(super) fn name_of(number: u64) -> String {
    let pid = process::id();
    format!("{pid}-{}-{number}", start_of(pid).unwrap_or_default())
}

/// Kills the programs of networks whose process no longer exists, and returns their number.
/// Programs of running networks, and all other programs, are not affected.
pub fn clear() -> usize {
    kill_all(|owner| !is_alive(owner))
}

/// Kills the remaining programs of a network of this process.
pub(super) fn clear_own(name: &str) -> usize {
    kill_all(|owner| owner == name)
}

/// The most times that processes are looked through.
const PASSES: usize = 8;

/// Looks again until nothing was found: a program that executes another one all the time can be missed.
fn kill_all(is_leftover: impl Fn(&str) -> bool) -> usize {
    let passes = (0..PASSES).map(|_| kill_found(&is_leftover));
    passes.take_while(|found| *found > 0).sum()
}

fn kill_found(is_leftover: &impl Fn(&str) -> bool) -> usize {
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let leftovers = processes.flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let owner = owner_of(&entry.path())?;
        is_leftover(&owner).then_some(Pid::from_raw(pid)?)
    });
    leftovers.filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count()
}

fn owner_of(process: &Path) -> Option<String> {
    let environment = environment_of(process).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value =
        variables.find_map(|entry| entry.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(value.to_vec()).ok()
}

/// The environment of a program. For a moment, while the program executes another one, it reads as
/// empty. It also does for a kernel thread or a zombie, which have no executable, and for a program
/// that was started without any variable.
fn environment_of(process: &Path) -> io::Result<Vec<u8>> {
    for _ in 0..EXECUTION {
        let environment = fs::read(process.join("environ"))?;
        if !environment.is_empty() || fs::read_link(process.join("exe")).is_err() {
            return Ok(environment);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(Vec::new())
}

fn is_alive(owner: &str) -> bool {
    let mut parts = owner.split('-');
    let (Some(pid), Some(start)) = (parts.next(), parts.next()) else { return true };
    pid.parse().is_ok_and(|pid| start_of(pid).is_some_and(|ticks| ticks.to_string() == start))
}

/// The start time of a process: the 22nd field of its `stat`, counted after the name, which may
/// contain blanks.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_while_it_is_the_same_one() {
        assert!(is_alive(&name_of(7)));
        assert!(!is_alive(&format!("{}-1-0", process::id())));
        assert!(is_alive("of another making"), "an unknown value is ignored");
    }
}
