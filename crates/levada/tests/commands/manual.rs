//! `levada man` and `levada completions`: the files that packages bring along.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use crate::support::levada;

/// The names of the commands, from the list of `levada --help`.
fn commands() -> BTreeSet<String> {
    let help = String::from_utf8(levada(&["--help"]).stdout).unwrap();
    let list = help.split_once("Commands:\n").unwrap().1.split("\n\n").next().unwrap().to_owned();
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    names.filter(|name| name != "help").collect()
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("new/man1");
    let output = levada(&["man", pages.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    for name in commands() {
        let page = fs::read_to_string(pages.join(format!("levada-{name}.1"))).unwrap();
        let title = format!("levada-{name}").replace('-', r"\-");
        assert!(page.contains(&format!(".SH NAME\n{title}")), "{page}");
    }
    assert!(pages.join("levada.1").exists() && pages.join("levada-sim-run.1").exists());
}

#[test]
fn a_directory_that_cannot_be_written_is_told() {
    let output = levada(&["man", "/dev/null/man1"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("cannot write to /dev/null/man1"), "{error}");
}

#[test]
fn every_shell_gets_all_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = levada(&["completions", shell]);
        assert!(output.status.success(), "{output:?}");
        let file = String::from_utf8(output.stdout).unwrap();
        for name in commands() {
            assert!(file.contains(&name), "{shell}: {name}");
        }
    }
}

#[test]
fn bash_completes_commands_and_options() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("levada");
    fs::write(&file, levada(&["completions", "bash"]).stdout).unwrap();
    assert_eq!(completed(&file, "levada", "val"), "validate");
    assert_eq!(completed(&file, "levada validate", "--sch"), "--schema");
}

/// The words that bash proposes for `start` after `line`.
fn completed(file: &Path, line: &str, start: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let previous = words[words.len() - 1];
    let script = format!(
        "source {}; COMP_WORDS=({line} {start}); COMP_CWORD={}; _levada levada {start} {previous}; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        file.display(),
        words.len(),
    );
    let output = Command::new("bash").args(["--norc", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
