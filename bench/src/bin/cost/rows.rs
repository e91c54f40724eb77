//! The rows of the ledger, and the nodes that they ask.

use std::{fs, ops::Range, path::Path, thread, time::Duration};

use rustls::pki_types::CertificateDer;

use crate::{
    Result,
    counts::{Counts, least, median},
    node::{Node, Ports, free_port},
    origin::Origin,
    wire::{Asked, Http1, Http2, Http3, STREAMS, tls},
};

pub(crate) struct Row {
    pub(crate) name: &'static str,
    place: Place,
    way: Way,
    host: &'static str,
    /// The length of the object.
    size: u64,
    /// A field of the request, and what the head of the answer has.
    field: &'static str,
    proof: &'static str,
    /// A long round has so many more than a short one: few, so that most have none of what a second brings.
    requests: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// A node with its cache in memory.
    Memory,
    /// A node whose memory takes a third of the objects that are asked for in turn.
    Disk,
    /// Two nodes: one is asked, the other one has the object.
    Pair,
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Http1,
    Tls,
    /// A connection for each request.
    Connection,
    /// The same with a handshake of TLS 1.3.
    Handshake,
    H2c,
    Http2,
    Http3,
}

/// The host whose objects are not cached.
const PASS: &str = "pass.test";
const CLOSE: &str = "Connection: close\r\n";

const HIT: Row = Row {
    name: "hit 1 KB",
    place: Place::Memory,
    way: Way::Http1,
    host: "hit.test",
    size: 1 << 10,
    field: "",
    proof: "hit",
    requests: 16,
};

pub(crate) const ROWS: &[Row] = &[
    HIT,
    Row { name: "hit 1 MB", size: 1 << 20, ..HIT },
    Row {
        name: "hit of a coded copy",
        host: "coded.test",
        field: "Accept-Encoding: br\r\n",
        proof: "content-encoding: br",
        ..HIT
    },
    Row { name: "disk hit 1 MB", place: Place::Disk, size: 1 << 20, requests: ON_DISK, ..HIT },
    Row { name: "static file 1 KB", host: "file.test", proof: "", ..HIT },
    Row { name: "pass 1 KB", host: PASS, proof: "", ..HIT },
    Row { name: "relay between two nodes 1 KB", place: Place::Pair, ..HIT },
    Row { name: "new connection hit 1 KB", way: Way::Connection, field: CLOSE, ..HIT },
    Row { name: "TLS handshake hit 1 KB", way: Way::Handshake, field: CLOSE, requests: 8, ..HIT },
    Row { name: "TLS 1.3 hit 1 KB", way: Way::Tls, ..HIT },
    Row { name: "h2c hit 1 KB 16 streams", way: Way::H2c, requests: 4 * STREAMS, ..HIT },
    Row { name: "HTTP/2 TLS hit 1 KB 16 streams", way: Way::Http2, requests: 4 * STREAMS, ..HIT },
    Row { name: "HTTP/3 hit 1 KB", way: Way::Http3, ..HIT },
];

/// The rows of the gate of CI: those whose requests the connection itself serves.
pub(crate) const GATE: [&str; 4] = ["hit 1 KB", "hit 1 MB", "pass 1 KB", "TLS 1.3 hit 1 KB"];

/// Objects that the disk is asked for in turn, in three times the memory that there is.
const ON_DISK: u64 = 12;
/// The objects of 1 KB are asked for so often before.
const WARM_UP: u64 = 32;
/// The time in which the cost of doing nothing shows.
const IDLE: Duration = Duration::from_secs(2);
/// How often the requests of a row are counted at least.
const ROUNDS: usize = 7;

/// Everything that runs.
pub(crate) struct World {
    origin: Origin,
    places: Vec<(Place, Nodes)>,
    authority: CertificateDer<'static>,
    gate: bool,
}

/// The nodes of a place, of which the first one is asked.
struct Nodes {
    all: Vec<Node>,
    /// The instructions of a timer that is due.
    idle: f64,
}

/// A connection that stays open.
enum Client {
    Http1(Http1),
    Http2(Http2),
    Http3(Http3),
}

