//! VCL's tokens.

use std::sync::Arc;

use crate::{conversion::Unreadable, ledger::Place};

/// A token with its line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) line: usize,
}

/// A piece of VCL.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A name, a number with its unit, or a variable with dots.
    Word(String),
    /// A text in quotes.
    Text(String),
    /// An operator or a brace.
    Sign(&'static str),
}

impl Kind {
    /// As it stands in the file.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Word(word) => word.clone(),
            Self::Text(text) => format!("\"{text}\""),
            Self::Sign(sign) => (*sign).to_owned(),
        }
    }
}

const SIGNS: [&str; 24] = [
    "==", "!=", "!~", "&&", "||", "<=", ">=", "+=", "-=", "++", "--", "{", "}", "(", ")", ";", "=",
    "~", "!", "<", ">", ",", "+", "/",
];

/// Splits a text into tokens.
pub(super) fn tokens(file: &Arc<str>, text: &str) -> Result<Vec<Token>, Unreadable> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    let wrong = |line: usize, message: &str| Unreadable {
        place: Place { file: file.clone(), line },
        message: message.to_owned(),
    };
    while let Some(first) = rest.chars().next() {
        let length = if first.is_whitespace() {
            first.len_utf8()
        } else if first == '#' || rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/")
                .ok_or_else(|| wrong(line, "the comment that begins here does not end"))?
                + 2
        } else if rest.starts_with("C{") {
            let end = rest.find("}C").ok_or_else(|| wrong(line, "`C{` without `}C`"))? + 2;
            tokens.push(Token { kind: Kind::Word("C{ }C".to_owned()), line });
            tokens.push(Token { kind: Kind::Sign(";"), line });
            end
        } else if let Some((open, close)) = [("{\"", "\"}"), ("\"\"\"", "\"\"\""), ("\"", "\"")]
            .into_iter()
            .find(|(open, _)| rest.starts_with(open))
        {
            let inner = &rest[open.len()..];
            let end = inner
                .find(close)
                .ok_or_else(|| wrong(line, "the text that begins here does not end"))?;
            tokens.push(Token { kind: Kind::Text(inner[..end].to_owned()), line });
            open.len() + end + close.len()
        } else if first.is_alphanumeric() || first == '_' {
            let is_word = |c: char| c.is_alphanumeric() || "_.-:".contains(c);
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            tokens.push(Token { kind: Kind::Word(rest[..end].to_owned()), line });
            end
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
            let sign = match (sign, first) {
                (Some(sign), _) => sign,
                // Operators of arithmetic, which no statement that is converted has.
                (None, '.') => ".",
                (None, '-') => "-",
                (None, '*') => "*",
                (None, '%') => "%",
                _ => return Err(wrong(line, &format!("`{}` is no VCL", first.escape_debug()))),
            };
            tokens.push(Token { kind: Kind::Sign(sign), line });
            sign.len()
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    Ok(tokens)
}
