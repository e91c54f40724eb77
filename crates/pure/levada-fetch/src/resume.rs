//! How a file is fetched whole although connections end in the middle: the client's side of the
//! anycast-aware transport (WWW'09, Sec. 3), with several connections at once if wanted.
//!
//! ```text
//!            ask ----> on_answer ----> place, on_equal / on_different / on_written ----> on_end
//!             ^            | Again                                                         |
//!             +------------+---------------------------------------------------------------+
//! ```
//!
//! A reset, a stall or an early close means that the route has moved: what came is kept and the rest
//! is asked for, as often as it takes while there is progress. Two versions must never be
//! mixed. So a piece is taken only when it is shown to be of the version held:
//!
//! - by a strong validator, sent as `If-Range` (RFC 9110, Sec. 13.1.5), or a digest in both answers;
//! - by a digest of the whole file that is known beforehand and compared at the end;
//! - otherwise by overlap: the piece begins within what is held, and both must agree. So another node
//!   with another ETag does not cost what another node has sent already.
//!
//! Bytes that are held already are never written again: they are compared, wherever they come from. A
//! server that ignores ranges is therefore read from the beginning and resumed all the same.
//!
//! The machine sees no socket and no file. A *lane* is one of the connections that work on the file;
//! the driver numbers them. A lane that the machine no longer knows is to be cut.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use levada_types::Backoff;

use crate::{Digest, Held};

/// The settings of the caller.
#[derive(Clone, Debug)]
pub struct ResumeSettings {
    /// How many pieces the file is divided into at first, when there is more than one lane.
    pub pieces: u32,
    /// No piece is made smaller than this by dividing.
    pub least_piece: u64,
    /// How many bytes are asked for again where only they can show the version.
    pub overlap: u64,
    /// The driver compares a digest of the whole file at the end.
    pub digest_known: bool,
    /// The length, where it is known beforehand.
    pub length: Option<u64>,
    /// Connections in a row of one lane that may bring nothing to speak of before it is given up.
    pub hopeless: u32,
    /// Outages in a row that are got over.
    pub retries: u32,
}

impl Default for ResumeSettings {
    fn default() -> Self {
        Self {
            pieces: 1,
            least_piece: 1 << 20,
            overlap: 64 << 10,
            digest_known: false,
            length: None,
            hopeless: 10,
            retries: 0,
        }
    }
}

/// The names of one version of a file. Texts as in the fields of the response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileVersion {
    /// Strong validators (entity tags, or a date that RFC 9110, Sec. 8.8.2.2, lets stand for one): one
    /// in an answer, several once nodes were found to name the same bytes differently.
    pub strong: Vec<String>,
    /// `Repr-Digest` (RFC 9530), one algorithm.
    pub digest: Option<String>,
    /// `Content-Encoding`: other codings are other bytes.
    pub encoding: Option<String>,
}

/// The head of a response, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// `Content-Length`.
    pub length: Option<u64>,
    /// `Content-Range`, if there is exactly one and it can be read.
    pub part: Option<AnswerPart>,
    /// The version that it names.
    pub version: FileVersion,
}

/// The content of `Content-Range`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerPart {
    /// The bytes that follow; `None` in a 416.
    pub range: Option<Range<u64>>,
    /// The length of the file.
    pub total: Option<u64>,
}

/// The next step of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Sends this request.
    Ask(Ask),
    /// Ends: the others do what is left.
    Idle,
    /// The file is complete.
    Done,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// First byte, and the byte behind the last; without it, everything.
    pub range: Option<(u64, Option<u64>)>,
    /// The value of `If-Range`.
    pub if_range: Option<String>,
}

/// The treatment of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Read its body.
    Read,
    /// Drop it and [`Resume::ask`] again.
    Again,
    /// Drop it; this lane ends, others go on.
    Retire,
    /// The server cannot serve now: an outage.
    Unavailable,
    /// The transfer has failed.
    Failed(Trouble),
}

/// The treatment of the first bytes that have been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Compare this many with the bytes that are held at this offset.
    Compare(u64, usize),
    /// Write this many at this offset.
    Write(u64, usize),
    /// No more of this response is wanted.
    Cut,
}

/// The step after the end of a response or an outage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// [`Resume::ask`] again after this pause.
    Again(Duration),
    /// This lane ends, others go on.
    Retire,
    /// The transfer has failed.
    Failed(Trouble),
}

