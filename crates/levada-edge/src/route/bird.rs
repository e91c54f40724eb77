//! BIRD's control socket: a line is a command, numbered lines are the reply.
//!
//! ```text
//! -> enable "levada"
//! <- 0011-levada: enabled
//!    0000
//! ```

use std::{io, path::Path, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixStream, unix::OwnedReadHalf},
    time::timeout,
};

use super::RouteError;
use crate::settings::RouteLevel;

/// Makes BIRD announce the route as `level` says: by `protocol`, by `backup`, or by neither. BIRD does
/// nothing for a protocol that is already in the wanted state.
pub(super) async fn apply(
    socket: &Path,
    protocol: &str,
    backup: Option<&str>,
    level: RouteLevel,
) -> Result<(), RouteError> {
    let mut orders = Vec::new();
    // Enable before disable, so that the route is never gone in between.
    let (main, spare) = match level {
        RouteLevel::Announced => ("enable", "enable"),
        RouteLevel::Backup => ("disable", "enable"),
        RouteLevel::Withdrawn => ("disable", "disable"),
    };
    orders.extend(backup.map(|backup| format!("{spare} \"{backup}\"\n")));
    orders.push(format!("{main} \"{protocol}\"\n"));
    match timeout(PATIENCE, tell(socket, &orders)).await {
        Ok(told) => told,
        Err(_) => Err(RouteError::Silent(socket.to_owned())),
    }
}

async fn tell(socket: &Path, orders: &[String]) -> Result<(), RouteError> {
    let unreachable = |why| RouteError::Unreachable { socket: socket.to_owned(), why };
    let stream = UnixStream::connect(socket).await.map_err(unreachable)?;
    let (from, mut to) = stream.into_split();
    let mut from = BufReader::new(from);
    reply(&mut from).await.map_err(unreachable)?;
    for order in orders {
        to.write_all(order.as_bytes()).await.map_err(unreachable)?;
        let said = reply(&mut from).await.map_err(unreachable)?;
        if !said.starts_with('0') {
            let order = order.trim_end().to_owned();
            return Err(RouteError::Refused { order, said });
        }
    }
    Ok(())
}

/// Reads a reply and returns its last line, the only one with a space after its number.
async fn reply(from: &mut BufReader<OwnedReadHalf>) -> io::Result<String> {
    let mut from = from.take(LONGEST_REPLY);
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let number = line.bytes().take_while(u8::is_ascii_digit).count();
        if number == 4 && matches!(line.as_bytes().get(4), Some(b' ' | b'\n')) {
            return Ok(line.trim_end().to_owned());
        }
    }
}

/// BIRD runs on this machine and answers at once.
const PATIENCE: Duration = Duration::from_secs(2);
const LONGEST_REPLY: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    /// Runs a BIRD that gives these replies. Returns the commands that it got, and the result.
    async fn told(
        replies: &'static [&'static str],
        level: RouteLevel,
    ) -> (Vec<String>, Result<(), RouteError>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bird.ctl");
        let listener = UnixListener::bind(&path).unwrap();
        let bird = async {
            let (from, mut to) = listener.accept().await.unwrap().0.into_split();
            let mut orders = BufReader::new(from).lines();
            let mut heard = Vec::new();
            for reply in replies {
                to.write_all(reply.as_bytes()).await.unwrap();
                heard.extend(orders.next_line().await.unwrap());
            }
            heard
        };
        tokio::join!(bird, async { apply(&path, "levada", Some("levada_backup"), level).await })
    }

    #[tokio::test]
    async fn the_backup_is_there_before_the_route_goes() {
        let replies = &[
            "0001 BIRD 2.0.12 ready.\n",
            "0010-levada_backup: already enabled\n0000 \n",
            "0009-levada: disabled\n more\n0000\n",
        ];
        let (heard, result) = told(replies, RouteLevel::Backup).await;
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(heard, ["enable \"levada_backup\"", "disable \"levada\""]);
    }

    #[tokio::test]
    async fn a_refusal_is_told_in_birds_words() {
        let replies = &["0001 BIRD 2.0.12 ready.\n", "8003 No protocols match\n"];
        let (heard, result) = told(replies, RouteLevel::Announced).await;
        assert_eq!(heard.len(), 1);
        let said = result.unwrap_err().to_string();
        assert!(
            said.contains("8003 No protocols match") && said.contains("levada_backup"),
            "{said}"
        );
    }

    #[tokio::test]
    async fn an_end_within_a_reply_is_an_error() {
        let (_, result) =
            told(&["0001 BIRD 2.0.12 ready.\n0011-half"], RouteLevel::Announced).await;
        assert!(matches!(result, Err(RouteError::Unreachable { .. })), "{result:?}");
    }
}
