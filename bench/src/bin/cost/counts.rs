//! The counts of callgrind and of its trace of system calls.

use std::{
    collections::BTreeMap,
    ops::{AddAssign, Sub},
};

/// The functions of the allocator that Rust's allocations call, once each.
const ALLOCATORS: [&str; 3] = ["mi_malloc_aligned", "mi_zalloc_aligned", "mi_realloc_aligned"];
/// The clock is no system call outside the emulator.
const CLOCK: &str = "clock_gettime";

/// The counts of a stretch of time, or of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// How often a timer was due. Each time costs instructions, whether there are requests or not.
    pub(crate) wakes: f64,
    pub(crate) instructions: f64,
    pub(crate) calls: f64,
    pub(crate) allocations: f64,
}

impl Counts {
    pub(crate) fn times(self, factor: f64) -> Self {
        Self {
            wakes: self.wakes * factor,
            instructions: self.instructions * factor,
            calls: self.calls * factor,
            allocations: self.allocations * factor,
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.wakes += other.wakes;
        self.instructions += other.instructions;
        self.calls += other.calls;
        self.allocations += other.allocations;
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(mut self, other: Self) -> Self {
        self += other.times(-1.0);
        self
    }
}

/// The median of each figure: what a second brings, most rounds of few requests do not have.
pub(crate) fn median(rounds: &[Counts]) -> Counts {
    ranked(rounds, rounds.len() / 2)
}

/// The least of each figure.
pub(crate) fn least(rounds: &[Counts]) -> Counts {
    ranked(rounds, 0)
}

fn ranked(rounds: &[Counts], rank: usize) -> Counts {
    let ranked = |figure: fn(&Counts) -> f64| {
        let mut figures: Vec<_> = rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[rank]
    };
    Counts {
        wakes: ranked(|counts| counts.wakes),
        instructions: ranked(|counts| counts.instructions),
        calls: ranked(|counts| counts.calls),
        allocations: ranked(|counts| counts.allocations),
    }
}

/// The state of a thread's system calls.
#[derive(Default)]
pub(crate) struct Thread {
    calls: f64,
    /// Whether it waits for events, rather than to look for some while there are tasks or a timer is due.
    waits: bool,
    /// Whether a timer woke it, and nothing else.
    timed: bool,
    /// How often a timer was due.
    wakes: f64,
    /// Whether it sleeps again and again, and serves nobody.
    pub(crate) sleeps: bool,
}

/// The threads in a trace of system calls, by their numbers. Calls that follow a timer are left out, and looks for
/// events without waiting.
pub(crate) fn threads(trace: &str) -> BTreeMap<u32, Thread> {
    let mut threads = BTreeMap::<u32, Thread>::new();
    // SYSCALL[PROCESS,THREAD](NUMBER) NAME ( ARGUMENTS ) --> [async] ...
    // SYSCALL[PROCESS,THREAD](NUMBER) ... [async] --> Success(0x0)
    for line in trace.lines().map(str::trim_end) {
        let Some((_, line)) = line.split_once(',') else { continue };
        let Some((number, call)) = line.split_once(']') else { continue };
        let thread = threads.entry(number.parse().unwrap_or(0)).or_default();
        let is_epoll = ["(232)", "(281)"].iter().any(|number| call.starts_with(number));
        match call.split_once(") sys_") {
            None if is_epoll && call.ends_with("--> Success(0x0)") => {
                thread.wakes += 1.0;
                thread.timed |= thread.waits;
            }
            None => {}
            Some((_, call)) if call.starts_with(CLOCK) => {}
            Some((_, call)) if is_epoll && call.contains(", 0 )") => thread.waits = false,
            Some((_, call)) => {
                thread.sleeps |= call.starts_with("clock_nanosleep");
                thread.calls += if thread.timed { 0.0 } else { 1.0 };
                (thread.waits, thread.timed) = (is_epoll, thread.timed && !is_epoll);
            }
        }
    }
    threads
}

/// The counts of the threads that serve, as far as their system calls say them.
pub(crate) fn calls(threads: &BTreeMap<u32, Thread>) -> Counts {
    let mut counts = Counts::default();
    for thread in threads.values().filter(|thread| !thread.sleeps) {
        counts.calls += thread.calls;
        counts.wakes += thread.wakes;
    }
    counts
}

/// The instructions and the allocations in a profile of callgrind, if it is whole.
pub(crate) fn profile(text: &str) -> Option<(f64, f64)> {
    let (mut total, mut allocations) = (None, 0.0);
    // The first time that a function is named, its number stands before its name, and later alone.
    let mut allocators = Vec::new();
    let mut is_allocator = false;
    for line in text.lines() {
        if let Some(numbered) = line.strip_prefix("fn=").or(line.strip_prefix("cfn=")) {
            let (number, name) = numbered.split_once(' ').unwrap_or((numbered, ""));
            if ALLOCATORS.contains(&name) {
                allocators.push(number);
            }
            is_allocator = allocators.contains(&number);
        } else if let Some(calls) = line.strip_prefix("calls=")
            && is_allocator
        {
            allocations += calls.split(' ').next().unwrap_or_default().parse::<f64>().ok()?;
        } else if let Some(number) = line.strip_prefix("totals: ") {
            total = number.parse().ok();
        }
    }
    Some((total?, allocations))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_in_some_rounds_does_not_count() {
        let round = |instructions| Counts { instructions, calls: 3.0, ..Counts::default() };
        let rounds = [30.0, 31.0, 90.0, 29.0, 80.0].map(round);
        assert_eq!(median(&rounds), round(31.0));
    }

    #[test]
    fn allocations_are_calls_of_the_allocator() {
        let text = "events: Ir\nfn=(1) serve\n16 400\ncfn=(2) mi_malloc_aligned\ncalls=3 0\n0 90\n\
                    cfn=(4) mi_free\ncalls=5 0\n0 50\n\
                    fn=(2)\n0 60\ncfn=(3) _mi_malloc_generic\ncalls=1 0\n0 30\n\
                    fn=(7) send\n0 10\ncfn=(2)\ncalls=2 0\n0 60\n\
                    cfi=(1) main.rs\ncfn=(8) mi_realloc_aligned\ncalls=1 0\n0 9\ntotals: 709\n";
        assert_eq!(profile(text), Some((709.0, 6.0)));
        assert_eq!(profile("events: Ir\n"), None);
    }

    #[test]
    fn calls_are_counted_once_and_timers_and_clocks_never() {
        let trace = "SYSCALL[7,1](232) sys_epoll_wait ( 6, 0x1, 1024, 9 ) --> [async] ... \n\
                     SYSCALL[7,4](230) sys_clock_nanosleep( 1, 0, 0x4, 0x4 ) --> [async] ... \n\
                     SYSCALL[7,1](232) ... [async] --> Success(0x0) \n\
                     SYSCALL[7,1](228) sys_clock_gettime( 1, 0x1 )[sync] --> Success(0x0) \n\
                     SYSCALL[7,1](1) sys_write ( 9, 0x1, 8 )[sync] --> Success(0x8) \n\
                     SYSCALL[7,1](232) sys_epoll_wait ( 6, 0x1, 1024, 9 ) --> [async] ... \n\
                     SYSCALL[7,1](232) ... [async] --> Success(0x1) \n\
                     SYSCALL[7,1](20) sys_writev ( 9, 0x1, 2 ) --> [async] ... \n\
                     SYSCALL[7,1](20) ... [async] --> Success(0x500) \n\
                     SYSCALL[7,1](232) sys_epoll_wait ( 6, 0x1, 1024, 0 ) --> [async] ... \n\
                     SYSCALL[7,1](232) ... [async] --> Success(0x0) \n\
                     SYSCALL[7,1](232) sys_epoll_wait ( 6, 0x1, 1024, 9 ) --> [async] ... \n";
        let counts = calls(&threads(trace));
        assert_eq!((counts.calls, counts.wakes), (3.0, 2.0));
    }
}
