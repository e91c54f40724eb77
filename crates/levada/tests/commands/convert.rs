//! `levada convert` as a user runs it: files, exit codes, and the list of what was left over.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::support::levada;

fn convert(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.arg("convert").args(args).current_dir(directory).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_configuration_with_included_files_is_written_whole() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("sites")).unwrap();
    let site = |host: &str| {
        format!(
            "server {{ listen 127.0.0.1:0; server_name {host}; location / {{ proxy_set_header Host $host; proxy_pass http://127.0.0.1:9; }} }}"
        )
    };
    for host in ["b.example", "a.example"] {
        fs::write(directory.path().join(format!("sites/{host}.conf")), site(host)).unwrap();
    }
    fs::write(directory.path().join("nginx.conf"), "events { }\nhttp { include sites/*.conf; }\n")
        .unwrap();
    let output = convert(directory.path(), &["nginx", "nginx.conf", "-o", "levada.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
    let toml = fs::read_to_string(directory.path().join("levada.toml")).unwrap();
    let (a, b) = (toml.find("a.example").unwrap(), toml.find("b.example").unwrap());
    assert!(a < b, "files of a glob are read in order: {toml}");
    let checked = levada_config::load(&directory.path().join("levada.toml"), &|_| None).unwrap();
    assert!(checked.report.is_usable(), "{}", checked.report);
}

#[test]
fn a_statement_that_is_left_over_is_listed_and_sets_the_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let text = "server {\n  server_name a.example;\n  location / { proxy_pass http://h; }\n  perl_set $x y;\n}\n";
    fs::write(directory.path().join("nginx.conf"), text).unwrap();
    let output = convert(directory.path(), &["nginx", "nginx.conf"]);
    assert_eq!(output.status.code(), Some(1));
    let line = "nginx.conf:4: `perl_set $x y`: there is no scripting";
    assert!(stderr(&output).contains(line), "{}", stderr(&output));
    let toml = String::from_utf8(output.stdout).unwrap();
    assert!(toml.contains(&format!("#   {line}")), "{toml}");
}

#[test]
fn a_difference_and_a_file_that_cannot_be_used_set_the_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let write = |more: &str| {
        let text = format!(
            "server {{ listen 127.0.0.1:0; server_name a.example; location / {{ proxy_set_header Host $host; \
             proxy_pass http://127.0.0.1:9; }} {more} }}"
        );
        fs::write(directory.path().join("nginx.conf"), text).unwrap();
        let output = convert(directory.path(), &["nginx", "nginx.conf", "-o", "levada.toml"]);
        (output.status.code(), stderr(&output))
    };
    let (code, report) = write("");
    assert_eq!(code, Some(0), "{report}");
    assert!(report.contains("0 with a difference, 0 not needed, 0 not converted"), "{report}");
    let (code, report) = write("expires 1h;");
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("1 with a difference"), "{report}");
    let (code, report) = write("auth_basic x; auth_basic_user_file nowhere;");
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("The new file cannot be used as it stands:"), "{report}");
    assert!(report.contains("nowhere"), "{report}");
}

#[test]
fn a_file_that_cannot_be_read_is_told_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let output = convert(directory.path(), &["nginx", "missing.conf"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot read missing.conf"), "{}", stderr(&output));
    fs::write(directory.path().join("broken.vcl"), "vcl 4.1;\nsub vcl_recv {\n").unwrap();
    let output = convert(directory.path(), &["varnish", "broken.vcl"]);
    assert_eq!(output.status.code(), Some(2));
    let message = "broken.vcl:2: the block that begins here has no `}`";
    assert!(stderr(&output).contains(message), "{}", stderr(&output));
    let output = convert(directory.path(), &["trafficserver", "."]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("has none of ip_allow.yaml"), "{}", stderr(&output));
}

#[test]
fn a_cdn_becomes_the_directory_of_a_fleet() {
    let directory = tempfile::tempdir().unwrap();
    let export = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tools/levada-convert/tests/fixtures/trafficcontrol/cdn");
    let export = export.to_str().unwrap();
    let output = convert(directory.path(), &["traffic-control", export]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("name the directory of the fleet: -o DIRECTORY"));
    let output = convert(directory.path(), &["traffic-control", export, "-o", "fleet"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let line = "deliveryservices.json:17: `paid: signingAlgorithm url_sig`: ";
    assert!(stderr(&output).contains(line), "{}", stderr(&output));
    let text = |path: &str| fs::read_to_string(directory.path().join("fleet").join(path)).unwrap();
    assert!(text("report.txt").contains(line));
    assert!(text("files/coverage.json").contains("\"vienna\""));
    let checked = levada(&["fleet", "check", directory.path().join("fleet").to_str().unwrap()]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    // Without a database of countries the limit by country is one more reason.
    assert!(text("sites/paid.toml").contains("name an .mmdb file"), "{}", text("sites/paid.toml"));
    let output = convert(directory.path(), &["traffic-control", export, "-o", "fleet"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("fleet has files already"), "{}", stderr(&output));
    fs::write(directory.path().join("broken.json"), "{\n  \"config\": {,}\n}").unwrap();
    let output = convert(directory.path(), &["traffic-control", "broken.json", "-o", "other"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("broken.json:2: is no JSON"), "{}", stderr(&output));
    assert!(!directory.path().join("other").exists());
}