impl World {
    /// Starts the nodes that these rows need, in a directory that exists.
    /// With `gate`, they count the work of connections only.
    pub(crate) fn start(program: &Path, dir: &Path, rows: &[&Row], gate: bool) -> Result<Self> {
        let made = rcgen::generate_simple_self_signed([HIT.host.to_owned()])?;
        fs::write(dir.join("certificate.pem"), made.cert.pem())?;
        fs::write(dir.join("key.pem"), made.signing_key.serialize_pem())?;
        fs::create_dir_all(dir.join("files/1024"))?;
        fs::write(dir.join("files/1024/0"), [b'x'; 1024])?;
        let origin = Origin::start()?;
        let peers = [free_port()?, free_port()?];
        let mut places = Vec::new();
        for place in [Place::Memory, Place::Disk, Place::Pair] {
            if rows.iter().any(|row| row.place == place) {
                let names: &[&str] = if place == Place::Pair { &["a", "b"] } else { &["a"] };
                let start = |name: &&str| {
                    let own = dir.join(format!("{place:?}-{name}"));
                    fs::create_dir_all(&own)?;
                    let ports = Ports::free()?;
                    let text = configuration(name, place, ports, peers, origin.port);
                    Node::start(program, &own, &text, ports, gate)
                };
                let all = names.iter().map(start).collect::<Result<_>>()?;
                places.push((place, Nodes { all, idle: 0.0 }));
            }
        }
        for (_, nodes) in &mut places {
            nodes.all.iter_mut().try_for_each(Node::ready)?;
        }
        for (_, nodes) in &mut places {
            let idle = nodes.count(|_| {
                thread::sleep(IDLE);
                Ok(())
            })?;
            nodes.idle = idle.instructions / idle.wakes.max(1.0);
        }
        Ok(Self { origin, places, authority: made.cert.der().clone(), gate })
    }

    /// The counts of one request: of all rounds, the median of each figure. A node looks after itself once a second,
    /// so that most rounds do not have that in them. A row is measured again where that is `wanted`.
    pub(crate) fn measure(
        &mut self,
        row: &Row,
        wanted: impl Fn(usize, Counts) -> bool,
    ) -> Result<Counts> {
        let Self { origin, places, authority, gate } = self;
        let place = places.iter_mut().find(|(place, _)| *place == row.place);
        let (_, nodes) = place.ok_or("a row without nodes")?;
        row.prime(&nodes.all, authority)?;
        let mut client = row.connect(nodes.all[0].ports, authority)?;
        let mut asked = row.ask(client.as_mut(), 0..WARM_UP, &nodes.all, authority)?;
        // The stop of the node at both ends of a round costs something, too: it is in a short and in a long one.
        let short = row.requests / 4;
        let mut rounds = [Vec::new(), Vec::new()];
        // A busy machine only adds to the work of connections, however long a round takes.
        let (of, requests) = match *gate {
            true => (least as fn(&[Counts]) -> Counts, 4 * row.requests),
            false => (median as fn(&[Counts]) -> Counts, row.requests),
        };
        let per_request =
            |[short, long]: &[Vec<Counts>; 2]| (of(long) - of(short)).times(1.0 / requests as f64);
        while rounds[0].len() < ROUNDS || wanted(rounds[0].len(), per_request(&rounds)) {
            for (rounds, length) in rounds.iter_mut().zip([short, short + requests]) {
                let before = (origin.requests(), asked);
                let mut round = nodes.count(|nodes| {
                    asked = row.ask(client.as_mut(), asked..asked + length, nodes, authority)?;
                    Ok(())
                })?;
                let (passed, done) = (origin.requests() - before.0, asked - before.1);
                if passed != if row.host == PASS { done } else { 0 } {
                    return Err(format!("the origin had {passed} requests").into());
                }
                round.instructions -= nodes.idle * round.wakes;
                rounds.push(round);
            }
        }
        Ok(per_request(&rounds))
    }
}

impl Nodes {
    /// The sum of what all nodes count meanwhile.
    fn count(&mut self, happening: impl FnOnce(&[Node]) -> Result<()>) -> Result<Counts> {
        self.all.iter_mut().try_for_each(Node::begin)?;
        happening(&self.all)?;
        let mut sum = Counts::default();
        for node in &mut self.all {
            sum += node.end()?;
        }
        Ok(sum)
    }
}

impl Row {
    fn objects(&self) -> u64 {
        if self.place == Place::Disk { ON_DISK } else { 1 }
    }

    /// The connection that stays open, if there is one.
    fn connect(&self, ports: Ports, authority: &CertificateDer<'static>) -> Result<Option<Client>> {
        let path = self.path(0);
        let asked = self.asked(&path);
        let http2 = tls(authority, b"h2")?;
        Ok(Some(match self.way {
            Way::Connection | Way::Handshake => return Ok(None),
            Way::Http1 => Client::Http1(Http1::connect(ports.http1, None, self.host)?),
            Way::Tls => {
                let tls = tls(authority, b"http/1.1")?;
                Client::Http1(Http1::connect(ports.tls, Some(&tls), self.host)?)
            }
            Way::H2c => Client::Http2(Http2::connect(ports.h2c, None, asked)?),
            Way::Http2 => Client::Http2(Http2::connect(ports.tls, Some(&http2), asked)?),
            Way::Http3 => {
                Client::Http3(Http3::connect(ports.http3, &tls(authority, b"h3")?, self.host)?)
            }
        }))
    }

