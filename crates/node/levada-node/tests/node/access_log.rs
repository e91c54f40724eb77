//! Access logs of a node and of its sites, across reloads.

use std::path::Path;

use levada_config::{AccessLog, LogFormat, SiteLog};

use crate::{
    reload_all::{change, free},
    support::{nodes::*, *},
};

fn log(path: &Path, format: &str) -> AccessLog {
    AccessLog::to_file(path.to_owned(), LogFormat::parse(format).unwrap())
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn site_has_a_log_of_its_own_or_none_and_a_full_disk_costs_lines_only() {
    let directory = tempfile::tempdir().unwrap();
    let (common, own) = (directory.path().join("node.log"), directory.path().join("own.log"));
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.access_log = Some(log(&common, "$host $request_uri"));
    let named = |host: &str, log: Option<AccessLog>| {
        let log = SiteLog::Own(log.map(Box::new));
        levada_config::SiteSettings { log, ..site(host, &[origin.address]) }
    };
    let format = r#"$host $status "$http_user_agent" "$sent_http_x_made_by""#;
    settings.sites.push(named("own.test", Some(log(&own, format))));
    settings.sites.push(named("off.test", None));
    settings.sites.push(named("full.test", Some(log(Path::new("/dev/full"), "$host"))));
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    origin.otherwise(|_| Reply::ok("x").with("x-made-by", "a \"quoted\" origin"));
    for host in [HOST, "own.test", "off.test", "full.test"] {
        let answer = get_with(at, "/a", &[("host", host), ("user-agent", "me \"and\" you")]).await;
        assert_eq!(answer.status, 200, "{host}");
    }
    settled(&node).await;
    if cfg!(target_os = "linux") {
        let dropped = "levada_log_lines_dropped_total";
        let counted = async || metric(&node, dropped).await == 1.0;
        while !counted().await {
            tokio::task::yield_now().await;
        }
    }
    node.stop().await;
    assert_eq!(lines(&common), [format!("{HOST} /a")]);
    let shown = r#"own.test 200 "me \x22and\x22 you" "a \x22quoted\x22 origin""#;
    assert_eq!(lines(&own), [shown]);
}

#[tokio::test]
async fn reloads_that_change_formats_and_targets_lose_no_line() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["a.log", "b.log"].map(|name| directory.path().join(name));
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.listeners[0].address = free();
    let at = settings.listeners[0].address;
    settings.access_log = Some(log(&paths[0], "$request_uri old"));
    let (node, file) = world(settings.clone()).await;
    let load = tokio::spawn(async move {
        for number in 0..300 {
            assert_eq!(get(at, &format!("/{number}")).await.status, 200);
        }
    });
    let mut reloads = 0;
    while !load.is_finished() {
        let path = &paths[reloads / 2 % 2];
        let changed = log(path, ["$request_uri old", "$request_uri new"][reloads % 2]);
        match reloads % 3 {
            0 => settings.sites[0].log = SiteLog::Own(Some(Box::new(changed))),
            _ => {
                settings.sites[0].log = SiteLog::OfNode;
                settings.access_log = Some(changed);
            }
        }
        change(&node, &file, &settings).await;
        reloads += 1;
    }
    load.await.unwrap();
    assert!(reloads > 2);
    settled(&node).await;
    node.stop().await;
    let mut seen: Vec<_> = paths.iter().flat_map(|path| lines(path)).collect();
    seen.iter_mut().for_each(|line| line.truncate(line.len() - " old".len()));
    seen.sort();
    let mut expected: Vec<_> = (0..300).map(|number| format!("/{number}")).collect();
    expected.sort();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn new_file_is_read_by_its_group_at_most_and_secrets_of_urls_are_left_out() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.access_log = Some(log(&path, "$request|$args|$http_referer"));
    let node = start(settings).await;
    let referer = [("referer", "http://b.test/?b=1&sig=hidden")];
    get_with(node.addresses.clients[0], "/a?Token=hidden&b=1", &referer).await;
    eventually("the line is there", || !lines(&path).is_empty()).await;
    let line =
        "GET /a?Token=REDACTED&b=1 HTTP/1.1|Token=REDACTED&b=1|http://b.test/?b=1&sig=REDACTED";
    assert_eq!(lines(&path), [line]);
    assert_eq!(origin.asked("/a")[0].target, "/a?Token=hidden&b=1", "the origin gets the secret");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o137, 0, "{mode:o}");
}
