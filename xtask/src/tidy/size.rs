//! Production lines of each crate: code, comments and blank lines of its sources without tests. One
//! person should be able to know a crate.

use std::collections::BTreeMap;

use super::allowance::Limit;
use crate::source::Source;

const LIMIT: Limit = Limit {
    figure: "the number of its production lines",
    most: 10_000.0,
    allowances: &[("bench", 10_250.0)],
};

/// A line for each crate that is too large.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let sizes = lines_by_package(sources);
    sizes.iter().filter_map(|(name, &lines)| LIMIT.check(name, lines as f64)).collect()
}

/// The production lines of each crate, examples and benches aside.
pub(super) fn lines_by_package(sources: &[Source]) -> BTreeMap<&str, usize> {
    let mut sizes = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_shipped()) {
        *sizes.entry(source.package()).or_default() += source.production_lines();
    }
    sizes
}

/// The production lines of everything: examples, benches, build scripts and fuzz targets too.
pub(super) fn lines_in_all(sources: &[Source]) -> usize {
    sources.iter().map(Source::production_lines).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, lines: usize) -> Source {
        Source { path: path.into(), text: "//\n".repeat(lines) }
    }

    #[test]
    fn a_crate_above_the_limit_is_named() {
        let large = [source("crates/a/src/lib.rs", 6000), source("crates/a/src/b.rs", 4001)];
        assert!(check(&large)[0].starts_with("a: "), "{:?}", check(&large));
        let tested = [source("crates/a/src/lib.rs", 10_000), source("crates/a/tests/b.rs", 6001)];
        assert_eq!(check(&tested), [""; 0]);
    }
}
