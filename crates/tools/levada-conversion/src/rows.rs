//! Tables of directives: a row says what becomes of some of them. To convert a directive is to add a row.

use crate::{
    gate::Concern,
    ledger::{Outcome, TAKEN, left, needless},
};

/// A row. Of several rows that fit a directive, the first one counts.
pub struct Row<F: Copy + 'static> {
    /// Names, with spaces between them; a `*` stands for any text. Behind them, the row may have the values that it is
    /// for, or is not for: `NAME NAME = VALUE VALUE`, `NAME != VALUE`. The value of a directive is its first argument,
    /// and `''` an empty one.
    names: &'static str,
    effect: Effect<F>,
    /// The keys that it writes, or the reason.
    says: &'static str,
    /// Decides what becomes of the place if the statement is not converted.
    concern: Concern,
}

/// The effect of a directive.
#[derive(Clone, Copy)]
enum Effect<F> {
    /// A node does it anyway, or has no use for it.
    Needless,
    /// Levada has nothing for it.
    Left,
    /// It writes keys.
    Writes(F),
}

impl<F: Copy> Row<F> {
    /// A row whose directives write these keys.
    pub const fn writes(names: &'static str, keys: &'static str, effect: F) -> Self {
        Self { names, effect: Effect::Writes(effect), says: keys, concern: Concern::Other }
    }

    /// A row whose directives a node has no use for.
    pub const fn needless(names: &'static str, reason: &'static str) -> Self {
        Self { names, effect: Effect::Needless, says: reason, concern: Concern::Other }
    }

    /// A row whose directives Levada has nothing for.
    pub const fn left(names: &'static str, reason: &'static str) -> Self {
        Self { names, effect: Effect::Left, says: reason, concern: Concern::Other }
    }

    /// The same row for statements about this.
    pub const fn about(self, concern: Concern) -> Self {
        Self { names: self.names, effect: self.effect, says: self.says, concern }
    }

    /// The subject of its statements.
    pub fn concern(&self) -> Concern {
        self.concern
    }

    /// The names, the values, and whether the row is for these values or for all others.
    fn condition(&self) -> (&'static str, &'static str, bool) {
        if let Some((names, values)) = self.names.split_once(" != ") {
            return (names, values, false);
        }
        self.names.split_once(" = ").map_or((self.names, "", false), |(n, v)| (n, v, true))
    }

    /// The names of its directives.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<F> {
        self.condition().0.split_whitespace()
    }

    /// How its keys are written, if it writes any.
    pub fn keys(&self) -> Option<F> {
        match self.effect {
            Effect::Writes(keys) => Some(keys),
            _ => None,
        }
    }

    /// The keys that it writes, as the documentation names them.
    pub fn key_names(&self) -> impl Iterator<Item = &'static str> + use<F> {
        self.says.split(", ")
    }

    /// The fate of a directive that writes no keys.
    pub fn without_keys(&self) -> Option<Outcome> {
        self.keys().is_none().then(|| self.outcome(|_| TAKEN))
    }

    fn is_for(&self, name: &str, value: &str) -> bool {
        // Most rows are for other directives: this is seen at once.
        if !self.names.contains(name) && !self.names.contains('*') {
            return false;
        }
        let value = if value.is_empty() { "''" } else { value };
        let (names, values, wanted) = self.condition();
        names.split_whitespace().any(|pattern| fits(pattern, name))
            && values.split_whitespace().any(|own| own == value) == wanted
    }

    /// The fate of a directive, whose keys `write` writes.
    pub fn outcome(&self, write: impl FnOnce(F) -> Outcome) -> Outcome {
        match self.effect {
            Effect::Needless => needless(self.says),
            Effect::Left => left(self.says),
            Effect::Writes(keys) => write(keys),
        }
    }
}

/// A row as the documentation shows it.
#[derive(Clone, Debug)]
pub struct Described {
    /// The block or the file that the directives stand in, if they have not the same meaning everywhere.
    pub place: &'static str,
    /// Their names. A `*` stands for any text.
    pub names: Vec<&'static str>,
    /// The values that the row is for; `''` is an empty one.
    pub values: Vec<&'static str>,
    /// Whether the row is for these values, or for all others.
    pub has_values: bool,
    /// Their fate.
    pub becomes: Becomes,
}

/// The fate of the directives of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Becomes {
    /// These keys, or a word about them.
    Keys(&'static str),
    /// Nothing is needed, for this reason.
    Needless(&'static str),
    /// They are left, for this reason.
    Left(&'static str),
}

impl<F: Copy> Row<F> {
    fn described(&self, place: &'static str) -> Described {
        let (names, values, has_values) = self.condition();
        let becomes = match self.effect {
            Effect::Needless => Becomes::Needless(self.says),
            Effect::Left => Becomes::Left(self.says),
            Effect::Writes(_) => Becomes::Keys(self.says),
        };
        let names = names.split_whitespace().collect();
        Described { place, names, values: values.split_whitespace().collect(), has_values, becomes }
    }
}

/// The rows of a table whose directives stand in `place`.
pub fn described<F: Copy>(place: &'static str, rows: &[Row<F>]) -> Vec<Described> {
    rows.iter().map(|row| row.described(place)).collect()
}

/// The row for a directive.
pub fn find<'t, F: Copy>(
    rows: impl IntoIterator<Item = &'t Row<F>>,
    name: &str,
    value: &str,
) -> Option<&'t Row<F>> {
    rows.into_iter().find(|row| row.is_for(name, value))
}

/// Names that an earlier row takes from a later one, with the values of the later one.
pub fn shadowed<F: Copy>(rows: &[&Row<F>]) -> Vec<String> {
    let mut shadowed = Vec::new();
    for row in rows {
        let (_, values, wanted) = row.condition();
        let value = values.split_whitespace().next().filter(|_| wanted).unwrap_or("another one");
        for name in row.names().map(|pattern| pattern.replace('*', "any")) {
            let found = find(rows.iter().copied(), &name, value);
            if !found.is_some_and(|found| std::ptr::eq(found, *row)) {
                shadowed.push(format!("{name} = {value}"));
            }
        }
    }
    shadowed
}

fn fits(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(start) else { return false };
    rest.is_empty() || name.char_indices().any(|(at, _)| fits(rest, &name[at..]))
}

#[cfg(test)]
mod tests {
    use super::{Row, find};

    #[test]
    fn the_first_row_that_fits_counts() {
        const ROWS: &[Row<u8>] = &[
            Row::writes("a b = on ''", "", 1),
            Row::writes("a != off", "", 2),
            Row::needless("a* *_by_lua*", "because"),
        ];
        let found = |name, value| {
            find(ROWS, name, value)
                .and_then(|row| ROWS.iter().position(|own| std::ptr::eq(own, row)))
        };
        assert_eq!(found("a", "on"), Some(0));
        assert_eq!(found("b", ""), Some(0));
        assert_eq!(found("b", "off"), None);
        assert_eq!(found("a", "x"), Some(1));
        assert_eq!(found("a", "off"), Some(2));
        assert_eq!(found("x_by_lua_file", ""), Some(2));
        assert_eq!(found("x_by_lu", ""), None);
    }
}
