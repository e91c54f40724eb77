//! Kinds of servers.

/// The kind of a group's servers, as metrics and logs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// An origin of a site.
    Origin,
    /// Another node of the cluster.
    Peer,
    /// A server of a switch.
    Switched,
}

impl ServerKind {
    /// The name used in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Origin => "origin",
            Self::Peer => "peer",
            Self::Switched => "server",
        }
    }
}
