//! Progress of a plan, and its end from outside.

use std::{ops::ControlFlow, time::Instant};

use anyhow::bail;

/// Is called with news for a reader, and without them several times per second of a simulation. If it returns
/// [`ControlFlow::Break`], the plan ends with an error.
pub type Watch<'a> = dyn FnMut(Option<&str>) -> ControlFlow<()> + 'a;

/// The progress of a plan.
pub(crate) struct Progress<'a>(pub(crate) &'a mut Watch<'a>);

impl Progress<'_> {
    /// # Errors
    /// If the plan is to end.
    pub(crate) fn say(&mut self, text: &str) -> anyhow::Result<()> {
        if (self.0)(Some(text)).is_break() {
            bail!("the plan was stopped; with --resume it goes on where it was");
        }
        Ok(())
    }

    /// Says which candidate is simulated.
    ///
    /// # Errors
    /// As of [`Progress::say`].
    pub(crate) fn candidates(
        &mut self,
        done: usize,
        all: usize,
        begin: Instant,
    ) -> anyhow::Result<()> {
        let left = begin.elapsed().as_secs_f64() / done.max(1) as f64 * (all - done) as f64;
        let left = if done > 0 { format!(", about {left:.0} s left") } else { String::new() };
        self.say(&format!("candidate {} of {all}{left}", done + 1))
    }

    pub(crate) fn goes_on(&mut self) -> ControlFlow<()> {
        (self.0)(None)
    }
}
