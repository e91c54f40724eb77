//! nginx's grammar: words, quotes, `;`, braces and comments (`ngx_conf_read_token`).

use std::sync::Arc;

use crate::{
    conversion::Unreadable,
    files::Includes,
    files::{DEEPEST, MOST_FILES},
    ledger::Fate,
    ledger::Ledger,
    ledger::Place,
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

    /// The directives in its block.
    pub(super) fn inner(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// As it stands in the file, without its block.
    pub(super) fn statement(&self) -> String {
        std::iter::once(&self.name)
            .chain(&self.args)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ")
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
    /// The first place that is not nginx's grammar.
    pub(super) fn file(
        &mut self,
        name: &str,
        text: &str,
        depth: usize,
    ) -> Result<Vec<Directive>, Unreadable> {
        self.files += 1;
        let mut words = Words::new(name, text);
        if let Some(index) = text.lines().position(|line| line.contains('\0')) {
            words.line += index;
            return Err(words.wrong("a NUL: this is no text"));
        }
        let directives = self.block(&mut words, None, depth, 0)?;
        Ok(directives)
    }

    fn block(
        &mut self,
        words: &mut Words<'_>,
        opened: Option<&Place>,
        depth: usize,
        nesting: usize,
    ) -> Result<Vec<Directive>, Unreadable> {
        const DEEPEST_BLOCK: usize = 64;
        let mut directives = Vec::new();
        let mut line: Vec<String> = Vec::new();
        let mut place = words.place();
        loop {
            let token = words.next()?;
            match token {
                Token::Word(word) => {
                    if line.is_empty() {
                        place = words.token_place();
                    }
                    line.push(word);
                }
                Token::End if line.is_empty() => {}
                Token::End => {
                    let directive = directive(std::mem::take(&mut line), None, place.clone());
                    if directive.name == "include" {
                        directives.extend(self.included(&directive, depth)?);
                    } else {
                        directives.push(directive);
                    }
                }
                Token::Open => {
                    if line.is_empty() {
                        return Err(words.wrong("`{` without a directive before it"));
                    }
                    if nesting >= DEEPEST_BLOCK {
                        return Err(words.wrong("blocks are nested too deeply"));
                    }
                    // A script of the Lua module is no nginx grammar.
                    let inner = if line[0].ends_with("_by_lua_block") {
                        words.skip_script()?;
                        Vec::new()
                    } else {
                        self.block(words, Some(&place), depth, nesting + 1)?
                    };
                    directives.push(directive(
                        std::mem::take(&mut line),
                        Some(inner),
                        place.clone(),
                    ));
                }
                Token::Close | Token::EndOfFile if !line.is_empty() => {
                    let message = format!("`{}` does not end with `;`", line.join(" "));
                    return Err(Unreadable { place, message });
                }
                Token::Close if opened.is_some() => return Ok(directives),
                Token::Close => return Err(words.wrong("`}` closes nothing")),
                Token::EndOfFile => match opened {
                    None => return Ok(directives),
                    Some(opened) => {
                        let message = "the block that begins here has no `}`".to_owned();
                        return Err(Unreadable { place: opened.clone(), message });
                    }
                },
            }
        }
    }

    /// The directives of the files that `include` names, in its place.
    fn included(
        &mut self,
        include: &Directive,
        depth: usize,
    ) -> Result<Vec<Directive>, Unreadable> {
        let pattern = include.arg(0);
        // Types of files: a node has nginx's list.
        if pattern.ends_with("mime.types") {
            let fate = Fate::needless("a node has this list of types itself");
            self.ledger.enter(&include.place, &include.statement(), fate);
            return Ok(Vec::new());
        }
        let files = if depth >= DEEPEST {
            Err(format!("files include each other more than {DEEPEST} times"))
        } else {
            self.includes.matching(pattern)
        };
        let is_glob = pattern.contains(['*', '?', '[']);
        let files = match files {
            Ok(files) if files.is_empty() && !is_glob => Err("there is no such file".to_owned()),
            Ok(files) if self.files + files.len() > MOST_FILES => {
                Err(format!("more than {MOST_FILES} files are included"))
            }
            other => other,
        };
        let (fate, files) = match files {
            Ok(files) => (Fate::Taken, files),
            Err(reason) => (Fate::left(reason), Vec::new()),
        };
        self.ledger.enter(&include.place, &include.statement(), fate);
        let mut directives = Vec::new();
        for file in files {
            directives.extend(self.file(&file.name, &file.text, depth + 1)?);
        }
        Ok(directives)
    }
}

fn directive(mut line: Vec<String>, block: Option<Vec<Directive>>, place: Place) -> Directive {
    let name = line.remove(0);
    Directive { name, args: line, block, place }
}

enum Token {
    Word(String),
    End,
    Open,
    Close,
    EndOfFile,
}

/// The tokens of one file.
struct Words<'a> {
    file: Arc<str>,
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    line: usize,
    token_line: usize,
}

impl<'a> Words<'a> {
    fn new(name: &str, text: &'a str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { file: name.into(), rest: text.chars().peekable(), line: 1, token_line: 1 }
    }

    fn place(&self) -> Place {
        Place { file: self.file.clone(), line: self.line }
    }

    fn token_place(&self) -> Place {
        Place { file: self.file.clone(), line: self.token_line }
    }

    fn wrong(&self, message: &str) -> Unreadable {
        Unreadable { place: self.place(), message: message.to_owned() }
    }

    fn take(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn next(&mut self) -> Result<Token, Unreadable> {
        loop {
            self.token_line = self.line;
            let Some(first) = self.take() else { return Ok(Token::EndOfFile) };
            return Ok(match first {
                c if c.is_whitespace() => continue,
                '#' => {
                    while self.rest.peek().is_some_and(|c| *c != '\n') {
                        self.take();
                    }
                    continue;
                }
                ';' => Token::End,
                '{' => Token::Open,
                '}' => Token::Close,
                quote @ ('"' | '\'') => Token::Word(self.quoted(quote)?),
                first => Token::Word(self.bare(first)),
            });
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, Unreadable> {
        let opened = self.place();
        let mut word = String::new();
        loop {
            match self.take() {
                None => {
                    let message = "the quote that begins here does not end".to_owned();
                    return Err(Unreadable { place: opened, message });
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
        let opened = self.place();
        let mut open = 1;
        while open > 0 {
            match self.take() {
                Some('{') => open += 1,
                Some('}') => open -= 1,
                Some(_) => {}
                None => {
                    let message = "the block that begins here has no `}`".to_owned();
                    return Err(Unreadable { place: opened, message });
                }
            }
        }
        Ok(())
    }
}