/// Why a file cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Connections end before anything to speak of has come.
    #[error(
        "no progress: {connections} connections in a row ended with less than {LEAST_GAIN} new bytes each"
    )]
    NoProgress {
        /// How many.
        connections: u32,
    },
    /// The content changes faster than it can be fetched.
    #[error("the file changed {times} times while it was fetched; try again when it is at rest")]
    KeepsChanging {
        /// How often.
        times: u32,
    },
    /// The server does not give the file.
    #[error("the server answered {status}")]
    Refused {
        /// The status code.
        status: u16,
    },
    /// The server's answers contradict the protocol.
    #[error("the server's answer makes no sense: {0}")]
    Nonsense(&'static str),
    /// It is not the file that was expected.
    #[error("the server's file has {told} bytes; {expected} were expected")]
    WrongLength {
        /// The digest or length of the server.
        told: u64,
        /// The one of the caller.
        expected: u64,
    },
    /// It is not the file that was expected.
    #[error("the file does not have the digest expected of it")]
    WrongDigest,
    /// No connection, or an answer that says to come later, more often than may be retried.
    #[error("outage")]
    Outage,
}

/// The knowledge of a file between two runs of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The version of the bytes.
    pub version: FileVersion,
    /// The file's length.
    pub total: Option<u64>,
    /// The bytes that are here.
    pub held: Held,
}

/// A file that is being fetched.
#[derive(Debug)]
pub struct Resume {
    settings: ResumeSettings,
    known: Known,
    /// Whether anything is known of the version.
    begun: bool,
    /// The server has answered a request for a range with everything.
    ignores_ranges: bool,
    /// `If-Range` is useful: no two nodes were seen to name the same bytes differently.
    conditional: bool,
    /// The digest at the end counts as proof for pieces.
    trusting: bool,
    lanes: BTreeMap<u32, Lane>,
    /// The length of pieces, once it is not a share of the file.
    piece: Option<u64>,
    /// Responses that the bytes held came from.
    sources: u32,
    /// The digests of the last complete file, which were wrong.
    wrong: Vec<Digest>,
    /// Connections of each lane without progress, since there was any.
    poor: BTreeMap<u32, u32>,
    outages: u32,
    restarts: u32,
    discarded: u64,
}

/// One connection's work.
#[derive(Debug)]
struct Lane {
    /// The next byte.
    at: u64,
    /// Behind the last one wanted; open while the length is unknown.
    end: Option<u64>,
    /// The beginning of the missing bytes: up to here the answer is compared.
    gap: u64,
    asked_range: bool,
    conditional: bool,
    /// The server gives less than was asked for.
    short: bool,
    /// The response is the whole file.
    whole: bool,
    gained: u64,
    told: FileVersion,
    told_total: Option<u64>,
}

impl Resume {
    /// Goes on from what is `known`, or begins.
    pub fn new(settings: ResumeSettings, known: Known) -> Self {
        let trusting = settings.digest_known;
        let begun = known.held.bytes() > 0;
        Self {
            settings,
            known: if begun { known } else { Known::default() },
            begun,
            ignores_ranges: false,
            conditional: true,
            trusting,
            lanes: BTreeMap::new(),
            piece: None,
            sources: u32::from(begun),
            wrong: Vec::new(),
            poor: BTreeMap::new(),
            outages: 0,
            restarts: 0,
            discarded: 0,
        }
    }

    /// The knowledge to be saved.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Bytes that were fetched and then given up because the file had changed.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }

    /// How often it was started again.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Whether every byte is here.
    pub fn is_complete(&self) -> bool {
        self.begun && self.known.total.is_some_and(|total| self.known.held.is_whole(total))
    }

    /// Whether further lanes are useful: the length is known and the server may honour ranges of a
    /// version that can be distinguished from others.
    pub fn takes_more_lanes(&self) -> bool {
        let provable = !self.known.version.strong.is_empty() || self.trusting || self.digest();
        self.begun && self.known.total.is_some() && !self.ignores_ranges && provable
    }

    /// From now on lanes ask for pieces of `length`, whatever the length of the file.
    pub fn ask_for_pieces_of(&mut self, length: u64) {
        self.settings.least_piece = self.settings.least_piece.min(length / 4).max(1);
        self.piece = Some(length.max(1));
    }

    fn digest(&self) -> bool {
        self.known.version.digest.is_some()
    }

