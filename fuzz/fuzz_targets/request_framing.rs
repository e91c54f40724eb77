//! However a stream of requests is split into reads, the same part of it must be taken; and another parser
//! must read that part as the same number of requests.
#![no_main]

use levada_http::fuzzing::judge;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The first byte selects the size of the reads.
    let Some((&piece, stream)) = bytes.split_first() else {
        return;
    };
    let whole = judge(stream, []);
    let pieces = std::iter::repeat_n(usize::from(piece) + 1, stream.len());
    assert_eq!(judge(stream, pieces), whole);
    assert_eq!(whole.heads, heads_as_parsed(&stream[..whole.accepted]));
});

fn heads_as_parsed(mut stream: &[u8]) -> u64 {
    let mut heads = 0;
    loop {
        let mut fields = [httparse::EMPTY_HEADER; 128];
        let mut request = httparse::Request::new(&mut fields);
        let Ok(httparse::Status::Complete(length)) = request.parse(stream) else {
            return heads;
        };
        heads += 1;
        let field =
            |name: &str| request.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        let body = &stream[length..];
        stream = match (field("content-length"), field("transfer-encoding")) {
            (Some(_), Some(_)) => panic!("two framings passed"),
            (Some(length), None) => {
                let length: u64 = std::str::from_utf8(length.value).unwrap().parse().unwrap();
                usize::try_from(length)
                    .ok()
                    .and_then(|length| body.get(length..))
                    .unwrap_or_default()
            }
            (None, Some(_)) => after_chunks(body).unwrap_or_default(),
            (None, None) => body,
        };
    }
}

fn after_chunks(mut body: &[u8]) -> Option<&[u8]> {
    loop {
        let httparse::Status::Complete((at, length)) = httparse::parse_chunk_size(body).ok()?
        else {
            return None;
        };
        body = &body[at..];
        if length == 0 {
            let mut fields = [httparse::EMPTY_HEADER; 128];
            let httparse::Status::Complete((at, _)) =
                httparse::parse_headers(body, &mut fields).ok()?
            else {
                return None;
            };
            return Some(&body[at..]);
        }
        body = body.get(usize::try_from(length).ok()?.checked_add(2)?..)?;
    }
}
