//! VCL's grammar.

use std::{iter, sync::Arc};

use crate::{
    conversion::Unreadable,
    tree::{Grammar, Kind, Token, Tokens},
};

pub(super) const GRAMMAR: Grammar = Grammar {
    tokens,
    include: |statement| match statement.head.as_slice() {
        [Kind::Word(word), Kind::Text(path)] if word == "include" => Some(path),
        _ => None,
    },
    has_bare_blocks: true,
    unfinished: |_| "the statement does not end with `;`".to_owned(),
};

/// Operators, of arithmetic too, although no statement that is converted has those.
const SIGNS: [&str; 28] = [
    "==", "!=", "!~", "&&", "||", "<=", ">=", "+=", "-=", "++", "--", "{", "}", "(", ")", ";", "=",
    "~", "!", "<", ">", ",", "+", "/", ".", "-", "*", "%",
];

fn tokens<'a>(file: &Arc<str>, text: &'a str) -> Tokens<'a> {
    match split(file, text) {
        Ok(tokens) => Box::new(tokens.into_iter().map(Ok)),
        Err(error) => Box::new(iter::once(Err(error))),
    }
}

/// Splits a text into tokens.
fn split(file: &Arc<str>, text: &str) -> Result<Vec<Token>, Unreadable> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    let wrong = |line, message: &str| Unreadable::at(file, line, message);
    while let Some(first) = rest.chars().next() {
        let comment = comment(rest)
            .ok_or_else(|| wrong(line, "the comment that begins here does not end"))?;
        let length = if first.is_whitespace() {
            first.len_utf8()
        } else if comment > 0 {
            comment
        } else if rest.starts_with("C{") {
            let end = rest.find("}C").ok_or_else(|| wrong(line, "`C{` without `}C`"))? + 2;
            tokens.push(Token { kind: Kind::Word("C{ }C".to_owned()), line });
            tokens.push(Token { kind: Kind::Sign(";"), line });
            end
        } else if let Some((text, length)) = text_at(rest) {
            let text = text.ok_or_else(|| wrong(line, "the text that begins here does not end"))?;
            tokens.push(Token { kind: Kind::Text(text.to_owned()), line });
            length
        } else if first.is_alphanumeric() || first == '_' {
            let is_word = |c: char| c.is_alphanumeric() || "_.-:".contains(c);
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            tokens.push(Token { kind: Kind::Word(rest[..end].to_owned()), line });
            end
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
            let sign =
                sign.ok_or_else(|| wrong(line, &format!("`{}` is no VCL", first.escape_debug())))?;
            tokens.push(Token { kind: Kind::Sign(sign), line });
            sign.len()
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    Ok(tokens)
}

/// The length of the comment that begins here; none if it does not end.
fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("/*") {
        return Some(rest.find("*/")? + 2);
    }
    let begins = rest.starts_with('#') || rest.starts_with("//");
    Some(if begins { rest.find('\n').unwrap_or(rest.len()) } else { 0 })
}

/// The text that begins here, if it ends, and its length with quotes.
fn text_at(rest: &str) -> Option<(Option<&str>, usize)> {
    let quotes = [("{\"", "\"}"), ("\"\"\"", "\"\"\""), ("\"", "\"")];
    let (open, close) = quotes.into_iter().find(|(open, _)| rest.starts_with(open))?;
    let inner = &rest[open.len()..];
    let text = inner.find(close).map(|end| &inner[..end]);
    Some((text, open.len() + text.map_or(0, str::len) + close.len()))
}
