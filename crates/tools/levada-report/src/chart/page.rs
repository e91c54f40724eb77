//! A page that needs nothing else: no script, no font, no network. It reads on light and on dark, and
//! prints.

use std::fmt::{self, Write as _};

use crate::chart::Figure;

/// A page under construction.
pub struct Page(String);

impl Page {
    /// A page with a heading and a sentence under it.
    pub fn new(title: &str, sentence: &str) -> Self {
        let (title, sentence) = (escaped(title), escaped(sentence));
        Self(format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n<p>{sentence}</p>\n"
        ))
    }

    /// Adds markup as it is.
    pub fn push_str(&mut self, markup: &str) {
        self.0.push_str(markup);
    }

    /// Adds a figure with its caption.
    pub fn figure(&mut self, Figure { caption, svg }: &Figure) {
        let caption = escaped(caption);
        let _ = write!(self.0, "<figure>\n{svg}\n<figcaption>{caption}</figcaption>\n</figure>\n");
    }

    /// The whole page.
    pub fn finish(mut self) -> String {
        self.push_str("</main>\n</body>\n</html>\n");
        self.0
    }
}

impl fmt::Write for Page {
    fn write_str(&mut self, markup: &str) -> fmt::Result {
        self.0.write_str(markup)
    }
}

/// Text as markup.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "\
:root { color-scheme: light dark; --ground: #fff; --text: #1a1a1a; --faint: #666; --line: #ddd;
  --pass: #006b3c; --fail: #b00020; }
@media (prefers-color-scheme: dark) { :root { --ground: #16181b; --text: #e4e4e4; --faint: #9a9a9a;
  --line: #383b40; --pass: #5fce9b; --fail: #ff8a80; } }
@media print { :root { --ground: #fff; --text: #000; --faint: #444; --line: #bbb; --pass: #000;
  --fail: #000; } section { break-inside: avoid-page; } .fail { font-weight: bold; } }
body { margin: 0; background: var(--ground); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem; }
h2 { margin: 3rem 0 0; }
a { color: inherit; }
.source { margin: 0 0 1rem; color: var(--faint); font-size: 0.9rem; }
figure { margin: 1rem 0; }
figure svg { width: 100%; height: auto; }
figcaption { color: var(--faint); font-size: 0.9rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { padding: 0.2rem 0.7rem; text-align: right; border-bottom: 1px solid var(--line); }
th { font-weight: 500; }
tbody th { text-align: left; }
.ours { font-weight: 600; }
.pass { color: var(--pass); }
.fail { color: var(--fail); }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escaped("a < b & \"c\""), "a &lt; b &amp; &quot;c&quot;");
    }
}
