//! The objects. A path says which one it is, and how long it is: `/fresh/7/8192`.

/// Objects by the time for which they may be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    /// For an hour.
    Fresh,
    /// For a second, and for an hour if the origin cannot be asked.
    Stale,
    /// As fresh ones; each is requested once.
    Missed,
}

/// An object as clients request it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: ObjectKind,
    pub(super) path: String,
    pub(super) size: u64,
}

impl ObjectKind {
    const ALL: [Self; 3] = [Self::Fresh, Self::Stale, Self::Missed];

    /// The beginning of its paths.
    pub(super) const fn prefix(self) -> &'static str {
        match self {
            Self::Fresh => "/fresh/",
            Self::Stale => "/stale/",
            Self::Missed => "/missed/",
        }
    }

    pub(super) const fn cache_control(self) -> &'static str {
        match self {
            Self::Fresh | Self::Missed => "public, max-age=3600",
            Self::Stale => "public, max-age=1, stale-if-error=3600",
        }
    }

    /// The object with this number: of 1 to 32 KB.
    pub(super) fn number(self, number: u64) -> Target {
        let size = 1_000 + number * 7_919 % 31_000;
        Target { kind: self, path: format!("{}{number}/{size}", self.prefix()), size }
    }
}

impl Target {
    /// The object of a path.
    pub(super) fn parse(path: &str) -> Option<Self> {
        let kind = ObjectKind::ALL.into_iter().find(|kind| path.starts_with(kind.prefix()))?;
        let number = path.strip_prefix(kind.prefix())?.split('/').next()?.parse().ok()?;
        Some(kind.number(number)).filter(|target| target.path == path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_known_by_its_path() {
        for kind in ObjectKind::ALL {
            let target = kind.number(40);
            assert_eq!(Target::parse(&target.path), Some(target));
        }
        for none in ["/fresh/1/1", "/fresh/x/1", "/other/1/1000", "/fresh/", ""] {
            assert_eq!(Target::parse(none), None, "{none}");
        }
    }
}
