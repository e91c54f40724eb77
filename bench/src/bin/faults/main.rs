//! Errors of unmodified clients when something fails under a front-end that hands connections over.
//! `bench/README.md` says how to run and read it.
//!
//! ```text
//!   curl, wrk, Chromium ── router ──┬── front-end
//!                                   ├── back-end 0: nginx, handoff-backend   <- the faults are here
//!                                   └── back-end 1: nginx, handoff-backend
//! ```

use std::{env, error::Error, fs, process::ExitCode, time::Duration};

use levada_net::lab::possible;

use self::{clients::CLIENTS, world::World};

mod clients;
mod world;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Something that fails while clients ask, and is repaired again.
struct Fault {
    name: &'static str,
    begin: fn(&mut World) -> Result<()>,
    end: fn(&mut World) -> Result<()>,
}

const FAULTS: [Fault; 8] = [
    Fault { name: "none", begin: |_| Ok(()), end: |_| Ok(()) },
    Fault { name: "`handoff-backend` killed", begin: World::kill_taker, end: World::start_taker },
    Fault { name: "`handoff-backend` stopped", begin: World::stop_taker, end: World::start_taker },
    Fault { name: "its server killed", begin: World::kill_server, end: World::start_server },
    Fault { name: "its machine cut off", begin: World::cut_off, end: World::connect },
    Fault { name: "the channel cut", begin: World::cut_channel, end: World::mend_channel },
    Fault {
        name: "front-end killed, started at once",
        begin: World::restart_front,
        end: |_| Ok(()),
    },
    Fault { name: "front-end reloaded", begin: World::reload_front, end: World::reload_front },
];

const HELP: &str = "\
faults [--only TEXT]...

  --only TEXT   faults whose name contains this; may be repeated

Prints a table of what clients asked for and did not get. On Linux as root, with nginx, curl, wrk and
iproute2, and Chromium where it is to be asked. LEVADA names the binary; without, it is the one beside
this.";

/// When the fault begins, and when it is repaired.
const BEGIN: Duration = Duration::from_secs(2);
const END: Duration = Duration::from_secs(5);
/// How long clients go on asking.
const LOAD: u64 = 8;

fn main() -> Result<ExitCode> {
    let mut only = Vec::new();
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--only" => only.push(words.next().ok_or("--only wants a value")?),
            "--help" | "-h" => {
                println!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            _ => return Err(format!("no option {word}; --help lists them").into()),
        }
    }
    let unknown = |part: &&String| !FAULTS.iter().any(|fault| fault.name.contains(part.as_str()));
    if let Some(part) = only.iter().find(unknown) {
        let names = FAULTS.iter().map(|fault| fault.name).collect::<Vec<_>>();
        return Err(format!("no fault {part:?}; there are: {}", names.join("; ")).into());
    }
    possible()?;
    let directory = env::temp_dir().join(format!("levada-faults-{}", std::process::id()));
    fs::create_dir(&directory)?;
    let outcome = run(&directory, &only);
    fs::remove_dir_all(&directory)?;
    outcome.map(|()| ExitCode::SUCCESS)
}

fn run(directory: &std::path::Path, only: &[String]) -> Result<()> {
    let clients: Vec<_> = CLIENTS.iter().filter(|client| (client.is_there)()).collect();
    print!("| |");
    clients.iter().for_each(|client| print!(" {} |", client.name));
    println!("\n|---|{}", "---|".repeat(clients.len()));
    let wanted = |fault: &&Fault| only.is_empty() || only.iter().any(|o| fault.name.contains(&**o));
    for fault in FAULTS.iter().filter(wanted) {
        print!("| {} |", fault.name);
        for client in &clients {
            // Each begins with all that is there.
            let mut world = World::new(directory)?;
            let seen = world.under(client, |world| {
                std::thread::sleep(BEGIN);
                (fault.begin)(world)?;
                std::thread::sleep(END - BEGIN);
                (fault.end)(world)
            })?;
            print!(" {seen} |");
            std::io::Write::flush(&mut std::io::stdout())?;
        }
        println!();
    }
    Ok(())
}
