//! Allowances: how far a crate may still be beyond a limit. They exist so that a limit can hold
//! before everything meets it, and they may only shrink.

/// A limit, and the crates that may still exceed it.
pub(super) struct Limit {
    /// The figure that is limited, as a sentence names it.
    pub(super) figure: &'static str,
    pub(super) most: f64,
    pub(super) allowances: &'static [(&'static str, f64)],
}

/// An allowance may exceed the figure by this part of itself. A wider one would let the figure grow
/// again unnoticed; an exact one would have to change with every commit.
const SLACK: f64 = 0.1;

impl Limit {
    /// A line when the figure of `name` breaks the limit, or its allowance is not needed as it is.
    pub(super) fn check(&self, name: &str, found: f64) -> Option<String> {
        let Self { figure, most, allowances } = self;
        let allowance = allowances.iter().find(|(allowed, _)| *allowed == name);
        match allowance {
            None if found > *most => {
                Some(format!("{name}: {figure} is {found:.1}, {most} is the limit"))
            }
            None => None,
            Some((_, allowed)) if found > *allowed => Some(format!(
                "{name}: {figure} is {found:.1} and must shrink; {allowed} is allowed"
            )),
            Some(_) if found <= *most => {
                Some(format!("{name}: {figure} is {found:.1}: delete its allowance"))
            }
            Some((_, allowed)) if found < allowed * (1.0 - SLACK) => {
                Some(format!("{name}: {figure} is {found:.1}: tighten its allowance of {allowed}"))
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { figure: "size", most: 10.0, allowances: &[("large", 100.0)] };

    #[test]
    fn a_limit_holds_where_nothing_is_allowed() {
        assert_eq!(LIMIT.check("small", 10.0), None);
        assert!(LIMIT.check("small", 10.1).is_some());
    }

    #[test]
    fn an_allowance_may_only_shrink() {
        assert_eq!(LIMIT.check("large", 100.0), None);
        assert!(LIMIT.check("large", 101.0).unwrap().contains("must shrink"));
        assert!(LIMIT.check("large", 89.0).unwrap().contains("tighten"));
        assert!(LIMIT.check("large", 10.0).unwrap().contains("delete"));
    }
}
