//! Variables of the operator: their texts, their shares, and whether one leads to itself.

use std::{collections::BTreeMap, sync::Arc};

use levada_rules::{
    Conditions, MOST_MAPPINGS, MappedValues, Mapping, Mappings, PathRegex, Template, TextPattern,
    ValueTable,
};
use levada_types::document::Path;

use super::{Check, levels::KeyLevels, parts::each};
use crate::file::VariableTable;

impl Check<'_, '_> {
    /// The variables of a level. `None` marks an error.
    pub(super) fn variables(
        &mut self,
        of: &BTreeMap<String, VariableTable>,
        levels: &KeyLevels,
    ) -> Option<Arc<Mappings>> {
        let (mut left, mut good): (Vec<String>, bool) = (of.keys().cloned().collect(), true);
        self.mappings = Arc::default();
        // Each is made when those that it names are there.
        loop {
            let made = self.mappings.clone();
            let is_ready = |name: &String| {
                let mut others = of[name].named().into_iter().filter(|one| of.contains_key(*one));
                others.all(|one| made.contains_key(one))
            };
            let (ready, waiting): (Vec<String>, Vec<String>) = left.into_iter().partition(is_ready);
            left = waiting;
            if ready.is_empty() {
                break;
            }
            for name in ready {
                match self.variable(&name, &of[&name], levels) {
                    Some(mapping) => {
                        let mappings = Arc::make_mut(&mut self.mappings);
                        mappings.insert(name, Arc::new(mapping));
                    }
                    None => good = false,
                }
            }
        }
        // One that names another with an error has been reported with that.
        left.retain(|_| good);
        for name in &left {
            let path = levels.below(self.findings, "variables", &[name]);
            self.error(&path, "leads to itself by the variables that it names")
                .help("let one of them name none of the others");
        }
        (good && left.is_empty()).then(|| self.mappings.clone())
    }

    fn variable(
        &mut self,
        name: &str,
        table: &VariableTable,
        levels: &KeyLevels,
    ) -> Option<Mapping> {
        let at = |check: &Self, names: &[&str]| {
            let names = [&[name], names].concat();
            levels.below(check.findings, "variables", &names)
        };
        let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if !is_name {
            let path = at(self, &[]);
            let place = self.findings.key_place(&path);
            let message = format!("{name:?} cannot be the name of a variable");
            self.findings
                .error_at(place, &path, message)
                .help("lower case letters, digits and `_`, beginning with a letter");
        }
        let from = at(self, &["from"]);
        let from = self.variable_text(table.from.as_ref()?, &from);
        let default = at(self, &["default"]);
        let default = self.variable_text(&table.default, &default);
        let has_table = !table.values.is_empty() || !table.regex.is_empty();
        let values = match (has_table, table.parts.is_empty()) {
            (true, false) => {
                let path = at(self, &["parts"]);
                let message =
                    "stands beside `values` or `regex`: a variable has one kind of values";
                self.error(&path, message).none()
            }
            (false, true) => {
                let path = at(self, &[]);
                self.error(&path, "has no values")
                    .help("add `values`, `regex` or `parts`; docs/operate/variables.md")
                    .none()
            }
            (true, true) => self.value_table(table, &at),
            (false, false) => self.value_parts(table, &at),
        };
        let mapping = Mapping { from: from?, values: values?, default: default? };
        if mapping.weight() > MOST_MAPPINGS {
            let message = format!("leads to more than {MOST_MAPPINGS} other variables");
            let path = at(self, &[]);
            return self.error(&path, message).none();
        }
        is_name.then_some(mapping)
    }

    fn value_table(
        &mut self,
        table: &VariableTable,
        at: &dyn Fn(&Self, &[&str]) -> Path,
    ) -> Option<MappedValues> {
        let plain = each(&table.values, |(text, value)| {
            let path = at(self, &["values", text]);
            let value = self.variable_text(value, &path);
            let pattern = TextPattern::parse(text, true);
            let pattern = pattern.map_err(|error| self.pattern_error(&error, &path)).ok();
            pattern.zip(value)
        });
        let list = at(self, &["regex"]);
        let regexes = each(table.regex.iter().enumerate(), |(number, one)| {
            let path = list.index(number);
            let value = self.variable_text(one.value.as_ref()?, &path.key("value"));
            let regex = PathRegex::parse(one.pattern.as_ref()?);
            let regex = regex.map_err(|e| self.pattern_error(&e, &path.key("pattern"))).ok();
            regex.zip(value)
        });
        Some(MappedValues::Table(ValueTable::new(plain?, regexes?)))
    }

    fn value_parts(
        &mut self,
        table: &VariableTable,
        at: &dyn Fn(&Self, &[&str]) -> Path,
    ) -> Option<MappedValues> {
        let parts = each(&table.parts, |(value, percent)| {
            let path = at(self, &["parts", value]);
            if !(0.01..=100.0).contains(percent) {
                let message = format!("{percent} is no share in percent");
                self.error(&path, message).help("from 0.01 to 100");
                return None;
            }
            let share = (percent * 100.0).round() as u32;
            self.variable_text(value, &path).map(|value| (share, value))
        })?;
        let sum: u32 = parts.iter().map(|(share, _)| share).sum();
        if sum > 10_000 {
            let message = format!("are {} % together", f64::from(sum) / 100.0);
            let path = at(self, &["parts"]);
            return self.error(&path, message).help("at most 100: `default` has the rest").none();
        }
        Some(MappedValues::parts(parts))
    }

    fn variable_text(&mut self, text: &str, path: &Path) -> Option<Template> {
        let read = self.url(text, &Conditions::default(), path)?;
        if read.has_expressions() {
            return self
                .error(path, "has an expression")
                .help(
                    "expressions can name variables, as in `vars.name`, and not the other way round",
                )
                .none();
        }
        Some(read)
    }
}

impl VariableTable {
    /// The variables that its texts name.
    fn named(&self) -> Vec<&str> {
        let regexes = self.regex.iter().filter_map(|one| one.value.as_ref());
        let texts = self.from.iter().chain(self.values.values()).chain(regexes);
        let texts = texts.chain(self.parts.keys()).chain([&self.default]);
        let names = texts.flat_map(|text| text.split("{vars.").skip(1));
        names.filter_map(|rest| Some(rest.split_once('}')?.0)).collect()
    }
}
