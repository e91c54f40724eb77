//! nginx's grammar: words, quotes, `;`, braces and comments (`ngx_conf_read_token`).

use std::{iter, sync::Arc};

use crate::{
    conversion::Unreadable,
    ledger::{self, Place},
    tree::{Grammar, Kind, Statement, Token, Tokens},
};

pub(super) const GRAMMAR: Grammar = Grammar {
    tokens,
    include: |statement| (statement.word(0) == "include").then(|| statement.word(1)),
    has_bare_blocks: false,
    unfinished: |statement| format!("`{statement}` does not end with `;`"),
};

/// A directive with its arguments, and its block if it has one.
#[derive(Clone, Debug)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) args: Vec<String>,
    pub(super) block: Option<Vec<Directive>>,
    pub(super) place: Place,
}

impl Directive {
    /// The argument at `index`, or an empty text.
    pub(super) fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }

    /// The value of an argument `NAME=VALUE`.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.args.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='))
    }

    pub(super) fn has_arg(&self, wanted: &str) -> bool {
        self.args.iter().any(|arg| arg == wanted)
    }
}

impl From<Statement> for Directive {
    fn from(statement: Statement) -> Self {
        let mut words = statement.head.into_iter().map(|kind| kind.shown());
        let name = words.next().unwrap_or_default();
        let block = statement.block.map(|block| block.into_iter().map(Self::from).collect());
        Self { name, args: words.collect(), block, place: statement.place }
    }
}

impl ledger::Stated for Directive {
    fn place(&self) -> &Place {
        &self.place
    }

    fn shown(&self) -> String {
        let words = iter::once(&self.name).chain(&self.args).map(String::as_str);
        words.collect::<Vec<_>>().join(" ")
    }

    fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }
}

fn tokens<'a>(file: &Arc<str>, text: &'a str) -> Tokens<'a> {
    if let Some(error) = Unreadable::no_text(file, text) {
        return Box::new(iter::once(Err(error)));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (file, rest) = (file.clone(), text.chars().peekable());
    let mut words =
        Words { file, rest, line: 1, token_line: 1, has_script: None, script_has_passed: false };
    Box::new(iter::from_fn(move || words.token().transpose()))
}

/// The tokens of one file.
struct Words<'a> {
    file: Arc<str>,
    rest: iter::Peekable<std::str::Chars<'a>>,
    line: usize,
    token_line: usize,
    /// Whether the statement has a script as its block, once its name is known.
    has_script: Option<bool>,
    /// Whether the closing brace of a script comes next.
    script_has_passed: bool,
}

impl Words<'_> {
    fn take(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    /// The next token, without its line.
    fn kind(&mut self) -> Result<Option<Kind>, Unreadable> {
        loop {
            self.token_line = self.line;
            let Some(first) = self.take() else { return Ok(None) };
            return Ok(Some(match first {
                c if c.is_whitespace() => continue,
                '#' => {
                    while self.rest.peek().is_some_and(|c| *c != '\n') {
                        self.take();
                    }
                    continue;
                }
                ';' => Kind::Sign(";"),
                '{' => Kind::Sign("{"),
                '}' => Kind::Sign("}"),
                quote @ ('"' | '\'') => Kind::Word(self.quoted(quote)?),
                first => Kind::Word(self.bare(first)),
            }));
        }
    }

    /// The next token. A script of the Lua module is no nginx grammar: its block is empty.
    fn token(&mut self) -> Result<Option<Token>, Unreadable> {
        let kind = match std::mem::take(&mut self.script_has_passed) {
            true => Some(Kind::Sign("}")),
            false => self.kind()?,
        };
        if let Some(Kind::Word(word)) = &kind {
            self.has_script.get_or_insert(word.ends_with("_by_lua_block"));
        } else if self.has_script.take() == Some(true) && kind == Some(Kind::Sign("{")) {
            self.skip_script()?;
            self.script_has_passed = true;
        }
        Ok(kind.map(|kind| Token { kind, line: self.token_line }))
    }

    fn quoted(&mut self, quote: char) -> Result<String, Unreadable> {
        let opened = self.line;
        let mut word = String::new();
        loop {
            match self.take() {
                None => {
                    let message = "the quote that begins here does not end";
                    return Err(Unreadable::at(&self.file, opened, message));
                }
                Some(c) if c == quote => return Ok(word),
                Some('\\') => self.escaped(&mut word),
                Some(c) => word.push(c),
            }
        }
    }

    fn bare(&mut self, first: char) -> String {
        let mut word = String::new();
        let mut next = first;
        loop {
            match next {
                '\\' => self.escaped(&mut word),
                // `${name}` is one word.
                '$' if self.rest.peek() == Some(&'{') => {
                    word.push('$');
                    while let Some(c) = self.take() {
                        word.push(c);
                        if c == '}' {
                            break;
                        }
                    }
                }
                c => word.push(c),
            }
            match self.rest.peek() {
                Some(c) if !c.is_whitespace() && !matches!(c, ';' | '{') => {}
                _ => return word,
            }
            next = self.take().unwrap_or_default();
        }
    }

    /// Quotes, white space and `\` lose their backslash; others keep it, so that expressions stay whole.
    fn escaped(&mut self, word: &mut String) {
        match self.take() {
            Some(c @ ('"' | '\'' | '\\')) => word.push(c),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(c) => word.extend(['\\', c]),
            None => word.push('\\'),
        }
    }

    /// Passes over a script up to its closing brace.
    fn skip_script(&mut self) -> Result<(), Unreadable> {
        let opened = Place { file: self.file.clone(), line: self.line };
        let mut open = 1;
        while open > 0 {
            match self.take() {
                Some('{') => open += 1,
                Some('}') => open -= 1,
                Some(_) => {}
                None => return Err(Unreadable::without_end(&opened)),
            }
        }
        Ok(())
    }
}
