//! The settings of front-ends and back-ends.

use std::net::{IpAddr, SocketAddr};

/// Where a back-end is to which connections can be handed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoffControl {
    /// Its channel; packets of connections over the same version of IP go to this address.
    pub to: SocketAddr,
    /// Where those over the other version go. Without it they are proxied.
    pub also: Option<IpAddr>,
}

impl HandoffControl {
    /// Where packets go.
    pub(crate) fn addresses(self) -> impl Iterator<Item = IpAddr> {
        [self.to.ip()].into_iter().chain(self.also)
    }
}

/// Handing connections over: TCP handoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoffSettings {
    /// What front-ends and back-ends know and nobody else does (at least 16 bytes).
    pub secret: String,
    /// The network interfaces by which clients' packets come in.
    pub interfaces: Vec<String>,
    /// What becomes of a connection when its request is answered, as the front-end wants it.
    pub after: AfterHandoff,
    /// What a back-end takes; a front-end takes nothing.
    pub taking: Option<HandoffBackendSettings>,
}

/// What a back-end takes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoffBackendSettings {
    /// Where front-ends come in, and nobody else may.
    pub listen: SocketAddr,
    /// The service addresses whose connections are taken. All of them are this machine's.
    pub services: Vec<SocketAddr>,
}

/// What becomes of a connection that was handed over when its client sends another request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AfterHandoff {
    /// It stays where it is.
    #[default]
    Stay,
    /// It goes back to the front-end, which decides anew.
    Back,
    /// The back-end asks the front-end, and gives it back only when another is to answer.
    On,
}

impl AfterHandoff {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Stay, Self::Back, Self::On];
}
