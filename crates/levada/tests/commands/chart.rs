//! The Helm chart, as helm renders it: each configuration is one, and the pods restart for what a node cannot reload.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use levada_config::{Settings, Source, Surroundings, changes};

use crate::examples::{root, scalar};

/// The program, unless this machine has none.
fn helm() -> Option<PathBuf> {
    let paths = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&paths).map(|path| path.join("helm")).find(|path| path.exists());
    if found.is_none() {
        levada_skip::skipped("helm is missing: put one on the PATH");
    }
    found
}

/// Templates of the chart with these values, in YAML; or why helm refuses them.
fn rendered(helm: &Path, templates: &[&str], values: &str) -> Result<String, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), values).unwrap();
    let mut command = Command::new(helm);
    command.args(["template", "cdn", "--kube-version", "1.33.0", "--values"]).arg(file.path());
    command.args(templates.iter().map(|name| format!("--show-only=templates/{name}.yaml")));
    let output = command.arg(root().join("packaging/helm/levada")).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// A directory with what the volumes of a pod have.
fn volumes() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let pair = rcgen::generate_simple_self_signed(["www.example.com".to_owned()]).unwrap();
    write("etc/levada-tls/www/tls.crt", &pair.cert.pem());
    write("etc/levada-tls/www/tls.key", &pair.signing_key.serialize_pem());
    write("etc/levada-peering/secret", "a secret of some length");
    write("run/levada/.keep", "");
    write("var/cache/levada/.keep", "");
    directory
}

/// The settings of a node by the configuration of the chart.
fn settings(chart: &str, volumes: &Path) -> Settings {
    let volume =
        |text: String, path: &str| text.replace(path, &format!("{}{path}", volumes.display()));
    let paths = ["/etc/levada-", "/run/levada", "/var/cache/levada"];
    let text = paths.into_iter().fold(scalar(chart, "levada.toml"), volume);
    let surroundings = Surroundings {
        directory: Path::new("/"),
        variable: &|_| Some("pod-0".to_owned()),
        start_error: &|settings| levada_node::check(settings).err().map(|error| error.to_string()),
    };
    let checked = levada_config::check(&Source { name: "chart".into(), text }, &surroundings);
    checked.settings.unwrap_or_else(|| panic!("{chart}\n{}", checked.report))
}

/// The settings of a pod, and the mark whose change restarts it.
fn pod(helm: &Path, volumes: &Path, values: &str) -> (Settings, String) {
    let chart = rendered(helm, &["configmap", "statefulset"], values).unwrap();
    let mark = chart.lines().find(|line| line.contains("checksum/restart")).unwrap();
    (settings(&chart, volumes), mark.to_owned())
}

/// Values with these tables before the site.
fn with(tables: &str) -> String {
    let site = "[[site]]\nhosts = \"*\"\norigin = \"http://app.default.svc:8080\"\n";
    let config: String = [tables, site].concat().lines().map(|l| format!("  {l}\n")).collect();
    format!("config: |\n{config}")
}

#[test]
fn pods_restart_exactly_for_what_a_running_node_refuses() {
    let Some(helm) = helm() else { return };
    let volumes = volumes();
    let volumes = volumes.path();
    let disk =
        |size: &str| with("") + &format!("cache: {{ disk: {{ enabled: true, size: {size} }} }}\n");
    let changes = [
        with("[limits]\ncapacity = 40\n"),
        with("[[trusted]]\naddresses = \"10.0.0.0/8\"\n"),
        with("[purge]\ntoken = \"a token of some length\"\n"),
        with("") + "cache: { memory: 128MiB }\n",
        with("") + "peering: { slowStart: 5s }\n",
        with("[runtime]\nthreads = 7\n"),
        with("[purge]\nexpose_tags = true\n"),
        with("[limits]\ncompress_workers = 7\n"),
        with("[telemetry]\nendpoint = \"http://10.0.0.9:4318\"\n"),
        disk("8GiB"),
        disk("7GiB"),
    ];
    let mut former = pod(&helm, volumes, &with(""));
    let mut restarts = Vec::new();
    for values in changes {
        let now = pod(&helm, volumes, &values);
        let change = changes::between(&former.0, &now.0);
        restarts.push(former.1 != now.1);
        assert_eq!(former.1 != now.1, change.is_err(), "{values}\n{change:?}");
        former = now;
    }
    assert_eq!(restarts, [[false; 5].as_slice(), &[true; 6]].concat());
}

#[test]
fn certificates_and_ports_of_the_values_are_those_of_node_and_service() {
    let Some(helm) = helm() else { return };
    let volumes = volumes();
    let values = with("") + "tls: { secrets: [www], port: 8443 }\ndns: { enabled: true }\n";
    let (settings, _) = pod(&helm, volumes.path(), &values);
    let ports: Vec<_> =
        settings.listeners.iter().map(|one| (one.address.port(), one.http3)).collect();
    assert_eq!(ports, [(8080, false), (8443, true)]);
    let (service, set) = (
        rendered(&helm, &["services"], &values).unwrap(),
        rendered(&helm, &["statefulset"], &values).unwrap(),
    );
    for name in ["https", "http3", "dns", "dns-tcp"] {
        assert!(service.contains(&format!("targetPort: {name}\n")), "{service}");
        assert!(set.contains(&format!("- name: {name}\n")), "{set}");
    }
    assert!(set.contains("- --watch=/etc/levada-tls/www\n"), "{set}");
    assert!(!set.contains("sysctls"), "{set}");
    assert!(
        rendered(&helm, &["statefulset"], "tls: { secrets: [www] }").unwrap().contains("sysctls")
    );
}

#[test]
fn sites_of_resources_are_written_before_the_node_and_next_to_it() {
    let Some(helm) = helm() else { return };
    let values = "config: \"\"\nsites: { enabled: true, class: edge }\ntls: { port: 8443 }\n";
    let set = rendered(&helm, &["statefulset"], values).unwrap();
    let count = |text: &str| set.matches(text).count();
    assert_eq!(count("- --class=edge\n"), 2, "{set}");
    assert_eq!(count("- --once\n"), 1, "{set}");
    assert_eq!(count("- --https=0.0.0.0:8443\n"), 2, "{set}");
    assert!(set.contains("- --config=/run/levada-sites/levada.toml\n"), "{set}");
    let rights = rendered(&helm, &["sites"], values).unwrap();
    for kind in ["IngressClass", "ClusterRole", "ClusterRoleBinding"] {
        assert!(rights.contains(&format!("kind: {kind}\n")), "{rights}");
    }
    assert!(rendered(&helm, &["services"], values).unwrap().contains("targetPort: https\n"));
    assert!(rendered(&helm, &["configmap"], "config: \"\"").unwrap_err().contains("config"));
}

#[test]
fn values_that_no_template_reads_are_refused() {
    let Some(helm) = helm() else { return };
    for (values, place) in [
        ("tls: { secret: www }", "secret is not allowed"),
        ("tls: { port: 7070 }", "tls.port"),
        ("networkPolicies: { enabled: true }", "networkPolicies is not allowed"),
        ("autoscaling: { cpu: much }", "autoscaling.cpu"),
    ] {
        let why = rendered(&helm, &["configmap"], values).unwrap_err();
        assert!(why.contains(place), "{values}: {why}");
    }
}
