//! `levada kubernetes sites` next to a node: resources come, change and go at an API server, and requests follow.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{Process, free};

/// The part of an API server that lists, watches and patches.
#[derive(Clone, Default)]
struct Api(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    /// By the path of their kind without a namespace, and by namespace and name.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    /// Each with its kind; the version of an object is the number of its event.
    events: Vec<(String, Value)>,
    patches: Vec<(String, Value)>,
}

const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const SERVICES: &str = "/api/v1/services";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/ingresses";

impl Api {
    /// Starts it, without the resources of the Gateway API.
    fn start() -> (Self, String) {
        let api = Self::default();
        for kind in [SLICES, SERVICES, INGRESSES, "/api/v1/secrets"] {
            api.0.0.lock().unwrap().objects.insert(kind.to_owned(), BTreeMap::new());
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = api.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (api, stream) = (served.clone(), stream.unwrap());
                // A client that goes ends its watch.
                thread::spawn(move || drop(api.answer(stream)));
            }
        });
        (api, address)
    }

    fn put(&self, kind: &str, name: &str, mut object: Value) {
        let mut state = self.0.0.lock().unwrap();
        let version = (state.events.len() + 1).to_string();
        object["metadata"]["name"] = name.into();
        object["metadata"]["namespace"] = "default".into();
        object["metadata"]["resourceVersion"] = version.into();
        let event = json!({ "type": "MODIFIED", "object": object });
        state.events.push((kind.to_owned(), event));
        state.objects.get_mut(kind).unwrap().insert(name.to_owned(), object);
        self.0.1.notify_all();
    }

    fn delete(&self, kind: &str, name: &str) {
        let mut state = self.0.0.lock().unwrap();
        let version = (state.events.len() + 1).to_string();
        let mut object = state.objects.get_mut(kind).unwrap().remove(name).unwrap();
        object["metadata"]["resourceVersion"] = version.into();
        state.events.push((kind.to_owned(), json!({ "type": "DELETED", "object": object })));
        self.0.1.notify_all();
    }

    fn patches(&self) -> Vec<(String, Value)> {
        self.0.0.lock().unwrap().patches.clone()
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let mut words = head.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body)?;
        if method == "PATCH" {
            let patch = serde_json::from_slice(&body).unwrap();
            self.0.0.lock().unwrap().patches.push((path.to_owned(), patch));
            return whole(&mut stream, "200 OK", &json!({}));
        }
        let kind = path.replace("/namespaces/default", "");
        let state = self.0.0.lock().unwrap();
        let Some(objects) = state.objects.get(&kind) else {
            drop(state);
            return whole(&mut stream, "404 Not Found", &json!({ "message": "no such kind" }));
        };
        let service = query.split("service-name%3D").nth(1).and_then(|rest| rest.split('&').next());
        let is_asked = |object: &Value| {
            let label = &object["metadata"]["labels"]["kubernetes.io/service-name"];
            service.is_none_or(|service| label == service)
        };
        if !query.contains("watch=1") {
            let items: Vec<_> = objects.values().filter(|one| is_asked(one)).cloned().collect();
            let version = state.events.len().to_string();
            drop(state);
            let list = json!({ "metadata": { "resourceVersion": version }, "items": items });
            return whole(&mut stream, "200 OK", &list);
        }
        let from = query.split("resourceVersion=").nth(1).unwrap();
        let mut sent: usize = from.parse().unwrap();
        drop(state);
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        loop {
            let mut state = self.0.0.lock().unwrap();
            while state.events.len() == sent {
                state = self.0.1.wait(state).unwrap();
            }
            let news = state.events[sent..].to_vec();
            sent = state.events.len();
            drop(state);
            for (_, event) in
                news.iter().filter(|(of, one)| *of == kind && is_asked(&one["object"]))
            {
                let line = format!("{event}\n");
                write!(stream, "{:x}\r\n{line}\r\n", line.len())?;
            }
        }
    }
}

fn whole(stream: &mut impl Write, status: &str, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// A pod: a server that answers with its name and the path that it was asked for.
fn pod(name: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            let path = line.split(' ').nth(1).unwrap_or_default();
            let body = format!("{name} {path}");
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nCache-Control: no-store\r\n\
                 Connection: close\r\n\r\n{body}"
            );
        }
    });
    port
}

