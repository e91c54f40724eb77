//! The examples of the page `docs/coming-from/caddy.md`, and the keys that the tables name.

#[allow(dead_code)]
mod node;

use levada_conversion::rows::{Becomes, Described};
use node::{Files, examples, file, is_accepted, whole};

#[test]
fn levada_accepts_every_example() {
    let examples = examples("caddy.md");
    let own: Vec<_> = examples.iter().filter(|(language, ..)| language == "toml").collect();
    assert!(own.len() >= 10, "{}", own.len());
    for (_, text, line) in own {
        is_accepted(&whole(text), &format!("caddy.md:{line}"));
    }
}

#[test]
fn every_example_becomes_the_one_that_stands_below_it() {
    let examples = examples("caddy.md");
    let (mut compared, mut wrong) = (0, String::new());
    for pair in examples.windows(2) {
        let [(language, text, line), (other, toml, _)] = pair else { continue };
        if language != "caddy" || other != "toml" {
            continue;
        }
        let name = format!("caddy.md:{line}");
        let converted = levada_convert_caddy::convert(&file(&name, text), &Files(&[])).unwrap();
        is_accepted(&converted.toml, &name);
        // The page writes short tables where the program writes a header.
        let made = converted.toml.parse::<toml::Table>().unwrap();
        let shown = toml.parse::<toml::Table>().unwrap();
        for (key, value) in &shown {
            let value = value.to_string().replace("staff.htpasswd", "htpasswd");
            let own = made.get(key).map(ToString::to_string).unwrap_or_default();
            if own.replace("staff.htpasswd", "htpasswd") != value {
                wrong += &format!("{name}: {key}\n  {own}\n  {value}\n");
            }
        }
        compared += 1;
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(compared >= 10, "{compared}");
}

/// The keys that a row names. Words about a row have spaces.
fn named(row: &Described) -> Vec<String> {
    let Becomes::Keys(keys) = row.becomes else { return Vec::new() };
    let keys: Vec<_> =
        keys.split(", ").map(|key| key.trim_matches(['[', ']']).to_owned()).collect();
    if keys.iter().any(|key| key.contains(' ')) { Vec::new() } else { keys }
}

#[test]
fn the_tables_name_keys_of_levada() {
    let text = levada_config::schema::schema().to_string();
    let rows = levada_convert_caddy::described();
    assert!(rows.len() > 50, "{} rows", rows.len());
    for key in rows.iter().flat_map(named) {
        for name in key.split('.') {
            assert!(text.contains(&format!("\"{name}\":")), "`{key}` is no key of Levada");
        }
    }
}
