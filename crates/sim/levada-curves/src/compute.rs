//! The curves of a sample: a task for each cache, taken by threads one after the other.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use levada_cache::eviction::EvictionEntry;

use crate::{
    Admission, CacheCurve, CurveError, CurveOptions, CurvePoint, CurveReport, Curves,
    distance::lru_misses,
    estimate::{Misses, point},
    part::{Counts, Part, SHARDS},
    sample::{Sample, Totals},
    simulate::simulate,
};

impl Curves {
    /// Computes the curves of the requests so far.
    ///
    /// # Errors
    /// When there are no requests for objects of known size, or too few in the sample.
    pub fn finish(self) -> Result<CurveReport, CurveError> {
        let rate = self.rate();
        let Self { options, sample, totals, .. } = self;
        if totals.requests == 0 {
            return Err(CurveError::NoRequests);
        }
        if totals.sizeless == totals.requests {
            return Err(CurveError::NoSizes);
        }
        let part = Part::of(&sample, rate);
        let objects = part.objects.len() as u64;
        if objects < if rate < 1.0 { LEAST_OBJECTS } else { 1 } {
            return Err(CurveError::TooFewSampled { objects });
        }
        let all = all(&part, &sample, totals);
        drop(sample);
        Ok(report(&options, part, totals, all))
    }
}

/// Fewer objects in a sample say too little of its error.
const LEAST_OBJECTS: u64 = 400;

/// The requests of the whole log for objects of known size. The sample says which requests have no such object, and
/// how many bytes responses state too few, because they are parts, aborted or without a body.
fn all(part: &Part, sample: &Sample, totals: Totals) -> Counts {
    let of_part = part.all();
    let of_sample: f64 =
        sample.runs[sample.filling..].iter().map(|run| f64::from(run.requests)).sum();
    let stated: f64 = sample.objects.iter().map(|object| object.stated).sum();
    let unknown = ((of_sample - of_part.requests) / part.rate).min(totals.sizeless as f64);
    let more = if stated > 0.0 { of_part.bytes / stated } else { 1.0 };
    Counts { requests: totals.requests as f64 - unknown, bytes: totals.stated * more }
}

fn report(options: &CurveOptions, part: Part, totals: Totals, all: Counts) -> CurveReport {
    let rate = part.rate;
    let object_bytes = part.object_bytes() / rate;
    let sizes = match &options.sizes[..] {
        [] => usual_sizes(object_bytes),
        sizes => sizes.to_vec(),
    };
    let shards = if rate < 1.0 { SHARDS } else { 0 };
    let mut parts: Vec<Part> = (0..shards).map(|number| part.shard(number)).collect();
    parts.insert(0, part);
    let to_point = |bytes: u64, of_parts: &[Counts]| {
        let misses = Misses { sample: of_parts[0], shards: of_parts[1..].to_vec() };
        point(bytes, rate, all, &misses)
    };
    let firsts: Vec<Counts> = parts.iter().map(Part::first_requests).collect();
    let unlimited = to_point(object_bytes.round() as u64, &firsts);
    let kinds: Vec<Kind> = kinds(options).collect();
    let mut points = points(&kinds, &sizes, &parts, options.threads, to_point).into_iter();
    let curves = kinds.iter().map(|(eviction, admission)| CacheCurve {
        eviction: eviction.name.to_owned(),
        admission: *admission,
        points: points.by_ref().take(sizes.len()).collect(),
    });
    let curves = curves.collect();
    CurveReport {
        requests: all.requests.round() as u64,
        sizeless_requests: totals.requests - all.requests.round() as u64,
        bytes: all.bytes.round() as u64,
        objects: (parts[0].objects.len() as f64 / rate).round() as u64,
        object_bytes: object_bytes.round() as u64,
        rate,
        sampled_requests: parts[0].all().requests as u64,
        sampled_objects: parts[0].objects.len() as u64,
        unlimited,
        curves,
    }
}

/// Sizes up to one that holds all objects.
fn usual_sizes(object_bytes: f64) -> Vec<u64> {
    let most = (object_bytes.min(MOST_BYTES) as u64).next_power_of_two();
    let sizes = (0..10).rev().map(|halvings| most >> halvings);
    sizes.filter(|size| *size > 0).collect()
}

/// Beyond it, sizes of objects are wrong.
const MOST_BYTES: f64 = (1u64 << 60) as f64;

/// An eviction with an admission.
type Kind = (&'static EvictionEntry, Admission);

fn kinds(options: &CurveOptions) -> impl Iterator<Item = Kind> {
    let admissions = options.admissions.iter();
    let evictions = options.evictions.iter();
    evictions.flat_map(move |eviction| admissions.clone().map(|admission| (*eviction, *admission)))
}

/// The points of all kinds, one kind after the other.
fn points(
    kinds: &[Kind],
    sizes: &[u64],
    parts: &[Part],
    threads: usize,
    to_point: impl Fn(u64, &[Counts]) -> CurvePoint,
) -> Vec<CurvePoint> {
    // The whole sample first: its tasks are the longest.
    let tasks: Vec<Task> = (parts.iter())
        .flat_map(|part| kinds.iter().flat_map(move |kind| Task::of(*kind, part, sizes)))
        .collect();
    let results = in_threads(threads, &tasks, Task::run).concat();
    let of_part = kinds.len() * sizes.len();
    let of_point =
        |at: usize| -> Vec<Counts> { results.iter().skip(at).step_by(of_part).copied().collect() };
    (0..of_part).map(|at| to_point(sizes[at % sizes.len()], &of_point(at))).collect()
}

/// Misses to be counted.
struct Task<'a> {
    kind: Kind,
    part: &'a Part,
    /// All sizes at once, or one.
    sizes: &'a [u64],
}

impl<'a> Task<'a> {
    fn of(kind: Kind, part: &'a Part, sizes: &'a [u64]) -> impl Iterator<Item = Self> {
        let at_once = if is_stack_algorithm(kind) { sizes.len() } else { 1 };
        sizes.chunks(at_once).map(move |sizes| Self { kind, part, sizes })
    }

    fn run(&self) -> Vec<Counts> {
        let (eviction, admission) = self.kind;
        if is_stack_algorithm(self.kind) {
            return lru_misses(self.part, self.sizes);
        }
        let misses = |size: &u64| simulate(self.part, eviction, admission, *size);
        self.sizes.iter().map(misses).collect()
    }
}

/// Whether a larger cache always holds what a smaller one holds.
fn is_stack_algorithm((eviction, admission): Kind) -> bool {
    eviction.name == "lru" && admission == Admission::Always
}

/// The results of all tasks, in their order.
fn in_threads<T: Sync, R: Send>(
    threads: usize,
    tasks: &[T],
    run: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(tasks.len()));
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, tasks.len().max(1)) {
            scope.spawn(|| {
                while let Some((at, task)) =
                    tasks.iter().enumerate().nth(next.fetch_add(1, Relaxed))
                {
                    let result = run(task);
                    done.lock().expect("no task panics").push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no task panics");
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
