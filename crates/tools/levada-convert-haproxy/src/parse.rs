//! The lines of a `haproxy.cfg`: sections, and statements of words with quotes and escapes.

use std::sync::Arc;

use levada_conversion::{
    conversion::Unreadable,
    files::InputFile,
    ledger::{Place, Stated},
};

/// The words that begin a section.
const SECTIONS: &[&str] = &[
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "userlist",
    "peers",
    "resolvers",
    "mailers",
    "cache",
    "program",
    "http-errors",
    "ring",
    "fcgi-app",
    "log-forward",
    "log-profile",
    "crt-store",
    "traces",
    "acme",
];

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) words: Vec<String>,
    pub(crate) place: Place,
    /// Whether a word has a variable of the environment.
    pub(crate) has_variable: bool,
}

impl Line {
    /// The word at `index`, or an empty text.
    pub(crate) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// The words from `index` on.
    pub(crate) fn from(&self, index: usize) -> &[String] {
        self.words.get(index..).unwrap_or_default()
    }

    /// The word after `name`, from `start` on.
    pub(crate) fn after(&self, name: &str, start: usize) -> Option<&str> {
        let at = self.from(start).iter().position(|word| word == name)?;
        self.words.get(start + at + 1).map(String::as_str)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.words.iter().any(|word| word == name)
    }

    /// The words before a condition, and the condition with its `if` or `unless`.
    pub(crate) fn split_condition(&self) -> (&[String], &[String]) {
        let is_start = |word: &String| word == "if" || word == "unless";
        let at = self.words.iter().skip(1).position(is_start).map_or(self.words.len(), |at| at + 1);
        self.words.split_at(at)
    }
}

impl Stated for Line {
    fn place(&self) -> &Place {
        &self.place
    }

    /// Passwords stay where they are.
    fn shown(&self) -> String {
        let secret = self
            .words
            .iter()
            .position(|word| ["password", "insecure-password", "auth"].contains(&word.as_str()));
        match (self.word(0), secret) {
            ("user", Some(at)) | ("stats", Some(at)) => {
                format!("{} ...", self.words[..=at].join(" "))
            }
            _ => self.words.join(" "),
        }
    }

    fn inner(&self) -> &[Self] {
        &[]
    }
}

/// A section: its first line, and its statements.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) head: Line,
    pub(crate) lines: Vec<Line>,
}

/// Reads a file.
///
/// # Errors
/// If it is not written in the grammar of HAProxy.
pub(crate) fn sections(file: &InputFile) -> Result<Vec<Section>, Unreadable> {
    let name: Arc<str> = file.name.as_str().into();
    if let Some(error) = Unreadable::no_text(&name, &file.text) {
        return Err(error);
    }
    let mut sections: Vec<Section> = Vec::new();
    for (index, text) in file.text.lines().enumerate() {
        let place = Place { file: name.clone(), line: index + 1 };
        let line = words(text, place.clone())?;
        let Some(first) = line.words.first() else { continue };
        if SECTIONS.contains(&first.as_str()) {
            sections.push(Section { head: line, lines: Vec::new() });
            continue;
        }
        match sections.last_mut() {
            Some(section) => section.lines.push(line),
            None if first.starts_with('.') => {
                let head = Line { words: vec!["global".to_owned()], ..line.clone() };
                sections.push(Section { head, lines: vec![line] });
            }
            None => {
                let message = format!("`{first}` stands before the first section");
                return Err(Unreadable::at(&name, index + 1, &message));
            }
        }
    }
    match sections.is_empty() {
        true => Err(Unreadable::at(&name, 1, "there is no section: is this a file of HAProxy?")),
        false => Ok(sections),
    }
}

/// The quotes around a piece of a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    None,
    Strong,
    Weak,
}

fn words(text: &str, place: Place) -> Result<Line, Unreadable> {
    let mut line = Line { words: Vec::new(), place, has_variable: false };
    let mut word: Option<String> = None;
    let mut quotes = Quotes::None;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, quotes) {
            ('#', Quotes::None) => break,
            (c, Quotes::None) if c.is_whitespace() => line.words.extend(word.take()),
            ('\'', Quotes::None) => {
                quotes = Quotes::Strong;
                word.get_or_insert_default();
            }
            ('"', Quotes::None) => {
                quotes = Quotes::Weak;
                word.get_or_insert_default();
            }
            ('\'', Quotes::Strong) | ('"', Quotes::Weak) => quotes = Quotes::None,
            ('\\', Quotes::None | Quotes::Weak) => {
                let next = rest.peek().copied();
                let escaped = match next {
                    Some(c @ (' ' | '\\' | '#' | '"' | '\'')) => Some(c),
                    Some('$') if quotes == Quotes::Weak => Some('$'),
                    Some('t') => Some('\t'),
                    Some('r') => Some('\r'),
                    Some('n') => Some('\n'),
                    _ => None,
                };
                if escaped.is_some() {
                    rest.next();
                }
                word.get_or_insert_default().push(escaped.unwrap_or('\\'));
            }
            (c, _) => {
                line.has_variable |= c == '$'
                    && quotes == Quotes::Weak
                    && rest.peek().is_some_and(|c| c.is_ascii_alphabetic() || "{_".contains(*c));
                word.get_or_insert_default().push(c);
            }
        }
    }
    if quotes != Quotes::None {
        let message = "the quotes that begin here do not end";
        return Err(Unreadable { place: line.place, message: message.to_owned() });
    }
    line.words.extend(word);
    Ok(line)
}
