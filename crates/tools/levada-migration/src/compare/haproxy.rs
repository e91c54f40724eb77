//! HAProxy with its own configuration, at other ports.

use std::{
    collections::BTreeMap, fmt::Write as _, fs, net::SocketAddr, path::Path, process::Command,
};

use levada_convert::InputFile;

use super::{
    front::{Front, listened},
    stage::{Free, Process, Stage},
};

/// Lines about the process, and about what it writes.
const LEFT_OUT: &[&str] = &[
    "chroot",
    "daemon",
    "gid",
    "group",
    "log",
    "log-format",
    "master-worker",
    "nbproc",
    "peers",
    "pidfile",
    "server-state-file",
    "stats socket",
    "uid",
    "user",
];

/// Starts HAProxy.
///
/// # Errors
/// When it is not installed, or refuses the configuration.
pub(super) fn start(stage: &Stage, file: &InputFile) -> anyhow::Result<Front> {
    let directory = Path::new(&file.name).parent().unwrap_or(Path::new(""));
    let here = stage.like("haproxy", directory)?;
    let own = stage.directory("haproxy-files")?;
    let mut free = Free::default();
    let mut listeners = BTreeMap::new();
    let mut text = String::new();
    for line in file.text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let begins = |words: &[&str], by: &str| words.join(" ").starts_with(&format!("{by} "));
        match words.as_slice() {
            ["bind", addresses, rest @ ..] => {
                for address in addresses.split(',') {
                    let new = match listeners.get(&listened(address)) {
                        Some(new) => *new,
                        None => free.next()?,
                    };
                    listeners.insert(listened(address), new);
                    let rest: Vec<_> =
                        rest.iter().filter(|word| **word != "accept-proxy").copied().collect();
                    let _ = writeln!(text, "  bind {new} {}", rest.join(" "));
                }
            }
            words if LEFT_OUT.iter().any(|out| begins(words, out) || words.join(" ") == *out) => {}
            _ => {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    let path = here.join("levada-compare.cfg");
    fs::write(&path, text)?;
    let mut command = Command::new("haproxy");
    // Relative names begin at the directory of the file, as they do for the converter.
    command.current_dir(&here).arg("-db").arg("-f").arg(&path);
    let addresses: Vec<SocketAddr> = listeners.values().copied().collect();
    let process = Process::start(&mut command, &own.join("messages"), free, &addresses)?;
    Ok(Front { listeners, _process: process })
}
