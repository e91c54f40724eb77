//! Bodies from the writer to their readers, over a store in memory.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use levada_body::{
    AskedAgain, BlockMemory, BlockOrigin, BlockOutcome, BlockReader, BlockTiers, BlockWriter,
    BlockedBody, BodyAgain, BodyWriter, FlightStart, Follower, LongBody, Parts, ReadAt, ReadError,
    Representation, SingleFlight,
};
use levada_cache::{CacheRules, OriginExchange, Validators, may_store};
use levada_observe::metrics::Registry;
use levada_store::{CacheSettings, DiskCache, Label, Loans, Store, StoredHead, disk::DiskMetrics};
use levada_types::Key;

const BLOCK: u64 = 4;

fn tiers(memory: u64) -> Arc<BlockTiers> {
    tiers_with(memory, None)
}

fn tiers_with(memory: u64, disk: Option<DiskCache>) -> Arc<BlockTiers> {
    let settings = CacheSettings { memory, block: BLOCK, disk, ..CacheSettings::default() };
    Arc::new(BlockTiers {
        store: Arc::new(
            Store::open(&settings, &DiskMetrics::registered(&mut Registry::default())).unwrap(),
        ),
        loans: Loans::new(1 << 20),
        memory: BlockMemory::new(1 << 20),
        max_object: 1 << 20,
    })
}

fn representation(length: Option<u64>) -> Representation {
    let (now, headers) = (SystemTime::now(), HeaderMap::new());
    let exchange = OriginExchange {
        method: &Method::GET,
        request: &headers,
        status: StatusCode::OK,
        response: &HeaderMap::from_iter([(
            http::header::CACHE_CONTROL,
            HeaderValue::from_static("max-age=60"),
        )]),
        requested: now,
        received: now,
    };
    let storable = may_store(&exchange, &CacheRules::default()).unwrap();
    let head = StoredHead {
        status: StatusCode::OK,
        validators: Validators::of(&headers, now),
        headers: HeaderMap::new(),
        freshness: storable.freshness,
        variant: Box::default(),
        vary: storable.vary,
        label: Label::new(0, 0),
        copies: 0,
    };
    Representation { key: Key(1), identity: "http://a/".into(), head, block: BLOCK, length }
}

fn start() -> FlightStart {
    FlightStart::now(Label::new(0, 0), 0)
}

fn arriving(tiers: &Arc<BlockTiers>, length: Option<u64>) -> (Arc<BlockedBody>, BodyWriter) {
    BlockedBody::arriving(tiers, representation(length), true)
}

fn reader_of(body: &Arc<BlockedBody>) -> BlockReader {
    BlockReader::new(body.clone(), body.of.length.unwrap_or(u64::MAX))
}

async fn push(writer: &mut BodyWriter, piece: &'static str) {
    writer.push(piece.into(), || false).await.unwrap();
}

/// Reads up to the end or to an error.
async fn read(reader: &mut BlockReader) -> (Vec<u8>, Option<ReadError>) {
    let mut bytes = Vec::new();
    loop {
        match poll_fn(|cx| reader.poll_at(cx, bytes.len() as u64, u64::MAX)).await {
            Some(Ok(piece)) => bytes.extend_from_slice(&piece),
            Some(Err(error)) => return (bytes, Some(error)),
            None => return (bytes, None),
        }
    }
}

/// An origin whose blocks are numbered, and that counts requests.
struct Numbers {
    tiers: Arc<BlockTiers>,
    asked: AtomicU64,
}

impl BlockOrigin for Numbers {
    fn parts(&self) -> Parts {
        Parts::Offered
    }

    fn usual_time(&self) -> Duration {
        Duration::MAX
    }

    fn again(self: Arc<Self>, _: &Arc<BlockedBody>) -> AskedAgain {
        unreachable!("its blocks can be asked for")
    }

    fn fetch(
        self: Arc<Self>,
        body: &Arc<BlockedBody>,
        number: u64,
    ) -> Option<Follower<BlockOutcome>> {
        self.asked.fetch_add(1, Relaxed);
        let (follower, leader) = SingleFlight::new().detached(Key(2), "http://a/", start());
        let writer = BlockWriter::new(&self.tiers.memory);
        leader.settle(BlockOutcome::Growing(writer.block().clone()));
        let span = body.span(number);
        writer.push(vec![b'0' + number as u8; (span.end - span.start) as usize].into());
        body.store_block(number, writer);
        Some(follower)
    }
}

