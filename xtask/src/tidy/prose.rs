//! Comments are plain sentences of plain words: subject, verb, object. A sentence that begins with a
//! clause in place of its subject ("What is sent ...") is read twice, and rare words stop readers whose
//! English is a second language.

use super::allowance::Limit;
use crate::source::{Kind, Source, Token};

/// Words that begin such a clause.
const OPENINGS: &[&str] = &["Nobody", "Somebody", "Those", "What", "Who", "Whoever", "Whose"];

const LIMIT: Limit = Limit {
    figure: "the share of sentences that begin with What, Who and the like, in percent,",
    most: 0.5,
    allowances: &[],
};

/// Rare words and expressions that comments do not use. Names of code in backticks are left out.
const RARE: &[&str] = &[
    "anew", "begun", "beside", "besides", "hence", "in vain", "of use", "ought", "seldom", "told",
    "upon", "whence", "whoever",
];

const RARE_LIMIT: Limit =
    Limit { figure: "the number of sentences with rare words", most: 0.0, allowances: &[] };

/// As many places are shown.
const SHOWN: usize = 20;

/// The sentences of all comments.
#[derive(Default)]
pub(super) struct Sentences {
    pub(super) all: usize,
    /// The places of the ones that begin with a word of [`OPENINGS`].
    pub(super) roundabout: Vec<String>,
    /// The places of the ones with a word of [`RARE`].
    pub(super) rare: Vec<String>,
}

/// A line when too many sentences are not plain, and one for each of the first of them.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let sentences = count(sources);
    let mut wrong = beyond(&LIMIT, sentences.percent(), &sentences.roundabout);
    wrong.extend(beyond(&RARE_LIMIT, sentences.rare.len() as f64, &sentences.rare));
    wrong
}

fn beyond(limit: &Limit, found: f64, places: &[String]) -> Vec<String> {
    let mut wrong: Vec<_> = limit.check("comments", found).into_iter().collect();
    if !wrong.is_empty() {
        wrong.extend(places.iter().take(SHOWN).cloned());
    }
    wrong
}

/// Counts the sentences of the comments of all files, tests included.
pub(super) fn count(sources: &[Source]) -> Sentences {
    let mut sentences = Sentences::default();
    for source in sources {
        for paragraph in paragraphs(&source.tokens()) {
            for (line, sentence) in split(&paragraph) {
                sentences.all += 1;
                let place = || format!("{}:{line}: {sentence}", source.path.display());
                if begins_roundabout(sentence) {
                    sentences.roundabout.push(place());
                }
                if has_rare_word(sentence) {
                    sentences.rare.push(place());
                }
            }
        }
    }
    sentences
}

impl Sentences {
    pub(super) fn percent(&self) -> f64 {
        100.0 * self.roundabout.len() as f64 / self.all.max(1) as f64
    }
}

/// The text of lines of comment that follow each other.
#[derive(Default)]
struct Paragraph {
    text: String,
    /// Where in the text each line begins, and its number.
    lines: Vec<(usize, usize)>,
}

/// The paragraphs of all line comments. An empty line, an item of a list and a heading end one;
/// what is fenced as code is none.
fn paragraphs(tokens: &[Token<'_>]) -> Vec<Paragraph> {
    let mut paragraphs = vec![Paragraph::default()];
    let (mut previous, mut fenced) = (0, false);
    for token in tokens.iter().filter(|token| token.kind == Kind::Comment) {
        let text = token.text.trim_start_matches(['/', '!']).trim();
        let follows = token.line == previous + 1;
        fenced = (fenced && follows) != text.starts_with("```");
        previous = token.line;
        let item = text.strip_prefix("- ").or_else(|| text.strip_prefix("* "));
        if !follows || text.is_empty() || item.is_some() || text.starts_with('#') {
            paragraphs.push(Paragraph::default());
        }
        let is_text = !fenced && !text.starts_with(['#', '|']) && !text.starts_with("```");
        if is_text && !token.text.starts_with("/*") {
            let paragraph = paragraphs.last_mut().expect("there is one from the start");
            paragraph.add(item.unwrap_or(text), token.line);
        }
    }
    paragraphs
}

impl Paragraph {
    fn add(&mut self, text: &str, line: usize) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.lines.push((self.text.len(), line));
        self.text.push_str(text);
    }
}

