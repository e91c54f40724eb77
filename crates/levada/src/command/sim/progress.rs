//! Progress of the runs, on standard error: bars on a terminal, otherwise a line for each finished run.

use std::{
    io::{self, IsTerminal as _},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use levada_sim::Progress as Position;

/// The progress display of a sweep.
pub(super) struct Progress {
    begin: Instant,
    state: Mutex<SweepCounts>,
    bars: Option<SweepBars>,
}

struct SweepCounts {
    done: usize,
    all: usize,
    /// Finished and total work, in the weights of the cases.
    weight: f64,
    weights: f64,
}

struct SweepBars {
    together: MultiProgress,
    total: ProgressBar,
    workers: Vec<ProgressBar>,
}

impl Progress {
    /// Progress of `all` runs with these `weights`, in addition to `kept` runs that are finished already.
    pub(super) fn start(all: usize, kept: usize, weights: f64, jobs: usize) -> Self {
        if kept > 0 {
            eprintln!("{kept} of {} runs are finished already", all + kept);
        }
        let bars = (io::stderr().is_terminal() && all > 0).then(|| SweepBars::new(all, jobs));
        let state = SweepCounts { done: 0, all, weight: 0.0, weights };
        Self { begin: Instant::now(), state: Mutex::new(state), bars }
    }

    /// Records that `worker` has started a case.
    pub(super) fn begun(&self, worker: usize, case: &str) {
        if let Some(bars) = &self.bars {
            bars.workers[worker].set_prefix(case.to_owned());
        }
    }

    /// Updates the progress of the case of `worker`.
    pub(super) fn at(&self, worker: usize, position: &Position) {
        let Some(bars) = &self.bars else { return };
        bars.workers[worker].set_message(format!(
            "{:.0} req/s offered, {} finished, {:.0} s simulated",
            position.rate,
            position.finished,
            position.now.as_secs_f64(),
        ));
    }

    /// Records that `worker` has finished a case of this weight, or was stopped.
    pub(super) fn finished(&self, worker: usize, case: &str, weight: Option<f64>, seconds: f64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(weight) = weight else { return };
        state.done += 1;
        state.weight += weight;
        let left = state.left(self.begin.elapsed());
        match &self.bars {
            Some(bars) => {
                bars.workers[worker].set_message("");
                bars.total.set_position(state.done as u64);
                bars.total.set_message(left);
            }
            None => eprintln!("{}/{} {case}: {seconds:.1} s; {left}", state.done, state.all),
        }
    }

    /// Clears the display.
    pub(super) fn end(&self) {
        if let Some(bars) = &self.bars {
            // Without a terminal there is nothing to clear.
            let _ = bars.together.clear();
        }
    }
}

impl SweepCounts {
    /// The remaining time if the rest goes on as before.
    fn left(&self, elapsed: Duration) -> String {
        let rest = (self.weights - self.weight).max(0.0);
        if self.done == self.all {
            return "done".to_owned();
        }
        let seconds = elapsed.as_secs_f64() / self.weight.max(f64::MIN_POSITIVE) * rest;
        match seconds {
            few if few < 90.0 => format!("about {few:.0} s left"),
            some if some < 5400.0 => format!("about {:.0} min left", some / 60.0),
            many => format!("about {:.1} h left", many / 3600.0),
        }
    }
}

impl SweepBars {
    fn new(all: usize, jobs: usize) -> Self {
        let style = |template| {
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
        };
        let together = MultiProgress::new();
        let total = together.add(ProgressBar::new(all as u64));
        total.set_style(style("{bar:30} {pos}/{len} runs, {elapsed} gone, {msg}"));
        total.enable_steady_tick(TICK_INTERVAL);
        let workers = (0..jobs)
            .map(|_| {
                let bar = together.add(ProgressBar::new_spinner());
                bar.set_style(style("  {prefix}  {msg}"));
                bar
            })
            .collect();
        Self { together, total, workers }
    }
}

/// The interval at which the time that has passed is drawn.
const TICK_INTERVAL: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_for_its_weight() {
        let state = SweepCounts { done: 1, all: 3, weight: 2.0, weights: 6.0 };
        assert_eq!(state.left(Duration::from_secs(10)), "about 20 s left");
        assert_eq!(state.left(Duration::from_secs(60)), "about 2 min left");
        let state = SweepCounts { done: 3, all: 3, weight: 6.0, weights: 6.0 };
        assert_eq!(state.left(Duration::from_secs(10)), "done");
    }
}
