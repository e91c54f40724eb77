//! The memory of this process and of the machine.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// Bytes of this process that are in the machine's memory; `None` where the system does not say.
pub fn resident() -> Option<u64> {
    own_memory(1)
}

/// Bytes of the address space that this process has taken; `None` where the system does not say.
pub fn taken() -> Option<u64> {
    own_memory(0)
}

/// A field of `statm` in bytes. The file stays open: nodes read it fifty times a second.
fn own_memory(field: usize) -> Option<u64> {
    static STATM: LazyLock<Option<File>> = LazyLock::new(|| File::open("/proc/self/statm").ok());
    let mut text = [0; 128];
    let length = STATM.as_ref()?.read_at(&mut text, 0).ok()?;
    let pages: u64 = str::from_utf8(&text[..length]).ok()?.split(' ').nth(field)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Gives memory that is free back to the system at once. The allocator of the binary does so after a second
/// otherwise. Processes with another allocator are not affected.
pub fn give_back() {
    // SAFETY: it may be called at any time, from any thread: it works on the caller's own heap, and on
    // what all threads have left, under the allocator's own locks.
    #[expect(unsafe_code)]
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}

/// Bytes that this process may use: those of the machine, or the limit of its control group if that is
/// lower. `None` where the system does not say.
pub fn available() -> Option<u64> {
    let machine = kilobytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|file| limit(&file));
    Some(limits.fold(machine, u64::min))
}

/// The bound for a node whose owner states none: three quarters of what is available. The rest is for buffers
/// of the kernel, which a group's limit counts too, for cached files of the disk tier, and for other programs.
pub fn default_bound() -> u64 {
    available().map_or(u64::MAX, |available| available / 4 * 3)
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|number| number * 1024)
}

fn limit(file: &Path) -> Option<u64> {
    // `max` is no limit.
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The files with the limits of the groups in `/proc/self/cgroup` and of the groups around them. In a
/// container, the group is mounted as the root, and its path names nothing there.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let within = Path::new(path.trim_start_matches('/'));
        files.extend(within.ancestors().map(|group| Path::new(root).join(group).join(name)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_takes_some_of_what_there_is() {
        let (resident, available) = (resident().unwrap(), available().unwrap());
        assert!(resident > 1 << 20 && resident < available, "{resident} of {available}");
    }

    #[test]
    fn limits_of_both_versions_are_found_in_all_groups_around() {
        let files = |groups: &str| -> Vec<String> {
            limit_files(groups).iter().map(|file| file.display().to_string()).collect()
        };
        assert_eq!(
            files("0::/system.slice/levada.service\n"),
            [
                "/sys/fs/cgroup/system.slice/levada.service/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        assert_eq!(
            files("5:cpu,cpuacct:/a\n4:memory:/docker/1\nx"),
            [
                "/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            ]
        );
    }

    #[test]
    fn total_of_the_machine_is_read() {
        assert_eq!(kilobytes("MemTotal:  2 kB\nMemFree: 1 kB\n", "MemTotal:"), Some(2048));
        assert_eq!(kilobytes("MemFree: 1 kB\n", "MemTotal:"), None);
    }
}
