//! Traces, metrics and logs of a node, at a plain HTTP server that takes the messages apart, and at a real collector of
//! OpenTelemetry where there is one: the program that LEVADA_OTELCOL names, or `otelcol` in PATH.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

use crate::support::{Process, free};

/// The longest that a test waits for something.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A request with its body, as a server received it.
struct Received {
    target: String,
    body: Vec<u8>,
}

/// Serves every request with one answer, which `answer` makes; it may write the first bytes itself. It ends with the
/// process.
fn server(answer: impl Fn(Received, &TcpStream) -> &'static str + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, answer) = (listener.local_addr().unwrap().port(), Arc::new(answer));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), answer.clone());
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some(received) = receive(&mut reader) {
                    stream.write_all(answer(received, reader.get_ref()).as_bytes()).unwrap();
                }
            });
        }
    });
    port
}

fn receive(reader: &mut BufReader<TcpStream>) -> Option<Received> {
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok()?;
    let target = first.split(' ').nth(1)?.to_owned();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Received { target, body })
}

const ANSWER: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok";

/// An origin whose answers to `/shared` end when the door is open. A fetch whose head does not come for seconds is
/// late, and another one begins, so that the first bytes do not wait.
fn origin(door: &Arc<(Mutex<bool>, Condvar)>) -> u16 {
    let door = door.clone();
    server(move |received, mut stream| {
        let (first, last) = match &*received.target {
            "/shared" => ANSWER.split_at(ANSWER.len() - 1),
            _ => ("", ANSWER),
        };
        stream.write_all(first.as_bytes()).unwrap();
        if !first.is_empty() {
            drop(door.1.wait_while(door.0.lock().unwrap(), |open| !*open).unwrap());
        }
        last
    })
}

/// A node whose data go to a collector at this port.
struct Node {
    process: Process,
    clients: u16,
    admin: u16,
    door: Arc<(Mutex<bool>, Condvar)>,
}

impl Node {
    fn start(directory: &Path, collector: u16) -> Self {
        let (clients, admin, door) = (free(), free(), Arc::default());
        let origin = origin(&door);
        let text = format!(
            "name = 'n0'\n[admin]\nlisten = '127.0.0.1:{admin}'\n\
             [[listen]]\naddress = '127.0.0.1:{clients}'\n\
             [telemetry]\nendpoint = 'http://127.0.0.1:{collector}'\nsample = 1\n\
             metrics_interval = '1s'\nevent_log = true\n\
             [log]\naccess = 'otlp'\nformat = '$request_method $request_uri'\n\
             [defaults]\nrequest_id = true\n\
             [[site]]\nhosts = ['localhost']\norigin = ['http://127.0.0.1:{origin}']\n"
        );
        let file = directory.join("levada.toml");
        fs::write(&file, text).unwrap();
        Self { process: Process::node(&file), clients, admin, door }
    }

    /// Three requests after each other, and two that share a fetch.
    fn serve(&self) {
        for target in ["/one?a=b", "/two", "/one?a=b"] {
            assert!(get(self.clients, target).unwrap().contains("\r\n\r\nok"), "{target}");
        }
        // Each has its first byte before the next one asks.
        let both = [(); 2].map(|()| {
            let mut stream = BufReader::new(ask(self.clients, "/shared").unwrap());
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                assert!(stream.read_line(&mut line).unwrap() > 0, "the answer has a head");
            }
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            assert_eq!(byte, *b"o");
            stream
        });
        *self.door.0.lock().unwrap() = true;
        self.door.1.notify_all();
        for mut stream in both {
            let mut rest = String::new();
            stream.read_to_string(&mut rest).unwrap();
            assert_eq!(rest, "k");
        }
    }

    /// Ends the node as a service manager does.
    fn end(mut self) {
        let pid = self.process.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.process.0.wait().unwrap().success());
    }
}

/// A connection with a GET of its own.
fn ask(port: u16, target: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(TEST_TIMEOUT)).ok()?;
    let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    Some(stream)
}