    /// Has the nodes store what the row asks for, and the coded copy of it.
    fn prime(&self, nodes: &[Node], authority: &CertificateDer<'static>) -> Result<()> {
        let tls = tls(authority, b"http/1.1")?;
        let ports = nodes[0].ports;
        let (port, tls) = match self.way {
            Way::Tls | Way::Handshake | Way::Http2 | Way::Http3 => (ports.tls, Some(&tls)),
            Way::Http1 | Way::Connection | Way::H2c => (ports.http1, None),
        };
        for _ in 0..2 {
            for number in 0..self.objects() {
                let field = format!("Connection: close\r\n{}", self.field);
                let path = self.path(number);
                let asked = Asked { field: &field, ..self.asked(&path) };
                let mut client = Http1::connect(port, tls, self.host)?;
                client.send(asked)?;
                client.end()?;
                nodes.iter().try_for_each(Node::rest)?;
            }
        }
        Ok(())
    }

    /// Asks so often, each time when the nodes have nothing left to do. Returns the next number.
    fn ask(
        &self,
        mut client: Option<&mut Client>,
        requests: Range<u64>,
        nodes: &[Node],
        authority: &CertificateDer<'static>,
    ) -> Result<u64> {
        let tls = tls(authority, b"http/1.1")?;
        let mut next = requests.start;
        while next < requests.end {
            let path = self.path(next % self.objects());
            let asked = self.asked(&path);
            next += 1;
            match client.as_deref_mut() {
                Some(Client::Http1(client)) => client.ask(asked)?,
                Some(Client::Http3(client)) => client.ask(asked)?,
                Some(Client::Http2(client)) => {
                    client.ask(self.way == Way::Http2)?;
                    next += STREAMS - 1;
                }
                None => {
                    let ports = nodes[0].ports;
                    let (port, tls) = match self.way {
                        Way::Handshake => (ports.tls, Some(&tls)),
                        _ => (ports.http1, None),
                    };
                    let mut client = Http1::connect(port, tls, self.host)?;
                    client.ask(asked)?;
                    client.end()?;
                }
            }
            nodes.iter().try_for_each(Node::rest)?;
        }
        Ok(next)
    }

    fn path(&self, number: u64) -> String {
        format!("/{}/{number}", self.size)
    }

    fn asked<'a>(&self, path: &'a str) -> Asked<'a> {
        Asked { host: self.host, path, field: self.field, proof: self.proof }
    }
}

fn configuration(name: &str, place: Place, ports: Ports, peers: [u16; 2], origin: u16) -> String {
    let Ports { http1, h2c, tls, http3 } = ports;
    let certificate = "{ certificate = \"../certificate.pem\", key = \"../key.pem\" }";
    let more = match place {
        Place::Memory => String::new(),
        Place::Disk => {
            "[cache]\nmemory = \"4MiB\"\ndisk = { path = \"cache\", size = \"256MiB\" }\n"
                .to_owned()
        }
        Place::Pair => {
            let [a, b] = peers;
            let own = if name == "a" { a } else { b };
            format!(
                r#"
[peering]
listen = "127.0.0.1:{own}"
secret = "a secret of the ledger"
health_check = {{ interval = "0s" }}
[[peer]]
name = "a"
address = "127.0.0.1:{a}"
weight = 1
[[peer]]
name = "b"
address = "127.0.0.1:{b}"
weight = 100
[policy]
name = "hrw"
"#
            )
        }
    };
    format!(
        r#"
name = "{name}"
seed = 1
[runtime]
threads = 1
[log]
access = "off"
[[listen]]
address = "127.0.0.1:{http1}"
[[listen]]
address = "127.0.0.1:{h2c}"
h2c = true
[[listen]]
address = "127.0.0.1:{tls}"
tls = [{certificate}]
[[listen]]
address = "127.0.0.1:{http3}"
tls = [{certificate}]
http3 = true
{more}
[[site]]
hosts = "hit.test"
origin = "http://127.0.0.1:{origin}"
health_check = {{ interval = "0s" }}
[[site]]
hosts = "{PASS}"
origin = "http://127.0.0.1:{origin}"
health_check = {{ interval = "0s" }}
cache = false
[[site]]
hosts = "coded.test"
origin = "http://127.0.0.1:{origin}"
health_check = {{ interval = "0s" }}
compress = {{ types = ["application/octet-stream"] }}
[[site]]
hosts = "file.test"
files = "../files"
"#
    )
}
