//! A server that says what it was asked, in a text.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

/// Starts one that says its name and repeats these fields of a request. Words in the path choose the response: `/404/`, `/500/`,
/// `/moved/`, `/own/` (to its own name), `/cookie/`, `/fresh/`, `/html/`.
pub(crate) fn start(name: &'static str, names: &'static [&'static str]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream, name, names));
        }
    });
    address
}

fn answer(mut stream: TcpStream, own: &str, names: &[&str]) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut text = String::new();
    reader.read_line(&mut text).ok()?;
    let (is_head, asked) = (text.starts_with("HEAD"), text.clone());
    let (mut body, mut host) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        let name = name.to_ascii_lowercase();
        if name == "content-length" {
            body = value.trim().parse().ok()?;
        }
        if name == "host" {
            host = value.to_owned();
        }
        if names.contains(&name.as_str()) {
            let value = if name == "host" { value.to_ascii_lowercase() } else { value.to_owned() };
            text += &format!("{name}:{value}\n");
        }
    }
    reader.read_exact(&mut vec![0; body]).ok()?;
    // The escape of a letter is the letter (RFC 3986 Sec. 2.3).
    text = text.replace("HTTP/1.0", "").replace("HTTP/1.1", "").replace("%61", "a");
    // The order of fields is that of each program.
    let mut lines: Vec<_> = text.lines().map(str::trim).collect();
    lines[1..].sort_unstable();
    let text = format!("{own}{}\n{body}", lines.join("\n"));
    let has = |word: &str| asked.contains(word);
    let status = match () {
        () if has("/404/") => "404 Not Found",
        () if has("/500/") => "500 Internal Server Error",
        () if has("/moved/") || has("/own/") => "302 Found",
        () => "200 OK",
    };
    let mut head =
        format!("HTTP/1.1 {status}\r\nServer: inner\r\nX-Accel-Expires: 9\r\nX-Pad: x\r\n");
    if has("/own/") {
        let host = host.trim();
        let path = asked.split(' ').nth(1).unwrap_or_default();
        head += &format!("Location: http://{host}{path}\r\n");
    }
    for (word, field) in [
        ("/moved/", "Location: http://elsewhere.example.com/x"),
        ("/cookie/", "Set-Cookie: a=b; Path=/in/x; Domain=.app.internal; HttpOnly"),
        ("/fresh/", "Cache-Control: max-age=60"),
        ("/html/", "Content-Type: text/html"),
    ] {
        if has(word) {
            head += &format!("{field}\r\n");
        }
    }
    if !has("/html/") {
        head += "Content-Type: text/plain\r\n";
    }
    head += &format!("Connection: close\r\nContent-Length: {}\r\n\r\n", text.len());
    let text = if is_head { String::new() } else { text };
    stream.write_all((head + &text).as_bytes()).ok()
}
