//! A TOML file as a tree with the place of each value, so that each error can name a line.

use std::{borrow::Cow, collections::BTreeMap, fmt, iter, ops::Range, rc::Rc};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Bytes of the file, from and to.
pub type Span = Range<usize>;

/// A file's name and text.
pub struct Source {
    /// The name, for errors.
    pub name: String,
    /// The text.
    pub text: String,
}

impl Source {
    /// Line and column (in characters) of a byte, both from 1.
    pub fn position(&self, byte: usize) -> (usize, usize) {
        let mut end = byte.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &self.text[..end];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
    }
}

/// A value and its place.
#[derive(Debug)]
pub struct Node {
    /// Its place in the file.
    pub span: Span,
    /// The value.
    pub value: Value,
}

/// A value of TOML.
#[derive(Debug)]
pub enum Value {
    /// A string.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A finite number with a fraction.
    Number(f64),
    /// True or false.
    Switch(bool),
    /// An array.
    List(Vec<Node>),
    /// A table by its keys.
    Table(BTreeMap<String, Entry>),
    /// A value that no key takes, by the name of its type: a date, a number beyond 64 bits,
    /// infinity.
    Foreign(&'static str),
    /// A value that could not be read and has been reported.
    Reported,
}

/// A value in a table, with the place of its key.
#[derive(Debug)]
pub struct Entry {
    /// The place of the key.
    pub key: Span,
    /// The value.
    pub node: Node,
}

/// A mistake in the file's syntax.
pub struct SyntaxError {
    /// Its place in the file.
    pub span: Span,
    /// The mistake.
    pub message: String,
}

impl Node {
    /// Reads TOML. After a syntax error, the rest of the tree is not reliable.
    pub fn parse(text: &str) -> (Self, Vec<SyntaxError>) {
        let (table, errors) = DeTable::parse_recoverable(text);
        let errors = errors.into_iter().map(|error| SyntaxError {
            span: error.span().unwrap_or(0..0),
            message: error.message().to_owned(),
        });
        let span = table.span();
        (Self { span, value: Value::of_table(table.into_inner()) }, errors.collect())
    }

    /// The place of `path`, or of the nearest table around it that exists.
    pub fn place(&self, path: &Path) -> Span {
        let mut node = self;
        for step in path.steps() {
            match node.child(step) {
                Some(child) => node = child,
                None => break,
            }
        }
        node.span.clone()
    }

    /// The entry of a table at `path`, which ends in a key.
    pub fn entry(&self, path: &Path) -> Option<&Entry> {
        let steps = path.steps();
        let (last, before) = steps.split_last()?;
        let table = before.iter().try_fold(self, |node, step| node.child(step))?;
        match (&table.value, last) {
            (Value::Table(table), Step::Key(key)) => table.get(&**key),
            _ => None,
        }
    }

    fn child(&self, step: &Step) -> Option<&Self> {
        match (&self.value, step) {
            (Value::Table(table), Step::Key(key)) => table.get(&**key).map(|entry| &entry.node),
            (Value::List(list), Step::Index(index)) => list.get(*index),
            _ => None,
        }
    }

    /// The value as an error shows it, shortened.
    pub fn brief(&self) -> String {
        match &self.value {
            Value::Text(text) => format!("{:?}", shortened(text)),
            Value::Integer(number) => number.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Switch(on) => on.to_string(),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
            Value::Foreign(what) => (*what).to_owned(),
            Value::Reported => "what cannot be read".to_owned(),
        }
    }
}

impl Value {
    fn of(value: DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Self::Text(text.into_owned()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or(Self::Foreign("a number beyond 64 bits"), Self::Integer),
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(number) if number.is_finite() => Self::Number(number),
                _ => Self::Foreign("infinite or no number"),
            },
            DeValue::Boolean(on) => Self::Switch(on),
            DeValue::Datetime(_) => Self::Foreign("a date"),
            DeValue::Array(list) => Self::List(list.into_iter().map(node).collect()),
            DeValue::Table(table) => Self::of_table(table),
        }
    }

    fn of_table(table: DeTable<'_>) -> Self {
        let entry = |(key, value): (Spanned<Cow<'_, str>>, Spanned<DeValue<'_>>)| {
            let place = key.span();
            (key.into_inner().into_owned(), Entry { key: place, node: node(value) })
        };
        Self::Table(table.into_iter().map(entry).collect())
    }
}

fn node(value: Spanned<DeValue<'_>>) -> Node {
    Node { span: value.span(), value: Value::of(value.into_inner()) }
}

/// The path to a value: `site[1].policy.busy`. Longer paths share their beginnings, so that walking
/// a large list below a long key costs no more than any other.
#[derive(Clone, Debug, Default)]
pub struct Path(Option<Rc<Stage>>);

#[derive(Debug)]
struct Stage {
    before: Path,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Key(Cow<'static, str>),
    Index(usize),
}

impl Path {
    /// The path of `key` in the table here.
    pub fn key(&self, key: impl Into<Cow<'static, str>>) -> Self {
        self.and(Step::Key(key.into()))
    }

    /// The path of an element of the list here.
    pub fn index(&self, index: usize) -> Self {
        self.and(Step::Index(index))
    }

    fn and(&self, step: Step) -> Self {
        Self(Some(Rc::new(Stage { before: self.clone(), step })))
    }

    /// The steps from the root on.
    fn steps(&self) -> Vec<&Step> {
        let last = self.0.as_deref();
        let mut steps: Vec<_> = iter::successors(last, |stage| stage.before.0.as_deref())
            .map(|stage| &stage.step)
            .collect();
        steps.reverse();
        steps
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.steps().into_iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => {
                    f.write_str(if position == 0 { "" } else { "." })?;
                    let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
                    if !key.is_empty() && key.bytes().all(bare) {
                        f.write_str(&shortened(key))?;
                    } else {
                        write!(f, "{:?}", shortened(key))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// At most 60 characters of `text`.
fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(60) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_knows_its_place() {
        let text = "a = 1\n[[site]]\nhosts = [\"ä\", 'x']\n";
        let (root, errors) = Node::parse(text);
        assert!(errors.is_empty());
        let source = Source { name: "t".into(), text: text.into() };
        let at = |path: &Path| source.position(root.place(path).start);
        let site = Path::default().key("site").index(0);
        assert_eq!(at(&Path::default().key("a")), (1, 5));
        assert_eq!(at(&site), (2, 1));
        assert_eq!(at(&site.key("hosts").index(1)), (3, 15));
        assert_eq!(at(&site.key("origin")), (2, 1));
        assert_eq!(site.key("hosts").index(1).to_string(), "site[0].hosts[1]");
    }

    #[test]
    fn all_mistakes_in_the_syntax_are_found() {
        let (_, errors) = Node::parse("a = \nb = 2 2\na = 3\n");
        assert!(errors.len() >= 2, "{}", errors.len());
    }

    #[test]
    fn long_keys_and_texts_are_cut() {
        let path = Path::default().key("k".repeat(100_000));
        assert!(path.to_string().len() < 70);
    }
}
