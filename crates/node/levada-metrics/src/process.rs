//! What every program of the field says of its process, under the names that dashboards know.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use levada_net::{memory, open_files};

/// Appends the process's figures to a page in OpenMetrics, before its end. Figures that the system does not tell
/// are left out.
pub(crate) fn append(page: &mut String, started: SystemTime) {
    let end = page.trim_end().trim_end_matches("# EOF").len();
    page.truncate(end);
    let started = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    let whole = |value: Option<u64>| value.map(|value| value as f64);
    let figures = [
        ("cpu_seconds", "counter", "CPU time, user and system", Some(seconds(cpu_time()))),
        ("open_fds", "gauge", "Open files and sockets", whole(open_files::count())),
        ("max_fds", "gauge", "The most files and sockets", whole(open_files::limit())),
        ("virtual_memory_bytes", "gauge", "Address space", whole(memory::taken())),
        ("resident_memory_bytes", "gauge", "Resident memory", whole(memory::resident())),
        ("start_time_seconds", "gauge", "Start of the process (Unix time)", Some(seconds(started))),
    ];
    for (name, kind, help, value) in figures {
        let Some(value) = value else { continue };
        let suffix = if kind == "counter" { "_total" } else { "" };
        let _ = writeln!(page, "# HELP process_{name} {help}.\n# TYPE process_{name} {kind}");
        let _ = writeln!(page, "process_{name}{suffix} {value}");
    }
    page.push_str("# EOF\n");
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}
