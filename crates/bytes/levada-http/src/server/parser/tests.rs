use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    server::judgement::{Judgement, judge},
    syntax::CHUNK_LINE,
};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Requests that are in order, each with its heads.
fn good() -> Vec<(String, u64)> {
    let with =
        |head: &str, body: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n{body}");
    let chunked = |body: &str| with("Transfer-Encoding: chunked", body);
    vec![
        (GET.to_owned(), 1),
        (GET.repeat(3), 3),
        (format!("\r\n{GET}\r\n{GET}"), 2),
        ("GET / HTTP/1.0\r\n\r\n".to_owned(), 1),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 1),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n".to_owned(), 1),
        ("GET http://a/b?c=d HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 1),
        ("GET HTTPS://a HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 1),
        (
            "GET /a?b={c|d}%20'[]^` HTTP/1.1\r\nHost:a.b-c_d:80\r\nX:\t a\tb\u{e9} \r\nY:\r\n\r\n"
                .to_owned(),
            1,
        ),
        ("GET / HTTP/1.1\r\nhost: [2001:db8::1]:8080 \r\n\r\n".to_owned(), 1),
        (with("Content-Length: 5", "hello"), 1),
        (with("Content-Length: 5", "hello") + GET, 2),
        (with("content-length:\t0005", "\n\n\0\r\n") + GET, 2),
        (with("Content-Length: 0", GET), 2),
        (chunked("5\r\nhello\r\n0\r\n\r\n") + GET, 2),
        (chunked("A;a=\"b\"\r\n0123456789\r\n000 ; c\r\nX-Sum: 1\r\n\r\n") + GET, 2),
        (with("Transfer-Encoding: CHUNKED ", "1\r\n\n\r\n0\r\n\r\n"), 1),
    ]
}

/// Requests with a fault, each with its name. The bad part is the last one of each.
#[rustfmt::skip]
pub(in crate::server) fn bad() -> Vec<(Vec<u8>, Fault)> {
    use Fault::*;
    let get = |fields: &str| format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n").into_bytes();
    let line = |line: &str| format!("{line}\r\nHost: a\r\n\r\n").into_bytes();
    let host = |host: &str| get(&format!("Host: {host}"));
    let with = |field: &str| get(&format!("Host: a\r\n{field}"));
    let chunked = |body: &str| {
        format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}").into_bytes()
    };
    let long = |bytes| "x".repeat(bytes);
    vec![
        (b"GET / HTTP/1.1\nHost: a\n\n".to_vec(), BareLf),
        (b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), BareLf),
        (b"GET / HTTP/1.1\r\nHost: a\n\r\n".to_vec(), BareLf),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\n".to_vec(), BareLf),
        (line("GET / HTTP/1.1\r"), BareCr),
        (line("GET /\r HTTP/1.1"), BareCr),
        (line("\rGET / HTTP/1.1"), BareCr),
        (with("A: b\rc"), BareCr),
        (with("A\r: b"), BareCr),
        (with("A: b\r"), BareCr),
        (with("\r"), BareCr),
        (line("\r\n\r\nGET / HTTP/1.1"), EmptyLine),
        (line(" GET / HTTP/1.1"), Method),
        (line("\tGET / HTTP/1.1"), Method),
        (line("G\0T / HTTP/1.1"), Method),
        (line("G(T / HTTP/1.1"), Method),
        (line("GET\t/ HTTP/1.1"), Method),
        (line("GET  / HTTP/1.1"), Target),
        (line("GET /  HTTP/1.1"), Target),
        (line("GET /a b HTTP/1.1"), Target),
        (line("GET  HTTP/1.1"), Target),
        (line("GET /\0 HTTP/1.1"), Target),
        (line("GET /\u{e9} HTTP/1.1"), Target),
        (line("GET /#a HTTP/1.1"), Target),
        (line("GET /<a> HTTP/1.1"), Target),
        (line("GET a HTTP/1.1"), Target),
        (line("GET a:80 HTTP/1.1"), Target),
        (line("GET * HTTP/1.1"), Target),
        (line("GET ftp://a/ HTTP/1.1"), Target),
        (line("GET http:///a HTTP/1.1"), Target),
        (line("GET http://user@a/ HTTP/1.1"), Target),
        (line("CONNECT / HTTP/1.1"), Target),
        (line("CONNECT a HTTP/1.1"), Target),
        (line("GET /"), Version),
        (line("GET"), Version),
        (line("GET / HTTP/1.1x"), Version),
        (line("GET / http/1.1"), Version),
        (line("GET / HTTP/11"), Version),
        (line("GET / HTTP/2"), Version),
        (line("GET /\tHTTP/1.1"), Version),
        (line("GET / HTTP/1.1 "), Version),
        (line("GET / HTTP/2.0"), VersionUnsupported),
        (line("GET / HTTP/1.2"), VersionUnsupported),
        (line("GET / HTTP/0.9"), VersionUnsupported),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), VersionUnsupported),
        (line(&format!("GET /{} HTTP/1.1", long(REQUEST_LINE))), RequestLineTooLong),
        (long(REQUEST_LINE + 1).into_bytes(), RequestLineTooLong),
        (with(&format!("A: {}", long(32 << 10))), HeadTooLarge),
        (with(&"A: b\r\n".repeat(8 << 10)), TooManyFields),
        (with(&format!("A{}", "\r\nA: b".repeat(8 << 10))), FieldName),
        (with(": a"), FieldName),
        (with("A"), FieldName),
        (with("A\0: b"), FieldName),
        (with("\u{e9}: b"), FieldName),
        (with("A(b): c"), FieldName),
        (with("A: b\0"), FieldValue),
        (with("A: \u{7f}"), FieldValue),
        (with("A: \u{1b}[m"), FieldValue),
        (with("Content-Length : 5"), SpaceBeforeColon),
        (with("A\t: b"), SpaceBeforeColon),
        (with("A b: c"), SpaceBeforeColon),
        (with("A: b\r\n c"), Folded),
        (with("A: b\r\n\tc"), Folded),
        (get(" Host: a"), Folded),
        (get("A: b"), HostMissing),
        (get("Host: a\r\nHost: a"), HostRepeated),
        (get("Host: a\r\nhOST: b"), HostRepeated),
        (host(""), HostInvalid),
        (host(":80"), HostInvalid),
        (host("a b"), HostInvalid),
        (host("a, b"), HostInvalid),
        (host("a/b"), HostInvalid),
        (host("a@b"), HostInvalid),
        (host("a:b"), HostInvalid),
        (host("a:123456"), HostInvalid),
        (host("\u{e9}"), HostInvalid),
        (host("[::1"), HostInvalid),
        (host("[]"), HostInvalid),
        (host("[::1]a"), HostInvalid),
        (with("Content-Length:"), LengthInvalid),
        (with("Content-Length: +1"), LengthInvalid),
        (with("Content-Length: -1"), LengthInvalid),
        (with("Content-Length: 5, 5"), LengthInvalid),
        (with("Content-Length: 0x5"), LengthInvalid),
        (with("Content-Length: 5 5"), LengthInvalid),
        (with("Content-Length: 5\u{b}"), FieldValue),
        (with("Content-Length: 9223372036854775808"), LengthInvalid),
        (with("Content-Length: 18446744073709551617"), LengthInvalid),
        (with("Content-Length: 5\r\nContent-Length: 6"), LengthRepeated),
        (with("Content-Length: 5\r\nContent-Length: 5"), LengthRepeated),
        (with("Content-Length: 5\r\nTransfer-Encoding: chunked"), LengthWithEncoding),
        (with("Transfer-Encoding: chunked\r\nContent-Length: 5"), LengthWithEncoding),
        (b"GET / HTTP/1.0\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(), LengthWithEncoding),
        (with("Transfer-Encoding: gzip"), EncodingUnknown),
        (with("Transfer-Encoding: gzip, chunked"), EncodingUnknown),
        (with("Transfer-Encoding: chunked, chunked"), EncodingUnknown),
        (with("Transfer-Encoding: chunked, gzip"), EncodingNotFinal),
        (with("Transfer-Encoding: chunked , gzip, identity"), EncodingNotFinal),
        (with("Transfer-Encoding: identity"), EncodingUnknown),
        (with("Transfer-Encoding: \"chunked\""), EncodingUnknown),
        (with("Transfer-Encoding: chunked;a=b"), EncodingUnknown),
        (with("Transfer-Encoding: xchunked"), EncodingUnknown),
        (with("Transfer-Encoding:"), EncodingUnknown),
        (with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), EncodingRepeated),
        (with("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"), EncodingRepeated),
        (b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(), EncodingInOldVersion),
        (chunked("x\r\n"), ChunkSize),
        (chunked("\r\n"), ChunkSize),
        (chunked("0x5\r\n"), ChunkSize),
        (chunked("-5\r\n"), ChunkSize),
        (chunked(" 5\r\n"), ChunkSize),
        (chunked("5 \r\n"), ChunkSize),
        (chunked("5,\r\n"), ChunkSize),
        (chunked("8000000000000000\r\n"), ChunkSize),
        (chunked("00000000000000005\r\n"), ChunkSize),
        (chunked("5\n"), BareLf),
        (chunked("5\r\r\n"), BareCr),
        (chunked("5;a\rb\r\n"), BareCr),
        (chunked("5;a\0\r\n"), ChunkExtension),
        (chunked(&format!("5;{}\r\n", long(CHUNK_LINE))), ChunkExtensionsTooLong),
        (chunked(&format!("1;{}\r\nx\r\n", long(500)).repeat(20)), ChunkExtensionsTooLong),
        (chunked("5\r\nhello0\r\n\r\n"), ChunkEnd),
        (chunked("5\r\nhel\r\n0\r\n\r\n"), ChunkEnd),
        (chunked("5\r\nhello\n0\r\n\r\n"), BareLf),
        (chunked("5\r\nhello\r0\r\n\r\n"), BareCr),
        (chunked("0\r\nContent-Length: 5\r\n\r\n"), TrailerForbidden),
        (chunked("0\r\nhost: b\r\n\r\n"), TrailerForbidden),
        (chunked("0\r\nA: b\r\n c\r\n\r\n"), Folded),
        (chunked("0\r\nA : b\r\n\r\n"), SpaceBeforeColon),
        (chunked("0\r\nA: b\r\n\n"), BareLf),
        (chunked(&format!("0\r\n{}\r\n", "A: b\r\n".repeat(2000))), TrailersTooLarge),
        (chunked(&format!("0\r\n{}\r\n", format!("A: {}\r\n", long(1000)).repeat(9))), TrailersTooLarge),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), TlsHello),
    ]
}

