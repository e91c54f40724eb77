//! Modules that import each other in a circle can only be understood together. A few may: a parent
//! and its children. Beyond [`LIMIT`] the circle is a crate without inner walls.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
};

use super::allowance::Limit;
use crate::source::{Reading, Source, Tree};

const LIMIT: Limit = Limit {
    figure: "the number of modules in its largest import cycle",
    most: 5.0,
    allowances: &[],
};

/// A library or program and its largest cycle.
pub(super) struct Cycle {
    pub(super) package: String,
    /// The file at the root of its modules.
    root: PathBuf,
    pub(super) all: usize,
    /// The names of the modules, ordered.
    pub(super) modules: Vec<String>,
    /// The production lines of these modules.
    pub(super) lines: usize,
    /// The number of modules in the largest cycle when paths are read as they are written.
    pub(super) as_written: usize,
}

/// A line for each library or program whose largest cycle is too large.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for cycle in largest(sources) {
        if let Some(line) = LIMIT.check(&cycle.package, cycle.modules.len() as f64) {
            wrong.push(format!("{line} ({}: {})", cycle.root.display(), cycle.modules.join(", ")));
        }
    }
    wrong
}

/// The largest cycle of every library and program that has a cycle, one for each package: the
/// largest.
pub(super) fn largest(sources: &[Source]) -> Vec<Cycle> {
    let files: HashMap<_, _> = sources.iter().map(|source| (source.path.clone(), source)).collect();
    let mut found: Vec<Cycle> = Vec::new();
    for source in sources.iter().filter(|source| is_root(source)) {
        let cycle = largest_of(source, &files);
        match found.iter_mut().find(|other| other.package == cycle.package) {
            Some(other) if other.modules.len() < cycle.modules.len() => *other = cycle,
            Some(_) => {}
            None => found.push(cycle),
        }
    }
    found
}

/// Whether modules are declared from this file on.
fn is_root(source: &Source) -> bool {
    let within =
        |directory: &str| source.path.parent().is_some_and(|parent| parent.ends_with(directory));
    let top =
        within("src") && (source.path.ends_with("lib.rs") || source.path.ends_with("main.rs"));
    let program = source.path.ends_with("main.rs")
        && source.path.ancestors().nth(2).is_some_and(|parent| parent.ends_with("src/bin"));
    top || program || within("src/bin")
}

fn largest_of(root: &Source, files: &HashMap<PathBuf, &Source>) -> Cycle {
    let tree = Tree::of(root, files);
    let cycle = largest_cycle(&tree.uses(Reading::Definitions));
    let mut modules: Vec<_> = cycle.iter().map(|&module| tree.modules[module].name()).collect();
    modules.sort();
    let members = cycle.iter().filter_map(|&module| files.get(tree.modules[module].file()));
    Cycle {
        package: root.package().to_owned(),
        root: root.path.clone(),
        all: tree.modules.len(),
        modules,
        as_written: largest_cycle(&tree.uses(Reading::Paths)).len(),
        lines: members.map(|source| source.production_lines()).sum(),
    }
}

/// The largest set of nodes each of which reaches all others, by the nodes that each uses. A node
/// alone is no cycle.
fn largest_cycle(uses: &[BTreeSet<usize>]) -> Vec<usize> {
    let reached: Vec<_> = (0..uses.len()).map(|from| reach(uses, from)).collect();
    let cycles = (0..uses.len()).map(|one| {
        let others = reached[one].iter().copied();
        others.filter(|&other| reached[other].contains(&one)).collect::<Vec<_>>()
    });
    cycles.max_by_key(Vec::len).unwrap_or_default()
}

/// The nodes that can be reached by at least one step.
fn reach(uses: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(at) = next.pop() {
        next.extend(uses[at].iter().filter(|&&used| reached.insert(used)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(uses: &[&[usize]]) -> Vec<BTreeSet<usize>> {
        uses.iter().map(|used| used.iter().copied().collect()).collect()
    }

    #[test]
    fn the_largest_cycle_is_found() {
        assert_eq!(largest_cycle(&graph(&[&[1], &[2], &[]])), [0; 0]);
        assert_eq!(largest_cycle(&graph(&[&[1], &[0, 2], &[3], &[4], &[2]])), [2, 3, 4]);
    }

    #[test]
    fn cycles_that_share_a_module_are_one() {
        assert_eq!(largest_cycle(&graph(&[&[1], &[0, 2], &[1], &[0]])), [0, 1, 2]);
    }

    #[test]
    fn six_modules_in_a_circle_are_too_many() {
        let circle = |count: usize| {
            let modules: String = (0..count).map(|at| format!("mod m{at};")).collect();
            let mut sources = vec![source("lib.rs", &modules)];
            for at in 0..count {
                let next = (at + 1) % count;
                let text = format!("use crate::m{next}::X{next}; pub struct X{at};");
                sources.push(source(&format!("m{at}.rs"), &text));
            }
            check(&sources)
        };
        assert_eq!(circle(5), [""; 0]);
        let wrong = circle(6);
        assert!(wrong[0].contains("cycle is 6") && wrong[0].contains("m0, m1"), "{wrong:?}");
    }

    fn source(path: &str, text: &str) -> Source {
        Source { path: format!("crates/a/src/{path}").into(), text: text.into() }
    }
}
