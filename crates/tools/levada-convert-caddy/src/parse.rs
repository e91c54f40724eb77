//! The grammar of a Caddyfile: words, lines, blocks in braces, snippets and imports.

use std::{collections::BTreeMap, sync::Arc};

use levada_conversion::{
    conversion::Unreadable,
    files::{Includes, InputFile, included},
    ledger::{Ledger, Outcome, Place, Stated, TAKEN, left},
};

/// A directive with its block.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) words: Vec<String>,
    pub(crate) block: Option<Vec<Node>>,
    pub(crate) place: Place,
}

impl Node {
    /// The word at `index`, or an empty text.
    pub(crate) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// The words from `index` on.
    pub(crate) fn from(&self, index: usize) -> &[String] {
        self.words.get(index..).unwrap_or_default()
    }

    /// Whether a word has a variable of the environment.
    pub(crate) fn has_variable(&self) -> bool {
        self.words.iter().any(|word| word.contains("{$") || word.contains("{env."))
            || self.inner().iter().any(Self::has_variable)
    }

    /// All words of it and of its block.
    pub(crate) fn all_words(&self) -> String {
        let mut text = self.words.join(" ");
        for inner in self.inner() {
            text.push(' ');
            text.push_str(&inner.all_words());
        }
        text
    }
}

impl Stated for Node {
    fn place(&self) -> &Place {
        &self.place
    }

    /// Passwords and their hashes stay where they are.
    fn shown(&self) -> String {
        let is_hash = |word: &String| word.starts_with("$2") || word.starts_with("JDJ");
        let words = self.words.iter().map(|word| if is_hash(word) { "..." } else { word });
        words.collect::<Vec<_>>().join(" ")
    }

    fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// A word, or the end of a line.
#[derive(Clone, Debug, PartialEq)]
struct Token {
    text: String,
    line: usize,
    is_quoted: bool,
}

fn tokens(name: &Arc<str>, text: &str) -> Result<Vec<Token>, Unreadable> {
    let mut tokens = Vec::new();
    let mut rest = text.chars().peekable();
    let mut line = 1;
    while let Some(c) = rest.next() {
        match c {
            '\n' => line += 1,
            c if c.is_whitespace() => {}
            '#' => while rest.next_if(|c| *c != '\n').is_some() {},
            quote @ ('"' | '`') => {
                let begin = line;
                let mut word = String::new();
                loop {
                    match rest.next() {
                        Some(c) if c == quote => break,
                        Some('\\') if quote == '"' && rest.peek() == Some(&'"') => {
                            word.extend(rest.next());
                        }
                        Some(c) => {
                            line += usize::from(c == '\n');
                            word.push(c);
                        }
                        None => {
                            return Err(Unreadable::at(
                                name,
                                begin,
                                "the text that begins here does not end",
                            ));
                        }
                    }
                }
                tokens.push(Token { text: word, line: begin, is_quoted: true });
            }
            '\\' if rest.peek() == Some(&'\n') => {
                // The line goes on: the next word counts as one of this line.
                rest.next();
                let begin = line;
                let mut more = String::new();
                while rest.next_if(|c| *c == ' ' || *c == '\t').is_some() {}
                while let Some(c) = rest.next_if(|c| !c.is_whitespace()) {
                    more.push(c);
                }
                line += 1;
                if !more.is_empty() {
                    tokens.push(Token { text: more, line: begin, is_quoted: false });
                }
            }
            first => {
                let mut word = String::from(first);
                while let Some(c) = rest.next_if(|c| !c.is_whitespace()) {
                    word.push(c);
                }
                tokens.push(Token { text: word, line, is_quoted: false });
            }
        }
    }
    Ok(tokens)
}

/// A file while it is read.
struct Reader<'a> {
    tokens: &'a [Token],
    file: Arc<str>,
}

const DEEPEST: usize = 64;

impl Reader<'_> {
    /// The lines up to the end of the block.
    fn nodes(&mut self, opened: Option<&Place>, depth: usize) -> Result<Vec<Node>, Unreadable> {
        let mut nodes = Vec::new();
        loop {
            let Some(first) = self.tokens.first() else {
                return match opened {
                    Some(opened) => Err(Unreadable::without_end(opened)),
                    None => Ok(nodes),
                };
            };
            let place = Place { file: self.file.clone(), line: first.line };
            if !first.is_quoted && first.text == "}" {
                self.tokens = &self.tokens[1..];
                match opened {
                    Some(_) => return Ok(nodes),
                    None => {
                        return Err(Unreadable::at(&self.file, place.line, "`}` closes nothing"));
                    }
                }
            }
            if depth >= DEEPEST {
                return Err(Unreadable::at(&self.file, place.line, "blocks are nested too deeply"));
            }
            nodes.push(self.node(place, depth)?);
        }
    }

    /// The words of a line, and its block.
    fn node(&mut self, place: Place, depth: usize) -> Result<Node, Unreadable> {
        let mut node = Node { words: Vec::new(), block: None, place };
        let mut line = node.place.line;
        // Addresses of a site go on after a comma.
        let goes_on = |words: &[String]| words.last().is_some_and(|word| word.ends_with(','));
        while let Some(token) = self.tokens.first() {
            let is_here = token.line == line || depth == 0 && goes_on(&node.words);
            if !is_here || !token.is_quoted && token.text == "}" {
                break;
            }
            line = token.line + token.text.matches('\n').count();
            self.tokens = &self.tokens[1..];
            if !token.is_quoted && token.text == "{" {
                let opened = node.place.clone();
                node.block = Some(self.nodes(Some(&opened), depth + 1)?);
                break;
            }
            node.words.push(token.text.clone());
        }
        Ok(node)
    }
}