fn whole(stream: &[u8]) -> Judgement {
    judge(stream, [])
}

#[test]
fn requests_in_order_pass_as_a_whole() {
    for (stream, heads) in good() {
        let expected = Judgement { accepted: stream.len(), heads, fault: None, status: None };
        assert_eq!(whole(stream.as_bytes()), expected, "{stream:?}");
    }
}

#[test]
fn every_fault_is_found_and_named() {
    for (stream, fault) in bad() {
        let found = whole(&stream);
        let shown = stream[..stream.len().min(200)].escape_ascii();
        assert_eq!(found.fault, Some(fault.as_str()), "{shown}");
        let head_is_good = stream.starts_with(b"POST");
        assert_eq!(found.heads, u64::from(head_is_good), "{shown}");
        assert_eq!(found.accepted > 0, head_is_good, "{shown}");
    }
}

#[test]
fn every_fault_is_in_the_table() {
    let rows = bad();
    for fault in Fault::ALL {
        assert!(rows.iter().any(|(_, row)| *row == fault), "{fault:?}");
    }
}

#[test]
fn a_good_request_before_a_bad_one_passes() {
    for (stream, fault) in bad() {
        let found = whole(&[GET.as_bytes(), &stream].concat());
        // A TLS handshake is one only at the beginning.
        let expected = if fault == Fault::TlsHello { None } else { Some(fault.as_str()) };
        assert_eq!(found.fault, expected);
        assert!(found.accepted >= GET.len() && found.heads >= 1);
    }
}

