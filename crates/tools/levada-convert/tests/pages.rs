//! The examples on the pages `docs/coming-from`: Levada accepts its side, and converts the other one.

use std::{fs, path::Path};

use levada_config::{Source, Surroundings};
use levada_convert::{Conversion, InputFile, NoIncludes};

/// A block of a page between two fences, with the language that its first fence names.
struct Example {
    language: String,
    text: String,
    line: usize,
}

fn examples(page: &str) -> Vec<Example> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/coming-from").join(page);
    let text = fs::read_to_string(path).unwrap();
    let mut examples: Vec<Example> = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(language) if !inside => {
                examples.push(Example {
                    language: language.to_owned(),
                    text: String::new(),
                    line: index + 1,
                });
                inside = true;
            }
            Some(_) => inside = false,
            None if inside => examples.last_mut().unwrap().text += &format!("{line}\n"),
            None => {}
        }
    }
    examples
}

/// An example is a part of a file: the parts that every file has are put around it.
fn whole(example: &str) -> String {
    let mut text = String::new();
    if !example.contains("name = \"a\"\n") {
        text += "name = \"a\"\n";
    }
    text += example;
    if !example.contains("[[listen]]") {
        text += "\n[[listen]]\naddress = \"127.0.0.1:0\"\n";
    }
    if !example.contains("[[site]]") {
        text += "\n[[site]]\nhosts = \"*\"\norigin = \"http://127.0.0.1:9000\"\n";
    }
    text
}

fn is_accepted(toml: &str, place: &str) {
    let directory = tempfile::tempdir().unwrap();
    let certified = rcgen::generate_simple_self_signed(["www.example.com".to_owned()]).unwrap();
    for host in ["www", "img"] {
        fs::write(directory.path().join(format!("{host}.pem")), certified.cert.pem()).unwrap();
        fs::write(
            directory.path().join(format!("{host}.key")),
            certified.signing_key.serialize_pem(),
        )
        .unwrap();
    }
    let users = "ann:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n";
    for name in ["htpasswd", "users.htpasswd"] {
        fs::write(directory.path().join(name), users).unwrap();
    }
    let root = directory.path().to_str().unwrap();
    for inner in ["srv/www", "srv/app"] {
        fs::create_dir_all(directory.path().join(inner)).unwrap();
    }
    let text = toml
        .replace("/var/cache", root)
        .replace("\"/srv", &format!("\"{root}/srv"))
        .replace("unix:/run", &format!("unix:{root}"));
    let surroundings =
        Surroundings { directory: directory.path(), variable: &|_| None, start_error: &|_| None };
    let checked =
        levada_config::check(&Source { name: place.to_owned(), text: text.clone() }, &surroundings);
    assert!(checked.report.is_usable(), "{place}: {}\n{text}", checked.report);
}

#[test]
fn levada_accepts_every_example_for_those_who_come_from_elsewhere() {
    for page in ["nginx.md", "varnish.md", "trafficserver.md", "caddy.md"] {
        let examples = examples(page);
        let own: Vec<_> = examples.iter().filter(|example| example.language == "toml").collect();
        assert!(own.len() >= 20, "{page} has {} examples", own.len());
        for example in own {
            is_accepted(&whole(&example.text), &format!("{page}:{}", example.line));
        }
    }
}

#[test]
fn levada_accepts_the_example_of_a_closed_site() {
    let examples = examples("trafficcontrol.md");
    let own: Vec<_> = examples.iter().filter(|example| example.language == "toml").collect();
    assert!(!own.is_empty());
    for example in own {
        is_accepted(&whole(&example.text), &format!("trafficcontrol.md:{}", example.line));
    }
}

/// Every example in `language` is converted whole, into a file that Levada accepts.
fn are_converted_whole(page: &str, language: &str, convert: impl Fn(&str, String) -> Conversion) {
    for example in examples(page).into_iter().filter(|example| example.language == language) {
        let place = format!("{page}:{}", example.line);
        let conversion = convert(&place, example.text);
        assert!(conversion.is_complete(), "{place}: {:#?}", conversion.ledger.left);
        is_accepted(&conversion.toml, &place);
    }
}

fn file(name: &str, text: String) -> InputFile {
    InputFile { name: name.to_owned(), text }
}

#[test]
fn every_example_of_nginx_is_converted_whole() {
    are_converted_whole("nginx.md", "nginx", |place, text| {
        levada_convert::nginx(&file(place, text), &NoIncludes).unwrap()
    });
}

#[test]
fn every_example_of_varnish_is_converted_whole() {
    are_converted_whole("varnish.md", "vcl", |place, text| {
        levada_convert::varnish(&file(place, text), &NoIncludes).unwrap()
    });
}

#[test]
fn every_example_of_traffic_server_is_converted_whole() {
    are_converted_whole("trafficserver.md", "text", |_, text| {
        let name = match text.split_whitespace().next().unwrap_or_default() {
            "CONFIG" => "records.config",
            "map" => "remap.config",
            text if text.starts_with('/') => "storage.config",
            text if text.starts_with("dest_domain") => "parent.config",
            _ => "ssl_multicert.config",
        };
        let mut files = vec![file(name, text)];
        if name != "remap.config" {
            let text = "map http://www.example.com/ http://10.0.1.1:8000/".to_owned();
            files.push(file("remap.config", text));
        }
        levada_convert::trafficserver(&files, &NoIncludes).unwrap()
    });
}
