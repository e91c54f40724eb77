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

use crate::announce::{RouteError, RouteLevel};

/// Makes BIRD announce the route as `level` says: by `protocol`, by `backup`, or by neither. BIRD does
/// nothing for a protocol that is already in the wanted state.
pub(crate) async fn apply(
    socket: &Path,
    protocol: &str,
    backup: Option<&str>,
    level: RouteLevel,
) -> Result<(), RouteError> {
    let mut commands = Vec::new();
    // Enable before disable, so that the route is never gone in between.
    let (main, spare) = match level {
        RouteLevel::Announced => ("enable", "enable"),
        RouteLevel::Backup => ("disable", "enable"),
        RouteLevel::Withdrawn => ("disable", "disable"),
    };
    commands.extend(backup.map(|backup| format!("{spare} \"{backup}\"\n")));
    commands.push(format!("{main} \"{protocol}\"\n"));
    match timeout(REPLY_TIMEOUT, send(socket, &commands)).await {
        Ok(result) => result,
        Err(_) => Err(RouteError::Timeout(socket.to_owned())),
    }
}

async fn send(socket: &Path, commands: &[String]) -> Result<(), RouteError> {
    let unreachable = |why| RouteError::Unreachable { socket: socket.to_owned(), why };
    let stream = UnixStream::connect(socket).await.map_err(unreachable)?;
    let (from, mut to) = stream.into_split();
    let mut from = BufReader::new(from);
    reply(&mut from).await.map_err(unreachable)?;
    for command in commands {
        to.write_all(command.as_bytes()).await.map_err(unreachable)?;
        let answer = reply(&mut from).await.map_err(unreachable)?;
        if !answer.starts_with('0') {
            let command = command.trim_end().to_owned();
            return Err(RouteError::Refused { command, reply: answer });
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
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
const LONGEST_REPLY: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    /// Runs a BIRD that gives these replies. Returns the commands that it got, and the result.
    async fn run_bird(
        replies: &'static [&'static str],
        level: RouteLevel,
    ) -> (Vec<String>, Result<(), RouteError>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bird.ctl");
        let listener = UnixListener::bind(&path).unwrap();
        let bird = async {
            let (from, mut to) = listener.accept().await.unwrap().0.into_split();
            let mut commands = BufReader::new(from).lines();
            let mut received = Vec::new();
            for reply in replies {
                to.write_all(reply.as_bytes()).await.unwrap();
                received.extend(commands.next_line().await.unwrap());
            }
            received
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
        let (received, result) = run_bird(replies, RouteLevel::Backup).await;
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(received, ["enable \"levada_backup\"", "disable \"levada\""]);
    }

    #[tokio::test]
    async fn a_refusal_is_told_in_birds_words() {
        let replies = &["0001 BIRD 2.0.12 ready.\n", "8003 No protocols match\n"];
        let (received, result) = run_bird(replies, RouteLevel::Announced).await;
        assert_eq!(received.len(), 1);
        let text = result.unwrap_err().to_string();
        assert!(
            text.contains("8003 No protocols match") && text.contains("levada_backup"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn an_end_within_a_reply_is_an_error() {
        let (_, result) =
            run_bird(&["0001 BIRD 2.0.12 ready.\n0011-half"], RouteLevel::Announced).await;
        assert!(matches!(result, Err(RouteError::Unreachable { .. })), "{result:?}");
    }
}
