//! Certificates of a fleet, ordered at a real server of ACME: one account, and whatever a node has lost is in the state.

use std::{
    collections::HashSet,
    fs,
    net::{IpAddr, SocketAddr},
};

use crate::{
    client::Secure,
    pebble::{HTTP, Pebble, PebbleSettings, TLS},
    wait,
    world::{Fleet, Machine, unused_ip},
};

const DAY: u64 = 86_400;
const NAMES: [&str; 5] = ["one.test", "two.test", "three.test", "four.test", "five.test"];

/// The certificate of a name at a machine, when it is there.
fn certificate(machine: &Machine, name: &str) -> Vec<u8> {
    let at = SocketAddr::new(machine.ip().parse().unwrap(), TLS);
    let found = std::cell::RefCell::new(None);
    wait(&format!("a certificate of {name} at {}", machine.name), || {
        found.replace(Secure::connect(at, name).ok());
        found.borrow().is_some()
    });
    found.into_inner().unwrap().certificate
}

fn certificates(machine: &Machine) -> Vec<Vec<u8>> {
    NAMES.iter().map(|name| certificate(machine, name)).collect()
}

/// Orders of these machines since their starts.
fn orders(machines: &[Machine]) -> f64 {
    let of = |machine: &Machine| {
        let (_, text) = machine.admin("/metrics")?;
        let name = "levada_acme_orders_total{result=\"issued\"} ";
        text.lines().find_map(|line| line.strip_prefix(name))?.parse::<f64>().ok()
    };
    machines.iter().filter_map(of).sum()
}

fn accounts(fleet: &Fleet) -> usize {
    fleet.logs().matches("account made").count()
}

/// The accounts on the disks of the machines.
fn stored_accounts(fleet: &Fleet) -> HashSet<String> {
    let of = |machine: &Machine| {
        let files = fs::read_dir(machine.home.join("acme/accounts")).into_iter().flatten();
        files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect::<Vec<_>>()
    };
    fleet.machines.iter().flat_map(of).collect()
}

/// A fleet whose third machine has not joined.
fn state_has_certificates(mut fleet: Fleet) {
    let server = IpAddr::V4(unused_ip());
    let first: IpAddr = fleet.machines[0].ip().parse().unwrap();
    let settings = PebbleSettings { life: 90 * DAY, external: false };
    let Some(pebble) = Pebble::start(server, first, settings) else { return };
    for (name, machine) in NAMES.iter().zip(fleet.machines.iter().take(2).cycle()) {
        pebble.set_address(name, machine.ip().parse().unwrap());
    }
    let acme = pebble.table("").replace("\"acme\"", "\"${FLEET_DIRECTORY}/acme\"");
    fleet.write(
        "node.toml",
        &format!(
            "[[listen]]\naddress = \"${{FLEET_IP}}:{HTTP}\"\n\
             [[listen]]\naddress = \"${{FLEET_IP}}:{TLS}\"\nacme = true\n\
             [admin]\nlisten = \"${{FLEET_IP}}:9180\"\n{acme}"
        ),
    );
    fleet.write("files/index.html", "hello");
    let sites: Vec<_> = NAMES
        .iter()
        .map(|name| format!("[[site]]\nhosts = \"{name}\"\nfiles = \"files\"\n"))
        .collect();
    fleet.write("sites/all.toml", &sites.concat());
    fleet.applied();

    let shown = certificates(&fleet.machines[0]);
    wait("both nodes show the same", || certificates(&fleet.machines[1]) == shown);
    assert_eq!(orders(&fleet.machines[..2]), NAMES.len() as f64, "{}", fleet.logs());
    assert_eq!(accounts(&fleet), 1, "{}", fleet.logs());

    // A machine that joins later.
    fleet.start(&["eu-3"]);
    wait("the new node shows the same", || certificates(&fleet.machines[2]) == shown);
    assert_eq!(orders(&fleet.machines[2..]), 0.0);

    // All nodes lose what they have on disk: the state has it.
    wait("the state has the certificates", || {
        fleet
            .machines
            .iter()
            .all(|machine| machine.home.join("acme/certificates/five.test.pem").exists())
    });
    fleet.machines.iter_mut().for_each(Machine::kill);
    for machine in &mut fleet.machines {
        fs::remove_dir_all(machine.home.join("acme")).unwrap();
    }
    fleet.machines.iter_mut().for_each(Machine::restart);
    for machine in &fleet.machines {
        assert_eq!(certificates(machine), shown, "{}", machine.log());
    }
    assert_eq!(orders(&fleet.machines), 0.0, "{}", fleet.logs());

    // Another site: whichever node orders it has the account of the fleet.
    pebble.set_address("six.test", first);
    fleet.write("sites/six.toml", "[[site]]\nhosts = \"six.test\"\nfiles = \"files\"\n");
    fleet.applied();
    let sixth = certificate(&fleet.machines[0], "six.test");
    wait("all nodes show it", || {
        fleet.machines.iter().all(|machine| certificate(machine, "six.test") == sixth)
    });
    assert_eq!((orders(&fleet.machines), accounts(&fleet)), (1.0, 1), "{}", fleet.logs());
    assert_eq!(stored_accounts(&fleet).len(), 1);
}

#[test]
fn certificates_and_account_are_in_the_state_that_a_node_keeps() {
    state_has_certificates(Fleet::kept_by(&["eu-1", "us-2", "eu-3"], &["eu-1", "us-2"]));
}

#[test]
fn certificates_and_account_are_in_the_state_in_etcd() {
    if let Some(fleet) = Fleet::in_etcd_by(&["eu-1", "us-2", "eu-3"], &["eu-1", "us-2"]) {
        state_has_certificates(fleet);
    }
}
