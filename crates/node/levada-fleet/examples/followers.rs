//! Many followers of one fleet in one process, with real connections to the real state: the messages and bytes at rest,
//! and the time until all of them use a new head.
//!
//! ```text
//! followers ── a relay that counts ── the state in a file, or etcd
//! ```
//!
//! `cargo run --release -p levada-fleet --example followers -- 1000 60 3 [http://127.0.0.1:2379]`: nodes, seconds
//! at rest, revisions, and an endpoint of etcd. Without one the state is in a file. It needs four descriptors for each node.

use std::{
    collections::BTreeMap,
    env,
    future::Future,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use levada_fleet::{
    Directory, FollowedNode, Follower, Home, Membership, StatePlace, Token,
    apply::{Plan, Progress, apply},
    enrol::{self, Grant},
    model::{Health, Role},
    serve::{self, Kept},
    state::State,
    store::Store,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::sleep,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The traffic through the relay.
#[derive(Default)]
struct Traffic {
    connections: AtomicU64,
    /// Reads that a follower has sent, each a question on a connection at rest.
    questions: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

/// A node that has nothing but its follower.
struct Bare(Arc<AtomicU64>);

impl FollowedNode for Bare {
    fn reload(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        self.0.fetch_add(1, Relaxed);
        Box::pin(std::future::ready(Ok(())))
    }

    fn missing(&self) -> Vec<String> {
        Vec::new()
    }

    fn health(&self, _from_now: bool) -> Health {
        Health::default()
    }

    fn drain(&self, _drained: bool) {}
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut words = env::args().skip(1);
    let count: usize = words.next().map_or(Ok(1000), |word| word.parse())?;
    let rest: u64 = words.next().map_or(Ok(60), |word| word.parse())?;
    let revisions: u64 = words.next().map_or(Ok(3), |word| word.parse())?;
    let etcd = words.next();
    let root =
        tempfile::tempdir_in(if Path::new("/dev/shm").exists() { "/dev/shm" } else { "/tmp" })?;
    let traffic = Arc::new(Traffic::default());
    let Founded { relayed, direct, store, keeper } = found(root.path(), etcd, &traffic).await?;
    // Nodes join directly, and follow by way of the relay.
    let state = State::new(store, direct.key()?, &direct.id);
    let began = Instant::now();
    let join = enrol::make_token(&state, &direct, &grant(Role::Join), "here").await?;
    let join: Token = join.text.parse()?;
    let used = Arc::new(AtomicU64::new(0));
    let mut followers = Vec::new();
    for number in 0..count {
        let [.., high, low] = number.to_be_bytes();
        let (name, address) = (format!("n{number}"), SocketAddr::from(([10, 9, high, low], 7070)));
        let node = enrol::new_member(&name, Some("eu"), address, &[]);
        let own = enrol::join(&state, &join, &node, "here").await?;
        let home = Home::new(&root.path().join(&name));
        let membership = Membership { node, token: placed(&own, &relayed)? };
        home.join(&membership)?;
        followers.push(Follower::new(home, membership)?);
    }
    println!("{count} nodes have joined after {:.1} s", began.elapsed().as_secs_f64());
    drop(state);
    if let Some((keeper, kept)) = keeper {
        tokio::spawn(async move { serve::keep(&keeper, &kept).await.map(drop) });
    }
    let state = State::open(&direct)?;
    while state.followed().await.is_err() {
        sleep(Duration::from_millis(50)).await;
    }
    for follower in followers {
        let node = Bare(used.clone());
        tokio::spawn(async move {
            if follower.start(&node).await.is_ok() {
                match follower.follow(&node).await {}
            }
        });
    }
    until("all connections", || traffic.connections.load(Relaxed) >= count as u64).await;
    for number in 1..=revisions {
        apply_one(&state, number, count, &used).await?;
        sleep(Duration::from_secs(5)).await;
    }
    let before = traffic.take();
    sleep(Duration::from_secs(rest)).await;
    let after = traffic.take();
    let rate = |at: usize| (after[at] - before[at]) as f64 / rest as f64;
    println!(
        "at rest for {rest} s: {:.1} questions/s, {:.0} B/s to the state, {:.0} B/s from it; {} connections",
        rate(0),
        rate(1),
        rate(2),
        traffic.connections.load(Relaxed)
    );
    Ok(())
}

/// A fleet that nobody has joined.
struct Founded {
    /// The place of its state, by way of the relay.
    relayed: StatePlace,
    /// The token of its administrator.
    direct: Token,
    store: Arc<dyn Store>,
    /// Keeps the state in a file, once `store` is gone.
    keeper: Option<(PathBuf, Kept)>,
}

async fn found(root: &Path, etcd: Option<String>, traffic: &Arc<Traffic>) -> Outcome<Founded> {
    let relay = TcpListener::bind("127.0.0.1:0").await?;
    let at_relay = relay.local_addr()?;
    let (store, place, relayed, target, keeper): (Arc<dyn Store>, _, _, _, _) = match etcd {
        Some(endpoint) => {
            let target: SocketAddr = endpoint.trim_start_matches("http://").parse()?;
            let store = enrol::etcd_store("measured", std::slice::from_ref(&endpoint), &None)?;
            let place = |endpoint| StatePlace::Etcd { endpoints: vec![endpoint], user: None };
            (store, place(endpoint), place(format!("http://{at_relay}")), target, None)
        }
        None => {
            let target = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
            let (keeper, kept) = (root.join("keeper"), Kept { listen: target });
            let (store, certificate) = serve::create(&keeper, &kept)?;
            let place = |address| StatePlace::Node { address, certificate: certificate.clone() };
            let (direct, relayed) = (place(target), place(at_relay));
            (Arc::new(store), direct, relayed, target, Some((keeper, kept)))
        }
    };
    let direct = enrol::found(store.clone(), "measured", &place, "here").await?;
    tokio::spawn(keep_relaying(relay, target, traffic.clone()));
    Ok(Founded { relayed, direct, store, keeper })
}

fn grant(role: Role) -> Grant {
    Grant { role, seconds: None, note: String::new(), sites: Vec::new() }
}

/// A token with another place.
fn placed(token: &Token, place: &StatePlace) -> Outcome<Token> {
    let mut json = serde_json::to_value(token)?;
    json["at"] = serde_json::to_value(place)?;
    Ok(serde_json::from_value(json)?)
}

/// Applies another revision to all nodes at once, and says when they use it.
async fn apply_one(state: &State, number: u64, count: usize, used: &AtomicU64) -> Outcome<()> {
    let fleet = "[fleet]\nname = \"measured\"\n[[region]]\nname = \"eu\"\n";
    let node = format!("# {number}\n[[listen]]\naddress = \"127.0.0.1:8080\"\n");
    let files = [("fleet.toml", fleet.to_owned()), ("node.toml", node)];
    let files = files.into_iter().map(|(path, text)| (path.to_owned(), text.into_bytes()));
    let directory = Directory::of(files.collect::<BTreeMap<_, _>>());
    let plan = Plan {
        from: "here".to_owned(),
        note: String::new(),
        canary: None,
        patience: Duration::from_secs(300),
        base: None,
        kept: 100,
    };
    let (before, began) = (used.load(Relaxed), Instant::now());
    let mut head = Duration::ZERO;
    let mut said = |progress| {
        if let Progress::Head(_) = progress {
            head = began.elapsed();
        }
    };
    let watch = async {
        until("all nodes", || used.load(Relaxed) >= before + count as u64).await;
        began.elapsed()
    };
    let (applied, used_by_all) = tokio::join!(apply(state, &directory, &plan, &mut said), watch);
    println!(
        "revision {number}: the head after {:.2} s, used by all {:.2} s later, confirmed after {:.2} s: {}",
        head.as_secs_f64(),
        used_by_all.saturating_sub(head).as_secs_f64(),
        began.elapsed().as_secs_f64(),
        applied?
    );
    Ok(())
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        sleep(Duration::from_millis(10)).await;
        assert!(began.elapsed() < Duration::from_secs(600), "waited for {what}");
    }
}

/// Passes connections on, and counts.
async fn keep_relaying(listener: TcpListener, target: SocketAddr, traffic: Arc<Traffic>) {
    while let Ok((near, _)) = listener.accept().await {
        let traffic = traffic.clone();
        tokio::spawn(async move {
            let far = TcpStream::connect(target).await?;
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            traffic.connections.fetch_add(1, Relaxed);
            let (near, far) = (near.into_split(), far.into_split());
            let there = pass(near.0, far.1, |length| {
                traffic.questions.fetch_add(1, Relaxed);
                traffic.sent.fetch_add(length, Relaxed);
            });
            let back = pass(far.0, near.1, |length| {
                traffic.received.fetch_add(length, Relaxed);
            });
            tokio::try_join!(there, back)
        });
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    count: impl Fn(u64),
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        count(length as u64);
        to.write_all(&buffer[..length]).await?;
    }
}

impl Traffic {
    /// Questions, bytes sent and received.
    fn take(&self) -> [u64; 3] {
        [&self.questions, &self.sent, &self.received].map(|one| one.load(Relaxed))
    }
}
