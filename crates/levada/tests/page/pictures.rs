//! The page of a demo, and the pictures of the documentation: `cargo test -p levada --test page -- --ignored` makes
//! these, of a program that must be optimised (`LEVADA=target/release/levada`), on a machine that has nothing else
//! to do.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};

use crate::browser::{Browser, DESK, PHONE};

/// A demo that ends with this value.
struct Demo {
    process: Child,
    page: String,
    admin: String,
}

impl Demo {
    fn start(options: &[&str]) -> Self {
        let program =
            std::env::var_os("LEVADA").unwrap_or_else(|| env!("CARGO_BIN_EXE_levada").into());
        let mut command = Command::new(program);
        command.arg("demo").args(options).arg("--json").stdin(Stdio::null());
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap());
        let mut text = String::new();
        while !text.contains("\nfiles ") {
            assert!(said.read_line(&mut text).unwrap() > 0, "the demo starts: {text}");
        }
        thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let behind = |word: &str| {
            let rest = text.split(word).nth(1).unwrap();
            rest.split([' ', '\n', '/']).next().unwrap().to_owned()
        };
        let page = format!("http://{}/", behind("page     http://"));
        let admin = format!("http://{}/", behind("status   http://"));
        Self { process, page, admin }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Its nodes end with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const PHASE: &str = "document.querySelector('[aria-current]')?.innerText";

#[test]
fn page_of_the_demo_tells_the_story_and_takes_orders() {
    let Some(mut browser) = Browser::start() else { return };
    // Few requests: the build under test is not optimised, and others use the machine as well.
    let options = ["--nodes", "3", "--duration", "20s", "--rate", "40", "--crowd", "1", "--hold"];
    let demo = Demo::start(&options);
    browser.open(&demo.page);
    assert_eq!(browser.value("document.querySelectorAll('.phases li').length"), 6);
    browser.wait(&format!("{PHASE} === 'flash crowd'"));
    browser.wait("document.querySelectorAll('.matrix tbody .held').length > 0");
    browser.wait("document.querySelectorAll('.figures .bands rect').length >= 3");
    let press = |name: &str| {
        format!(
            "[...document.querySelectorAll('#story button')].find(b => b.innerText === '{name}').click()"
        )
    };
    let events = "document.getElementById('events-list').innerText";
    browser.wait(&format!("{events}.includes('is killed')"));
    browser.wait(&format!("{events}.includes('is back, with an empty cache')"));
    // Its phases are over, and the buttons go on.
    browser.wait("document.querySelector('.words').innerText.includes('try the buttons')");
    browser.value("document.getElementById('demo-node').value = 'n2'");
    browser.value(&press("Kill it"));
    browser.wait(
        "[...document.querySelectorAll('.nodes tr')].some(row => /n2\\s+down/.test(row.innerText))",
    );
    browser.wait(&format!("{events}.includes('n2 is back')"));
    browser.value(&press("Start a crowd"));
    browser.wait(&format!("{events}.includes('a crowd comes')"));
    browser.value("document.getElementById('demo-policy').value = 'round_robin'");
    browser.value(&press("Change the policy"));
    browser.wait(&format!("{events}.includes('the nodes decide by round_robin')"));
    // Explanations come from a node, which has the new policy now.
    browser.wait("document.querySelectorAll('.object').length > 0");
    browser.value("document.querySelector('.object').click()");
    browser.wait("document.getElementById('why-answer').innerText.includes('round_robin')");
    // The explanation may have been asked of a node that was not up yet.
    assert_eq!(browser.problems, [""; 0]);
}

#[test]
#[ignore = "it writes files of docs/"]
fn pictures_of_the_documentation() {
    let Some(mut browser) = Browser::start() else { return };
    let demo = Demo::start(&["--duration", "1m"]);
    browser.open(&demo.page);
    browser.wait(&format!("{PHASE} === 'before'"));
    thread::sleep(std::time::Duration::from_secs(6));
    keep(&mut browser, "demo-before", DESK.1 + 300);
    browser.wait(&format!("{PHASE} === 'flash crowd'"));
    thread::sleep(std::time::Duration::from_secs(10));
    keep(&mut browser, "demo-crowd", DESK.1 + 300);
    browser.wait(&format!("{PHASE} === 'node down'"));
    thread::sleep(std::time::Duration::from_secs(4));
    keep(&mut browser, "demo-after", DESK.1 + 300);
    // A node of it, with an explanation.
    browser.open(&demo.admin);
    browser.wait("document.querySelectorAll('.object').length > 5");
    browser.value("document.querySelector('.object').click()");
    browser.wait("document.querySelector('.verdict')");
    browser.value("document.activeElement.blur(); scrollTo(0, 0)");
    thread::sleep(std::time::Duration::from_secs(2));
    let whole = browser.value("document.documentElement.scrollHeight").as_u64().unwrap();
    keep(&mut browser, "page-node-light", whole.min(1_600) as u32);
    browser.look_like(DESK, "dark");
    thread::sleep(std::time::Duration::from_secs(1));
    keep(&mut browser, "page-node-dark", DESK.1 + 300);
    browser.look_like(PHONE, "light");
    thread::sleep(std::time::Duration::from_secs(1));
    keep(&mut browser, "page-phone", 1_500);
}

/// Keeps a picture of the page.
fn keep(browser: &mut Browser, name: &str, height: u32) {
    let png = BASE64_STANDARD.decode(browser.picture(height)).unwrap();
    assert!(png.len() < 200_000, "{name} has {} bytes", png.len());
    fs::write(images().join(format!("{name}.png")), png).unwrap();
}

fn images() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images")
}
