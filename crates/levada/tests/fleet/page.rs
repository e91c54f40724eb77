//! The fleet on the page of a node, in a real Chromium.

use std::{fs, path::Path};

use base64::{Engine as _, prelude::BASE64_STANDARD};

use crate::{
    browser::{Browser, DESK, PHONE},
    wait,
    world::{Fleet, origin},
};

const TEXT: &str = "document.getElementById('fleet').innerText";

/// A fleet whose page is open: eu-1 shows it, eu-2 is drained, us-1 is away.
fn shown(browser: &mut Browser) -> Fleet {
    let mut fleet = Fleet::kept(&["eu-1", "eu-2", "us-1"]);
    fleet.serve(origin("200 OK", "one"));
    fleet.applied();
    fleet.wait_for(&["one", "one", "one"]);
    browser.open(&format!("http://{}:9180/", fleet.machines[0].ip()));
    browser.wait("document.querySelectorAll('#fleet-regions .region').length === 2");
    browser.wait(&format!("{TEXT}.includes('Revision 1, 3 of 3 nodes are as they should be')"));
    assert!(fleet.order(&["drain", "eu-2"]).status.success());
    fleet.machines[2].kill();
    browser.wait(&format!("{TEXT}.includes('1 of 3') || {TEXT}.includes('2 of 3')"));
    wait("the end of a lease", || fleet.status("us-1")["condition"] == "away");
    fleet
}

#[test]
fn page_shows_regions_with_who_is_behind_or_away_and_the_last_orders() {
    let Some(mut browser) = Browser::start() else { return };
    let mut fleet = shown(&mut browser);
    let member = |name: &str| {
        format!(
            "[...document.querySelectorAll('.member')].find(each => each.innerText.startsWith('{name}'))?.innerText"
        )
    };
    browser.wait(&format!("{}?.includes('away')", member("us-1")));
    browser.wait(&format!("{}?.includes('drained')", member("eu-2")));
    browser.wait(&format!("{TEXT}.includes('2 of 3 nodes')"));
    browser.wait(&format!("{TEXT}.includes('drained eu-2')"));
    assert!(browser.text("#fleet-regions .region h3").contains("eu"), "the own region is first");

    // A node that cannot take a revision says why.
    let node = fs::read_to_string(fleet.directory().join("node.toml")).unwrap();
    fleet.write("node.toml", &format!("seed = 3\n{node}"));
    fleet.apply(&["--at-once", "--timeout", "5s"]);
    browser.wait(&format!("{}?.includes('cannot change `seed`')", member("eu-2")));
    // The state goes with its node, and the page says so on another one.
    browser.open(&format!("http://{}:9180/", fleet.machines[1].ip()));
    browser.wait(&format!("{TEXT}.includes('Revision 2')"));
    fleet.machines[0].kill();
    browser.wait(&format!("{TEXT}.includes(' ago: ')"));
    browser.problems.retain(|problem| !problem.contains("net::ERR_"));
    assert_eq!(browser.problems, [""; 0]);
}

#[test]
#[ignore = "it writes files of docs/"]
fn pictures_of_a_fleet() {
    let Some(mut browser) = Browser::start() else { return };
    let _fleet = shown(&mut browser);
    for (name, screen, scheme) in [
        ("page-fleet-light", DESK, "light"),
        ("page-fleet-dark", DESK, "dark"),
        ("page-fleet-phone", PHONE, "light"),
    ] {
        browser.look_like(screen, scheme);
        // The other sections are in other pictures.
        browser.value(
            "document.querySelectorAll('main > section').forEach(each => each.style.display = each.id === 'fleet' ? '' : 'none')",
        );
        std::thread::sleep(std::time::Duration::from_secs(2));
        let height = browser.value("document.documentElement.scrollHeight").as_u64().unwrap();
        let png = BASE64_STANDARD.decode(browser.picture(height.min(1_600) as u32)).unwrap();
        let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
        fs::write(images.join(format!("{name}.png")), png).unwrap();
    }
}
