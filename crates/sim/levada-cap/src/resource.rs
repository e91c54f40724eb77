//! One station of a server: a CPU, a disk, a memory bus or a network card, with its queue.
//!
//! WWW10 Sec. 4.1: each component has "its own queuing system that allows requests to wait". Work is
//! done first come, first served. A CPU and a network card are shared in slices: a job that has used
//! up its slice joins the end of the queue.

use std::collections::VecDeque;
use std::time::Duration;

use levada_types::Timestamp;

/// A station and its queue. `J` names a job.
#[derive(Clone, Debug)]
pub struct Resource<J> {
    /// The longest time that one job is served before others get their turn.
    slice: u64,
    /// The job in service, and its remaining work after this slice.
    serving: Option<(J, u64)>,
    waiting: VecDeque<(J, u64)>,
    busy: u64,
    /// The time at which the job in service began its slice.
    since: Timestamp,
}

/// The result of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceEnd<J> {
    /// The finished job, if this was its last slice.
    pub done: Option<J>,
    /// The end of the next slice, if there is more work.
    pub next: Option<Timestamp>,
}

impl<J: Copy> Resource<J> {
    /// A station that finishes a job before it begins the next.
    pub fn in_order() -> Self {
        Self::in_slices(Duration::MAX)
    }

    /// A station that serves jobs in turn, none for longer than `slice` at a time.
    pub fn in_slices(slice: Duration) -> Self {
        let slice = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self { slice, serving: None, waiting: VecDeque::new(), busy: 0, since: Timestamp::ZERO }
    }

    /// Takes a job of `work` nanoseconds. If the station was idle, returns the end of the slice that
    /// begins now; the caller calls [`Self::slice_ended`] at that time.
    pub fn take(&mut self, job: J, work: u64, now: Timestamp) -> Option<Timestamp> {
        if self.serving.is_some() {
            self.waiting.push_back((job, work));
            return None;
        }
        Some(self.serve(job, work, now))
    }

    /// Ends the slice in service and begins the next.
    pub fn slice_ended(&mut self, now: Timestamp) -> SliceEnd<J> {
        let Some((job, left)) = self.serving.take() else {
            return SliceEnd { done: None, next: None };
        };
        self.busy += now.since(self.since).as_nanos() as u64;
        let done = if left == 0 {
            Some(job)
        } else {
            self.waiting.push_back((job, left));
            None
        };
        let next = self.waiting.pop_front().map(|(job, work)| self.serve(job, work, now));
        SliceEnd { done, next }
    }

    /// Nanoseconds of service up to `now`.
    pub fn busy(&self, now: Timestamp) -> u64 {
        let current = if self.serving.is_some() { now.since(self.since) } else { Duration::ZERO };
        self.busy + current.as_nanos() as u64
    }

    fn serve(&mut self, job: J, work: u64, now: Timestamp) -> Timestamp {
        let slice = work.min(self.slice);
        self.serving = Some((job, work - slice));
        self.since = now;
        now + Duration::from_nanos(slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_types::Rng;

    fn at(nanos: u64) -> Timestamp {
        Timestamp(nanos)
    }

    #[test]
    fn jobs_are_done_in_order() {
        let mut disk = Resource::in_order();
        assert_eq!(disk.take('a', 10, at(0)), Some(at(10)));
        assert_eq!(disk.take('b', 5, at(3)), None);
        assert_eq!(disk.slice_ended(at(10)), SliceEnd { done: Some('a'), next: Some(at(15)) });
        assert_eq!(disk.busy(at(12)), 12);
        assert_eq!(disk.slice_ended(at(15)), SliceEnd { done: Some('b'), next: None });
        assert_eq!(disk.busy(at(99)), 15);
    }

    #[test]
    fn a_long_job_lets_a_short_one_pass() {
        let mut cpu = Resource::in_slices(Duration::from_nanos(10));
        assert_eq!(cpu.take('a', 25, at(0)), Some(at(10)));
        assert_eq!(cpu.take('b', 5, at(1)), None);
        assert_eq!(cpu.slice_ended(at(10)), SliceEnd { done: None, next: Some(at(15)) });
        assert_eq!(cpu.slice_ended(at(15)), SliceEnd { done: Some('b'), next: Some(at(25)) });
        assert_eq!(cpu.slice_ended(at(25)), SliceEnd { done: None, next: Some(at(30)) });
        assert_eq!(cpu.slice_ended(at(30)), SliceEnd { done: Some('a'), next: None });
    }

    /// M/M/1, first come, first served and in slices: the mean time in the system is 1 / (mu -
    /// lambda) for both.
    #[test]
    fn waiting_agrees_with_the_closed_form() {
        for station in [Resource::in_order(), Resource::in_slices(Duration::from_micros(1_000))] {
            let (arrive, serve) = (0.010, 0.006);
            let measured = mean_time_in_system(station, arrive, serve, 300_000);
            let expected = 1.0 / (1.0 / serve - 1.0 / arrive);
            assert!((measured / expected - 1.0).abs() < 0.03, "{measured} for {expected}");
        }
    }

    fn mean_time_in_system(mut station: Resource<usize>, arrive: f64, serve: f64, n: usize) -> f64 {
        let mut rng = Rng::new(8);
        let (mut arrivals, mut end, mut total) = (vec![at(0)], None, 0.0);
        let mut finished = 0;
        while finished < n {
            let next = arrivals[arrivals.len() - 1];
            match end {
                Some(now) if now <= next => {
                    let SliceEnd { done, next } = station.slice_ended(now);
                    if let Some(job) = done {
                        total += now.since(arrivals[job]).as_secs_f64();
                        finished += 1;
                    }
                    end = next;
                }
                _ => {
                    let work = (serve * rng.exponential() * 1e9) as u64;
                    end = station.take(arrivals.len() - 1, work, next).or(end);
                    let gap = Duration::from_secs_f64(arrive * rng.exponential());
                    arrivals.push(next + gap);
                }
            }
        }
        total / n as f64
    }
}
