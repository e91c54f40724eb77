//! nginx with its own configuration, at other ports.

use std::{fs, net::SocketAddr, path::Path, process::Command};

use levada_convert::{Includes, InputFile};

use super::{
    front::Front,
    stage::{Free, Process, Stage},
};

/// Starts nginx.
///
/// # Errors
/// When it is not installed, or refuses the configuration.
pub(super) fn start(
    stage: &Stage,
    file: &InputFile,
    includes: &dyn Includes,
) -> anyhow::Result<Front> {
    let directory = Path::new(&file.name).parent().unwrap_or(Path::new(""));
    let here = stage.like("nginx", directory)?;
    let own = stage.directory("nginx-files")?;
    let mut free = Free::default();
    let mut failed = None;
    let mut next = || {
        free.next().unwrap_or_else(|error| {
            failed = Some(error);
            SocketAddr::from(([127, 0, 0, 1], 0))
        })
    };
    let aside = levada_convert::nginx_aside(file, includes, &own.display().to_string(), &mut next)?;
    if let Some(error) = failed {
        return Err(error);
    }
    let path = here.join("levada-compare.conf");
    fs::write(&path, aside.text)?;
    let log = own.join("messages");
    let mut command = Command::new("nginx");
    command.arg("-e").arg(&log).arg("-c").arg(&path);
    let addresses: Vec<_> = aside.listeners.values().copied().collect();
    let process = Process::start(&mut command, &log, free, &addresses)?;
    Ok(Front { listeners: aside.listeners, _process: process })
}
