//! A tiny world: a server whose connections end by chance, and whose file may change.

use super::*;
use levada_types::Rng;
use proptest::prelude::*;

fn strong(tag: &str) -> FileVersion {
    FileVersion { strong: vec![tag.to_owned()], ..FileVersion::default() }
}

fn whole(length: u64, version: FileVersion) -> Answer {
    Answer { status: 200, length: Some(length), part: None, version }
}

fn part(range: Range<u64>, total: u64, version: FileVersion) -> Answer {
    let length = Some(range.end - range.start);
    let part = Some(AnswerPart { range: Some(range), total: Some(total) });
    Answer { status: 206, length, part, version }
}

fn ask(resume: &mut Resume) -> Ask {
    match resume.ask(0) {
        Next::Ask(ask) => ask,
        other => panic!("{other:?}"),
    }
}

/// Takes `length` bytes that the server has right.
fn take(resume: &mut Resume, lane: u32, mut length: usize) {
    while length > 0 {
        let did = match resume.place(lane, length) {
            Place::Write(_, n) => {
                resume.on_written(lane, n);
                n
            }
            Place::Compare(_, n) => {
                resume.on_equal(lane, n);
                n
            }
            Place::Cut => return,
        };
        length -= did;
    }
}

/// 10,000 bytes of a version, 4,000 of which came before the connection ended.
fn broken_off(version: FileVersion) -> Resume {
    let mut resume = Resume::new(ResumeSettings::default(), Known::default());
    assert_eq!(ask(&mut resume), Ask { range: None, if_range: None });
    assert_eq!(resume.on_answer(0, &whole(10_000, version)), Verdict::Read);
    take(&mut resume, 0, 4000);
    assert_eq!(resume.on_end(0, false), After::Again(Duration::ZERO));
    resume
}

#[test]
fn the_rest_is_asked_for_under_a_strong_validator() {
    let mut resume = broken_off(strong("\"a\""));
    let expected = Ask { range: Some((4000, None)), if_range: Some("\"a\"".to_owned()) };
    assert_eq!(ask(&mut resume), expected);
    assert_eq!(resume.on_answer(0, &part(4000..10_000, 10_000, strong("\"a\""))), Verdict::Read);
    take(&mut resume, 0, 6000);
    assert!(resume.has_all(0));
    assert_eq!(resume.on_end(0, true), After::Again(Duration::ZERO));
    assert_eq!(resume.ask(0), Next::Done);
}

#[test]
fn another_nodes_name_for_the_same_bytes_is_accepted_after_an_overlap() {
    let mut resume = broken_off(strong("\"a\""));
    ask(&mut resume);
    // The other node does not know "a": everything, under its own name.
    assert_eq!(resume.on_answer(0, &whole(10_000, strong("\"b\""))), Verdict::Again);
    assert_eq!(ask(&mut resume), Ask { range: Some((0, None)), if_range: None });
    assert_eq!(resume.on_answer(0, &part(0..10_000, 10_000, strong("\"b\""))), Verdict::Read);
    assert_eq!(resume.place(0, 9000), Place::Compare(0, 4000));
    resume.on_equal(0, 4000);
    take(&mut resume, 0, 1000);
    resume.on_end(0, false);
    assert_eq!(resume.known().held.bytes(), 5000);
    assert_eq!(resume.known().version.strong, ["\"a\"", "\"b\""]);
    assert_eq!(resume.discarded(), 0);
}

#[test]
fn a_digest_in_both_answers_tells_the_version() {
    let digest =
        |text: &str, tag: &str| FileVersion { digest: Some(text.to_owned()), ..strong(tag) };
    let mut resume = broken_off(digest("sha-256=:AA:", "\"a\""));
    ask(&mut resume);
    let same = part(4000..10_000, 10_000, digest("sha-256=:AA:", "\"b\""));
    assert_eq!(resume.on_answer(0, &same), Verdict::Read);
    let mut resume = broken_off(digest("sha-256=:AA:", "\"a\""));
    ask(&mut resume);
    let other = part(4000..10_000, 10_000, digest("sha-256=:BB:", "\"b\""));
    assert_eq!(resume.on_answer(0, &other), Verdict::Again);
    assert_eq!((resume.discarded(), resume.restarts()), (4000, 1));
    assert_eq!(ask(&mut resume), Ask { range: None, if_range: None });
}

