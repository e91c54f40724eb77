//! An origin that lies and hangs. The path of a request names the lie.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::Context as _;
use levada_client::command::content;
use levada_testbed::cluster::server::accept;
use levada_types::Key;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::spawn_local,
    time::sleep,
};

/// The lies, each with the first part of its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// There is no answer.
    Silent,
    /// The body stops in the middle, and the connection stays open.
    Stalled,
    /// The body ends in the middle.
    Cut,
    /// The connection is reset in the middle of the body.
    Reset,
    /// Chunks end without the last one.
    CutChunks,
    /// There are two different lengths.
    TwoLengths,
    /// More bytes follow than stated, which look like a further response.
    Longer,
    /// There is no HTTP.
    Garbage,
}

/// All lies, in the order of the requests.
pub(super) const LIES: &[(Lie, &str)] = &[
    (Lie::Silent, "silent"),
    (Lie::Cut, "cut"),
    (Lie::Longer, "longer"),
    (Lie::Stalled, "stalled"),
    (Lie::Reset, "reset"),
    (Lie::TwoLengths, "two-lengths"),
    (Lie::CutChunks, "cut-chunks"),
    (Lie::Garbage, "garbage"),
];

/// Serves on a free port until the runtime ends; returns its address.
///
/// # Errors
/// If no port is free.
pub(super) async fn start(address: IpAddr) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((address, 0)).await.context("an origin cannot listen")?;
    let address = listener.local_addr()?;
    spawn_local(accept(listener, |stream, _| {
        spawn_local(converse(stream));
    }));
    Ok(address)
}

/// The key of the bytes that a path stands for.
pub(super) fn key(target: &str) -> Key {
    Key::of(target.as_bytes())
}

/// Answers requests until a lie ends the connection; every error ends it as well.
async fn converse(mut stream: TcpStream) -> std::io::Result<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let target = head.split_whitespace().nth(1).unwrap_or("/");
        let name = target.split('/').nth(1).unwrap_or_default();
        let lie = LIES.iter().find(|(_, known)| *known == name).map(|(lie, _)| *lie);
        if !answer(&mut stream, lie.unwrap_or(Lie::Garbage), target).await? {
            return Ok(());
        }
    }
}

/// Answers one request; whether the connection goes on.
async fn answer(stream: &mut TcpStream, lie: Lie, target: &str) -> std::io::Result<bool> {
    let mut body = vec![0; SIZE];
    content::write(key(target), 0, &mut body);
    let half = &body[..SIZE / 2];
    let stated = format!("Content-Length: {SIZE}");
    match lie {
        Lie::Silent => sleep(FOR_EVER).await,
        Lie::Stalled => {
            send(stream, &stated, half).await?;
            sleep(FOR_EVER).await;
        }
        Lie::Cut => send(stream, &stated, half).await?,
        Lie::Reset => {
            send(stream, &stated, half).await?;
            sleep(RESET_DELAY).await;
            socket2::SockRef::from(&*stream).set_linger(Some(Duration::ZERO))?;
        }
        Lie::CutChunks => {
            let chunk = [format!("{:x}\r\n", half.len()).as_bytes(), half, b"\r\n"].concat();
            send(stream, "Transfer-Encoding: chunked", &chunk).await?;
        }
        Lie::TwoLengths => {
            let two = format!("{stated}\r\nContent-Length: {}", SIZE / 2);
            send(stream, &two, &body).await?;
        }
        Lie::Longer => {
            body.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong");
            send(stream, &stated, &body).await?;
            return Ok(true);
        }
        Lie::Garbage => stream.write_all(&body).await?,
    }
    Ok(false)
}

async fn send(stream: &mut TcpStream, framing: &str, body: &[u8]) -> std::io::Result<()> {
    let fields = "ETag: \"lie\"\r\nCache-Control: public, max-age=3600";
    let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n{framing}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await
}

/// The host of the site whose origin lies.
pub(super) const LIAR_NAME: &str = "liar.test";
/// Stated length of all bodies.
pub(super) const SIZE: usize = 20_000;
/// The node has read the half by then.
const RESET_DELAY: Duration = Duration::from_millis(50);
const FOR_EVER: Duration = Duration::from_secs(3600);