    /// The next step of `lane`.
    pub fn ask(&mut self, lane: u32) -> Next {
        self.lanes.remove(&lane);
        if self.is_complete() {
            return Next::Done;
        }
        let alone = self.lanes.is_empty();
        // A version of which nothing is held binds to nothing.
        self.begun &= !alone || self.known.held.bytes() > 0;
        if !self.begun || self.ignores_ranges {
            return if alone { self.ask_for_all(lane) } else { Next::Idle };
        }
        if !alone && !self.takes_more_lanes() {
            return Next::Idle;
        }
        let Some(total) = self.known.total else {
            let start = self.known.held.prefix();
            return self.ask_for(lane, start, None);
        };
        match self.free(total).or_else(|| self.share(total)) {
            Some(gap) if alone && gap == (0..total) => self.ask_for_all(lane),
            Some(gap) => self.ask_for(lane, gap.start, Some(gap.end)),
            None => Next::Idle,
        }
    }

    /// Bytes that no lane fetches: where an overlap can be had if possible, and no more than a piece
    /// while others are at work.
    fn free(&self, total: u64) -> Option<Range<u64>> {
        let mut taken = self.known.held.clone();
        for lane in self.lanes.values() {
            taken.insert(lane.at.max(lane.gap)..lane.end.unwrap_or(total).min(total));
        }
        let gaps = taken.gaps(total);
        let joined = gaps.iter().find(|gap| self.known.held.ending_at(gap.start).is_some());
        let gap = joined.or(gaps.first())?.clone();
        let piece = self.piece(total);
        let left = gap.end - gap.start;
        // A rest that is too small to be worth a request of its own goes with the piece.
        let end = if left < piece.saturating_add(self.settings.least_piece) {
            gap.end
        } else {
            gap.start + piece
        };
        Some(gap.start..end)
    }

    fn piece(&self, total: u64) -> u64 {
        match (self.piece, self.settings.pieces) {
            (Some(length), _) => length,
            (None, 0 | 1) => u64::MAX,
            (None, pieces) => {
                total.div_ceil(u64::from(pieces)).max(self.settings.least_piece).max(1)
            }
        }
    }

    /// The second half of the longest work that another lane has before it.
    fn share(&mut self, total: u64) -> Option<Range<u64>> {
        let left = |lane: &Lane| lane.end.unwrap_or(total).saturating_sub(lane.at.max(lane.gap));
        let longest = self.lanes.values_mut().max_by_key(|lane| left(lane))?;
        let length = left(longest);
        if length < self.settings.least_piece.max(1).saturating_mul(2) {
            return None;
        }
        let end = longest.end.unwrap_or(total);
        let middle = end - length / 2;
        longest.end = Some(middle);
        Some(middle..end)
    }

    fn ask_for_all(&mut self, lane: u32) -> Next {
        self.lanes.insert(lane, Lane::new(0, None, 0));
        Next::Ask(Ask { range: None, if_range: None })
    }

    fn ask_for(&mut self, lane: u32, gap: u64, end: Option<u64>) -> Next {
        let if_range = match self.known.version.strong.as_slice() {
            [one] if self.conditional => Some(one.clone()),
            _ => None,
        };
        let before = self.known.held.ending_at(gap).map_or(0, |range| range.end - range.start);
        let overlap =
            if if_range.is_some() || self.trusting { 0 } else { before.min(self.settings.overlap) };
        let start = gap - overlap;
        let mut work = Lane::new(start, end, gap);
        work.asked_range = true;
        work.conditional = if_range.is_some();
        self.lanes.insert(lane, work);
        // The last piece is asked for without an end, as browsers and wget do: caches know it.
        let last = end.filter(|&end| Some(end) != self.known.total);
        Next::Ask(Ask { range: Some((start, last)), if_range })
    }

    /// The head of the answer to what `lane` asked.
    pub fn on_answer(&mut self, lane: u32, answer: &Answer) -> Verdict {
        if !self.lanes.contains_key(&lane) {
            return Verdict::Again;
        }
        match answer.status {
            200 => self.on_whole(lane, answer),
            206 => self.on_part(lane, answer),
            416 => self.on_unsatisfied(lane, answer),
            408 | 425 | 429 | 500 | 502 | 503 | 504 => Verdict::Unavailable,
            status if self.lanes.len() == 1 => Verdict::Failed(Trouble::Refused { status }),
            // A server may allow fewer connections than we would like.
            _ => self.retire(lane),
        }
    }