#[test]
fn an_overlap_that_differs_begins_anew() {
    let mut resume = broken_off(FileVersion::default());
    assert_eq!(ask(&mut resume), Ask { range: Some((0, None)), if_range: None });
    let answer = part(0..10_000, 10_000, FileVersion::default());
    assert_eq!(resume.on_answer(0, &answer), Verdict::Read);
    resume.on_equal(0, 100);
    assert_eq!(resume.on_different(0), Verdict::Again);
    assert_eq!(resume.known().held.bytes(), 0);
    assert_eq!(resume.place(0, 10), Place::Cut);
}

#[test]
fn a_server_that_ignores_ranges_is_compared_from_the_beginning() {
    let mut resume = broken_off(FileVersion::default());
    ask(&mut resume);
    assert_eq!(resume.on_answer(0, &whole(10_000, FileVersion::default())), Verdict::Read);
    assert_eq!(resume.place(0, 9000), Place::Compare(0, 4000));
    take(&mut resume, 0, 9000);
    resume.on_end(0, false);
    assert_eq!(resume.known().held.bytes(), 9000);
    // From now on it is not asked for ranges.
    assert_eq!(ask(&mut resume), Ask { range: None, if_range: None });
}

#[test]
fn a_whole_answer_that_differs_replaces_what_was_held() {
    let mut resume = broken_off(FileVersion::default());
    ask(&mut resume);
    resume.on_answer(0, &whole(10_000, FileVersion::default()));
    resume.on_equal(0, 1000);
    assert_eq!(resume.on_different(0), Verdict::Read);
    assert_eq!(resume.place(0, 10_000), Place::Write(1000, 9000));
    take(&mut resume, 0, 9000);
    resume.on_end(0, true);
    assert!(resume.is_complete());
    assert_eq!(resume.discarded(), 3000);
}

#[test]
fn another_length_is_another_version() {
    let mut resume = broken_off(strong("\"a\""));
    ask(&mut resume);
    assert_eq!(resume.on_answer(0, &whole(10_001, strong("\"b\""))), Verdict::Read);
    assert_eq!(resume.place(0, 10), Place::Write(0, 10));
    assert_eq!(resume.known().total, Some(10_001));
    let mut resume = broken_off(strong("\"a\""));
    ask(&mut resume);
    let answer = part(4000..9000, 9000, strong("\"a\""));
    assert_eq!(resume.on_answer(0, &answer), Verdict::Again);
    assert_eq!(resume.discarded(), 4000);
}

#[test]
fn a_range_that_starts_elsewhere_is_not_used() {
    for range in [0..10_000, 4001..10_000, 3999..10_000] {
        let mut resume = broken_off(strong("\"a\""));
        ask(&mut resume);
        assert_eq!(resume.on_answer(0, &part(range, 10_000, strong("\"a\""))), Verdict::Again);
        assert_eq!(ask(&mut resume), Ask { range: None, if_range: None });
        assert_eq!(resume.known().held.bytes(), 4000);
    }
}

#[test]
fn a_416_at_the_end_is_the_end() {
    let known = Known { held: std::iter::once(0..500).collect(), ..Known::default() };
    let settings = ResumeSettings { overlap: 0, ..ResumeSettings::default() };
    let mut resume = Resume::new(settings, known);
    assert_eq!(ask(&mut resume), Ask { range: Some((500, None)), if_range: None });
    let at = |total| Answer {
        status: 416,
        part: Some(AnswerPart { range: None, total: Some(total) }),
        ..Answer::default()
    };
    assert_eq!(resume.on_answer(0, &at(500)), Verdict::Again);
    assert_eq!(resume.ask(0), Next::Done);
    // At another end it is another file.
    let mut resume = broken_off(strong("\"a\""));
    ask(&mut resume);
    assert_eq!(resume.on_answer(0, &at(4000)), Verdict::Again);
    assert_eq!(resume.known().held.bytes(), 0);
}

