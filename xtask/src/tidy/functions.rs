//! The lengths of functions, from the line of `fn` to that of the closing brace.

use crate::source::{Source, Token};

/// The lengths of all functions of production, in order.
pub(super) fn lengths(sources: &[Source]) -> Vec<usize> {
    let production = sources.iter().filter(|source| !source.is_test());
    let mut lengths: Vec<_> = production.flat_map(|source| of(&source.production())).collect();
    lengths.sort_unstable();
    lengths
}

/// The lengths of the functions that have a body.
fn of(tokens: &[Token<'_>]) -> Vec<usize> {
    let mut lengths = Vec::new();
    for at in 0..tokens.len().saturating_sub(1) {
        // `fn(u8)` is a type.
        if tokens[at].is("fn") && tokens[at + 1].is_word() {
            lengths.extend(end(&tokens[at..]).map(|end| end - tokens[at].line + 1));
        }
    }
    lengths
}

/// The line on which the function that begins here ends.
fn end(tokens: &[Token<'_>]) -> Option<usize> {
    let mut depth = 0;
    for token in tokens {
        match token.text {
            "{" | "(" | "[" if token.is(token.text) => depth += 1,
            ")" | "]" if token.is(token.text) => depth -= 1,
            ";" if depth == 0 => return None,
            "}" if token.is("}") => {
                depth -= 1;
                if depth == 0 {
                    return Some(token.line);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_from_their_head_to_their_brace() {
        let text =
            "trait T {\n fn none(a: [u8; 2]);\n}\nfn one() {}\nfn four(\n  f: fn(u8),\n) {\n}\n";
        let source = Source { path: "crates/a/src/lib.rs".into(), text: text.into() };
        assert_eq!(lengths(&[source]), [1, 4]);
    }
}
