//! Tables of a TOML file as they are written: keys stay in the order in which they were set.

use std::fmt;

use crate::gate::Marks;

/// A value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(u64),
    /// A whole number that may be negative.
    Signed(i64),
    /// `true` or `false`.
    Switch(bool),
    /// A list in brackets.
    List(Vec<Value>),
    /// A table in braces.
    Inline(Table),
}

/// Keys with values, and the reasons why their place is closed or not stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table(Vec<(String, Value)>, pub Marks);

impl Table {
    /// Whether it has neither keys nor marks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty() && self.1.is_empty()
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find_map(|(own, value)| (own == key).then_some(value))
    }

    /// Whether it has one of these keys.
    pub fn has_any(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.get(key).is_some())
    }

    /// Takes all other keys out.
    pub fn keep(&mut self, keys: &[&str]) {
        self.0.retain(|(own, _)| keys.contains(&own.as_str()));
    }

    /// Takes these keys out.
    pub fn remove_all(&mut self, keys: &[&str]) {
        self.0.retain(|(own, _)| !keys.contains(&own.as_str()));
    }

    /// Sets `key`, in place of a former value.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.0.iter_mut().find(|(own, _)| own == key) {
            Some((_, own)) => *own = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    /// Sets a key that may be in tables within each other, such as `compress.min_size`.
    pub fn set_path(&mut self, path: &str, value: impl Into<Value>) {
        match path.split_once('.') {
            Some((outer, rest)) => self.inline(outer).set_path(rest, value),
            None => self.set(path, value),
        }
    }

    /// Adds to the list of `key`.
    pub fn push(&mut self, key: &str, value: impl Into<Value>) {
        match self.0.iter_mut().find(|(own, _)| own == key) {
            Some((_, Value::List(list))) => list.push(value.into()),
            _ => self.set(key, Value::List(vec![value.into()])),
        }
    }

    /// Sets `key`, or makes a list of its values.
    pub fn push_or_set(&mut self, key: &str, value: impl Into<Value>) {
        match self.get(key).cloned() {
            Some(Value::List(_)) => self.push(key, value),
            Some(own @ Value::Text(_)) => self.set(key, Value::List(vec![own, value.into()])),
            _ => self.set(key, value),
        }
    }

    /// Takes a text out of the list of `key`, whatever its case. Returns whether it was there.
    pub fn take_from_list(&mut self, key: &str, text: &str) -> bool {
        let Some(Value::List(mut list)) = self.get(key).cloned() else { return false };
        let before = list.len();
        list.retain(|own| !matches!(own, Value::Text(own) if own.eq_ignore_ascii_case(text)));
        let taken = list.len() < before;
        match list.is_empty() {
            true => drop(self.remove(key)),
            false => self.set(key, Value::List(list)),
        }
        taken
    }

    /// Keeps the keys whose values are wanted.
    pub fn retain(&mut self, wanted: impl Fn(&Value) -> bool) {
        self.0.retain(|(_, value)| wanted(value));
    }

    /// The table in braces of `key`, made if there is none.
    pub fn inline(&mut self, key: &str) -> &mut Table {
        if !matches!(self.get(key), Some(Value::Inline(_))) {
            self.set(key, Table::default());
        }
        match self.0.iter_mut().find(|(own, _)| own == key) {
            Some((_, Value::Inline(table))) => table,
            _ => unreachable!("it was made a table above"),
        }
    }

    /// Sets all keys of `other` in this table. What is closed stays closed.
    pub fn lay_over(&mut self, other: Table) {
        self.1.merge(&other.1);
        for (key, value) in other.0 {
            match value {
                Value::Inline(inner) if matches!(self.get(&key), Some(Value::Inline(_))) => {
                    self.inline(&key).lay_over(inner);
                }
                value => self.set(&key, value),
            }
        }
    }

    /// The keys and their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Takes `key` out.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let place = self.0.iter().position(|(own, _)| own == key)?;
        Some(self.0.remove(place).1)
    }
}

impl Value {
    /// The table in braces, if it is one.
    pub fn table(&self) -> Option<&Table> {
        match self {
            Self::Inline(table) => Some(table),
            _ => None,
        }
    }

    /// One text, or those of a list.
    pub fn texts(&self) -> Vec<&str> {
        match self {
            Self::Text(text) => vec![text],
            Self::List(list) => list.iter().flat_map(Self::texts).collect(),
            _ => Vec::new(),
        }
    }

    /// The value of a key of a table in braces.
    pub fn inner(&self, key: &str) -> Option<&Value> {
        self.table()?.get(key)
    }
}

impl FromIterator<(&'static str, Value)> for Table {
    fn from_iter<I: IntoIterator<Item = (&'static str, Value)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Self(pairs, Marks::default())
    }
}

/// One `key = value` per line.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|(key, value)| writeln!(f, "{} = {value}", bare_or_quoted(key)))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // `${` would be a variable of the environment.
            Self::Text(text) => f.write_str(&quoted(&text.replace("${", "$${"))),
            Self::Number(number) => number.fmt(f),
            Self::Signed(number) => number.fmt(f),
            Self::Switch(on) => on.fmt(f),
            Self::List(list) => {
                let items: Vec<_> = list.iter().map(ToString::to_string).collect();
                let long = items.iter().map(|item| item.len() + 2).sum::<usize>() > 90;
                match long {
                    false => write!(f, "[{}]", items.join(", ")),
                    true => write!(f, "[\n  {},\n]", items.join(",\n  ")),
                }
            }
            Self::Inline(table) => {
                let pair =
                    |(key, value): (&str, &Value)| format!("{} = {value}", bare_or_quoted(key));
                write!(f, "{{ {} }}", table.iter().map(pair).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn bare_or_quoted(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(is_bare) { key.to_owned() } else { quoted(key) }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Value {
    fn from(on: bool) -> Self {
        Self::Switch(on)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<Table> for Value {
    fn from(table: Table) -> Self {
        Self::Inline(table)
    }
}

/// One text stands without brackets.
impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Self {
        match <[String; 1]>::try_from(texts) {
            Ok([one]) => Self::Text(one),
            Err(texts) => Self::List(texts.into_iter().map(Self::Text).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Table, Value};

    #[test]
    fn a_written_table_reads_back_with_all_its_values() {
        let mut table = Table::default();
        table.set("text", "a \"quoted\" \\ line\nand ${NAME}");
        table.set("X-Odd.Key", true);
        table.inline("inner").set("number", 7);
        table.push("list", "one");
        table.push("list", "two");
        let read: toml::Table = table.to_string().parse().unwrap();
        assert_eq!(read["text"].as_str(), Some("a \"quoted\" \\ line\nand $${NAME}"));
        assert_eq!(read["X-Odd.Key"].as_bool(), Some(true));
        assert_eq!(read["inner"]["number"].as_integer(), Some(7));
        assert_eq!(read["list"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn an_inner_table_is_laid_over_key_by_key() {
        let mut outer = Table::default();
        outer.inline("inner").set("kept", 1);
        let mut over = Table::default();
        over.inline("inner").set("new", 2);
        outer.lay_over(over);
        let Some(Value::Inline(inner)) = outer.get("inner") else { panic!("no inner table") };
        assert_eq!(inner.to_string(), "kept = 1\nnew = 2\n");
    }
}
