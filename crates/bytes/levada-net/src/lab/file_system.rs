//! File systems that a program alone sees: a small one, and one on a loop device whose reads can be held back.
//!
//! The system holds reads back for a control group, which the program joins: by `io.max`, or by blkio of the first
//! version of control groups.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio, id},
    thread,
    time::Duration,
};

use rustix::fs::{Advice, fadvise, major, minor};

/// A program that mounts a file system of this size (`32m`) in memory, and becomes the program of the next words.
pub fn small(directory: &Path, size: &str) -> Vec<OsString> {
    let mount = format!("mount -t tmpfs -o size={size},mode=700 levada-lab \"$0\"");
    alone(directory, &mount)
}

fn alone(directory: &Path, mount: &str) -> Vec<OsString> {
    let script = format!("{mount} && exec \"$@\"");
    let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &script];
    words.map(OsString::from).into_iter().chain([directory.into()]).collect()
}

/// Tries a program of these words out in a directory.
///
/// # Errors
/// With what it says.
pub fn try_out(words: impl FnOnce(&Path) -> Vec<OsString>) -> io::Result<()> {
    let directory = std::env::temp_dir().join(format!("levada-lab-{}", id()));
    fs::create_dir_all(&directory)?;
    let mut words = words(&directory).into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    let output = command.args(words).arg("true").stdin(Stdio::null()).output();
    let _ = fs::remove_file(image(&directory));
    let _ = fs::remove_dir(directory);
    let output = output?;
    let said = String::from_utf8_lossy(&output.stderr);
    let refused = || io::Error::other(format!("no file system can be mounted: {}", said.trim()));
    output.status.success().then_some(()).ok_or_else(refused)
}

/// The file of a file system on a loop device.
fn image(directory: &Path) -> PathBuf {
    directory.with_extension("img")
}

/// How fast reads are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPace {
    /// As the device has it.
    Free,
    /// Three in a second.
    Slow,
    /// Each takes an hour.
    Stands,
}

/// The control group of programs whose reads are held back. It ends with this process.
#[derive(Debug)]
pub struct HeldBack(PathBuf);

impl HeldBack {
    /// Makes the group.
    ///
    /// # Errors
    /// When the system refuses, or holds no reads back.
    pub fn new() -> io::Result<Self> {
        let first = Path::new("/sys/fs/cgroup/blkio");
        let root = if first.exists() { first } else { Path::new("/sys/fs/cgroup") };
        // Of the first version, each group has all files.
        let _ = fs::write(root.join("cgroup.subtree_control"), "+io");
        let group = Self(root.join(format!("levada-lab-{}", id())));
        fs::create_dir_all(&group.0)?;
        let has_limits = [READS, "io.max"].iter().any(|limit| group.0.join(limit).exists());
        let refused = || io::Error::other("no control group holds reads of a disk back");
        has_limits.then_some(group).ok_or_else(refused)
    }

    /// A program that makes and mounts a file system of this size (`192M`), joins the group, and becomes the program of
    /// the next words.
    pub fn program(&self, directory: &Path, size: &str) -> Vec<OsString> {
        let (image, group) = (image(directory), self.0.display());
        let image = image.display();
        let mount = format!(
            "truncate -s {size} '{image}' && mkfs.ext4 -q -F '{image}' && mount -o loop,noatime '{image}' \"$0\" \
             && echo $$ > '{group}/cgroup.procs'"
        );
        alone(directory, &mount)
    }

    /// Sets the pace of reads of the file system that has this file.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn set(&self, file: &Path, pace: ReadPace) -> io::Result<()> {
        let device = file.metadata()?.dev();
        let device = format!("{}:{}", major(device), minor(device));
        let (reads, bytes) = match pace {
            ReadPace::Free => (0, 0),
            ReadPace::Slow => (3, 0),
            ReadPace::Stands => (0, 1),
        };
        if self.0.join(READS).exists() {
            fs::write(self.0.join(READS), format!("{device} {reads}"))?;
            return fs::write(self.0.join(BYTES), format!("{device} {bytes}"));
        }
        let limit = |of: u32| if of == 0 { "max".to_owned() } else { of.to_string() };
        let line = format!("{device} riops={} rbps={}", limit(reads), limit(bytes));
        fs::write(self.0.join("io.max"), line)
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        // The programs are about to end.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Has the system forget what it has of a file in its memory; a file may be gone.
pub fn forget(path: &Path) {
    let Ok(file) = File::open(path) else { return };
    let _ = file.sync_data().and_then(|()| Ok(fadvise(&file, 0, None, Advice::DontNeed)?));
}

const READS: &str = "blkio.throttle.read_iops_device";
const BYTES: &str = "blkio.throttle.read_bps_device";
