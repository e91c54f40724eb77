use levada_conversion::{
    conversion::{Conversion, Unreadable},
    files::{Includes, InputFile},
    rows::shadowed,
};

use super::{convert, proxy, tables};

/// Files by their names.
struct Files(&'static [(&'static str, &'static str)]);

impl Includes for Files {
    fn matching(&self, pattern: &str) -> Result<Vec<InputFile>, String> {
        let found = self.0.iter().filter(|(name, _)| *name == pattern);
        let file = |(name, text): &(&str, &str)| InputFile {
            name: (*name).to_owned(),
            text: (*text).to_owned(),
        };
        Ok(found.map(file).collect())
    }
}

fn read_with(
    text: &str,
    files: &'static [(&'static str, &'static str)],
) -> Result<Conversion, Unreadable> {
    convert(&InputFile { name: "Caddyfile".to_owned(), text: text.to_owned() }, &Files(files))
}

fn read(text: &str) -> Result<Conversion, Unreadable> {
    read_with(text, &[])
}

#[test]
fn a_file_that_is_not_caddys_is_refused_with_its_line() {
    let error = |text: &str| read(text).unwrap_err().to_string();
    assert_eq!(error(":80 {\n  respond ok"), "Caddyfile:1: the block that begins here has no `}`");
    assert_eq!(error(":80\n}"), "Caddyfile:2: `}` closes nothing");
    assert_eq!(error(":80\nrespond \"a"), "Caddyfile:2: the text that begins here does not end");
    assert_eq!(error(":80\n\0"), "Caddyfile:2: a NUL: this is no text");
    assert!(error("{\"apps\": {").starts_with("Caddyfile:1: is no JSON: "));
    assert_eq!(error(&"a {\n".repeat(100)), "Caddyfile:65: blocks are nested too deeply");
}

#[test]
fn imports_that_import_each_other_end() {
    let text = "(a) {\nimport b\nimport b\n}\n(b) {\nimport a\nimport a\n}\n:80 {\nimport a\nrespond ok\n}\n";
    assert!(
        read(text).is_err_and(|error| error.to_string().contains("does an import import itself"))
    );
    let text = "(a) {\nimport a\n}\n:80 {\nimport a\nrespond ok\n}\n";
    assert!(!read(text).unwrap().is_complete());
    let text = ":80 {\nimport loop\nrespond ok\n}\n";
    assert!(!read_with(text, &[("loop", "import loop\n")]).unwrap().is_complete());
}

#[test]
fn no_row_is_in_the_shadow_of_another() {
    assert_eq!(shadowed(&tables::DIRECTIVES.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&tables::OPTIONS.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&proxy::LINES.iter().collect::<Vec<_>>()), [""; 0]);
}

#[test]
fn a_large_file_and_one_of_bytes_are_read_without_a_panic() {
    let text = format!(
        ":80 {{\n{}respond ok\n}}\n",
        format!("@a path {}\n", "/x ".repeat(1_000)).repeat(600)
    );
    assert!(read(&text).is_ok());
    let bytes: Vec<_> =
        (0..200_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert!(read(&String::from_utf8_lossy(&bytes)).is_err());
}

proptest::proptest! {
    #[test]
    fn no_text_leads_to_a_panic(text in "(:80 \\{\n|example.com \\{\n|@a |path |/a/\\* |not |handle |handle_path |route |\\{\n|\\}\n|respond |redir |reverse_proxy |import |\\(a\\) |[a-z./*{}\"` \n]){0,120}") {
        let _ = read(&text);
    }

    #[test]
    fn no_json_leads_to_a_panic(text in "(\\{|\\}|\\[|\\]|,|:|\"apps\"|\"http\"|\"servers\"|\"routes\"|\"handle\"|\"handler\"|\"match\"|\"a\"|1|true){0,60}") {
        let _ = read(&format!("{{\"apps\": {{\"http\": {{\"servers\": {{\"s\": {text}}}}}}}}}"));
    }
}
