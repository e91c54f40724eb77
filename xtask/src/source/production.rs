//! Leaves out what only tests compile: every item, field or statement under `#[cfg(test)]`.

use super::{Kind, Token};

/// The tokens that are compiled when no test is, without comments.
pub(super) fn of(tokens: Vec<Token<'_>>) -> Vec<Token<'_>> {
    let tokens: Vec<_> = tokens.into_iter().filter(|token| token.kind != Kind::Comment).collect();
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let end = attribute(&tokens[at..]);
        if end > 0 && is_for_tests(&tokens[at..at + end]) {
            at += end;
            at += item(&tokens[at..]);
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// The number of tokens of the attribute that begins here, else 0.
fn attribute(tokens: &[Token<'_>]) -> usize {
    let begins = tokens.len() > 1 && tokens[0].is("#") && tokens[1].is("[");
    if begins { 1 + group(&tokens[1..]) } else { 0 }
}

/// `#[cfg(test)]`, or `#[cfg(all(test, ...))]`.
fn is_for_tests(attribute: &[Token<'_>]) -> bool {
    let words: Vec<_> = attribute.iter().filter(|token| token.is_word()).collect();
    match words[..] {
        [cfg, test] => cfg.is("cfg") && test.is("test"),
        [cfg, all, test, ..] => cfg.is("cfg") && all.is("all") && test.is("test"),
        _ => false,
    }
}

/// The number of tokens of the bracketed group that begins here.
fn group(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        depth += depth_of(token);
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// By how much a token changes the depth of brackets.
fn depth_of(token: &Token<'_>) -> isize {
    match token.text {
        "{" | "(" | "[" if token.kind == Kind::Sign => 1,
        "}" | ")" | "]" if token.kind == Kind::Sign => -1,
        _ => 0,
    }
}

/// Words that begin an item, as opposed to a field or an expression.
const ITEMS: &[&str] = &[
    "async", "const", "enum", "extern", "fn", "impl", "let", "mod", "pub", "static", "struct",
    "trait", "type", "unsafe", "use",
];

/// The number of tokens of what an attribute belongs to. An item ends with a semicolon or its block,
/// a field or an expression with a comma, before the bracket around it.
fn item(tokens: &[Token<'_>]) -> usize {
    let mut start = 0;
    while attribute(&tokens[start..]) > 0 {
        start += attribute(&tokens[start..]);
    }
    let is_item = tokens.get(start).is_some_and(|token| ITEMS.iter().any(|word| token.is(word)));
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        depth += depth_of(token);
        match token.text {
            _ if depth < 0 => return at,
            ";" if depth == 0 => return at + 1,
            "}" if depth == 0 && is_item => return at + 1,
            "," if depth == 0 && !is_item => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::super::lex;
    use super::*;

    fn left(text: &str) -> String {
        let kept = of(lex::tokens(text));
        kept.iter().map(|token| token.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn items_for_tests_are_left_out() {
        assert_eq!(left("#[cfg(test)] mod tests { fn a() {} } fn b ( )"), "fn b ( )");
        assert_eq!(left("#[cfg(test)] mod tests; struct A"), "struct A");
        assert_eq!(left("#[cfg(test)] const A: [u8; 2] = [1, 2]; a"), "a");
        assert_eq!(left("#[cfg(test)] #[allow(x)] fn f<A, B>(a: A) -> B { a } b"), "b");
        assert_eq!(left("#[cfg(all(test, unix))] mod tests { } a"), "a");
    }

    #[test]
    fn fields_for_tests_are_left_out() {
        assert_eq!(left("S { a: 1, #[cfg(test)] b: f(2, 3), c }"), "S { a : 1 , c }");
        assert_eq!(left("S { #[cfg(test)] b: 2 } c"), "S { } c");
    }

    #[test]
    fn other_conditions_stay() {
        assert!(left("#[cfg(not(test))] fn a() {}").contains("fn a"));
        assert!(left("#[cfg(unix)] fn a() {}").contains("fn a"));
    }
}
