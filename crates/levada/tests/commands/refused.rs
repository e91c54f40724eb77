//! What `levada run` refuses, `levada validate` refuses by the same code with the same words. What `doctor` and the
//! log say of certificates agrees with it.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

use crate::support::{Process, free, levada};

/// A configuration with these lines for the listener, the site and everything else.
fn written(directory: &Path, listen: &str, site: &str, more: &str) -> String {
    let file = directory.join("levada.toml");
    let text = format!(
        "name = \"a\"\n{more}\n[[listen]]\naddress = \"127.0.0.1:{}\"\n{listen}\n\
         [[site]]\nhosts = \"a.test\"\n{site}\n",
        free()
    );
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// A certificate that has signed itself, with its key.
fn certificate(directory: &Path, change: impl FnOnce(&mut CertificateParams)) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
    change(&mut params);
    fs::write(directory.join("a.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(directory.join("a.key"), key.serialize_pem()).unwrap();
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

const TLS: &str = "tls = [{ certificate = \"a.pem\", key = \"a.key\" }]";
const ORIGIN: &str = "origin = \"http://127.0.0.1:9\"";

/// What is wrong, what writes such a file, and what is said of it.
type Case<'a> = (&'a str, Box<dyn Fn() -> String + 'a>, &'a str);

#[test]
fn settings_that_run_refuses_are_refused_by_validate_with_the_same_words() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "no directory").unwrap();
    let disk = directory.path().join("file/below");
    let disk = format!("[cache.disk]\npath = {disk:?}\nsize = \"32MiB\"\n");
    let no_aes_128 =
        format!("{TLS}\nhttp3 = true\nhandshake = {{ ciphers = [\"TLS_AES_256_GCM_SHA384\"] }}");
    certificate(directory.path(), |_| ());
    let own = written(directory.path(), "", ORIGIN, "");
    let address = fs::read_to_string(&own).unwrap();
    let address = address.split('"').find(|word| word.starts_with("127.")).unwrap().to_owned();
    let cases: [Case<'_>; 5] = [
        (
            "an origin that is the node's own listener",
            Box::new(|| {
                let text = fs::read_to_string(&own).unwrap();
                fs::write(&own, text.replace("127.0.0.1:9\"", &format!("{address}\""))).unwrap();
                own.clone()
            }),
            "is this node itself, which listens on",
        ),
        (
            "a disk path that cannot be made",
            Box::new(|| written(directory.path(), "", ORIGIN, &disk)),
            "the disk cache needs a directory",
        ),
        (
            "less memory than an idle node needs",
            Box::new(|| written(directory.path(), "", ORIGIN, "limits.memory = \"63MiB\"")),
            "`limits.memory` is 63MiB, less than an idle node needs",
        ),
        (
            "HTTP/3 without its first suite",
            Box::new(|| written(directory.path(), &no_aes_128, ORIGIN, "")),
            "needs TLS 1.3",
        ),
        (
            "a certificate without a name",
            Box::new(|| {
                certificate(directory.path(), |params| {
                    params.subject_alt_names.clear();
                    params.distinguished_name.push(DnType::CommonName, "a.test");
                });
                written(directory.path(), TLS, ORIGIN, "")
            }),
            "the certificate names no server",
        ),
    ];
    for (case, write, said) in cases {
        let file = write();
        let validated = levada(&["validate", "-c", &file]);
        assert_eq!(validated.status.code(), Some(1), "{case}: {}", words(&validated));
        assert!(words(&validated).contains(said), "{case}: {}", words(&validated));
        let run = levada(&["run", "-c", &file]);
        assert_eq!(run.status.code(), Some(2), "{case}: {}", words(&run));
        assert!(words(&run).contains(said), "{case}: {}", words(&run));
    }
}

#[test]
fn settings_that_validate_accepts_start() {
    let directory = tempfile::tempdir().unwrap();
    certificate(directory.path(), |_| ());
    let disk = directory.path().join("not/there/yet");
    let more =
        format!("limits.memory = \"64MiB\"\n[cache.disk]\npath = {disk:?}\nsize = \"32MiB\"\n");
    // Another site of the same node is a web server like any other.
    let text = fs::read_to_string(written(directory.path(), TLS, ORIGIN, "")).unwrap();
    let address = text.split('"').find(|word| word.starts_with("127.")).unwrap().to_owned();
    let file = written(directory.path(), TLS, ORIGIN, &more);
    let text = fs::read_to_string(&file).unwrap();
    let inner = format!(
        "{text}[[site]]\nhosts = \"b.test\"\norigin = \"https://{address}\"\norigin_host = \"a.test\"\n"
    );
    fs::write(&file, inner).unwrap();
    let validated = levada(&["validate", "-c", &file]);
    assert_eq!(validated.status.code(), Some(0), "{}", words(&validated));
    drop(Process::node(Path::new(&file)));
}

#[test]
fn end_of_a_certificate_is_told_by_validate_doctor_and_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    const DAY: u32 = 86_400;
    // Half a day more: some time passes until it is looked at.
    let half = Duration::from_secs(u64::from(DAY) / 2);
    let days = |days: u32| Duration::from_secs(u64::from(days * DAY)) + half;
    for (ends, said, is_alarm) in [
        (now - days(29), "expired 29 days ago", true),
        (now + days(5), "ends in 5 days", true),
        (now + days(80), "", false),
    ] {
        certificate(directory.path(), |params| {
            params.not_before = date_time_ymd(1970, 1, 1) + (now - days(60));
            params.not_after = date_time_ymd(1970, 1, 1) + ends;
        });
        let file = written(directory.path(), TLS, ORIGIN, "");
        let validated = levada(&["validate", "-c", &file]);
        assert_eq!(validated.status.code(), Some(0), "{}", words(&validated));
        let report = words(&validated);
        assert_eq!(report.contains("warning: listen[0].tls[0].certificate:"), is_alarm, "{report}");
        assert!(report.contains(said), "{report}");
        let examined = words(&levada(&["doctor", "-c", &file]));
        let line = examined.lines().find(|line| line.contains("certificate /")).unwrap();
        let level = if is_alarm { "fail" } else { "ok" };
        assert!(line.starts_with(level) && line.contains(said), "{line}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        let started = Process::ready(command.args(["run", "-c", &file]));
        let (node, log) = started.unwrap_or_else(|log| panic!("{log}"));
        drop(node);
        let told = format!("the certificate {said}");
        assert_eq!(log.lines().any(|line| line.contains(&told)), is_alarm, "{log}");
    }
}
