//! Bounded work: so many threads code at once, so many bodies wait, and the rest go out as they are.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::Semaphore;

use crate::compress::metrics::CompressMetrics;

/// The threads that code bodies, and the queue before them.
pub struct Workers {
    threads: Arc<Semaphore>,
    /// Bodies that are coded at the full level.
    workers: usize,
    /// Bodies beyond them.
    queue: usize,
    bodies: AtomicUsize,
    /// The streams that wait for a thread or have one. A stream whose source or client is slow has
    /// a place and costs no time.
    busy: AtomicUsize,
    pub(crate) metrics: CompressMetrics,
}

/// The place of a body among those that are coded or wait. Dropped, it is free again.
pub struct Place {
    workers: Arc<Workers>,
    /// The share of the queue that was busy when it was given.
    pub(crate) load: f64,
    is_busy: bool,
}

impl Workers {
    /// So many threads, and so many bodies that wait.
    pub fn new(workers: usize, queue: usize, metrics: CompressMetrics) -> Arc<Self> {
        let workers = workers.max(1);
        let threads = Arc::new(Semaphore::new(workers));
        let (bodies, busy) = Default::default();
        Arc::new(Self { threads, workers, queue, bodies, busy, metrics })
    }

    /// The place of one more copy; `None` when the queue is full.
    pub fn admit_copy(self: &Arc<Self>) -> Option<Place> {
        self.admit(self.workers + self.queue)
    }

    /// The place of one more body that is not stored; `None` when such bodies have half of the queue: a slow reader holds its place longer, and copies must be made nevertheless.
    pub fn admit_stream(self: &Arc<Self>) -> Option<Place> {
        self.admit(self.workers + self.queue / 2)
    }

    fn admit(self: &Arc<Self>, most: usize) -> Option<Place> {
        let taken = self
            .bodies
            .fetch_update(Relaxed, Relaxed, |bodies| (bodies < most).then_some(bodies + 1));
        if taken.is_err() {
            self.metrics.refused.inc();
            return None;
        }
        self.metrics.bodies.inc();
        let waiting = self.busy.fetch_add(1, Relaxed).saturating_sub(self.workers - 1);
        let load = waiting as f64 / self.queue.max(1) as f64;
        Some(Place { workers: self.clone(), load, is_busy: true })
    }

    /// Runs `work` on one of the threads when it is its turn. `None` when the process ends.
    pub(crate) async fn run<T: Send + 'static>(
        workers: Arc<Self>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = workers.threads.clone().acquire_owned().await.ok()?;
        let done = tokio::task::spawn_blocking(move || {
            let begun = std::time::Instant::now();
            let done = work();
            workers.metrics.seconds.add(begun.elapsed());
            drop(turn);
            done
        });
        done.await.ok()
    }

    /// Bodies that are coded or wait.
    pub fn bodies(&self) -> usize {
        self.bodies.load(Relaxed)
    }
}

impl Place {
    /// Notes whether the body wants a thread.
    pub(crate) fn set_busy(&mut self, is_busy: bool) {
        if is_busy != self.is_busy {
            self.is_busy = is_busy;
            match is_busy {
                true => self.workers.busy.fetch_add(1, Relaxed),
                false => self.workers.busy.fetch_sub(1, Relaxed),
            };
        }
    }

    pub(crate) fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.set_busy(false);
        self.workers.bodies.fetch_sub(1, Relaxed);
        self.workers.metrics.bodies.dec();
    }
}

#[cfg(test)]
mod tests {
    use levada_observe::metrics::Registry;

    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let workers = Workers::new(2, 2, CompressMetrics::registered(&mut Registry::default()));
        let places: Vec<Place> = (0..4).map_while(|_| workers.admit_copy()).collect();
        assert_eq!(places.iter().map(|place| place.load).collect::<Vec<_>>(), [0.0, 0.0, 0.5, 1.0]);
        assert!(workers.admit_copy().is_none());
        assert_eq!((workers.bodies(), workers.metrics.refused.get()), (4, 1));
        drop(places);
        assert_eq!(workers.bodies(), 0);
        assert!(workers.admit_copy().is_some_and(|place| place.load == 0.0));
    }

    #[test]
    fn without_a_queue_the_workers_are_all() {
        let workers = Workers::new(1, 0, CompressMetrics::registered(&mut Registry::default()));
        let place = workers.admit_copy();
        assert!(place.is_some() && workers.admit_copy().is_none());
    }

    #[test]
    fn streams_leave_half_of_the_queue_to_copies() {
        let workers = Workers::new(1, 2, CompressMetrics::registered(&mut Registry::default()));
        let streams: Vec<Place> = (0..3).map_while(|_| workers.admit_stream()).collect();
        assert_eq!(streams.len(), 2);
        assert!(workers.admit_copy().is_some());
    }
}
