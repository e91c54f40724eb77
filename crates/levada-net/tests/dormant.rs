//! Clients that stop acknowledging, and clients that only seem to, over wires with a delay. These
//! tests need root on Linux and are skipped elsewhere.

use std::{
    io::Write as _,
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::Duration,
};

use levada_net::{
    dormant::{DormancyWatch, MonitoredStream, WatchedConnection},
    lab::{Access, Network, possible},
    tcp::TcpInfo,
    wire::Shape,
};

/// The path drops all packets of the client until the second retransmission is sent. The answer to
/// that one would arrive a round trip later.
#[test]
fn client_whose_path_drops_a_retransmission_is_not_given_up() {
    if let Err(why) = possible() {
        eprintln!("skipped: {why}");
        return;
    }
    let mut network = Network::new(1);
    let [server, client] = ["server", "client"].map(|name| network.host(name).unwrap());
    let far = Shape { delay: Duration::from_millis(150), ..Shape::default() };
    let (here, there) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let wire =
        network.join(&[(&server, Access::at(here)), (&client, Access::at(there).receiving(far))]);
    let wire = wire.unwrap();
    let listener = server.namespace().run(|| TcpListener::bind((here, 0))).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    let _reader = client.namespace().run(|| TcpStream::connect(at)).unwrap().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    wire.up(1).cut(true);
    stream.write_all(&[7; 10_000]).unwrap();
    stream.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _in_it = runtime.enter();
    let (watch, connection) = (DormancyWatch::new(1), WatchedConnection::new(()));
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    let watched = MonitoredStream::new(stream, Some(watch.clone()), connection);
    watched.wrote();
    loop {
        let info = TcpInfo::of(watched.stream()).unwrap();
        if info.retransmits >= 2 {
            wire.up(1).cut(false);
        }
        if info.unacked == 0 {
            break;
        }
        watch.sweep(|_, info| panic!("given up: {info:?}"));
        std::thread::sleep(Duration::from_millis(1));
    }
}
