//! Full load, by wrk and h2load: as many requests as a server answers.

use std::{fmt::Write, fs, path::Path, process::Command};

use crate::{Result, case::Case};

/// The result of a load.
pub(crate) struct Load {
    pub(crate) requests: u64,
    /// h2load does not say it: NaN.
    pub(crate) p99_ms: f64,
}

/// Loads a server for some seconds. A request that fails, or a body that falls short, is an error.
pub(crate) fn run(
    case: &Case,
    close: bool,
    port: u16,
    seconds: u64,
    connections: u32,
    dir: &Path,
) -> Result<Load> {
    let script = dir.join("wrk.lua");
    fs::write(&script, lua(case))?;
    let mut command = Command::new("wrk");
    command.args(["-t1", "--timeout", "30s", "--latency"]);
    command.arg(format!("-c{connections}")).arg(format!("-d{seconds}s")).arg("-s").arg(&script);
    if close {
        command.args(["-H", "Connection: close"]);
    }
    command.arg(format!("{}://127.0.0.1:{port}{}", case.setting.scheme(), case.path(0)));
    let output = command.output().map_err(|e| format!("wrk: {e}; install wrk"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let counts: Vec<u64> = text
        .lines()
        .find_map(|line| line.strip_prefix("counts "))
        .ok_or_else(|| format!("{text}{}", String::from_utf8_lossy(&output.stderr)))?
        .split(' ')
        .map(str::parse)
        .collect::<std::result::Result<_, _>>()?;
    let &[requests, bytes, errors, p99_us] = &counts[..] else {
        return Err(text.into());
    };
    if errors > 0 || requests == 0 || bytes < requests * case.size {
        return Err(format!("requests failed or fell short:\n{text}").into());
    }
    Ok(Load { requests, p99_ms: p99_us as f64 / 1e3 })
}

/// The same over HTTP/2, by h2load.
pub(crate) fn streams(
    case: &Case,
    streams: u32,
    port: u16,
    seconds: u64,
    connections: u32,
) -> Result<Load> {
    let mut command = Command::new("h2load");
    command.args(["-t1", &format!("-c{connections}"), &format!("-m{streams}")]);
    command.arg(format!("-D{seconds}"));
    command.arg(format!("{}://127.0.0.1:{port}{}", case.setting.scheme(), case.path(0)));
    let output = command.output().map_err(|e| format!("h2load: {e}; install nghttp2-client"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // requests: 9 total, 9 started, 9 done, 9 succeeded, 0 failed, 0 errored, 0 timeout
    // traffic: 9B (9) total, 9B (9) headers (space savings 9%), 9B (9) data
    let number = |line: &str, end: &str| -> Option<u64> {
        let line = text.lines().find_map(|text| text.strip_prefix(line))?;
        let part = line.split(", ").find_map(|part| part.strip_suffix(end))?;
        let digits = part.split_whitespace().next_back()?;
        digits.trim_matches(['(', ')']).parse().ok()
    };
    let fails = ["failed", "errored", "timeout"].map(|what| number("requests: ", what));
    let (requests, bytes) = (number("requests: ", "succeeded"), number("traffic: ", "data"));
    match (requests, bytes) {
        (Some(requests @ 1..), Some(bytes))
            if fails == [Some(0); 3] && bytes >= requests * case.size =>
        {
            Ok(Load { requests, p99_ms: f64::NAN })
        }
        _ => Err(format!("requests failed or fell short:\n{text}").into()),
    }
}

/// The script that requests the objects in turn and prints the counts at the end.
fn lua(case: &Case) -> String {
    let mut script = String::new();
    if case.objects > 1 {
        let (size, objects) = (case.size, case.objects);
        let _ = write!(
            script,
            "local asked = {{}}\nlocal next = -1\n\
             function init()\n  for n = 0, {objects} - 1 do\n    \
               asked[n] = wrk.format(nil, \"/{size}/\" .. n)\n  end\nend\n\
             function request()\n  next = (next + 1) % {objects}\n  return asked[next]\nend\n"
        );
    }
    script
        + "function done(summary, latency)\n  local e = summary.errors\n  \
           local errors = e.connect + e.read + e.write + e.status + e.timeout\n  \
           print(string.format(\"counts %d %d %d %d\", summary.requests, summary.bytes, errors, \
           latency:percentile(99)))\nend\n"
}
