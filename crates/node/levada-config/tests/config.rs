//! Configurations as users write them: the examples, and one with every kind of mistake.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use levada_config::{Source, Surroundings};
use serde_json::Value as Json;

fn crate_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn examples() -> Vec<(String, String)> {
    let directory = crate_file("../../../examples");
    let mut examples: Vec<_> = fs::read_dir(directory)
        .expect("the examples are part of the source")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).expect("readable"))
        })
        .collect();
    examples.sort();
    assert!(examples.len() >= 3);
    examples
}

/// A directory with a certificate and its key, as examples/tls.toml wants it.
fn certificates() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    fs::write(directory.path().join("cdn.pem"), made.cert.pem()).expect("written");
    fs::write(directory.path().join("cdn.key"), made.signing_key.serialize_pem()).expect("written");
    directory
}

#[test]
fn every_example_is_valid() {
    let directory = certificates();
    let variable = |name: &str| {
        Some(match name {
            "CERT_DIR" => directory.path().display().to_string(),
            "NODE" => "b".to_owned(),
            "HOST" => "127.0.0.1".to_owned(),
            "CLIENTS" => "8082".to_owned(),
            "PEERS" => "7072".to_owned(),
            "ADMIN" => "9182".to_owned(),
            "LEVADA_SECRET" => "c2l4dGVlbiBieXRlcyBhdCBsZWFzdA".to_owned(),
            _ => return None,
        })
    };
    for (name, text) in examples() {
        let source = Source { name, text };
        let surroundings = Surroundings {
            directory: directory.path(),
            variable: &variable,
            start_error: &|_| None,
        };
        let checked = levada_config::check(&source, &surroundings);
        assert_eq!(checked.report.to_string(), "", "{}", source.name);
        assert!(checked.settings.is_some());
    }
}

#[test]
fn the_schema_knows_every_key_of_every_example() {
    let schema = levada_config::schema::schema();
    for (name, text) in examples() {
        let example: toml::Table = text.parse().expect("TOML");
        assert_known(&toml::Value::Table(example), &schema, &name);
    }
}

fn assert_known(value: &toml::Value, schema: &Json, path: &str) {
    match value {
        toml::Value::Table(table) => {
            for (key, inner) in table {
                let path = format!("{path}: {key}");
                // A policy's parameters are listed where its name is.
                let known = &schema["properties"][key];
                assert!(known.is_object() || schema["allOf"].is_array(), "{path}");
                assert_known(inner, known, &path);
            }
        }
        toml::Value::Array(list) if schema["items"]["type"] == "object" => {
            list.iter().for_each(|item| assert_known(item, &schema["items"], path));
        }
        _ => {}
    }
}

/// Everything at once, in the order of the lines. `UPDATE_EXPECT=1` writes the reports again.
#[test]
fn all_mistakes_are_reported_at_once() {
    for name in [
        "wrong",
        "wrong-rules",
        "wrong-members",
        "wrong-logs",
        "wrong-telemetry",
        "wrong-acme",
        "wrong-dns",
        "wrong-dns-redirects",
    ] {
        let text = crate_file(&format!("tests/config/{name}.toml"));
        let text = fs::read_to_string(text).expect("readable");
        let source = Source { name: format!("{name}.toml"), text };
        let surroundings = Surroundings {
            directory: Path::new("/nonexistent"),
            variable: &|_| None,
            start_error: &|_| None,
        };
        let checked = levada_config::check(&source, &surroundings);
        assert!(checked.settings.is_none());
        let report = checked.report.to_string();
        let golden = crate_file(&format!("tests/config/{name}.txt"));
        if env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&golden, &report).expect("written");
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(report, expected, "UPDATE_EXPECT=1 rewrites");
    }
}