#[tokio::test]
async fn a_short_body_is_read_while_it_arrives_and_after_its_end() {
    let tiers = tiers(1 << 20);
    let (body, mut writer) = arriving(&tiers, Some(3));
    let (mut early, mut late) = (reader_of(&body), reader_of(&body));
    push(&mut writer, "ab").await;
    assert_eq!(poll_fn(|cx| early.poll_at(cx, 0, 9)).await.unwrap().unwrap(), "ab");
    push(&mut writer, "c").await;
    assert_eq!(writer.pieces().concat(), b"abc");
    writer.finish_as(&[Bytes::from("abc")]);
    assert!(poll_fn(|cx| early.poll_kept(cx)).await);
    assert_eq!(read(&mut late).await.0, b"abc");
    // Neither the store nor a loan has it: it was not a block of many.
    assert_eq!((tiers.loans.bytes(), tiers.memory.bytes(), tiers.store.entries()), (0, 0, 0));
}

#[tokio::test]
async fn a_short_body_that_breaks_off_is_an_error_after_its_bytes() {
    let (body, mut writer) = arriving(&tiers(1 << 20), Some(3));
    let mut reader = reader_of(&body);
    push(&mut writer, "ab").await;
    drop(writer);
    let (bytes, error) = read(&mut reader).await;
    assert_eq!(bytes, b"ab");
    assert!(matches!(error, Some(ReadError::Broken)));
}

#[tokio::test]
async fn a_body_of_unknown_length_may_be_exactly_one_block() {
    let (body, mut writer) = arriving(&tiers(1 << 20), None);
    let mut reader = reader_of(&body);
    push(&mut writer, "abcd").await;
    let writing = tokio::spawn(async move { writer.finish_as(&[Bytes::from("abcd")]) });
    let (bytes, error) = read(&mut reader).await;
    assert!(bytes == b"abcd" && error.is_none());
    writing.await.unwrap();
}

#[tokio::test]
async fn a_body_that_turns_out_to_be_long_goes_on_in_further_blocks() {
    let tiers = tiers(1 << 20);
    let (body, mut writer) = arriving(&tiers, None);
    let mut reader = reader_of(&body);
    push(&mut writer, "abcd").await;
    body.set_long(|| LongBody { version: 7, origin: None });
    assert!(!poll_fn(|cx| reader.poll_kept(cx)).await);
    push(&mut writer, "efghij").await;
    assert_eq!(writer.finish(), Some(10));
    let (bytes, error) = read(&mut reader).await;
    assert!(bytes == b"abcdefghij" && error.is_none());
    assert_eq!(read(&mut reader_of(&body)).await.0, b"abcdefghij");
    assert_eq!(tiers.store.entries(), 3);
}

#[tokio::test]
async fn a_long_body_that_nobody_reads_ends_early_when_memory_is_short() {
    let tiers = tiers(1 << 20);
    let (body, mut writer) = arriving(&tiers, Some(12));
    body.set_long(|| LongBody { version: 7, origin: None });
    push(&mut writer, "abcdef").await;
    let other = BlockWriter::new(&tiers.memory);
    other.push(vec![b'x'; 1 << 20].into());
    assert!(writer.push("ghij".into(), || false).await.is_err());
    // Its blocks so far are stored.
    assert!(writer.is_kept() && tiers.store.entries() == 2);
    drop(other);

    let (body, mut writer) = arriving(&tiers, Some(12));
    body.set_long(|| LongBody { version: 8, origin: None });
    push(&mut writer, "abcdefghijkl").await;
    assert_eq!(writer.finish(), Some(12));
}

