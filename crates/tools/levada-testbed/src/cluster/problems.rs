//! The problems of the requests of a load.

use std::collections::BTreeMap;

/// A way in which a request goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// No connection was accepted.
    Refused,
    /// No response, or a status that the load does not expect.
    Failed,
    /// A body that ended too early.
    Cut,
    /// Bytes or a version that the origin never sent.
    Wrong,
    /// A version whose purge had been confirmed.
    Stale,
}

impl Problem {
    /// Its name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Cut => "cut",
            Self::Wrong => "wrong",
            Self::Stale => "stale",
        }
    }
}

/// The judgement of one request: right, or what went wrong and why.
pub type Verdict = Result<(), (Problem, String)>;

/// All problems with their reasons, and how often each occurred.
#[derive(Clone, Debug, Default)]
pub struct Problems(BTreeMap<(Problem, String), u64>);

impl Problems {
    /// Notes the problem of a request, if it had one.
    pub fn note(&mut self, verdict: Verdict) {
        if let Err(problem) = verdict {
            *self.0.entry(problem).or_default() += 1;
        }
    }

    /// The number of requests with this problem.
    pub fn of(&self, problem: Problem) -> u64 {
        self.0.iter().filter(|((own, _), _)| *own == problem).map(|(_, count)| count).sum()
    }

    /// The reasons as text, with their numbers.
    pub fn reasons(&self) -> BTreeMap<String, u64> {
        let text = |((problem, reason), count): (&(Problem, String), &u64)| {
            (format!("{}: {reason}", problem.as_str()), *count)
        };
        self.0.iter().map(text).collect()
    }
}