/// The nodes of a text.
fn read(name: &str, text: &str) -> Result<Vec<Node>, Unreadable> {
    let file: Arc<str> = name.into();
    if let Some(error) = Unreadable::no_text(&file, text) {
        return Err(error);
    }
    let tokens = tokens(&file, text)?;
    Reader { tokens: &tokens, file }.nodes(None, 0)
}

/// As many directives come of all imports.
const MOST: usize = 100_000;

/// Imports, in the place of which their lines stand.
struct Imports<'a> {
    includes: &'a dyn Includes,
    ledger: &'a mut Ledger,
    snippets: BTreeMap<String, Vec<Node>>,
    files: usize,
    nodes: usize,
}

/// Reads a Caddyfile with everything that it imports.
///
/// # Errors
/// If it is not written in the grammar of a Caddyfile.
pub(crate) fn file(
    file: &InputFile,
    includes: &dyn Includes,
    ledger: &mut Ledger,
) -> Result<Vec<Node>, Unreadable> {
    let nodes = read(&file.name, &file.text)?;
    let mut imports = Imports { includes, ledger, snippets: BTreeMap::new(), files: 0, nodes: 0 };
    let mut found = Vec::new();
    for node in nodes {
        match snippet(&node) {
            Some(name) => {
                imports.ledger.enter(&node, TAKEN);
                imports.snippets.insert(name.to_owned(), node.block.unwrap_or_default());
            }
            None => found.extend(imports.expanded(node, 0)?),
        }
    }
    Ok(found)
}

/// `(name)` of a snippet.
fn snippet(node: &Node) -> Option<&str> {
    let [name] = &node.words[..] else { return None };
    node.block.as_ref()?;
    name.strip_prefix('(')?.strip_suffix(')')
}

impl Imports<'_> {
    fn expanded(&mut self, node: Node, depth: usize) -> Result<Vec<Node>, Unreadable> {
        self.nodes += 1;
        if self.nodes > MOST {
            let message = format!("more than {MOST} directives: does an import import itself?");
            return Err(Unreadable { place: node.place, message });
        }
        if node.word(0) == "import" && node.block.is_none() {
            return self.import(node, depth);
        }
        let mut node = node;
        if let Some(block) = node.block.take() {
            let mut inner = Vec::new();
            for one in block {
                inner.extend(self.expanded(one, depth)?);
            }
            node.block = Some(inner);
        }
        Ok(vec![node])
    }

    fn import(&mut self, node: Node, depth: usize) -> Result<Vec<Node>, Unreadable> {
        let name = node.word(1).to_owned();
        let nodes = match self.snippets.get(&name) {
            Some(_) if depth >= 16 => {
                Err("imports import each other more than 16 times".to_owned())
            }
            Some(snippet) => Ok(snippet.clone()),
            None => self.files(&name, depth)?,
        };
        match nodes {
            Ok(nodes) => {
                self.ledger.enter(&node, TAKEN);
                let mut found = Vec::new();
                for one in nodes {
                    let one = with_arguments(one, node.from(2));
                    match snippet(&one) {
                        Some(name) => {
                            self.ledger.enter(&one, TAKEN);
                            self.snippets.insert(name.to_owned(), one.block.unwrap_or_default());
                        }
                        None => found.extend(self.expanded(one, depth + 1)?),
                    }
                }
                Ok(found)
            }
            Err(reason) => {
                // The file may restrict something: the import stays, and closes its place.
                let outcome: Outcome = left(reason);
                self.ledger.enter(&node, outcome);
                Ok(vec![node])
            }
        }
    }

    fn files(
        &mut self,
        pattern: &str,
        depth: usize,
    ) -> Result<Result<Vec<Node>, String>, Unreadable> {
        let files = match included(self.includes, pattern, depth, self.files) {
            Ok(files) => files,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut found = Vec::new();
        for file in files {
            self.files += 1;
            found.extend(read(&file.name, &file.text)?);
        }
        Ok(Ok(found))
    }
}

/// A directive of a snippet with the words after `import NAME`.
fn with_arguments(mut node: Node, arguments: &[String]) -> Node {
    let mut words = Vec::new();
    for word in node.words {
        if word == "{args[:]}" {
            words.extend(arguments.iter().cloned());
            continue;
        }
        let mut word = word;
        for (number, argument) in arguments.iter().enumerate() {
            for form in [format!("{{args[{number}]}}"), format!("{{args.{number}}}")] {
                word = word.replace(&form, argument);
            }
        }
        words.push(word);
    }
    node.words = words;
    node.block = node
        .block
        .map(|block| block.into_iter().map(|inner| with_arguments(inner, arguments)).collect());
    node
}
