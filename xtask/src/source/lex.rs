//! Tokens of Rust: words, literals, signs and comments, each with its line.

/// One token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    /// Counted from one.
    pub(crate) line: usize,
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or a keyword.
    Word,
    /// A number, a string, a character or a lifetime.
    Literal,
    /// `::`, or one character of any other sign.
    Sign,
    /// A comment with its slashes.
    Comment,
}

impl Token<'_> {
    /// Whether it is this keyword or sign.
    pub(crate) fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Sign) && self.text == text
    }

    /// Whether it is a word.
    pub(crate) fn is_word(&self) -> bool {
        self.kind == Kind::Word
    }
}

/// Takes `text` apart. Text that is no Rust yields tokens all the same.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let (kind, length) = next(rest, first);
        let (token, after) = rest.split_at(length);
        if let Some(kind) = kind {
            tokens.push(Token { kind, text: token, line });
        }
        line += token.matches('\n').count();
        rest = after;
    }
    tokens
}

/// The kind and the length of the token at the start of `rest`; white space has no kind.
fn next(rest: &str, first: char) -> (Option<Kind>, usize) {
    let count = |wanted: fn(char) -> bool| rest.find(|c| !wanted(c)).unwrap_or(rest.len());
    match first {
        _ if first.is_whitespace() => (None, count(char::is_whitespace)),
        '/' if rest.starts_with("//") => {
            (Some(Kind::Comment), rest.find('\n').unwrap_or(rest.len()))
        }
        '/' if rest.starts_with("/*") => (Some(Kind::Comment), block_comment(rest)),
        '"' => (Some(Kind::Literal), quoted(rest, 1)),
        '\'' => (Some(Kind::Literal), character(rest)),
        '0'..='9' => (Some(Kind::Literal), number(rest)),
        _ if is_of_word(first) => {
            let word = count(is_of_word);
            match prefixed(&rest[..word], &rest[word..]) {
                Some(literal) => (Some(Kind::Literal), word + literal),
                None => (Some(Kind::Word), word),
            }
        }
        _ if rest.starts_with("::") => (Some(Kind::Sign), 2),
        _ => (Some(Kind::Sign), first.len_utf8()),
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if here.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of a literal that starts `from` bytes before its content and ends at its quote.
fn quoted(rest: &str, from: usize) -> usize {
    let quote = rest.as_bytes()[from - 1];
    let mut at = from;
    while let Some(&byte) = rest.as_bytes().get(at) {
        match byte {
            b'\\' => at += 2,
            _ if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A character, or else a lifetime.
fn character(rest: &str) -> usize {
    let mut following = rest.chars().skip(1);
    match (following.next(), following.next()) {
        (Some('\\'), _) => quoted(rest, 1),
        (Some(one), Some('\'')) => one.len_utf8() + 2,
        _ => 1 + rest[1..].find(|c| !is_of_word(c)).unwrap_or(rest.len() - 1),
    }
}

/// A number; the dots of a range or a method do not belong to it.
fn number(rest: &str) -> usize {
    let mut at = 0;
    let bytes = rest.as_bytes();
    while at < bytes.len() {
        let decimal = bytes[at] == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
        if !decimal && !is_of_word(bytes[at].into()) {
            break;
        }
        at += 1;
    }
    at
}

/// The rest of a literal such as `b"..."`, `r#"..."#` or `b'x'`, where `word` begins one.
fn prefixed(word: &str, after: &str) -> Option<usize> {
    let hashes = after.bytes().take_while(|&byte| byte == b'#').count();
    match word {
        "b" if after.starts_with('\'') => Some(character(after)),
        "b" | "c" if after.starts_with('"') => Some(quoted(after, 1)),
        "r" | "br" | "cr" if after[hashes..].starts_with('"') => {
            let end = format!("\"{}", "#".repeat(hashes));
            let content = &after[hashes + 1..];
            let length = content.find(&end).map_or(content.len(), |at| at + end.len());
            Some(hashes + 1 + length)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        tokens(text).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn paths_and_signs_are_told_apart() {
        assert_eq!(texts("use a::{b, c};"), ["use", "a", "::", "{", "b", ",", "c", "}", ";"]);
    }

    #[test]
    fn strings_hide_what_they_hold() {
        assert_eq!(texts(r#"f("use \" x", 'a')"#), ["f", "(", r#""use \" x""#, ",", "'a'", ")"]);
        assert_eq!(texts("r##\"a\"# fn b\"## c"), ["r##\"a\"# fn b\"##", "c"]);
        assert_eq!(texts(r"b'\'' '\n'"), [r"b'\''", r"'\n'"]);
    }

    #[test]
    fn lifetimes_are_not_characters() {
        assert_eq!(texts("&'a str, '_>"), ["&", "'a", "str", ",", "'_", ">"]);
    }

    #[test]
    fn ranges_and_methods_end_a_number() {
        assert_eq!(texts("0..9 1.5 2.max"), ["0", ".", ".", "9", "1.5", "2", ".", "max"]);
    }

    #[test]
    fn comments_are_tokens_with_their_line() {
        let found = tokens("a\n/* b /* c */\n */ // d\ne");
        let lines: Vec<_> = found.iter().map(|token| (token.kind, token.line)).collect();
        use Kind::{Comment, Word};
        assert_eq!(lines, [(Word, 1), (Comment, 2), (Comment, 3), (Word, 4)]);
    }

    #[test]
    fn text_that_ends_early_is_no_failure() {
        for text in ["\"a\\", "'", "/*", "r#\"", "b'", "'\\"] {
            assert!(!tokens(text).is_empty(), "{text}");
        }
    }
}
