//! The guard of the node's route: a child that gets a beat ten times a second, and withdraws the route when none comes.

use std::{io, process::Stdio, sync::Arc, time::Duration};

use levada_cluster::announce::{BEAT, BEAT_INTERVAL, FAREWELL, GuardedRoute, Route};
use levada_net::stop::Stop;
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, ChildStdin, Command},
    runtime::Handle,
    time::{Instant, sleep},
};

/// The pause before a guard is started in the place of one that has ended at once.
const AGAIN: Duration = Duration::from_secs(1);

/// Keeps a guard for the route until the stop, if BIRD announces it. A beat is sent when every worker has answered: a
/// node in which one of them hangs is withdrawn too.
pub(crate) async fn keep(route: Arc<Route>, workers: Vec<Handle>, stop: Stop) {
    let Some(guarded) = route.guarded() else { return };
    let mut was_lost = false;
    loop {
        let begun = Instant::now();
        match start(&guarded) {
            Ok((mut guard, mut beats)) => {
                if was_lost {
                    // Only now: from here on there is a guard again.
                    route.distrust();
                }
                let gone = tokio::select! {
                    gone = beat(&mut beats, &workers) => gone,
                    () = stop.begun() => {
                        let _ = beats.write_all(&[FAREWELL]).await;
                        return;
                    }
                };
                let _ = guard.wait().await;
                tracing::warn!(reason = %gone, "the guard of the route has ended: it may have withdrawn it");
                was_lost = true;
            }
            Err(error) => tracing::error!(%error, "the guard of the route cannot start"),
        }
        if begun.elapsed() < AGAIN {
            tokio::select! {
                () = sleep(AGAIN) => {}
                () = stop.begun() => return,
            }
        }
    }
}

/// This program as a guard, in a group of its own: signals from a terminal do not reach it.
fn start(guarded: &GuardedRoute) -> io::Result<(Child, ChildStdin)> {
    let GuardedRoute { socket, protocol, backup } = guarded;
    let mut command = Command::new("/proc/self/exe");
    command.args(["route", "guard", "--socket"]).arg(socket).arg(protocol).args(backup);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
    let mut child = command.spawn()?;
    let beats = child.stdin.take().ok_or_else(|| io::Error::other("no pipe"))?;
    Ok((child, beats))
}

/// Sends beats. Returns why that is over.
async fn beat(beats: &mut ChildStdin, workers: &[Handle]) -> io::Error {
    loop {
        for worker in workers {
            // A worker that is gone ends with the process.
            let _ = worker.spawn(async {}).await;
        }
        if let Err(error) = beats.write_all(&[BEAT]).await {
            return error;
        }
        sleep(BEAT_INTERVAL).await;
    }
}
