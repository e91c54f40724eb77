//! Load for name servers: queries for one name with client subnets, a fixed number of them outstanding. It prints the
//! answers in a second, and how many of the queries had none.
//!
//! `dns_load ADDRESS SECONDS OUTSTANDING SUBNETS NAME...`: subnets are 10.0.0.0/24 and as many after it. With several
//! names, each is asked in turn.

use std::{
    env,
    net::UdpSocket,
    time::{Duration, Instant},
};

use levada_dns::wire::Name;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, seconds, outstanding, subnets, names @ ..] = &arguments[..] else {
        eprintln!("dns_load ADDRESS SECONDS OUTSTANDING SUBNETS NAME...");
        std::process::exit(2);
    };
    let number = |text: &String| text.parse::<u32>().expect("a number");
    let (seconds, outstanding, subnets) = (number(seconds), number(outstanding), number(subnets));
    let mut queries: Vec<_> =
        names.iter().map(|name| query(&name.parse().expect("a name"))).collect();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(address.as_str()).expect("an address");
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
    let (mut sent, mut answered, mut wrong, mut lost) = (0u32, 0u64, 0u64, 0u64);
    let begin = Instant::now();
    let mut waiting = 0;
    let mut answer = [0; 2048];
    while begin.elapsed() < Duration::from_secs(seconds.into()) || waiting > 0 {
        let goes_on = begin.elapsed() < Duration::from_secs(seconds.into());
        // Half of them at a time, so that a server has several to answer at once.
        if goes_on && waiting <= outstanding / 2 {
            while waiting < outstanding {
                let at = sent as usize % queries.len();
                let query = &mut queries[at];
                let end = query.len();
                // Every subnet in turn, far from the one before.
                let subnet = sent.wrapping_mul(2_654_435_761) % subnets;
                query[..2].copy_from_slice(&(sent as u16).to_be_bytes());
                query[end - 2..].copy_from_slice(&(subnet as u16).to_be_bytes());
                socket.send(query).expect("sent");
                (sent, waiting) = (sent.wrapping_add(1), waiting + 1);
            }
        }
        match socket.recv(&mut answer) {
            Ok(_) => {
                answered += 1;
                wrong += u64::from(answer[3] & 15 != 0 || answer[7] == 0);
                waiting -= 1;
            }
            Err(_) => (lost, waiting) = (lost + u64::from(waiting), 0),
        }
    }
    let rate = answered as f64 / begin.elapsed().as_secs_f64();
    println!(
        "{{\"answered\": {answered}, \"rate\": {rate:.0}, \"lost\": {lost}, \"wrong\": {wrong}}}"
    );
}

/// A query for an address, with a subnet of 24 bits; its last two bytes are to be filled in.
fn query(name: &Name) -> Vec<u8> {
    let head = [0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    let question = [name.wire(), &[0, 1, 0, 1]].concat();
    let edns = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 11, 0, 8, 0, 7, 0, 1, 24, 0, 10, 0, 0];
    [&head[..], &question, &edns].concat()
}
