//! A client's session: pages with think times between them, each page a document with embedded
//! objects, requested one after the other on one connection (WWW10 Sec. 4.1, 4.2).
//!
//! A session has its own random generator, so that every policy gets the same clients with the same
//! requests.

use std::time::Duration;

use levada_policy::Outstanding;
use levada_types::{Key, Rng, ServiceClass, Timestamp, weigh};

use super::documents::{DocumentNumber, Tree};
use super::settings::{PageKind, Settings};

/// One client on the site, and the object that it is waiting for.
#[derive(Debug)]
pub(super) struct Session {
    rng: Rng,
    pages_left: u32,
    /// The kind of the page.
    kind: PageKind,
    /// Objects of the page that are still to be requested.
    objects_left: u32,
    /// Whether a page is being loaded.
    pub(super) page_open: bool,
    /// Start of the page's first request.
    pub(super) page_began: Timestamp,
    /// Start of the object's request.
    pub(super) object_began: Timestamp,
    /// The requested object.
    pub(super) object: Object,
    /// Whether this session has negotiated keys.
    pub(super) keyed: bool,
    /// The server of the request, or of the page's connection.
    pub(super) server: u32,
    /// The stage of the object.
    pub(super) stage: ObjectStage,
    /// Counts the request, or the page, at the switch until it ends.
    pub(super) outstanding: Option<Outstanding>,
}

/// A requested object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) source: ContentSource,
    pub(super) document: DocumentNumber,
    pub(super) bytes: u64,
    /// Whether the object is sent encrypted.
    pub(super) secure: bool,
    /// Whether it is the first object of its page, which opens the connection.
    pub(super) first: bool,
}

/// The source of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentSource {
    /// A file on the server's disk.
    File,
    /// A simple search in the database, whose result may be cacheable.
    LightQuery,
    /// A search that makes intensive use of the database's disk.
    HeavyQuery,
}

/// The stage of an object at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectStage {
    /// The CPU reads the request and builds the head of the response.
    Parse,
    /// Memory, disk or database provides the content, which may be cached.
    Read { store: bool },
    /// The CPU encrypts it.
    Encrypt,
    /// The network card sends it.
    Send,
}

impl Object {
    /// The class that the switch sees in the URL (WWW10 Sec. 3.2).
    pub(super) fn class(&self) -> ServiceClass {
        match (self.source == ContentSource::HeavyQuery, self.secure) {
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
    /// A session that `seed` determines.
    pub(super) fn new(seed: u64, settings: &Settings) -> Self {
        let mut rng = Rng::new(seed);
        let pages = settings.sessions.pages.draw(&mut rng).round().max(1.0) as u32;
        Self {
            rng,
            pages_left: pages,
            kind: PageKind::Static,
            objects_left: 0,
            page_open: false,
            page_began: Timestamp::ZERO,
            object_began: Timestamp::ZERO,
            object: Object {
                source: ContentSource::File,
                document: 0,
                bytes: 0,
                secure: false,
                first: false,
            },
            keyed: false,
            server: 0,
            stage: ObjectStage::Parse,
            outstanding: None,
        }
    }

    /// Begins the next page and requests its document.
    pub(super) fn begin_page(&mut self, settings: &Settings, tree: &Tree, now: Timestamp) {
        self.pages_left -= 1;
        self.page_open = true;
        self.page_began = now;
        self.kind = settings.mix.draw(&mut self.rng);
        let objects = settings.sessions.objects.draw(&mut self.rng).round();
        self.objects_left = objects.clamp(1.0, f64::from(settings.sessions.most_objects)) as u32;
        self.ask(tree, true, settings);
    }

    /// Requests the next embedded object, if there is one.
    pub(super) fn next_object(&mut self, settings: &Settings, tree: &Tree) -> bool {
        let more = self.objects_left > 0;
        if more {
            self.ask(tree, false, settings);
        }
        more
    }

    /// Time that the client reads before its next page, if there is one.
    pub(super) fn think(&mut self, settings: &Settings) -> Option<Duration> {
        if self.pages_left == 0 {
            return None;
        }
        let seconds = settings.sessions.think.draw(&mut self.rng);
        // Half a year is longer than any run and can be added to a time without overflow.
        Some(Duration::from_secs_f64(seconds.min(1.5e7)))
    }

    fn ask(&mut self, tree: &Tree, first: bool, settings: &Settings) {
        self.objects_left -= 1;
        let document = tree.draw(&mut self.rng);
        // Objects embedded in a page are files, such as images, unless the settings say otherwise.
        let source = match self.kind {
            PageKind::LightlyDynamic if first || settings.sessions.embedded_dynamic => {
                ContentSource::LightQuery
            }
            PageKind::DiskBound | PageKind::DiskAndCpuBound if first => ContentSource::HeavyQuery,
            _ => ContentSource::File,
        };
        let secure = matches!(self.kind, PageKind::CpuBound | PageKind::DiskAndCpuBound);
        self.object = Object { source, document, bytes: tree.bytes(document), secure, first };
    }
}