#[test]
fn a_server_that_resets_after_every_byte_is_given_up() {
    let mut resume = broken_off(strong("\"a\""));
    for round in 1.. {
        let Ask { range: Some((start, _)), .. } = ask(&mut resume) else { panic!() };
        resume.on_answer(0, &part(start..10_000, 10_000, strong("\"a\"")));
        take(&mut resume, 0, 1);
        match resume.on_end(0, false) {
            After::Again(pause) => assert_eq!(pause, RETRY_BACKOFF.after(round - 1)),
            After::Failed(trouble) => {
                assert_eq!(round, 10);
                assert_eq!(trouble, Trouble::NoProgress { connections: 10 });
                break;
            }
            After::Retire => panic!(),
        }
    }
    assert_eq!(resume.known().held.bytes(), 4000 + 10);
}

#[test]
fn a_server_that_gives_one_byte_for_each_request_is_given_up() {
    let mut resume = broken_off(strong("\"a\""));
    for _ in 0..10 {
        let Ask { range: Some((start, _)), .. } = ask(&mut resume) else { panic!() };
        resume.on_answer(0, &part(start..start + 1, 10_000, strong("\"a\"")));
        take(&mut resume, 0, 1);
        if let After::Failed(_) = resume.on_end(0, true) {
            return;
        }
    }
    panic!("it is not given up");
}

#[test]
fn an_outage_is_retried_only_as_often_as_told() {
    let mut resume = broken_off(strong("\"a\""));
    ask(&mut resume);
    assert_eq!(resume.on_outage(0, None), After::Failed(Trouble::Outage));
    let settings = ResumeSettings { retries: 2, ..ResumeSettings::default() };
    let mut resume = Resume::new(settings, Known::default());
    for seconds in [1, 2] {
        ask(&mut resume);
        assert_eq!(resume.on_outage(0, None), After::Again(Duration::from_secs(seconds)));
    }
    ask(&mut resume);
    assert_eq!(resume.on_outage(0, None), After::Failed(Trouble::Outage));
}

#[test]
fn lanes_share_a_file_and_help_each_other() {
    let settings = ResumeSettings { pieces: 4, least_piece: 10, ..ResumeSettings::default() };
    let mut resume = Resume::new(settings, Known::default());
    ask(&mut resume);
    assert_eq!(resume.on_answer(0, &whole(400, strong("\"a\""))), Verdict::Read);
    assert!(resume.takes_more_lanes());
    for (lane, start) in [(1, 100), (2, 200), (3, 300)] {
        let Next::Ask(ask) = resume.ask(lane) else { panic!() };
        let end = if lane == 3 { None } else { Some(start + 100) };
        assert_eq!(ask.range, Some((start, end)));
        let answer = part(start..start + 100, 400, strong("\"a\""));
        assert_eq!(resume.on_answer(lane, &answer), Verdict::Read);
    }
    take(&mut resume, 0, 400);
    assert!(resume.has_all(0));
    resume.on_end(0, true);
    // The first one is done and takes half of what another has before it.
    take(&mut resume, 1, 20);
    take(&mut resume, 2, 60);
    take(&mut resume, 3, 60);
    let Next::Ask(ask) = resume.ask(0) else { panic!() };
    assert_eq!(ask.range, Some((160, Some(200))));
    take(&mut resume, 1, 100);
    assert_eq!(resume.known().held.around(100), Some(0..160));
}

#[test]
fn a_part_that_may_be_of_another_version_ends_its_lane_alone() {
    let settings = ResumeSettings { pieces: 4, least_piece: 10, ..ResumeSettings::default() };
    let mut resume = Resume::new(settings, Known::default());
    ask(&mut resume);
    resume.on_answer(0, &whole(400, strong("\"a\"")));
    take(&mut resume, 0, 50);
    // The second time it is asked for without If-Range.
    for verdict in [Verdict::Again, Verdict::Retire] {
        resume.ask(1);
        assert_eq!(resume.on_answer(1, &part(100..200, 400, FileVersion::default())), verdict);
    }
    take(&mut resume, 0, 50);
    assert_eq!((resume.known().held.bytes(), resume.restarts()), (100, 0));
}