/// The sentences of a paragraph, each with its line. A sentence ends with a full stop, an
/// exclamation mark or a question mark before a blank; the next one begins with no small letter.
fn split(paragraph: &Paragraph) -> Vec<(usize, &str)> {
    let text = paragraph.text.as_str();
    let ends = text.match_indices(['.', '!', '?']).map(|(at, _)| at + 1).filter(|&end| {
        let mut next = text[end..].chars();
        next.next() == Some(' ') && next.next().is_some_and(|first| !first.is_lowercase())
    });
    let mut sentences = Vec::new();
    let mut start = 0;
    for end in ends.chain([text.len()]) {
        let sentence = text[start..end].trim();
        let later = paragraph.lines.partition_point(|(begin, _)| *begin <= start + 1);
        if !sentence.is_empty() {
            sentences.push((paragraph.lines[later.saturating_sub(1)].1, sentence));
        }
        start = end;
    }
    sentences
}

fn begins_roundabout(sentence: &str) -> bool {
    let start = sentence.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '`');
    let word = start.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
    OPENINGS.contains(&word)
}

fn has_rare_word(sentence: &str) -> bool {
    let prose: Vec<_> = sentence.split('`').step_by(2).collect();
    let text = prose.join("` `").to_lowercase();
    let words: Vec<_> = text.split(|c: char| !c.is_alphanumeric() && c != '`').collect();
    let spaced = format!(" {} ", words.join(" "));
    RARE.iter().any(|rare| spaced.contains(&format!(" {rare} ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Sentences {
        count(&[Source { path: "a.rs".into(), text: text.into() }])
    }

    #[test]
    fn sentences_are_counted_across_lines() {
        let sentences = found("//! One. What comes\n//! second? `third` e.g. this\n//! and 4.\n");
        assert_eq!(sentences.all, 3);
        assert_eq!(sentences.roundabout, ["a.rs:1: What comes second?"]);
    }

    #[test]
    fn the_line_is_that_of_the_sentence() {
        let sentences = found("/// One\n/// two.\n/// Who asks.\nfn f() {} // Those are.\n");
        assert_eq!(sentences.roundabout, ["a.rs:3: Who asks.", "a.rs:4: Those are."]);
    }

    #[test]
    fn paragraphs_and_lists_end_sentences() {
        let sentences = found("// One\n//\n// What two\n// - Nobody\n// - \"Whose\"\nx\n// five\n");
        assert_eq!((sentences.all, sentences.roundabout.len()), (5, 3));
    }

    #[test]
    fn code_and_other_words_are_none_of_them() {
        let sentences = found("// ```text\n// What it prints\n// ```\n// Whole `What` somebody.\n");
        assert_eq!((sentences.all, sentences.roundabout.len()), (1, 0));
        assert_eq!(found("// `What` is a type. Whatever.\n").roundabout, [""; 0]);
        assert_eq!(found("let a = \"// What\";\n").all, 0);
    }

    #[test]
    fn a_file_of_such_sentences_is_not_tidy() {
        let text = "// Plain.\n".repeat(199) + "// What is not.\n";
        let judge = |text: &str| beyond(&LIMIT, found(text).percent(), &found(text).roundabout);
        assert_eq!(judge(&text), [""; 0]);
        let wrong = judge(&(text + "// Nor this. Those.\n"));
        assert!(wrong[0].contains("percent") && wrong[1].starts_with("a.rs:200: "), "{wrong:?}");
    }

    #[test]
    fn rare_words_are_found_in_prose_alone() {
        let text =
            "// Told again. It is of\n// use. `told` is a name, `a` and `begun`. A stair (anew).\n";
        assert_eq!(
            found(text).rare,
            ["a.rs:1: Told again.", "a.rs:1: It is of use.", "a.rs:2: A stair (anew)."]
        );
        assert_eq!(
            found("// A house of used bricks, of `x` use, untold.\nlet told = 1;\n").rare,
            [""; 0]
        );
    }
}
