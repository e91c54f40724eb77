//! The cases that are measured, as data.

/// One measurement, the same for every server.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) setting: Setting,
    /// Length of every object that is asked for.
    pub(crate) size: u64,
    /// How many objects are asked for in turn.
    pub(crate) objects: u64,
    pub(crate) work: Work,
    /// The highest ratio of Levada to nginx. [`Work::Fill`] and [`Work::Crowd`] have limits of their
    /// own.
    pub(crate) target: f64,
    /// Servers that cannot do it, and why.
    pub(crate) absent: &'static [(&'static str, &'static str)],
}

/// The configuration of a server.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    /// Through the cache, or past it.
    pub(crate) cached: bool,
    pub(crate) tls: bool,
    /// Clients speak HTTP/2, without TLS from the first byte on.
    pub(crate) http2: bool,
    /// A directory in place of an origin.
    pub(crate) files: bool,
    /// The memory tier.
    pub(crate) memory_mib: u64,
    /// The disk tier, for servers whose tiers are two.
    pub(crate) disk_mib: Option<u64>,
}

/// The load on a server.
pub(crate) enum Work {
    /// As many requests as it answers, on connections that stay open or on one for each.
    Load { close: bool },
    /// The same over HTTP/2, so many streams at a time on each connection.
    Streams(u32),
    /// So many requests per second, below what any server can do, so that the time of an answer
    /// shows and not the length of a queue.
    Rate(u32),
    /// Twice as many bytes as the memory tier takes, in objects of 10 KB to 1 MB.
    Fill,
    /// So many clients at once, for one object that is not stored yet.
    Crowd { clients: usize },
}

const MEMORY: Setting = Setting {
    cached: true,
    tls: false,
    http2: false,
    files: false,
    memory_mib: 256,
    disk_mib: None,
};
const KEPT_OPEN: Work = Work::Load { close: false };

const NO_CACHE: &str = "has no cache";
const NO_FILES: &str = "has no files of its own";
const NO_TLS: &str = "has no TLS for clients in this version";
const NO_DISK: &str = "keeps objects in memory only";

/// The list. Targets that are ratios compare with nginx.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "memory hit, 1 KB",
        setting: MEMORY,
        size: 1 << 10,
        objects: 1,
        work: KEPT_OPEN,
        target: 0.55,
        absent: &[],
    },
    Case {
        name: "memory hit, 10 KB",
        setting: MEMORY,
        size: 10 << 10,
        objects: 1,
        work: KEPT_OPEN,
        target: 0.65,
        absent: &[],
    },
    Case {
        name: "memory hit, 1 MB",
        setting: MEMORY,
        size: 1 << 20,
        objects: 1,
        work: KEPT_OPEN,
        target: 0.50,
        absent: &[],
    },
    Case {
        name: "TLS 1.3 hit, 1 KB",
        setting: Setting { tls: true, ..MEMORY },
        size: 1 << 10,
        objects: 1,
        work: KEPT_OPEN,
        target: 0.65,
        absent: &[("Varnish", NO_TLS)],
    },
    Case {
        name: "disk hit, 1 MB",
        setting: Setting { memory_mib: 8, disk_mib: Some(1024), ..MEMORY },
        size: 1 << 20,
        objects: 256,
        work: KEPT_OPEN,
        target: 0.80,
        absent: &[("HAProxy", NO_DISK), ("h2o", NO_CACHE), ("Varnish", NO_DISK)],
    },
    Case {
        name: "new connection each, 1 KB hit",
        setting: MEMORY,
        size: 1 << 10,
        objects: 1,
        work: Work::Load { close: true },
        target: 0.95,
        absent: &[],
    },
    Case {
        name: "TLS 1.3 handshake each, 1 KB hit",
        setting: Setting { tls: true, ..MEMORY },
        size: 1 << 10,
        objects: 1,
        work: Work::Load { close: true },
        target: 0.60,
        absent: &[("Varnish", NO_TLS)],
    },
    Case {
        name: "h2c hit, 1 KB, 16 streams",
        setting: Setting { http2: true, ..MEMORY },
        size: 1 << 10,
        objects: 1,
        work: Work::Streams(16),
        target: 0.36,
        absent: &[("Traffic Server", "speaks HTTP/2 over TLS only")],
    },
    Case {
        name: "HTTP/2 TLS hit, 1 KB, 16 streams",
        setting: Setting { tls: true, http2: true, ..MEMORY },
        size: 1 << 10,
        objects: 1,
        work: Work::Streams(16),
        target: 0.45,
        absent: &[("Varnish", NO_TLS)],
    },
    Case {
        name: "static file, 1 KB",
        setting: Setting { files: true, ..MEMORY },
        size: 1 << 10,
        objects: 1,
        work: KEPT_OPEN,
        target: 0.9,
        absent: &[("HAProxy", NO_FILES), ("Varnish", NO_FILES), ("Traffic Server", NO_FILES)],
    },
    Case {
        name: "p99 at 2000 requests/s, 1 KB hit",
        setting: MEMORY,
        size: 1 << 10,
        objects: 1,
        work: Work::Rate(2000),
        target: 1.0,
        absent: &[],
    },
    Case {
        name: "pass-through, 1 KB",
        setting: Setting { cached: false, ..MEMORY },
        size: 1 << 10,
        objects: 1,
        work: KEPT_OPEN,
        target: 0.85,
        absent: &[],
    },
    Case {
        name: "pass-through, 1 MB",
        setting: Setting { cached: false, ..MEMORY },
        size: 1 << 20,
        objects: 1,
        work: KEPT_OPEN,
        target: 0.45,
        absent: &[],
    },
    Case {
        name: "resident memory",
        setting: MEMORY,
        size: 0,
        objects: 0,
        work: Work::Fill,
        target: 0.0,
        absent: &[("h2o", NO_CACHE)],
    },
    Case {
        name: "100 clients, one uncached 100 MB",
        setting: Setting { memory_mib: 64, disk_mib: Some(512), ..MEMORY },
        size: 100_000_000,
        objects: 1,
        work: Work::Crowd { clients: 100 },
        target: 0.0,
        absent: &[("HAProxy", "does not let requests wait for one fetch"), ("h2o", NO_CACHE)],
    },
];

impl Setting {
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

impl Case {
    /// The path of the object with this number.
    pub(crate) fn path(&self, number: u64) -> String {
        format!("/{}/{number}", self.size)
    }
}
