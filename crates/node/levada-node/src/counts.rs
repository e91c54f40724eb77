//! The requests and connections of a node at one moment.

/// The counts of a node at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests from their heads to the ends of their responses.
    pub in_flight: i64,
    /// Requests that this node serves itself.
    pub in_service: u32,
    /// Requests counted as outstanding at any node of the cluster.
    pub outstanding: u32,
    /// Connections to origins in use.
    pub origin_connections_busy: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// Requests at origins, or about to be sent.
    pub misses: usize,
    /// Requests that wait to be sent to an origin.
    pub misses_waiting: usize,
    /// Requests at the servers of switches.
    pub switched: usize,
    /// Requests that wait for a server of a switch.
    pub switch_waiting: usize,
    /// Objects being fetched.
    pub fills: usize,
    /// Bytes of these objects received so far.
    pub filling_bytes: u64,
    /// Bytes of long bodies that readers hold.
    pub lent_bytes: u64,
    /// Sends from files of the disk tier, in mebibytes, rounded up.
    pub sending_files: usize,
}
