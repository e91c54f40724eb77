//! Lines of shell in README, start, install and the pages for operators are run as a reader would run them: one after
//! another, with a node, in network and mount namespaces of their own. A line that cannot be run here stands in
//! [`NOT_RUN`] with the reason; the test prints how many there are.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The beginnings of lines that are not run, and why.
const NOT_RUN: [(&str, &str); 30] = [
    ("cargo ", "compiles"),
    ("levada demo", "takes a minute: tests/demo.rs runs it"),
    ("levada run ", "the node of this test runs so"),
    ("levada upgrade ", "needs two programs: tests/upgrade runs it"),
    ("levada warm https://", "asks hosts of the Internet"),
    ("levada warm --sitemap https://", "asks hosts of the Internet"),
    ("levada explain 'http://levada.test", "has a placeholder"),
    ("curl -so /dev/null -D- -H 'Host: levada.test' 'http://127.0.0.1:PORT", "has a placeholder"),
    ("curl http://127.0.0.1:ADMIN", "has a placeholder"),
    ("curl -i http://localhost:8081/", "asks the containers of the line before"),
    ("apt-get ", "installs packages"),
    ("dnf ", "installs packages"),
    ("brew ", "installs packages"),
    ("tar xzf levada-", "unpacks a release"),
    ("install levada-", "unpacks a release"),
    ("sha256sum ", "checks a release"),
    ("gh ", "checks a release"),
    ("systemctl ", "needs systemd"),
    ("editor ", "is for a human"),
    ("chgrp levada ", "needs the user of the package"),
    ("export LEVADA_SECRET", "is for the containers of the next line"),
    ("docker ", "needs a daemon"),
    ("helm ", "needs Kubernetes"),
    ("tar -C fleet ", "needs a fleet"),
    ("lease=", "needs etcd"),
    ("etcdctl ", "needs etcd"),
    ("sysctl -w ", "changes the kernel"),
    ("kdig ", "asks a name server that does not run here"),
    ("clickhouse-client ", "needs ClickHouse"),
    ("vector ", "needs Vector"),
];

/// Lines that end otherwise than with 0: their beginnings, and the statuses that are right.
const STATUSES: [(&str, &[i32]); 2] = [
    // The machine may lack something.
    ("levada doctor", &[0, 1]),
    // The stream has no end.
    ("curl -N ", &[124]),
];

/// The node that runs while lines are run: written as the page says, with an address and a log more.
const WORLD: &str = r#"
ip link set lo up && ip address add 10.0.0.1/32 dev lo || exit 77
mount -t tmpfs none /srv && mount -t tmpfs none /var/log || exit 77
mkdir -p /srv/www /var/log/levada && echo hello > /srv/www/index.html
levada init --files /srv/www --listen 8080 --output levada.toml </dev/null
cat more >> levada.toml
echo 'http://www.example.com/index.html' > list.txt
levada run -c levada.toml >node.log 2>&1 </dev/null &
node=$!
until levada health -c levada.toml >/dev/null 2>&1; do
    kill -0 $node || { cat node.log; exit 1; }
    sleep 0.1
done
curl -s http://127.0.0.1:8080/ http://127.0.0.1:8080/index.html >/dev/null
sleep 1.5
cp access.log /var/log/levada/access.log && gzip -k access.log && mv access.log.gz access.log.1.gz
openssl req -x509 -newkey ed25519 -nodes -subj /CN=a -addext subjectAltName=DNS:www.example.com \
    -keyout cdn.key -out cdn.pem 2>/dev/null
mount -t tmpfs none /etc && mkdir /etc/levada && cp levada.toml /etc/levada || exit 77
printf 'http://127.0.0.1:9000\n*\n8080\n' > answers
for line in "$WORLD"/line.??; do
    cd "$WORLD"
    case "$(cat "$line")" in
        # It writes a file that must not exist.
        "levada init"*) mkdir "$line.init" && cp cdn.pem cdn.key "$line.init" && cd "$line.init" ;;
    esac
    limit=30
    grep -q '^curl -N ' "$line" && limit=2
    timeout $limit sh "$line" >"$line.said" 2>&1 <"$WORLD/answers"
    echo $? >"$line.status"
done
kill $node; wait $node
exit 0
"#;

/// The lines of the node's file in addition to those that `levada init` writes.
const MORE: &str = r#"
[log]
access = "access.log"
[[listen]]
address = "10.0.0.1:80"
[[site]]
hosts = "www.example.com"
origin = "http://127.0.0.1:8080"
origin_host = "files.test"
default_ttl = "1m"
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines of shell on the pages, without repetitions, each with its place.
fn lines() -> Vec<(String, String)> {
    let mut pages: Vec<_> =
        ["README.md", "docs/start.md", "docs/install.md"].map(|page| root().join(page)).into();
    let operate = fs::read_dir(root().join("docs/operate")).unwrap();
    pages.extend(
        operate
            .map(|entry| entry.unwrap().path())
            .filter(|p| p.extension().is_some_and(|e| e == "md")),
    );
    pages.sort();
    let mut found: Vec<(String, String)> = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let mut is_shell = false;
        for (number, line) in text.lines().enumerate() {
            if let Some(kind) = line.trim().strip_prefix("```") {
                is_shell = !is_shell && ["sh", "console"].contains(&kind);
                continue;
            }
            let line = line.trim().trim_start_matches("$ ");
            let command = line.split(" # ").next().unwrap_or_default().trim_end().to_owned();
            if is_shell && !command.is_empty() && found.iter().all(|(known, _)| *known != command) {
                let page = page.strip_prefix(root()).unwrap_or(&page).display();
                found.push((command, format!("{page}:{}", number + 1)));
            }
        }
    }
    found
}

#[test]
fn lines_of_shell_in_the_documentation_do_what_they_say() {
    let (mut run, mut left_out) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for (line, place) in lines() {
        match NOT_RUN.iter().find(|(begin, _)| line.starts_with(begin)) {
            Some((_, why)) => *left_out.entry(why).or_default() += 1,
            None => run.push((line, place)),
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let file = |number: usize, end: &str| directory.path().join(format!("line.{number:02}{end}"));
    for (number, (line, _)) in run.iter().enumerate() {
        fs::write(file(number, ""), line).unwrap();
    }
    fs::write(directory.path().join("world"), WORLD).unwrap();
    fs::write(directory.path().join("more"), MORE).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_levada")).parent().unwrap().display();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "--mount", "sh", "world"]);
    command.current_dir(&directory).env("PATH", path).env("HOME", directory.path());
    let output = command.env("WORLD", directory.path()).output().unwrap();
    if output.status.code() == Some(77) || !file(0, ".status").exists() {
        levada_skip::skipped(format_args!("no namespaces here: {output:?}"));
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let mut wrong = Vec::new();
    for (number, (line, place)) in run.iter().enumerate() {
        let status = fs::read_to_string(file(number, ".status")).unwrap_or_default();
        let status: i32 = status.trim().parse().unwrap_or(-1);
        let right = STATUSES.iter().find(|(begin, _)| line.starts_with(begin));
        if !right.map_or(&[0][..], |(_, right)| right).contains(&status) {
            let said = fs::read_to_string(file(number, ".said")).unwrap_or_default();
            wrong.push(format!("{place}: {line}\nends with {status}:\n{said}"));
        }
    }
    println!("{} lines were run; not run: {left_out:?}", run.len());
    assert!(run.len() >= 20, "{}", run.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), run.len(), wrong.join("\n"));
}