#[test]
fn where_a_request_arrives_in_pieces_makes_no_difference() {
    let good = good().into_iter().map(|(stream, _)| stream.into_bytes());
    for stream in good.chain(bad().into_iter().map(|(stream, _)| stream)) {
        let pieces = std::iter::repeat_n(1, stream.len());
        assert_eq!(judge(&stream, pieces), whole(&stream), "{}", stream.escape_ascii());
    }
}

#[test]
fn a_tolerated_empty_line_does_not_begin_a_head() {
    let (mut parser, mut read) = (parser(1024), BytesMut::from("\r\n"));
    assert!(parser.is_between() && matches!(parser.take(&mut read), Ok(None)));
    assert!(parser.is_between() && read.is_empty());
    read.extend_from_slice(b"GET / HTTP/1.1\r\n");
    assert!(matches!(parser.take(&mut read), Ok(None)));
    assert!(!parser.is_between());
}

fn parser(head: usize) -> HeadParser {
    HeadParser::new(HeadBounds { head, fields: 10 })
}

fn head(text: &str) -> RequestHead {
    let (mut parser, mut read) = (parser(1024), BytesMut::from(format!("{GET}{text}").as_str()));
    assert!(matches!(parser.take(&mut read), Ok(Some(_))));
    parser.take(&mut read).unwrap().unwrap()
}

