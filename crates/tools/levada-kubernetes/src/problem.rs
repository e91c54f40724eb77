//! The parts of a resource that cannot be carried out as they are written.

use crate::resources::Owner;

/// A problem of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    pub(crate) owner: Owner,
    pub(crate) text: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.owner, self.text)
    }
}

/// The problems that are found, in their order.
#[derive(Debug, Default)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl Problems {
    pub(crate) fn add(&mut self, owner: &Owner, text: impl Into<String>) {
        let problem = Problem { owner: owner.clone(), text: text.into() };
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }

    /// The problems of one resource.
    pub(crate) fn of<'a>(&'a self, owner: &'a Owner) -> impl Iterator<Item = &'a str> {
        let own = self.0.iter().filter(move |problem| problem.owner == *owner);
        own.map(|problem| problem.text.as_str())
    }
}
