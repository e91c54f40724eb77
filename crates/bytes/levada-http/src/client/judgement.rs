//! A whole response read from a stream, for tests and fuzzing.

use bytes::BytesMut;
use http::Method;

use super::{answer::ResponseHeads, framing::BodyFraming};

/// The parts read of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedAnswer {
    /// The statuses of its heads. The last one is final, if the final head has come.
    pub statuses: Vec<u16>,
    /// The bytes of its body that came.
    pub body: Vec<u8>,
    /// How many fields came after the body.
    pub trailers: usize,
    /// How it ended.
    pub ending: AnswerEnd,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerEnd {
    /// More was to come.
    #[default]
    Cut,
    /// The bytes are no response.
    Refused,
    /// All of it has come.
    Whole {
        /// How many bytes of the stream are the response.
        used: usize,
        /// Whether the server takes another request after it.
        reusable: bool,
    },
}

/// Reads the answer to a GET or HEAD as it would be read if it arrived in pieces of these sizes, and the
/// rest at once, before the server closed.
pub fn read_reply(
    stream: &[u8],
    head: bool,
    pieces: impl IntoIterator<Item = usize>,
) -> ParsedAnswer {
    let method = if head { Method::HEAD } else { Method::GET };
    let (mut heads, mut framing, mut stays) =
        (ResponseHeads::new(false), None::<BodyFraming>, false);
    let (mut reply, mut read, mut arrived) = (ParsedAnswer::default(), BytesMut::new(), 0);
    let mut pieces = pieces.into_iter();
    loop {
        let before = arrived;
        arrived = pieces.next().map_or(stream.len(), |piece| stream.len().min(before + piece));
        read.extend_from_slice(&stream[before..arrived]);
        if framing.is_none() {
            let statuses = &mut reply.statuses;
            match heads.take(&mut read, &method, 100, |status, _| statuses.push(status.as_u16())) {
                Ok(None) => {}
                Ok(Some(answer)) => {
                    reply.statuses.push(answer.head.status().as_u16());
                    stays = answer.stays;
                    framing = Some(answer.framing);
                }
                Err(_) => {
                    reply.ending = AnswerEnd::Refused;
                    return reply;
                }
            }
        }
        if let Some(framing) = &mut framing {
            loop {
                match framing.take(&mut read) {
                    Ok(Some(frame)) => match frame.into_data() {
                        Ok(data) => reply.body.extend_from_slice(&data),
                        Err(frame) => {
                            reply.trailers = frame.into_trailers().map_or(0, |all| all.len());
                        }
                    },
                    Ok(None) => break,
                    Err(_) => {
                        reply.ending = AnswerEnd::Refused;
                        return reply;
                    }
                }
            }
        }
        let at_end = arrived == stream.len();
        match framing {
            Some(BodyFraming::Done) => {
                let used = arrived - read.len();
                reply.ending = AnswerEnd::Whole { used, reusable: stays };
                return reply;
            }
            Some(BodyFraming::UntilClose) if at_end => {
                reply.ending = AnswerEnd::Whole { used: arrived, reusable: false };
                return reply;
            }
            _ if at_end => return reply,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::Request;
    use http_body_util::{BodyExt, Empty};
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// The status and the body as hyper's client reads them.
    async fn by_hyper(stream: &[u8], head: bool) -> Option<(u16, Vec<u8>)> {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let (mut sender, connection) = http1::handshake(TokioIo::new(near)).await.ok()?;
        let driving = tokio::spawn(connection);
        let answer = async {
            let method = if head { Method::HEAD } else { Method::GET };
            let mut request = Request::new(Empty::<Bytes>::new());
            *request.method_mut() = method;
            let response = sender.send_request(request).await.ok()?;
            let status = response.status().as_u16();
            Some((status, response.into_body().collect().await.ok()?.to_bytes().to_vec()))
        };
        let server = async {
            let mut request = [0; 1024];
            let _ = far.read(&mut request).await.unwrap();
            let _ = far.write_all(stream).await;
            drop(far);
        };
        let (answer, ()) = tokio::join!(answer, server);
        driving.abort();
        answer
    }

    /// Answers that are nearly right.
    fn answers() -> impl Strategy<Value = String> {
        let first = prop::sample::select(vec![
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.0 200 OK\r\n",
            "HTTP/1.1 204\r\n",
            "HTTP/1.1 304 Not Modified\n",
            "HTTP/1.1 103 Early Hints\r\na: b\r\n\r\nHTTP/1.1 404 Not Found\r\n",
        ]);
        let lines = prop::sample::select(vec![
            "content-length: 5\r\n",
            "Content-Length: 5, 5\r\n",
            "content-length: 6\r\n",
            "transfer-encoding: chunked\r\n",
            "Transfer-Encoding: Chunked\n",
            "transfer-encoding: gzip, chunked\r\n",
            "connection: close\r\n",
            "a:b\r\n",
            " a: b\r\n",
            "a : b\r\n",
        ]);
        let pieces = prop::sample::select(vec![
            "5\r\nhello\r\n",
            "5;a=b\r\nhello\r\n",
            "5 \r\nhello\r\n",
            "5\nhello\n",
            "hello",
            "0\r\n",
            "0\r\nx: y\r\n\r\n",
            "\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
        ]);
        let (lines, pieces) =
            (prop::collection::vec(lines, 0..3), prop::collection::vec(pieces, 0..4));
        (first, lines, pieces).prop_map(|(first, lines, pieces)| {
            format!("{first}{}\r\n{}", lines.concat(), pieces.concat())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]
        #[test]
        fn what_is_taken_is_what_hyper_takes(text in answers(), head: bool, piece in 1_usize..50) {
            let whole = read_reply(text.as_bytes(), head, []);
            let pieces = std::iter::repeat_n(piece, text.len());
            prop_assert_eq!(&read_reply(text.as_bytes(), head, pieces), &whole);
            if matches!(whole.ending, AnswerEnd::Whole { .. }) {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let theirs = runtime.block_on(by_hyper(text.as_bytes(), head));
                let status = whole.statuses.last().copied().unwrap_or_default();
                prop_assert_eq!(theirs, Some((status, whole.body)));
            }
        }
    }
}