#[test]
fn a_server_without_ranges_keeps_the_lane_that_reads_everything() {
    let settings = ResumeSettings { pieces: 2, least_piece: 10, ..ResumeSettings::default() };
    let mut resume = Resume::new(settings, Known::default());
    ask(&mut resume);
    resume.on_answer(0, &whole(400, strong("\"a\"")));
    resume.ask(1);
    assert_eq!(resume.on_answer(1, &whole(400, strong("\"a\""))), Verdict::Retire);
    take(&mut resume, 0, 400);
    resume.on_end(0, true);
    assert!(resume.is_complete());
}

#[test]
fn a_wrong_digest_of_several_responses_is_fetched_once_more() {
    let settings = ResumeSettings { digest_known: true, ..ResumeSettings::default() };
    let mut resume = Resume::new(settings, Known::default());
    ask(&mut resume);
    resume.on_answer(0, &whole(10_000, FileVersion::default()));
    take(&mut resume, 0, 4000);
    resume.on_end(0, false);
    ask(&mut resume);
    let answer = part(4000..10_000, 10_000, FileVersion::default());
    assert_eq!(resume.on_answer(0, &answer), Verdict::Read);
    take(&mut resume, 0, 6000);
    resume.on_end(0, true);
    assert_eq!(resume.on_wrong_digest(&[digest('a')]), After::Again(Duration::ZERO));
    assert_eq!(ask(&mut resume).range, None);
    resume.on_answer(0, &whole(10_000, FileVersion::default()));
    take(&mut resume, 0, 10_000);
    resume.on_end(0, true);
    assert_eq!(resume.on_wrong_digest(&[digest('a')]), After::Failed(Trouble::WrongDigest));
}

fn digest(digit: char) -> Digest {
    Digest::parse(&format!("sha-256={}", digit.to_string().repeat(64))).unwrap()
}

#[test]
fn same_wrong_digest_twice_is_not_fetched_a_third_time() {
    let settings = ResumeSettings { digest_known: true, ..ResumeSettings::default() };
    let mut resume = Resume::new(settings, Known::default());
    for (found, after) in [
        ('a', After::Again(Duration::ZERO)),
        ('b', After::Again(Duration::ZERO)),
        ('b', After::Failed(Trouble::WrongDigest)),
    ] {
        ask(&mut resume);
        resume.on_answer(0, &whole(10_000, strong("\"a\"")));
        take(&mut resume, 0, 4000);
        resume.on_end(0, false);
        ask(&mut resume);
        resume.on_answer(0, &part(4000..10_000, 10_000, strong("\"a\"")));
        take(&mut resume, 0, 6000);
        resume.on_end(0, true);
        assert_eq!(resume.on_wrong_digest(&[digest(found)]), after);
    }
}

#[test]
fn a_416_to_a_request_without_a_range_is_no_empty_file() {
    let mut resume = Resume::new(ResumeSettings::default(), Known::default());
    assert_eq!(ask(&mut resume).range, None);
    let part = Some(AnswerPart { range: None, total: Some(0) });
    let answer = Answer { status: 416, length: Some(0), part, version: FileVersion::default() };
    let nonsense = Trouble::Nonsense("416 to a request without a range");
    assert_eq!(resume.on_answer(0, &answer), Verdict::Failed(nonsense));
}

#[test]
fn bytes_that_are_held_already_are_no_progress() {
    // Without a validator, and without a length: the overlap is all that ever comes.
    let mut resume = Resume::new(ResumeSettings::default(), Known::default());
    ask(&mut resume);
    let open = Answer { status: 200, ..Answer::default() };
    assert_eq!(resume.on_answer(0, &open), Verdict::Read);
    take(&mut resume, 0, 4000);
    resume.on_end(0, false);
    for _ in 0..10 {
        let Ask { range: Some((start, _)), .. } = ask(&mut resume) else { panic!() };
        let part = Some(AnswerPart { range: Some(start..4000), total: None });
        let answer = Answer { status: 206, part, ..Answer::default() };
        assert_eq!(resume.on_answer(0, &answer), Verdict::Read);
        take(&mut resume, 0, 4000 - start as usize);
        if let After::Failed(trouble) = resume.on_end(0, true) {
            assert_eq!(trouble, Trouble::NoProgress { connections: 9 + 1 });
            return;
        }
    }
    panic!("it is not given up");
}

