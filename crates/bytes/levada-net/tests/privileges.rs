//! The change of the user, in processes of their own.

use std::{process::Command, sync::mpsc, thread};

use levada_net::privileges::{Account, Kept, Privileges, is_root, run_as};

/// Set in a child process: whether it keeps the capabilities of handoff.
const KEEPS: &str = "LEVADA_TEST_KEEPS";

/// In a child process: changes the user and prints the privileges of a thread that was there before, of
/// this one, and of one that starts afterwards.
#[test]
#[ignore = "the test below runs it"]
fn child() {
    let keeps = std::env::var(KEEPS).unwrap();
    let (go, wait) = mpsc::channel::<()>();
    let before = thread::spawn(move || {
        wait.recv().unwrap();
        Privileges::now().unwrap()
    });
    let account = Account::find("nobody", Some("nogroup")).unwrap();
    run_as(&account, Kept { handoff: keeps == "handoff" }).unwrap();
    go.send(()).unwrap();
    let after = thread::spawn(|| Privileges::now().unwrap()).join().unwrap();
    println!("before: {}", before.join().unwrap());
    println!("now: {}", Privileges::now().unwrap());
    println!("after: {after}");
    println!("secret: {}", std::fs::read("/etc/shadow").is_ok());
    println!("root: {}", is_root());
}

/// What the child process says.
fn child_says(keeps: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--ignored", "--nocapture"]).env(KEEPS, keeps);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn user_and_capabilities_are_those_of_threads_that_start_afterwards() {
    if !is_root() || Account::find("nobody", Some("nogroup")).is_err() {
        levada_skip::skipped("needs root, and the user nobody");
        return;
    }
    let bare = "runs as nobody without capabilities";
    let said = child_says("nothing");
    for line in ["before: ", "now: ", "after: "].map(|word| format!("{word}{bare}")) {
        assert!(said.contains(&line), "{said}");
    }
    assert!(said.contains("secret: false") && said.contains("root: false"), "{said}");

    let said = child_says("handoff");
    assert!(said.contains(&format!("before: {bare}")), "{said}");
    // Fewer where this process itself has fewer, as in containers.
    let kept = Privileges::now().unwrap().capabilities;
    let kept: Vec<_> = kept
        .into_iter()
        .filter(|name| ["NET_BIND_SERVICE", "NET_ADMIN", "BPF"].contains(name))
        .collect();
    if !kept.is_empty() {
        let with = format!("runs as nobody with the capabilities {}", kept.join(", "));
        assert!(said.contains(&format!("now: {with}")), "{said}");
        assert!(said.contains(&format!("after: {with}")), "{said}");
    }
    assert!(said.contains("secret: false"), "{said}");
}
