//! Pulls that are killed at any moment, while the tree changes and clocks are wrong.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use levada_client::{Client, ClientSettings, Pulling};

use crate::world::World;

/// Not a test: the process that [`pulls_that_are_killed_leave_no_difference`] kills.
#[tokio::test]
async fn child() {
    let Ok(there) = std::env::var(CHILD) else { return };
    let (url, there) = there.split_once(' ').unwrap();
    let mut request = World::request_of(url, PathBuf::from(there));
    request.delay = there.ends_with("delayed");
    let client = Client::new(ClientSettings::default()).unwrap();
    let _ = client.pull(&request, &Pulling::default()).await;
}

/// Every second file of a round has the length and the time of the round before, so that only its digest
/// shows that it is another one; the times are those of clocks that are wrong in both directions.
fn write(path: &Path, round: u64, number: u64) {
    let content = format!("{:0100}", round * 1000 + number);
    let times = if number.is_multiple_of(2) { 1 } else { round as usize % 7 };
    fs::write(path, content.repeat(times)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(number % 3 * 4_000_000_000);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[tokio::test]
async fn pulls_that_are_killed_leave_no_difference() {
    let world = World::new();
    for there in ["there", "delayed"] {
        let there = world.directory.path().join(there);
        for round in 0..20 {
            for number in 0..100 {
                let directory = world.tree().join(format!("d{}", (number + round) % 12));
                fs::create_dir_all(&directory).unwrap();
                write(&directory.join(format!("f{number}")), round, number);
            }
            fs::remove_dir_all(world.tree().join(format!("d{}", round % 12))).unwrap();
            world.publish();
            let child = format!("{} {}", world.url(), there.display());
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "killed::child"]).env(CHILD, child);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            tokio::time::sleep(Duration::from_millis(10 + round * 13 % 150)).await;
            // The tree changes under the pull, which is killed then.
            write(&world.tree().join(format!("d{}/f5", (6 + round) % 12)), round, 6);
            child.kill().unwrap();
            child.wait().unwrap();
        }
        world.publish();
        world.pull_with(|request| request.directory.clone_from(&there)).await;
        world.assert_equal_at(&there);
        let report = world
            .pull_with(|request| {
                request.directory.clone_from(&there);
                request.thorough = true;
            })
            .await;
        assert_eq!((report.fetched, report.dressed, report.deleted), (vec![], vec![], vec![]));
    }
}

const CHILD: &str = "LEVADA_SYNC_CHILD";
