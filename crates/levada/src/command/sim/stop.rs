//! Ctrl-C: running simulations are stopped, finished ones are kept. A second ctrl-C ends the
//! process at once.

use std::{
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::Context as _;
use levada_client::command::StopSignals;

/// Whether the user wants the runs to stop.
pub(super) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Begins to handle ctrl-C.
    ///
    /// # Errors
    /// If the system refuses the signal handler.
    pub(super) fn new() -> anyhow::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let heard = asked.clone();
        let mut signals = {
            let _inside = runtime.enter();
            StopSignals::new(false)?
        };
        let listen = async move {
            loop {
                signals.asked().await;
                if heard.swap(true, Ordering::Relaxed) {
                    process::exit(INTERRUPTED);
                }
            }
        };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || runtime.block_on(listen))
            .context("cannot listen for ctrl-c")?;
        Ok(Self(asked))
    }

    /// Whether a stop was requested.
    pub(super) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The exit code of shells for a program that ended by ctrl-C.
const INTERRUPTED: i32 = 130;