    fn retire(&mut self, lane: u32) -> Verdict {
        self.lanes.remove(&lane);
        // Fewer lanes would wait between pieces.
        self.piece = None;
        Verdict::Retire
    }

    /// From now on everything is asked for, and a lane that reads everything goes on to the end.
    fn ask_no_ranges(&mut self) {
        self.ignores_ranges = true;
        for lane in self.lanes.values_mut().filter(|lane| lane.whole) {
            lane.end = None;
        }
    }

    fn on_whole(&mut self, lane: u32, answer: &Answer) -> Verdict {
        if let Some(trouble) = self.wrong_length(answer.length) {
            return Verdict::Failed(trouble);
        }
        let same = self.compare(&answer.version, answer.length);
        let alone = self.lanes.len() == 1;
        let Some(work) = self.lanes.get_mut(&lane) else { return Verdict::Again };
        if self.begun && work.conditional && same == Same::Unclear {
            // Another version, or another node's name for this one: the overlap will tell.
            self.conditional = false;
            return Verdict::Again;
        }
        if self.begun && same != Same::No {
            if work.asked_range {
                self.ask_no_ranges();
            }
            if !alone {
                return self.retire(lane);
            }
        }
        let Some(work) = self.lanes.get_mut(&lane) else { return Verdict::Again };
        work.begin_whole(answer);
        if same == Same::No {
            return self.begin_anew_with(lane, 0);
        }
        if !self.begun {
            self.adopt(answer.version.clone(), answer.length);
        }
        self.known.total = answer.length.or(self.known.total);
        self.sources += 1;
        if let (Some(total), true) = (self.known.total, self.settings.pieces > 1)
            && self.known.held.bytes() == 0
            && self.takes_more_lanes()
            && total >= self.settings.least_piece.saturating_mul(2)
        {
            let piece = self.piece(total);
            if let Some(work) = self.lanes.get_mut(&lane) {
                work.end = Some(piece.min(total));
            }
        }
        Verdict::Read
    }

    fn on_part(&mut self, lane: u32, answer: &Answer) -> Verdict {
        let alone = self.lanes.len() == 1;
        let Some(work) = self.lanes.get_mut(&lane) else { return Verdict::Again };
        if !work.asked_range {
            return Verdict::Failed(Trouble::Nonsense("206 to a request without a range"));
        }
        let (range, total) = match &answer.part {
            Some(AnswerPart { range: Some(range), total }) => (range.clone(), *total),
            _ => return self.without_ranges(),
        };
        if range.start != work.at {
            return self.without_ranges();
        }
        let wanted = work.end.or(total);
        // A server that does not tell the length may have more.
        work.short = wanted.is_none_or(|wanted| range.end < wanted);
        work.end = Some(wanted.unwrap_or(range.end).min(range.end));
        work.told = answer.version.clone();
        work.told_total = total;
        let overlaps = work.at < work.gap;
        if let Some(trouble) = self.wrong_length(total) {
            return Verdict::Failed(trouble);
        }
        match self.compare(&answer.version, total) {
            Same::No => return self.begin_anew(),
            Same::Yes => {}
            Same::Unclear if self.trusting || overlaps => {}
            Same::Unclear if self.conditional && !self.known.version.strong.is_empty() => {
                self.conditional = false;
                return Verdict::Again;
            }
            Same::Unclear if !alone => return self.retire(lane),
            Same::Unclear => return self.begin_anew(),
        }
        self.known.total = self.known.total.or(total);
        self.sources += 1;
        Verdict::Read
    }

    fn on_unsatisfied(&mut self, lane: u32, answer: &Answer) -> Verdict {
        let asked_range = self.lanes.remove(&lane).is_some_and(|work| work.asked_range);
        if !asked_range {
            return Verdict::Failed(Trouble::Nonsense("416 to a request without a range"));
        }
        let Some(AnswerPart { range: None, total: Some(total) }) = answer.part else {
            return self.without_ranges();
        };
        // All there is was here already.
        if self.known.total.is_none_or(|known| known == total) && self.known.held.is_whole(total) {
            self.known.total = Some(total);
            return Verdict::Again;
        }
        if self.known.total == Some(total) {
            return self.without_ranges();
        }
        self.begin_anew()
    }