#[tokio::test]
async fn the_rest_of_a_long_body_that_breaks_off_is_asked_for_in_blocks() {
    let tiers = tiers(1 << 20);
    let origin = Arc::new(Numbers { tiers: tiers.clone(), asked: AtomicU64::new(0) });
    let (body, mut writer) = arriving(&tiers, Some(10));
    body.set_long(|| LongBody { version: 7, origin: Some(origin.clone()) });
    let mut reader = reader_of(&body);
    push(&mut writer, "0000").await;
    push(&mut writer, "11").await;
    drop(writer);
    let mut bytes = Vec::new();
    while bytes.len() < 10 {
        let piece = poll_fn(|cx| reader.poll_at(cx, bytes.len() as u64, u64::MAX)).await;
        bytes.extend_from_slice(&piece.unwrap().unwrap());
    }
    assert_eq!(bytes, b"0000111122");
    assert_eq!(origin.asked.load(Relaxed), 2);
}

/// An origin without parts, whose body has these bytes.
struct Whole(String);

impl BlockOrigin for Whole {
    fn parts(&self) -> Parts {
        Parts::None
    }

    fn usual_time(&self) -> Duration {
        Duration::MAX
    }

    fn again(self: Arc<Self>, _: &Arc<BlockedBody>) -> AskedAgain {
        let mut left = Bytes::from(self.0.clone());
        let body: BodyAgain = Box::new(move |_| {
            let piece = left.split_to(left.len().min(3));
            Poll::Ready((!piece.is_empty()).then_some(Ok(piece)))
        });
        Box::pin(std::future::ready(Ok(body)))
    }

    fn fetch(self: Arc<Self>, _: &Arc<BlockedBody>, _: u64) -> Option<Follower<BlockOutcome>> {
        unreachable!("it has no parts")
    }
}

#[tokio::test]
async fn a_reader_whose_blocks_are_nowhere_reads_the_whole_again_if_its_bytes_are_the_same() {
    let is = "abcd".repeat(10);
    let other = is.replacen('b', "X", 1);
    for (again, whole) in [(&*is, true), (&*other, false), ("ab", false)] {
        // The memory has room for no block.
        let (body, mut writer) = arriving(&tiers(1), Some(40));
        let source = Arc::new(Whole(again.to_owned()));
        body.set_long(|| LongBody { version: 7, origin: Some(source) });
        let (mut quick, mut late) = (reader_of(&body), reader_of(&body));
        let writing = tokio::spawn(async move {
            for _ in 0..10 {
                push(&mut writer, "abcd").await;
            }
            writer.finish()
        });
        let first = poll_fn(|cx| late.poll_at(cx, 0, 3)).await.unwrap().unwrap();
        assert_eq!(&first[..3], b"abc");
        assert_eq!(read(&mut quick).await.0, is.as_bytes());
        writing.await.unwrap();
        let mut bytes = first[..3].to_vec();
        let error = loop {
            match poll_fn(|cx| late.poll_at(cx, bytes.len() as u64, u64::MAX)).await {
                Some(Ok(piece)) => bytes.extend_from_slice(&piece),
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        assert_eq!((bytes == is.as_bytes(), error.is_none()), (whole, whole), "{again} {bytes:?}");
    }
}

#[tokio::test]
async fn a_fetch_waits_for_its_reader_when_the_disk_does_not_keep_its_blocks() {
    let dir = tempfile::tempdir().unwrap();
    // Less than a tier takes without any record.
    let disk = DiskCache { path: dir.path().to_owned(), size: 1 };
    let tiers = tiers_with(1 << 20, Some(disk));
    let (body, mut writer) = arriving(&tiers, Some(40));
    body.set_long(|| LongBody { version: 7, origin: None });
    let mut reader = reader_of(&body);
    let writing = tokio::spawn(async move {
        for _ in 0..10 {
            push(&mut writer, "abcd").await;
        }
        writer.finish()
    });
    tokio::task::yield_now().await;
    assert!(!writing.is_finished(), "it runs ahead of its reader");
    let (bytes, error) = read(&mut reader).await;
    assert!(bytes == b"abcd".repeat(10) && error.is_none());
    assert_eq!(writing.await.unwrap(), Some(40));
}

#[tokio::test]
async fn blocks_that_no_source_has_are_gone() {
    let long = LongBody { version: 7, origin: None };
    let body = BlockedBody::in_blocks(&tiers(1 << 20), representation(Some(10)), long, None);
    assert!(!body.holds_all(0, 10));
    let mut reader = BlockReader::new(body, 10);
    assert!(matches!(reader.begin(5).await, Err(ReadError::Gone)));
}
