//! VCL's declarations and statements, as far as they are told apart.

use std::sync::Arc;

use super::lex::{Kind, Token, tokens};
use crate::{
    conversion::Unreadable,
    files::Includes,
    files::{DEEPEST, MOST_FILES},
    ledger::Fate,
    ledger::Ledger,
    ledger::Place,
};

/// A statement or a declaration: its tokens up to the block or the semicolon, and the block.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) head: Vec<Kind>,
    pub(super) block: Option<Vec<Statement>>,
    pub(super) place: Place,
}

impl Statement {
    /// The word at `index`, or an empty text.
    pub(super) fn word(&self, index: usize) -> &str {
        match self.head.get(index) {
            Some(Kind::Word(word)) => word,
            _ => "",
        }
    }

    /// The tokens after `set NAME =`.
    pub(super) fn value(&self) -> &[Kind] {
        self.head.get(3..).unwrap_or_default()
    }

    /// The statements in its block.
    pub(super) fn inner(&self) -> &[Statement] {
        self.block.as_deref().unwrap_or_default()
    }

    /// As it stands in the file.
    pub(super) fn shown(&self) -> String {
        self.head.iter().map(Kind::shown).collect::<Vec<_>>().join(" ")
    }
}

/// Reads a file and everything that it includes.
pub(super) struct Parser<'a> {
    pub(super) includes: &'a dyn Includes,
    pub(super) ledger: &'a mut Ledger,
    pub(super) files: usize,
}

impl Parser<'_> {
    /// # Errors
    /// The first place that is not VCL's grammar.
    pub(super) fn file(
        &mut self,
        name: &str,
        text: &str,
        depth: usize,
    ) -> Result<Vec<Statement>, Unreadable> {
        self.files += 1;
        let file: Arc<str> = name.into();
        let tokens = tokens(&file, text)?;
        let mut rest = tokens.as_slice();
        let statements = self.block(&file, &mut rest, None, depth, 0)?;
        Ok(statements)
    }

    fn block(
        &mut self,
        file: &Arc<str>,
        rest: &mut &[Token],
        opened: Option<usize>,
        depth: usize,
        nesting: usize,
    ) -> Result<Vec<Statement>, Unreadable> {
        const DEEPEST_BLOCK: usize = 64;
        let wrong = |line: usize, message: &str| Unreadable {
            place: Place { file: file.clone(), line },
            message: message.to_owned(),
        };
        let mut statements = Vec::new();
        let mut head: Vec<Kind> = Vec::new();
        let mut place = Place { file: file.clone(), line: 1 };
        while let Some((token, after)) = rest.split_first() {
            *rest = after;
            if head.is_empty() {
                place.line = token.line;
            }
            match &token.kind {
                Kind::Sign(";") => {
                    if head.is_empty() {
                        continue;
                    }
                    let statement = Statement {
                        head: std::mem::take(&mut head),
                        block: None,
                        place: place.clone(),
                    };
                    match statement.head.as_slice() {
                        [Kind::Word(word), Kind::Text(path)] if word == "include" => {
                            statements.extend(self.included(&statement, path, depth)?);
                        }
                        _ => statements.push(statement),
                    }
                }
                Kind::Sign("{") if nesting >= DEEPEST_BLOCK => {
                    return Err(wrong(token.line, "blocks are nested too deeply"));
                }
                Kind::Sign("{") => {
                    let block = self.block(file, rest, Some(token.line), depth, nesting + 1)?;
                    // `.probe = { ... }` and the like have a `;` after the block or not.
                    let statement = Statement {
                        head: std::mem::take(&mut head),
                        block: Some(block),
                        place: place.clone(),
                    };
                    statements.push(statement);
                }
                Kind::Sign("}") if !head.is_empty() => {
                    return Err(Unreadable {
                        place,
                        message: "the statement does not end with `;`".to_owned(),
                    });
                }
                Kind::Sign("}") if opened.is_some() => return Ok(statements),
                Kind::Sign("}") => return Err(wrong(token.line, "`}` closes nothing")),
                kind => head.push(kind.clone()),
            }
        }
        if let Some(line) = opened {
            return Err(wrong(line, "the block that begins here has no `}`"));
        }
        if !head.is_empty() {
            return Err(Unreadable {
                place,
                message: "the statement does not end with `;`".to_owned(),
            });
        }
        Ok(statements)
    }

    fn included(
        &mut self,
        statement: &Statement,
        path: &str,
        depth: usize,
    ) -> Result<Vec<Statement>, Unreadable> {
        let files = match depth >= DEEPEST || self.files >= MOST_FILES {
            true => Err("too many files are included".to_owned()),
            false => self.includes.matching(path),
        };
        let files = match files {
            Ok(files) if files.is_empty() => Err("there is no such file".to_owned()),
            other => other,
        };
        let (fate, files) = match files {
            Ok(files) => (Fate::Taken, files),
            Err(reason) => (Fate::left(reason), Vec::new()),
        };
        self.ledger.enter(&statement.place, &statement.shown(), fate);
        let mut statements = Vec::new();
        for file in files {
            statements.extend(self.file(&file.name, &file.text, depth + 1)?);
        }
        Ok(statements)
    }
}