    /// The server does not understand ranges; without them it may be useful. Other lanes may have
    /// asked for one before this was known.
    fn without_ranges(&mut self) -> Verdict {
        self.ask_no_ranges();
        Verdict::Again
    }

    fn wrong_length(&self, told: Option<u64>) -> Option<Trouble> {
        let (told, expected) = (told?, self.settings.length?);
        (told != expected).then_some(Trouble::WrongLength { told, expected })
    }

    /// Whether an answer is of the version held.
    fn compare(&self, told: &FileVersion, total: Option<u64>) -> Same {
        let known = &self.known;
        if !self.begun {
            return Same::Unclear;
        }
        let lengths_differ = match (known.total, total) {
            (Some(known), Some(told)) => known != told,
            (None, Some(told)) => told < known.held.end(),
            _ => false,
        };
        // Bytes that another program fetched have no version: nothing speaks against any coding.
        let anonymous = known.version == FileVersion::default();
        if lengths_differ || (!anonymous && told.encoding != known.version.encoding) {
            return Same::No;
        }
        if let (Some(known), Some(told)) = (&known.version.digest, &told.digest)
            && algorithm(known) == algorithm(told)
        {
            return if known == told { Same::Yes } else { Same::No };
        }
        if told.strong.iter().any(|validator| known.version.strong.contains(validator)) {
            return Same::Yes;
        }
        Same::Unclear
    }

    fn adopt(&mut self, version: FileVersion, total: Option<u64>) {
        self.begun = true;
        self.known.version = version;
        self.known.total = total;
    }

    /// Gives up the bytes that are held.
    fn begin_anew(&mut self) -> Verdict {
        self.discarded += self.known.held.bytes();
        self.known = Known::default();
        self.begun = false;
        self.conditional = true;
        self.sources = 0;
        self.lanes.clear();
        self.count_restart(Verdict::Again)
    }

    /// Gives up the bytes from `from` on, and reads `lane`'s response, which is the whole of
    /// another version.
    fn begin_anew_with(&mut self, lane: u32, from: u64) -> Verdict {
        let before = self.known.held.bytes();
        self.known.held.truncate(from);
        self.discarded += before - self.known.held.bytes();
        self.lanes.retain(|&other, _| other == lane);
        if let Some(work) = self.lanes.get(&lane) {
            let (version, total) = (work.told.clone(), work.told_total);
            self.adopt(version, total);
        }
        self.conditional = true;
        self.sources = 1;
        self.count_restart(Verdict::Read)
    }

    fn count_restart(&mut self, verdict: Verdict) -> Verdict {
        self.restarts += 1;
        if self.restarts > MOST_RESTARTS {
            return Verdict::Failed(Trouble::KeepsChanging { times: self.restarts });
        }
        verdict
    }

    /// The treatment of the next `length` bytes that `lane` has read.
    pub fn place(&self, lane: u32, length: usize) -> Place {
        let Some(work) = self.lanes.get(&lane) else { return Place::Cut };
        let limit = work.end.or(work.told_total).unwrap_or(u64::MAX);
        if work.at >= limit {
            return Place::Cut;
        }
        let clip = |until: u64| {
            let most = until.min(limit) - work.at;
            usize::try_from(most).unwrap_or(usize::MAX).min(length)
        };
        match self.known.held.around(work.at) {
            Some(held) => Place::Compare(work.at, clip(held.end)),
            None => {
                Place::Write(work.at, clip(self.known.held.next_after(work.at).unwrap_or(limit)))
            }
        }
    }

    /// Whether `lane` has what it asked for: its response is of no further use.
    pub fn has_all(&self, lane: u32) -> bool {
        self.place(lane, 1) == Place::Cut
    }

    /// This many bytes were compared and are equal.
    pub fn on_equal(&mut self, lane: u32, length: usize) {
        let Some(work) = self.lanes.get_mut(&lane) else { return };
        work.at += length as u64;
        if work.at >= work.gap && !work.whole {
            let known = &mut self.known;
            if known.version == FileVersion::default() {
                known.version = work.told.clone();
            }
            for validator in &work.told.strong {
                if !known.version.strong.contains(validator)
                    && known.version.strong.len() < MOST_NAMES
                {
                    known.version.strong.push(validator.clone());
                }
            }
        }
    }

