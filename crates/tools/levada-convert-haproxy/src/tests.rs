use levada_conversion::{
    conversion::{Conversion, Unreadable},
    files::{Includes, InputFile},
    rows::shadowed,
};

use super::{convert, listen, servers, tables};

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
    convert(&InputFile { name: "haproxy.cfg".to_owned(), text: text.to_owned() }, &Files(files))
}

fn read(text: &str) -> Result<Conversion, Unreadable> {
    read_with(text, &[])
}

#[test]
fn a_file_that_is_not_haproxys_is_refused_with_its_line() {
    let error = |text: &str| read(text).unwrap_err().to_string();
    assert_eq!(error(""), "haproxy.cfg:1: there is no section: is this a file of HAProxy?");
    assert_eq!(error("\nserver { }"), "haproxy.cfg:2: `server` stands before the first section");
    assert_eq!(error("global\n  log \"a"), "haproxy.cfg:2: the quotes that begin here do not end");
    assert_eq!(error("global\n\0"), "haproxy.cfg:2: a NUL: this is no text");
}

#[test]
fn no_row_is_in_the_shadow_of_another() {
    assert_eq!(shadowed(&tables::PROXY.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&tables::GLOBAL.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&tables::SECTIONS.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&listen::BIND.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&servers::SERVER.iter().collect::<Vec<_>>()), [""; 0]);
}

#[test]
fn a_large_file_and_one_of_bytes_are_read_without_a_panic() {
    let text = "frontend f\n  mode http\n  bind :80\n".to_owned()
        + &format!("  acl a path_beg {}\n", "/x ".repeat(1_000)).repeat(600);
    assert!(read(&text).is_ok());
    let bytes: Vec<_> =
        (0..200_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert!(read(&String::from_utf8_lossy(&bytes)).is_err());
}

proptest::proptest! {
    #[test]
    fn no_text_leads_to_a_panic(text in "(frontend f\n|backend b\n|mode http\n|bind :80\n|server s 10.0.0.1:80\n|http-request |deny|if |unless |\\{ |\\} |!|or |path_beg |hdr\\(host\\) |src |map\\(|%\\[|[a-z./()\"'\\\\ \n]){0,120}") {
        let _ = read(&format!("defaults\nmode http\n{text}"));
    }
}