#[test]
fn a_piece_that_another_lane_has_written_is_no_progress() {
    let settings = ResumeSettings { pieces: 4, least_piece: 10, ..ResumeSettings::default() };
    let mut resume = Resume::new(settings, Known::default());
    ask(&mut resume);
    resume.on_answer(0, &whole(400, strong("\"a\"")));
    resume.ask(1);
    assert_eq!(resume.on_answer(1, &part(100..200, 400, strong("\"a\""))), Verdict::Read);
    // A server without ranges: the first lane goes on to the end, through the piece of the second.
    resume.ask(2);
    assert_eq!(resume.on_answer(2, &whole(400, strong("\"a\""))), Verdict::Retire);
    take(&mut resume, 0, 300);
    take(&mut resume, 1, 100);
    assert!(resume.has_all(1));
    assert_eq!(resume.on_end(1, true), After::Again(Duration::ZERO));
    assert_eq!(resume.poor.get(&1), Some(&1));
}

#[test]
fn pieces_of_a_length_follow_each_other() {
    let mut resume = broken_off(strong("\"a\""));
    resume.ask_for_pieces_of(1000);
    for (lane, start) in [(0, 4000), (1, 5000), (2, 6000)] {
        let Next::Ask(ask) = resume.ask(lane) else { panic!() };
        assert_eq!(ask.range, Some((start, Some(start + 1000))));
        let answer = part(start..start + 1000, 10_000, strong("\"a\""));
        assert_eq!(resume.on_answer(lane, &answer), Verdict::Read);
    }
    // A lane that is done takes the next piece.
    take(&mut resume, 1, 1000);
    assert_eq!(resume.on_end(1, true), After::Again(Duration::ZERO));
    let Next::Ask(ask) = resume.ask(1) else { panic!() };
    assert_eq!(ask.range, Some((7000, Some(8000))));
    // The rest of a piece that broke off comes before pieces further on.
    take(&mut resume, 0, 300);
    resume.on_end(0, false);
    let Next::Ask(ask) = resume.ask(0) else { panic!() };
    assert_eq!(ask.range, Some((4300, Some(5000))));
    // A server that refuses a lane gets the rest asked for at once.
    resume.on_answer(2, &Answer { status: 403, ..Answer::default() });
    let Next::Ask(ask) = resume.ask(2) else { panic!() };
    assert_eq!(ask.range, Some((6000, Some(7000))));
    let Next::Ask(ask) = resume.ask(3) else { panic!() };
    assert_eq!(ask.range, Some((8000, None)));
}

#[test]
fn lanes_that_break_off_together_count_once() {
    let mut resume = broken_off(strong("\"a\""));
    resume.ask_for_pieces_of(100);
    for round in 1..=10 {
        for lane in 0..8 {
            assert!(matches!(resume.ask(lane), Next::Ask(_)));
        }
        let ends: Vec<_> = (0..8).map(|lane| resume.on_end(lane, false)).collect();
        let expected = match round {
            10 => After::Failed(Trouble::NoProgress { connections: 10 }),
            _ => After::Again(RETRY_BACKOFF.after(round - 1)),
        };
        assert_eq!(ends, vec![expected; 8]);
    }
}

#[test]
fn body_without_a_stated_length_has_the_expected_one_or_is_refused() {
    for (length, is_good) in [(4000, true), (4001, false), (3999, false)] {
        let settings = ResumeSettings { length: Some(length), ..ResumeSettings::default() };
        let mut resume = Resume::new(settings, Known::default());
        ask(&mut resume);
        resume.on_answer(0, &Answer { status: 200, ..Answer::default() });
        take(&mut resume, 0, 4000);
        let wrong = Trouble::WrongLength { told: 4000, expected: length };
        let after = if is_good { After::Again(Duration::ZERO) } else { After::Failed(wrong) };
        assert_eq!(resume.on_end(0, true), after, "{length}");
    }
}

/// A server with some number of nodes that name the same content differently or not at all, that
/// cuts by chance and changes its file by chance.
struct World {
    rng: Rng,
    files: Vec<Vec<u8>>,
    current: usize,
    changes: bool,
    ranges: bool,
    names: usize,
}