#[test]
fn head_has_everything_that_its_lines_say() {
    let text = "PATCH /a?b HTTP/1.1\r\nHost: a\r\nX-A:\t1 \r\nx-a: 2\r\nEmpty: \r\n\
        Expect: 100-Continue\r\nTE: gzip, trailers\r\nContent-Length: 07\r\n\r\n";
    let RequestHead { request, length, stays, expects, takes_trailers } = head(text);
    assert_eq!((request.method().as_str(), request.uri().path()), ("PATCH", "/a"));
    assert_eq!(request.headers().get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(request.headers()["empty"], "");
    assert_eq!(length, RequestLength::Counted(7));
    assert!(stays && expects && takes_trailers);
    let old = head("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(old.request.version(), http::Version::HTTP_10);
    assert!(!old.stays && !old.expects && !old.takes_trailers);
}

#[test]
fn connection_closes_after_the_request_that_wants_it() {
    let closes = |version: &str, fields: &str| {
        !head(&format!("GET / {version}\r\nHost: a\r\n{fields}\r\n")).stays
    };
    for fields in [
        "Connection: close\r\n",
        "connection: x,\tClose \r\n",
        "Connection: x\r\nConnection: close\r\n",
    ] {
        assert!(closes("HTTP/1.1", fields) && closes("HTTP/1.0", fields), "{fields}");
    }
    for fields in ["", "Connection: closed\r\n", "Connection: Keep-Alive\r\n"] {
        assert!(!closes("HTTP/1.1", fields), "{fields}");
        assert_eq!(closes("HTTP/1.0", fields), !fields.contains("Keep-Alive"), "{fields}");
    }
}

#[test]
fn limits_hold_to_the_byte_and_to_the_field() {
    let bounds = HeadBounds { head: GET.len(), fields: 1 };
    assert!(first_head(GET.as_bytes(), bounds).unwrap().is_some());
    let fault = |bounds| first_head(GET.as_bytes(), bounds).err();
    assert_eq!(fault(HeadBounds { head: GET.len() - 1, ..bounds }), Some(Fault::HeadTooLarge));
    assert_eq!(fault(HeadBounds { fields: 0, ..bounds }), Some(Fault::TooManyFields));
    assert_eq!(fault(HeadBounds { head: 10, ..bounds }), Some(Fault::RequestLineTooLong));
}

/// The heads of a stream as another parser sees them: method, target, number of fields.
fn heads_as_parsed(mut stream: &[u8]) -> Vec<(String, String, usize)> {
    let mut heads = Vec::new();
    loop {
        let mut fields = [httparse::EMPTY_HEADER; 128];
        let mut request = httparse::Request::new(&mut fields);
        let Ok(httparse::Status::Complete(length)) = request.parse(stream) else {
            return heads;
        };
        let fields: Vec<_> = request.headers.iter().collect();
        heads.push((
            request.method.unwrap().to_owned(),
            request.path.unwrap().to_owned(),
            fields.len(),
        ));
        let value = |name: &str| fields.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        let body = &stream[length..];
        stream = match (value("content-length"), value("transfer-encoding")) {
            (Some(field), _) => {
                let length: usize = std::str::from_utf8(field.value).unwrap().parse().unwrap();
                body.get(length..).unwrap_or_default()
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

/// The same, by splitting lines only.
fn first_head_as_split(stream: &[u8]) -> (String, String, usize) {
    let stream = String::from_utf8_lossy(stream);
    let head = stream.trim_start_matches("\r\n").split("\r\n\r\n").next().unwrap().to_owned();
    let mut lines = head.split("\r\n");
    let words: Vec<_> = lines.next().unwrap().split(' ').collect();
    (words[0].to_owned(), words[1].to_owned(), lines.count())
}

fn agrees_with_another_parser(stream: &[u8]) {
    let judged = whole(stream);
    let parsed = heads_as_parsed(&stream[..judged.accepted]);
    assert_eq!(parsed.len() as u64, judged.heads, "{}", stream.escape_ascii());
    if let Some(first) = parsed.first() {
        assert_eq!(*first, first_head_as_split(stream), "{}", stream.escape_ascii());
    }
}

#[test]
fn another_parser_sees_the_same_requests_in_every_row() {
    for (stream, _) in good() {
        agrees_with_another_parser(stream.as_bytes());
    }
    for (stream, _) in bad() {
        agrees_with_another_parser(&stream);
    }
}

/// Streams made of parts of requests in any order, and of other bytes.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    #[rustfmt::skip]
    let words = vec![
        GET, "GET ", "POST ", "/", "/a?b", " ", "HTTP/1.1", "HTTP/1.0", "\r\n", "\r\n\r\n", "\r", "\n", "\t",
        "Host: a", "Host: a\r\n", "A: b\r\n", "POST / HTTP/1.1\r\nHost: a\r\n", "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n", ": ", "3", "abc", "3\r\nabc\r\n", "0\r\n", "0\r\n\r\n", ";a", "\0",
    ];
    let word = prop_oneof![
        20 => proptest::sample::select(words).prop_map(|word| word.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 1..4),
    ];
    vec(word, 0..30).prop_map(|words| words.concat())
}

/// Rows of the tables with some bytes changed, one after the other.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let rows: Vec<_> = good()
        .into_iter()
        .map(|(stream, _)| stream.into_bytes())
        .chain(bad().into_iter().map(|(stream, _)| stream).filter(|stream| stream.len() < 1000))
        .collect();
    let row = proptest::sample::select(rows);
    let damage = vec((any::<proptest::sample::Index>(), any::<u8>()), 0..3);
    vec((row, damage), 1..4).prop_map(|rows| {
        let mut stream = Vec::new();
        for (mut row, damage) in rows {
            for (place, byte) in damage {
                let at = place.index(row.len());
                row[at] = byte;
            }
            stream.extend(row);
        }
        stream
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn cuts_make_no_difference(
        stream in prop_oneof![streams(), damaged()],
        pieces in vec(1..40usize, 0..40),
    ) {
        prop_assert_eq!(judge(&stream, pieces), whole(&stream));
    }

    #[test]
    fn what_is_taken_is_what_another_parser_sees(stream in prop_oneof![streams(), damaged()]) {
        agrees_with_another_parser(&stream);
    }

    #[test]
    fn any_bytes_are_judged(stream in vec(any::<u8>(), 0..600), pieces in vec(0..50usize, 0..20)) {
        let judged = judge(&stream, pieces);
        prop_assert!(judged.accepted <= stream.len());
    }
}
