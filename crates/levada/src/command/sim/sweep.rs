//! Many runs: several at a time, each stored as soon as it is finished.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZero,
    ops::ControlFlow,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use anyhow::bail;
use levada_paper::Case;
use levada_sim::scenario_file::{Files, run_key};
use levada_sim::{End, Library, Outcome, run};

use super::{args::SweepArgs, progress::Progress, stop::StopFlag, store::Store};

/// The result of a sweep.
pub(super) struct Swept {
    outcomes: BTreeMap<String, Outcome>,
    /// Whether it was stopped before its end.
    pub(super) stopped: bool,
    /// Runs that are not finished.
    pub(super) left: usize,
    /// The file with the finished runs.
    pub(super) kept: PathBuf,
}

impl Swept {
    /// Says so if runs are left.
    pub(super) fn tell_if_stopped(&self) {
        if self.stopped {
            eprintln!(
                "stopped: {} runs are left; finished ones are in {}, and the same command goes on \
                 from there",
                self.left,
                self.kept.display()
            );
        }
    }

    /// The outcome of `case`, if it is finished.
    pub(super) fn outcome(&self, case: &Case) -> Option<&Outcome> {
        self.outcomes.get(&run_key(&case.scenario))
    }
}

/// State that the workers share.
struct Shared<'s> {
    /// Cases to come, the next one last.
    waiting: Vec<(String, &'s Case)>,
    store: Store,
    library: Library,
    failure: Option<anyhow::Error>,
}

/// Runs each scenario of `cases` once, except those that are finished in the file `name`.
///
/// # Errors
/// If a scenario has errors, or the file cannot be written.
pub(super) fn sweep(cases: &[&Case], name: &str, args: &SweepArgs) -> anyhow::Result<Swept> {
    let store = Store::open(args.results.as_deref(), name, args.fresh)?;
    let kept = store.path().to_owned();
    let mut wanted = BTreeSet::new();
    let mut waiting: Vec<(String, &Case)> = Vec::new();
    for case in cases {
        let key = run_key(&case.scenario);
        if wanted.insert(key.clone()) && store.get(&key).is_none() {
            waiting.push((key, case));
        }
    }
    let jobs = args.jobs.map_or_else(cores, usize::from).clamp(1, waiting.len().max(1));
    let weights = waiting.iter().map(|(_, case)| weight(case)).sum();
    let progress = Progress::start(waiting.len(), wanted.len() - waiting.len(), weights, jobs);
    waiting.reverse();
    let library = Library::new(Box::new(Files));
    let shared = Mutex::new(Shared { waiting, store, library, failure: None });
    let stop = StopFlag::new()?;
    thread::scope(|scope| {
        for worker in 0..jobs {
            let (shared, progress, stop) = (&shared, &progress, &stop);
            scope.spawn(move || work(worker, shared, progress, stop));
        }
    });
    progress.end();
    let Shared { mut store, failure, .. } =
        shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(failure) = failure {
        return Err(failure);
    }
    let mut outcomes = BTreeMap::new();
    for key in &wanted {
        outcomes.extend(store.take(key).map(|outcome| (key.clone(), outcome)));
    }
    let left = wanted.len() - outcomes.len();
    Ok(Swept { outcomes, stopped: left > 0, left, kept })
}

/// One worker: takes cases until none are left or the sweep stops.
fn work(worker: usize, shared: &Mutex<Shared<'_>>, progress: &Progress, stop: &StopFlag) {
    while !stop.asked() {
        let taken = {
            let mut shared = lock(shared);
            if shared.failure.is_some() {
                return;
            }
            shared.waiting.pop()
        };
        let Some((key, case)) = taken else { return };
        let outcome = one(worker, case, shared, progress, stop);
        let mut shared = lock(shared);
        let result = outcome.and_then(|(outcome, seconds)| {
            let done = outcome.end != End::Stopped;
            shared.store.keep(&key, &case.id, outcome, seconds)?;
            progress.finished(worker, &case.id, done.then(|| weight(case)), seconds);
            Ok(())
        });
        if let Err(error) = result {
            shared.failure.get_or_insert(error);
        }
    }
}

fn one(
    worker: usize,
    case: &Case,
    shared: &Mutex<Shared<'_>>,
    progress: &Progress,
    stop: &StopFlag,
) -> anyhow::Result<(Outcome, f64)> {
    let begin = Instant::now();
    progress.begun(worker, &case.id);
    // One worker at a time prepares: most wait for the same trace.
    let prepared = match case.scenario.prepare(&mut lock(shared).library) {
        Ok(prepared) => prepared,
        Err(problems) => bail!("{} cannot be run:\n{problems}", case.id),
    };
    let outcome = run(&prepared, &mut |now| {
        progress.at(worker, &now);
        if stop.asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    Ok((outcome, begin.elapsed().as_secs_f64()))
}

/// A panicked worker leaves the shared state consistent, because each change is a single step.
fn lock<'m, 's>(shared: &'m Mutex<Shared<'s>>) -> MutexGuard<'m, Shared<'s>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// The approximate relative time of a case: a ramp ends at a rate that grows with the servers.
fn weight(case: &Case) -> f64 {
    case.scenario.servers.count as f64
}