impl World {
    fn answer(&mut self, ask: &Ask) -> (Answer, Vec<u8>) {
        if self.changes && self.rng.below(12) == 0 {
            self.current = (self.current + 1).min(self.files.len() - 1);
        }
        let file = &self.files[self.current];
        let total = file.len() as u64;
        let version = match self.names {
            0 => FileVersion::default(),
            names => strong(&format!("\"{}-{}\"", self.current, self.rng.below(names))),
        };
        let condition = ask.if_range.as_ref().is_none_or(|tag| version.strong.contains(tag));
        match ask.range.filter(|_| self.ranges && condition) {
            None => (whole(total, version), file.clone()),
            Some((start, _)) if start >= total => {
                let part = Some(AnswerPart { range: None, total: Some(total) });
                (Answer { status: 416, part, ..Answer::default() }, Vec::new())
            }
            Some((start, end)) => {
                let end = end.map_or(total, |end| end.min(total));
                let bytes = file[start as usize..end as usize].to_vec();
                (part(start..end, total, version), bytes)
            }
        }
    }
}

proptest! {
    /// A complete file is one of the server's versions, whatever the server does.
    #[test]
    fn versions_are_never_mixed(
        seed in any::<u64>(),
        changes in any::<bool>(),
        ranges in any::<bool>(),
        names in 0usize..3,
        lanes in 1u32..4,
        spreads in any::<bool>(),
    ) {
        let mut rng = Rng::new(seed);
        let length = 2000 + rng.below(6000);
        // Versions that differ in every byte: an overlap then tells any two apart.
        let base: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
        let files = (0..3u8).map(|v| base.iter().map(|b| b.wrapping_add(v)).collect()).collect();
        let mut world = World { rng, files, current: 0, changes, ranges, names };
        let settings = ResumeSettings { pieces: lanes, least_piece: 64, overlap: 16, ..ResumeSettings::default() };
        let mut resume = Resume::new(settings, Known::default());
        let mut disk = vec![0u8; length];
        let mut bodies: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for _ in 0..20_000 {
            if resume.is_complete() && bodies.is_empty() {
                break;
            }
            let lane = world.rng.below(lanes as usize) as u32;
            let Some(mut body) = bodies.remove(&lane) else {
                if let Next::Ask(ask) = resume.ask(lane) {
                    let (answer, body) = world.answer(&ask);
                    match resume.on_answer(lane, &answer) {
                        Verdict::Read => { bodies.insert(lane, body); }
                        Verdict::Failed(_) => return Ok(()),
                        _ => {}
                    }
                }
                continue;
            };
            let cut = world.rng.below(5) == 0;
            if cut && spreads {
                resume.ask_for_pieces_of(500);
            }
            let mut piece: Vec<u8> = body.drain(..world.rng.below(1500).min(body.len())).collect();
            let mut over = false;
            while !piece.is_empty() {
                match resume.place(lane, piece.len()) {
                    Place::Cut => { over = true; break; }
                    Place::Write(at, n) => {
                        disk[at as usize..at as usize + n].copy_from_slice(&piece[..n]);
                        resume.on_written(lane, n);
                        piece.drain(..n);
                    }
                    Place::Compare(at, n) => {
                        let held = &disk[at as usize..at as usize + n];
                        let equal = held.iter().zip(&piece).take_while(|(a, b)| a == b).count();
                        resume.on_equal(lane, equal);
                        piece.drain(..equal);
                        if equal < n {
                            match resume.on_different(lane) {
                                Verdict::Read => {}
                                Verdict::Failed(_) => return Ok(()),
                                _ => { over = true; break; }
                            }
                        }
                    }
                }
            }
            if over || cut || body.is_empty() || resume.has_all(lane) {
                if let After::Failed(_) = resume.on_end(lane, body.is_empty() && !over) {
                    return Ok(());
                }
            } else {
                bodies.insert(lane, body);
            }
        }
        prop_assert!(resume.is_complete(), "it neither ends nor fails: {resume:?}");
        prop_assert!(world.files.contains(&disk));
    }
}