impl Api {
    /// A service with one pod.
    fn service(&self, name: &str, port: u16) {
        self.put(SERVICES, name, json!({ "spec": { "ports": [{ "name": "http", "port": 80 }] } }));
        self.put(
            SLICES,
            name,
            json!({
                "metadata": { "labels": { "kubernetes.io/service-name": name } },
                "addressType": "IPv4",
                "endpoints": [{ "addresses": ["127.0.0.1"], "conditions": { "ready": true } }],
                "ports": [{ "name": "http", "port": port }],
            }),
        );
    }

    /// An Ingress for `www.example.com` with these paths and services.
    fn ingress(&self, paths: &[(&str, &str)]) {
        let path = |(path, service): &(&str, &str)| {
            let backend = json!({ "service": { "name": service, "port": { "number": 80 } } });
            json!({ "path": path, "pathType": "Prefix", "backend": backend })
        };
        let paths: Vec<Value> = paths.iter().map(path).collect();
        let rules = json!([{ "host": "www.example.com", "http": { "paths": paths } }]);
        self.put(
            INGRESSES,
            "www",
            json!({ "spec": { "ingressClassName": "levada", "rules": rules } }),
        );
    }
}

/// The last line of the answer to a request.
fn ask(address: &str, path: &str) -> String {
    let Ok(mut socket) = TcpStream::connect(address) else { return String::new() };
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    let _ = socket.write_all(request.as_bytes());
    let _ = socket.read_to_string(&mut answer);
    let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    match status.as_str() {
        "200" => answer.lines().last().unwrap_or_default().to_owned(),
        _ => status,
    }
}

fn becomes(address: &str, path: &str, expected: &str) {
    let comes = (0..300).any(|_| {
        thread::sleep(Duration::from_millis(100));
        ask(address, path) == expected
    });
    assert!(comes, "{path} becomes {expected}: {}", ask(address, path));
}

fn sites(directory: &Path, api: &str, more: &[&str]) -> Command {
    let kubeconfig = directory.join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{ name: c, context: {{ cluster: c, user: u }} }}]\n\
         clusters: [{{ name: c, cluster: {{ server: 'http://{api}' }} }}]\n\
         users: [{{ name: u, user: {{ token: t }} }}]\n"
    );
    fs::write(&kubeconfig, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.args(["kubernetes", "sites", "-c"]).arg(directory.join("base.toml"));
    command.arg("--output").arg(directory.join("sites")).arg("--kubeconfig").arg(kubeconfig);
    command.args(more).stdout(Stdio::null());
    command
}

#[test]
fn requests_follow_the_ingresses_of_a_cluster() {
    let (api, at) = Api::start();
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let client = format!("127.0.0.1:{}", free());
    fs::write(
        directory.join("base.toml"),
        format!("name = 'a'\n[[listen]]\naddress = '{client}'\n"),
    )
    .unwrap();
    api.service("web", pod("web"));
    api.service("cart", pod("cart"));
    api.ingress(&[("/", "web")]);

    let once = sites(directory, &at, &["--once"]).status().unwrap();
    assert!(once.success());
    let mut node = Command::new(env!("CARGO_BIN_EXE_levada"));
    node.arg("run").arg("-c").arg(directory.join("sites/levada.toml"));
    let (_node, _said) = Process::ready(node.arg("--watch").arg(directory.join("sites"))).unwrap();
    becomes(&client, "/x", "web /x");

    let status = ["--status", "--address", "192.0.2.1"];
    let _sites = Process(sites(directory, &at, &status).stderr(Stdio::null()).spawn().unwrap());
    api.ingress(&[("/", "web"), ("/cart", "cart"), ("/none", "none")]);
    becomes(&client, "/cart/1", "cart /cart/1");
    assert_eq!(ask(&client, "/cartridge"), "web /cartridge");
    // Closed, and not the site's other rule.
    assert_eq!(ask(&client, "/none"), "503");
    let (path, patch) = api.patches()[0].clone();
    assert_eq!(path, "/apis/networking.k8s.io/v1/namespaces/default/ingresses/www/status");
    assert_eq!(patch["status"]["loadBalancer"]["ingress"], json!([{ "ip": "192.0.2.1" }]));

    // A service that comes, and a pod in the place of another one.
    api.service("none", pod("none"));
    becomes(&client, "/none", "none /none");
    api.service("cart", pod("other"));
    becomes(&client, "/cart", "other /cart");
    api.delete(INGRESSES, "www");
    becomes(&client, "/cart", "404");
}
