//! A client's session: pages with think times between them, each page a document with embedded
//! objects that are asked for one after the other on one connection (WWW10 Sec. 4.1, 4.2).
//!
//! A session draws from a generator of its own, so that every policy meets the same clients asking
//! for the same things.

use std::time::Duration;

use levada_policy::Outstanding;
use levada_types::{Key, Rng, ServiceClass, Timestamp, weigh};

use super::documents::{Document, Tree};
use super::settings::{Kind, Settings};

/// One client on the site, and the object that it is waiting for.
#[derive(Debug)]
pub(super) struct Session {
    rng: Rng,
    pages_left: u32,
    /// What the page is.
    kind: Kind,
    /// Objects of the page that are still to be asked for.
    objects_left: u32,
    /// Whether a page is being loaded.
    pub(super) page_open: bool,
    /// When the page's first request left.
    pub(super) page_began: Timestamp,
    /// When the object's request left.
    pub(super) object_began: Timestamp,
    /// The object that is asked for.
    pub(super) object: Object,
    /// Whether keys have been agreed upon in this session.
    pub(super) keyed: bool,
    /// Where the request, or the page's connection, was sent.
    pub(super) server: u32,
    /// What is being done for the object.
    pub(super) stage: Stage,
    /// Counts at the switch for as long as the request, or the page, lasts.
    pub(super) outstanding: Option<Outstanding>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) source: Source,
    pub(super) document: Document,
    pub(super) bytes: u64,
    /// Whether it is sent encrypted.
    pub(super) secure: bool,
    /// Whether it is the first of its page, with which a connection begins.
    pub(super) first: bool,
}

/// Where the content comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A file of the server's disk.
    File,
    /// A simple search in the database, whose result may be cacheable.
    LightQuery,
    /// A search that makes intensive use of the database's disk.
    HeavyQuery,
}

/// What a server is doing for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The CPU reads the request and builds the head of the response.
    Parse,
    /// Memory, disk or database gives the content, which is then kept or not.
    Read { store: bool },
    /// The CPU encrypts it.
    Encrypt,
    /// The network card sends it.
    Send,
}

impl Object {
    /// The class that the switch sees in the URL (WWW10 Sec. 3.2).
    pub(super) fn class(&self) -> ServiceClass {
        match (self.source == Source::HeavyQuery, self.secure) {
            (false, false) => ServiceClass::Normal,
            (true, false) => ServiceClass::DiskBound,
            (false, true) => ServiceClass::CpuBound,
            (true, true) => ServiceClass::DiskAndCpuBound,
        }
    }

    /// The identity of the content: files, searches and heavy searches have URLs of their own.
    pub(super) fn key(&self) -> Key {
        Key(weigh(Key(u64::from(self.document)), self.source as u64 + 1))
    }
}

impl Session {
    /// A session whose course follows from `seed`.
    pub(super) fn new(seed: u64, settings: &Settings) -> Self {
        let mut rng = Rng::new(seed);
        let pages = settings.sessions.pages.draw(&mut rng).round().max(1.0) as u32;
        Self {
            rng,
            pages_left: pages,
            kind: Kind::Static,
            objects_left: 0,
            page_open: false,
            page_began: Timestamp::ZERO,
            object_began: Timestamp::ZERO,
            object: Object {
                source: Source::File,
                document: 0,
                bytes: 0,
                secure: false,
                first: false,
            },
            keyed: false,
            server: 0,
            stage: Stage::Parse,
            outstanding: None,
        }
    }

    /// Begins the next page and asks for its document.
    pub(super) fn begin_page(&mut self, settings: &Settings, tree: &Tree, now: Timestamp) {
        self.pages_left -= 1;
        self.page_open = true;
        self.page_began = now;
        self.kind = settings.mix.draw(&mut self.rng);
        let objects = settings.sessions.objects.draw(&mut self.rng).round();
        self.objects_left = objects.clamp(1.0, f64::from(settings.sessions.most_objects)) as u32;
        self.ask(tree, true, settings);
    }

    /// Asks for the next embedded object, if there is one.
    pub(super) fn next_object(&mut self, settings: &Settings, tree: &Tree) -> bool {
        let more = self.objects_left > 0;
        if more {
            self.ask(tree, false, settings);
        }
        more
    }

    /// How long the client reads before its next page, if there is one.
    pub(super) fn think(&mut self, settings: &Settings) -> Option<Duration> {
        if self.pages_left == 0 {
            return None;
        }
        let seconds = settings.sessions.think.draw(&mut self.rng);
        // Half a year: longer than any run, and a number that can be added to a time.
        Some(Duration::from_secs_f64(seconds.min(1.5e7)))
    }

    fn ask(&mut self, tree: &Tree, first: bool, settings: &Settings) {
        self.objects_left -= 1;
        let document = tree.draw(&mut self.rng);
        // What is embedded in a page is a file, such as an image, unless told otherwise.
        let source = match self.kind {
            Kind::LightlyDynamic if first || settings.sessions.embedded_dynamic => {
                Source::LightQuery
            }
            Kind::DiskBound | Kind::DiskAndCpuBound if first => Source::HeavyQuery,
            _ => Source::File,
        };
        let secure = matches!(self.kind, Kind::CpuBound | Kind::DiskAndCpuBound);
        self.object = Object { source, document, bytes: tree.bytes(document), secure, first };
    }
}
