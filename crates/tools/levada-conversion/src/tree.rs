//! Files whose statements end with `;` or have a block in braces: those of nginx and of Varnish.

use std::sync::Arc;

use crate::{
    conversion::Unreadable,
    files::{Includes, included},
    ledger::{self, Ledger, Place, TAKEN},
};

/// A piece of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A name, a number with its unit, or a variable with dots.
    Word(String),
    /// A text in quotes.
    Text(String),
    /// An operator or a brace.
    Sign(&'static str),
}

impl Kind {
    /// As it stands in the file.
    pub fn shown(&self) -> String {
        match self {
            Self::Word(word) => word.clone(),
            Self::Text(text) => format!("\"{text}\""),
            Self::Sign(sign) => (*sign).to_owned(),
        }
    }
}

/// A piece with its line.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// The piece.
    pub kind: Kind,
    /// Its line, counted from 1.
    pub line: usize,
}

/// The tokens of a file, up to one that cannot be read.
pub type Tokens<'a> = Box<dyn Iterator<Item = Result<Token, Unreadable>> + 'a>;

/// A statement or a declaration: its tokens up to the block or the semicolon, and the block.
#[derive(Clone, Debug)]
pub struct Statement {
    /// The tokens before the block or the semicolon.
    pub head: Vec<Kind>,
    /// The statements in braces, if there are any.
    pub block: Option<Vec<Statement>>,
    /// Where it begins.
    pub place: Place,
}

impl Statement {
    /// The word at `index`, or an empty text.
    pub fn word(&self, index: usize) -> &str {
        match self.head.get(index) {
            Some(Kind::Word(word)) => word,
            _ => "",
        }
    }

    /// The tokens after `set NAME =`.
    pub fn value(&self) -> &[Kind] {
        self.head.get(3..).unwrap_or_default()
    }
}

impl ledger::Stated for Statement {
    fn place(&self) -> &Place {
        &self.place
    }

    fn shown(&self) -> String {
        self.head.iter().map(Kind::shown).collect::<Vec<_>>().join(" ")
    }

    fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// The differences between the languages.
pub struct Grammar {
    /// Splits a file into tokens.
    pub tokens: for<'a> fn(&Arc<str>, &'a str) -> Tokens<'a>,
    /// The pattern of a statement that includes files.
    pub include: fn(&Statement) -> Option<&str>,
    /// Whether a block may stand without a statement before it.
    pub has_bare_blocks: bool,
    /// Says that a statement has no end.
    pub unfinished: fn(&str) -> String,
}

/// Reads a file and everything that it includes.
pub struct Parser<'a> {
    grammar: &'a Grammar,
    includes: &'a dyn Includes,
    ledger: &'a mut Ledger,
    files: usize,
}

impl<'a> Parser<'a> {
    /// A parser of this language, whose failed includes are entered into the ledger.
    pub fn new(grammar: &'a Grammar, includes: &'a dyn Includes, ledger: &'a mut Ledger) -> Self {
        Self { grammar, includes, ledger, files: 0 }
    }

    /// # Errors
    /// The first place that is not of the grammar.
    pub fn file(
        &mut self,
        name: &str,
        text: &str,
        depth: usize,
    ) -> Result<Vec<Statement>, Unreadable> {
        self.files += 1;
        let start = Place { file: name.into(), line: 1 };
        let mut tokens = (self.grammar.tokens)(&start.file, text);
        self.block(&mut tokens, &start, None, depth, 0)
    }

    fn block(
        &mut self,
        tokens: &mut Tokens<'_>,
        start: &Place,
        opened: Option<&Place>,
        depth: usize,
        nesting: usize,
    ) -> Result<Vec<Statement>, Unreadable> {
        let mut statements = Vec::new();
        let mut head = Vec::new();
        let mut place = start.clone();
        loop {
            let token = tokens.next().transpose()?;
            let line = token.as_ref().map_or(place.line, |token| token.line);
            let wrong = |message: &str| Err(Unreadable::at(&start.file, line, message));
            if head.is_empty() {
                place.line = line;
            }
            match (token.map(|token| token.kind), opened) {
                (None | Some(Kind::Sign("}")), _) if !head.is_empty() => {
                    return Err(self.unfinished(&head, place));
                }
                (None, Some(opened)) => return Err(Unreadable::without_end(opened)),
                (None, None) | (Some(Kind::Sign("}")), Some(_)) => return Ok(statements),
                (Some(Kind::Sign("}")), None) => return wrong("`}` closes nothing"),
                (Some(Kind::Sign(";")), _) if head.is_empty() => {}
                (Some(Kind::Sign(";")), _) => {
                    let head = std::mem::take(&mut head);
                    let statement = Statement { head, block: None, place: place.clone() };
                    self.statement(statement, depth, &mut statements)?;
                }
                (Some(Kind::Sign("{")), _) => {
                    if let Some(message) = self.refuses_block(&head, nesting) {
                        return wrong(message);
                    }
                    let block = self.block(tokens, start, Some(&place), depth, nesting + 1)?;
                    let head = std::mem::take(&mut head);
                    statements.push(Statement { head, block: Some(block), place: place.clone() });
                }
                (Some(kind), _) => head.push(kind),
            }
        }
    }

    /// Why there is no block here.
    fn refuses_block(&self, head: &[Kind], nesting: usize) -> Option<&'static str> {
        const DEEPEST: usize = 64;
        match head.is_empty() && !self.grammar.has_bare_blocks {
            true => Some("`{` without a directive before it"),
            false => (nesting >= DEEPEST).then_some("blocks are nested too deeply"),
        }
    }

    fn unfinished(&self, head: &[Kind], place: Place) -> Unreadable {
        let shown: Vec<_> = head.iter().map(Kind::shown).collect();
        Unreadable { place, message: (self.grammar.unfinished)(&shown.join(" ")) }
    }

    /// Adds a statement without a block, or what it includes.
    fn statement(
        &mut self,
        statement: Statement,
        depth: usize,
        statements: &mut Vec<Statement>,
    ) -> Result<(), Unreadable> {
        match (self.grammar.include)(&statement) {
            Some(pattern) => statements.extend(self.included(&statement, pattern, depth)?),
            None => statements.push(statement),
        }
        Ok(())
    }

    /// The statements of the files that a pattern names, in the place of `include`.
    fn included(
        &mut self,
        include: &Statement,
        pattern: &str,
        depth: usize,
    ) -> Result<Vec<Statement>, Unreadable> {
        // Types of files: the converter knows them.
        if pattern.ends_with("mime.types") {
            return Ok(vec![include.clone()]);
        }
        let files = included(self.includes, pattern, depth, self.files);
        self.ledger.enter(include, files.as_ref().map_or_else(|why| Err(why.clone()), |_| TAKEN));
        let mut statements = Vec::new();
        // The file may restrict something: the statement stays, and the converter closes its place.
        if files.is_err() {
            statements.push(include.clone());
        }
        for file in files.unwrap_or_default() {
            statements.extend(self.file(&file.name, &file.text, depth + 1)?);
        }
        Ok(statements)
    }
}
