//! Every configuration in `fixtures` is converted: into the text next to it, and into a file that Levada accepts.
//! `UPDATE_EXPECT=1` writes the texts.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use levada_config::{Source, Surroundings};
use levada_convert::{Conversion, InputFile, NoIncludes};

fn fixtures(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind)
}

/// The file, with its name alone: places must not depend on where the source is.
fn read(path: &Path) -> InputFile {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    InputFile { name, text: fs::read_to_string(path).unwrap() }
}

fn files_with(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|own| own == extension)).collect();
    files.sort();
    assert!(!files.is_empty(), "no fixtures in {}", directory.display());
    files
}

/// Compares with the expected text, and lets Levada read it.
fn check(conversion: &Conversion, expected: &Path) {
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(expected, &conversion.toml).unwrap();
    }
    let text = fs::read_to_string(expected).unwrap_or_default();
    assert_eq!(
        conversion.toml,
        text,
        "{} differs: UPDATE_EXPECT=1 writes it anew",
        expected.display()
    );
    is_accepted(&conversion.toml, &expected.display().to_string());
}

/// The files that configurations name are in a directory of the test.
fn is_accepted(toml: &str, name: &str) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_str().unwrap();
    for inner in ["srv/www", "srv/errors", "cache"] {
        fs::create_dir_all(directory.path().join(inner)).unwrap();
    }
    let certified = rcgen::generate_simple_self_signed(["www.example.com".to_owned()]).unwrap();
    for host in ["www", "img"] {
        fs::write(directory.path().join(format!("{host}.pem")), certified.cert.pem()).unwrap();
        fs::write(
            directory.path().join(format!("{host}.key")),
            certified.signing_key.serialize_pem(),
        )
        .unwrap();
    }
    fs::write(directory.path().join("ca.pem"), certified.cert.pem()).unwrap();
    fs::write(directory.path().join("www.ocsp"), "an answer of another time").unwrap();
    fs::write(directory.path().join("tickets.key"), [7; 48]).unwrap();
    for page in ["srv/errors/sorry.html", "srv/www/404.html"] {
        fs::write(directory.path().join(page), "<p>sorry</p>").unwrap();
    }
    fs::write(directory.path().join("htpasswd"), "ann:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n")
        .unwrap();
    let text = toml
        .replace("/etc/nginx", root)
        .replace("/srv", &format!("{root}/srv"))
        .replace("/var/cache", &format!("{root}/cache"))
        .replace("/var/log/nginx", root)
        .replace("unix:/run", &format!("unix:{root}"));
    let source = Source { name: name.to_owned(), text };
    let surroundings =
        Surroundings { directory: directory.path(), variable: &|_| None, start_error: &|_| None };
    let checked = levada_config::check(&source, &surroundings);
    assert!(checked.report.is_usable(), "{}\n{}", checked.report, source.text);
}

#[test]
fn configurations_of_nginx_become_files_that_levada_accepts() {
    for path in files_with(&fixtures("nginx"), "conf") {
        let conversion = levada_convert::nginx(&read(&path), &NoIncludes).unwrap();
        check(&conversion, &path.with_extension("toml"));
    }
}

#[test]
fn configurations_of_varnish_become_files_that_levada_accepts() {
    for path in files_with(&fixtures("varnish"), "vcl") {
        let conversion = levada_convert::varnish(&read(&path), &NoIncludes).unwrap();
        check(&conversion, &path.with_extension("toml"));
    }
}

#[test]
fn configurations_of_traffic_server_become_files_that_levada_accepts() {
    let directory = fixtures("trafficserver/pair");
    let files: Vec<_> = levada_convert::TRAFFIC_SERVER_FILES
        .iter()
        .map(|name| directory.join(name))
        .filter(|path| path.exists())
        .map(|path| read(&path))
        .collect();
    let conversion = levada_convert::trafficserver(&files, &NoIncludes).unwrap();
    check(&conversion, &fixtures("trafficserver/pair.toml"));
}

/// The files of a directory one after the other, each under its path.
fn joined(files: &BTreeMap<String, String>) -> String {
    files.iter().map(|(path, text)| format!("==> {path} <==\n{text}\n")).collect()
}

/// The file of a node as the fleet puts it together.
fn of_node(files: &BTreeMap<String, String>, name: &str, region: &str) -> String {
    let mut text = format!("name = \"{name}\"\n");
    // A list of the region's file replaces that of node.toml.
    let own = files.get(&format!("regions/{region}.toml"));
    match own {
        Some(own) => {
            text += &files["node.toml"].replace("[[listen]]\naddress = \"0.0.0.0:80\"", own)
        }
        None => text += &files["node.toml"],
    }
    text += "\n[peering]\nlisten = \"127.0.0.1:7070\"\nsecret = \"a-secret-of-16-bytes-or-more\"\n";
    for line in files["nodes.txt"].lines() {
        let [name, region, address] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let address = address.replace(':', "-");
        text += &format!(
            "[[peer]]\nname = \"{name}\"\nregion = \"{region}\"\naddress = \"{address}:7070\"\n"
        );
    }
    let sites = files.iter().filter(|(path, _)| path.starts_with("sites/"));
    text + &sites.map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_cdn_of_traffic_control_becomes_a_fleet_that_levada_accepts() {
    let directory = fixtures("trafficcontrol/cdn");
    let mut files: Vec<_> = files_with(&directory, "json").iter().map(|path| read(path)).collect();
    let countries = "../../node/levada-node/tests/node/countries/countries.mmdb";
    let countries = Path::new(env!("CARGO_MANIFEST_DIR")).join(countries).display().to_string();
    files.push(InputFile { name: "/srv/countries.mmdb".to_owned(), text: String::new() });
    let fleet = levada_convert::trafficcontrol(&files).unwrap();
    let expected = fixtures("trafficcontrol/cdn.txt");
    let text = joined(&fleet.files);
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&expected, &text).unwrap();
    }
    let known = fs::read_to_string(&expected).unwrap_or_default();
    assert_eq!(text, known, "UPDATE_EXPECT=1 writes {}", expected.display());
    for line in fleet.files["nodes.txt"].lines() {
        let mut words = line.split(' ');
        let (name, region) = (words.next().unwrap(), words.next().unwrap());
        let node = of_node(&fleet.files, name, region).replace("/srv/countries.mmdb", &countries);
        is_accepted(&node, name);
    }
}