/// The answer to it.
fn get(port: u16, target: &str) -> Option<String> {
    let mut answer = String::new();
    ask(port, target)?.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// A message of protobuf, without its schema: fields by number.
struct Message(Vec<(u64, Field)>);

enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Message {
    fn read(mut bytes: &[u8]) -> Self {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let field = match key & 7 {
                0 => Field::Number(varint(&mut bytes)),
                1 => Field::Number(u64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap())),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    Field::Bytes(take(&mut bytes, length).to_vec())
                }
                5 => Field::Number(
                    u32::from_le_bytes(take(&mut bytes, 4).try_into().unwrap()).into(),
                ),
                other => panic!("wire type {other}"),
            };
            fields.push((key >> 3, field));
        }
        Self(fields)
    }

    fn all(&self, number: u64) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter_map(move |(own, field)| match field {
            Field::Bytes(bytes) if *own == number => Some(&bytes[..]),
            _ => None,
        })
    }

    /// The messages below these fields, one in the other.
    fn below(self, path: &[u64]) -> Vec<Self> {
        path.iter().fold(vec![self], |found, number| {
            found.iter().flat_map(|one| one.all(*number)).map(Self::read).collect()
        })
    }

    fn text(&self, number: u64) -> String {
        String::from_utf8(self.all(number).next().unwrap_or_default().to_vec()).unwrap()
    }

    fn bytes(&self, number: u64) -> Vec<u8> {
        self.all(number).next().unwrap_or_default().to_vec()
    }

    fn number(&self, number: u64) -> Option<u64> {
        self.0.iter().find_map(|(own, field)| match field {
            Field::Number(value) if *own == number => Some(*value),
            _ => None,
        })
    }

    /// Attributes (KeyValue) with texts as values.
    fn attributes(&self, number: u64) -> HashMap<String, String> {
        let pairs = self.all(number).map(Self::read);
        pairs.map(|pair| (pair.text(1), Self::read(&pair.bytes(2)).text(1))).collect()
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = take(bytes, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

/// The messages of one signal: resource, scope, and then spans, metrics or records.
fn messages(all: &Mutex<Vec<Received>>, target: &str) -> Vec<Message> {
    let all = all.lock().unwrap();
    let of = all.iter().filter(|received| received.target == target);
    of.flat_map(|received| Message::read(&received.body).below(&[1, 2, 2])).collect()
}

#[test]
fn node_exports_all_that_it_has_until_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let received = Arc::new(Mutex::new(Vec::new()));
    let kept = received.clone();
    let collector = server(move |message, _| {
        kept.lock().unwrap().push(message);
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n"
    });
    let node = Node::start(directory.path(), collector);
    node.serve();
    // Nothing waits for the next interval.
    node.end();

    let resources = Message::read(&received.lock().unwrap()[0].body).below(&[1, 1]);
    let resource = resources[0].attributes(1);
    assert_eq!((&*resource["service.name"], &*resource["service.instance.id"]), ("levada", "n0"));

    let spans = messages(&received, "/v1/traces");
    let named = |name: &str| spans.iter().filter(|span| span.text(5) == name).collect::<Vec<_>>();
    let roots = named("GET");
    assert_eq!(roots.len(), 5);
    let attributes = roots[0].attributes(9);
    assert_eq!((&*attributes["url.path"], &*attributes["url.query"]), ("/one", "a=b"));
    assert_eq!((named("origin").len(), named("fetch").len(), named("response").len()), (3, 3, 1));
    let [wait] = &named("wait")[..] else { panic!("one request waits for another one's fetch") };
    let [link] = &wait.all(13).map(Message::read).collect::<Vec<_>>()[..] else { panic!("a link") };
    let leader = roots.iter().find(|root| root.bytes(1) == link.bytes(1)).unwrap();
    assert_eq!(leader.bytes(2), link.bytes(2), "the link leads to the span of a request");
    assert_ne!(wait.bytes(1), link.bytes(1), "of another trace");

    let records = messages(&received, "/v1/logs");
    let body = |record: &Message| Message::read(&record.bytes(5)).text(1);
    let lines: Vec<_> = records.iter().filter(|record| body(record).starts_with("GET /")).collect();
    assert_eq!(lines.len(), 5);
    assert_eq!(body(lines[0]), "GET /one?a=b");
    assert_eq!(lines[0].number(2), Some(9), "the severity of information");
    let attributes = lines[0].attributes(6);
    assert_eq!(
        (&*attributes["levada.cache"], &*attributes["http.request.method"]),
        ("miss", "GET")
    );
    let root = roots.iter().find(|root| root.bytes(1) == lines[0].bytes(9)).unwrap();
    assert_eq!(root.bytes(2), lines[0].bytes(10), "the span of the request");
    let id = &root.attributes(9)["levada.request_id"];
    assert_eq!((id, id.len()), (&attributes["levada.request_id"], 32));
    assert!(records.iter().any(|record| body(record).starts_with("stopping")), "the event log");

    // The last page has all requests.
    let metrics = messages(&received, "/v1/metrics");
    let requests = metrics.iter().rfind(|metric| metric.text(1) == "levada_http_requests").unwrap();
    let sum = Message::read(&requests.bytes(7));
    assert_eq!((sum.number(2), sum.number(3)), (Some(2), Some(1)), "cumulative and monotonic");
    let points: Vec<_> = sum.all(1).map(Message::read).collect();
    let values = points.iter().map(|point| f64::from_bits(point.number(4).unwrap()));
    assert_eq!(values.sum::<f64>(), 5.0);
    let times =
        metrics.iter().rfind(|metric| metric.text(1) == "levada_http_request_duration_seconds");
    let times = times.unwrap();
    assert_eq!(times.text(3), "s");
    let points = Message::read(&times.bytes(9)).below(&[1]);
    let point = points.iter().find(|point| point.attributes(9)["site"] == "localhost").unwrap();
    assert_eq!(point.number(4), Some(5), "the count");
    let (counts, bounds) = (point.bytes(6), point.bytes(7));
    assert_eq!(counts.len(), bounds.len() + 8, "one bucket more than bounds");
    let counts = counts.chunks(8).map(|count| u64::from_le_bytes(count.try_into().unwrap()));
    assert_eq!(counts.sum::<u64>(), 5);
}

#[test]
fn collector_that_takes_nothing_holds_up_neither_requests_nor_the_end() {
    let directory = tempfile::tempdir().unwrap();
    // The system makes connections, and nobody reads.
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let node = Node::start(directory.path(), hangs.local_addr().unwrap().port());
    node.serve();
    node.end();
    let directory = tempfile::tempdir().unwrap();
    let refuses = server(|_, _| "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let node = Node::start(directory.path(), refuses);
    node.serve();
    until("lost items are counted", || {
        let page = get(node.admin, "/metrics").unwrap();
        ["spans", "metric_points", "log_records"].iter().all(|items| {
            let name = format!("\nlevada_{items}_dropped_total ");
            !page.contains(&format!("{name}0\n"))
        })
    });
    node.end();
}

#[test]
fn real_collector_takes_traces_metrics_and_logs() {
    let program = std::env::var("LEVADA_OTELCOL").unwrap_or_else(|_| "otelcol".to_owned());
    let (directory, port) = (tempfile::tempdir().unwrap(), free());
    let (config, output) = (directory.path().join("collector.yaml"), directory.path().join("out"));
    let text = format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: 127.0.0.1:{port}}}}}}}}}\n\
         exporters: {{debug: {{verbosity: detailed}}}}\n\
         service:\n  telemetry: {{metrics: {{level: none}}}}\n  pipelines:\n\
         \x20   traces: {{receivers: [otlp], exporters: [debug]}}\n\
         \x20   metrics: {{receivers: [otlp], exporters: [debug]}}\n\
         \x20   logs: {{receivers: [otlp], exporters: [debug]}}\n"
    );
    fs::write(&config, text).unwrap();
    let written = fs::File::create(&output).unwrap();
    let collector = Command::new(&program)
        .arg(format!("--config={}", config.display()))
        .stdout(written.try_clone().unwrap())
        .stderr(written)
        .spawn();
    let Ok(collector) = collector else {
        levada_skip::skipped(format_args!(
            "{program} is missing: LEVADA_OTELCOL names a collector of OpenTelemetry"
        ));
        return;
    };
    let _collector = Process(collector);
    let shown = || String::from_utf8_lossy(&fs::read(&output).unwrap()).into_owned();
    until("the collector starts", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let node = Node::start(directory.path(), port);
    node.serve();
    let lost = || {
        let page = get(node.admin, "/metrics").unwrap();
        let lost = page
            .lines()
            .filter(|line| line.starts_with("levada_") && line.contains("_dropped_total"));
        lost.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(lost().iter().all(|line| line.ends_with(" 0")), "{:?}", lost());
    node.end();
    let all = [
        "service.instance.id: Str(n0)",
        "Name           : GET",
        "Name           : wait",
        "SpanLink #0",
        "levada.request_id: Str(",
        "Name: levada_http_requests\n",
        "DataType: Histogram",
        "IsMonotonic: true",
        "AggregationTemporality: Cumulative",
        "Body: Str(GET /one?a=b)",
        "Body: Str(stopping",
    ];
    until("the collector shows everything", || {
        let shown = shown();
        all.iter().all(|text| shown.contains(text))
    });
    let shown = shown();
    assert_eq!(shown.matches("Name           : GET").count(), 5);
    assert_eq!(shown.matches("Body: Str(GET /").count(), 5);
}
