//! A cluster in one room behind a switch, where the redirector is the front-end (ASPLOS'98 Sec. 2,
//! WWW10 Sec. 5). Network times are small compared with the servers' times.

use std::time::Duration;

use levada_policy::{Parameter, Parameters, Setting};

use super::{
    Entry, Shape, Topology,
    access::SERVER_MBPS,
    star::{CLIENT_LATENCY, CLIENT_MBPS, LATENCY, QUEUE_PACKETS, around_one_redirector},
};

pub(super) const ENTRY: Entry = Entry {
    name: "lan_cluster",
    source: "ASPLOS'98 Sec. 2, WWW10 Sec. 5",
    summary: "servers behind one switch, which is the redirector; clients in the same network",
    parameters: &[
        SERVER_LATENCY,
        Parameter { default: SMALL, ..CLIENT_LATENCY },
        SERVER_MBPS,
        Parameter { default: Setting::Number(1000.0), ..CLIENT_MBPS },
        QUEUE_PACKETS,
    ],
    build,
};

/// A switched 100 Mbit/s network of the papers' years.
const SMALL: Setting = Setting::Duration(Duration::from_micros(50));

const SERVER_LATENCY: Parameter = Parameter {
    name: "server_latency",
    kind: LATENCY,
    default: SMALL,
    unit: "",
    help: "How long a bit is under way between a server and the switch.",
};

fn build(shape: &Shape, parameters: &Parameters) -> Topology {
    around_one_redirector(shape, parameters, "switch", SERVER_LATENCY)
}