    /// The next byte differs from what is held: the content has changed.
    pub fn on_different(&mut self, lane: u32) -> Verdict {
        match self.lanes.get(&lane) {
            None => Verdict::Again,
            Some(work) if work.whole => {
                let at = work.at;
                self.begin_anew_with(lane, at)
            }
            Some(_) => self.begin_anew(),
        }
    }

    /// This many bytes were written.
    pub fn on_written(&mut self, lane: u32, length: usize) {
        let Some(work) = self.lanes.get_mut(&lane) else { return };
        let length = length as u64;
        self.known.held.insert(work.at..work.at + length);
        work.at += length;
        work.gained += length;
    }

    /// The response is over: its body has ended as announced (`clean`), or the connection has, or
    /// the driver has cut it.
    pub fn on_end(&mut self, lane: u32, clean: bool) -> After {
        let Some(work) = self.lanes.remove(&lane) else { return After::Again(Duration::ZERO) };
        if clean && work.whole && work.told_total.is_none() {
            // Without a length the end of the body is the end of the file.
            self.known.held.truncate(work.at);
            self.known.total = Some(work.at);
            if let Some(trouble) = self.wrong_length(self.known.total) {
                return After::Failed(trouble);
            }
        }
        let has_all = !work.short && work.end.is_some_and(|end| work.at >= end);
        if work.gained >= LEAST_GAIN || (has_all && work.gained > 0) {
            self.poor.clear();
            self.outages = 0;
            return After::Again(Duration::ZERO);
        }
        if self.is_complete() {
            return After::Again(Duration::ZERO);
        }
        let poor = self.poor.entry(lane).or_default();
        *poor += 1;
        if *poor >= self.settings.hopeless {
            return After::Failed(Trouble::NoProgress { connections: *poor });
        }
        // A route that moves before the response costs no pause.
        After::Again(RETRY_BACKOFF.after(*poor - 1))
    }

    /// `lane` got no connection, or an answer that says to come later, after `asked_pause` if it says.
    pub fn on_outage(&mut self, lane: u32, asked_pause: Option<Duration>) -> After {
        self.retire(lane);
        if !self.lanes.is_empty() {
            // A server may allow fewer connections than we would like.
            return After::Retire;
        }
        if self.outages >= self.settings.retries {
            return After::Failed(Trouble::Outage);
        }
        self.outages += 1;
        let pause = OUTAGE_BACKOFF.after(self.outages);
        let asked = asked_pause.unwrap_or_default().min(OUTAGE_BACKOFF.longest());
        After::Again(asked.max(pause))
    }

    /// The complete file has these digests, which are wrong. If it was put together from several responses they
    /// may not have been of one version: once more, then, and without taking that on trust. The same bytes once
    /// more are what the server has.
    pub fn on_wrong_digest(&mut self, found: &[Digest]) -> After {
        if self.sources < 2 {
            return After::Failed(Trouble::WrongDigest);
        }
        if self.wrong == found {
            return After::Failed(Trouble::WrongDigest);
        }
        self.wrong = found.to_vec();
        self.trusting = false;
        match self.begin_anew() {
            Verdict::Failed(trouble) => After::Failed(trouble),
            _ => After::Again(Duration::ZERO),
        }
    }
}

impl Lane {
    fn new(at: u64, end: Option<u64>, gap: u64) -> Self {
        Self {
            at,
            end,
            gap,
            asked_range: false,
            conditional: false,
            short: false,
            whole: false,
            gained: 0,
            told: FileVersion::default(),
            told_total: None,
        }
    }

    fn begin_whole(&mut self, answer: &Answer) {
        self.at = 0;
        self.gap = 0;
        self.end = None;
        self.whole = true;
        self.told = answer.version.clone();
        self.told_total = answer.length;
    }
}

/// Whether an answer is of the version held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Same {
    Yes,
    No,
    Unclear,
}

fn algorithm(digest: &str) -> &str {
    digest.split('=').next().unwrap_or_default()
}

/// Fewer new bytes than this are no progress: a connection costs more than they are worth.
const LEAST_GAIN: u64 = 1024;
/// The wait after connections without progress, from the second on.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
/// The wait after outages.
const OUTAGE_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(600));
/// How often a file may be started again because it has changed.
const MOST_RESTARTS: u32 = 4;
/// How many names of one version are remembered.
const MOST_NAMES: usize = 16;

#[cfg(test)]
mod tests;
