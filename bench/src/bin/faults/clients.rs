//! Clients as everybody has them, and how they tell what they did not get.

use std::{
    fmt,
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use levada_net::lab::LabCluster;

use crate::{LOAD, Result};

/// A client, which asks for files of 1 KB for some seconds.
pub(crate) struct Client {
    pub(crate) name: &'static str,
    pub(crate) is_there: fn() -> bool,
    /// Runs on the clients' host.
    pub(crate) load: fn(&Path) -> Result<Seen>,
}

/// The requests of a client, and how many of them failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) asked: u64,
    pub(crate) failed: u64,
    /// The reasons that the client states, with their counts.
    pub(crate) why: Vec<(String, u64)>,
    /// The longest time until a response.
    pub(crate) longest: Duration,
}

pub(crate) const CLIENTS: [Client; 4] = [
    Client { name: "curl", is_there: || has("curl"), load: curl },
    Client { name: "wrk, kept alive", is_there: || has("wrk"), load: |at| wrk(at, false) },
    Client { name: "wrk, a connection each", is_there: || has("wrk"), load: |at| wrk(at, true) },
    Client { name: "Chromium", is_there: || has("chromium"), load: chromium },
];

/// The length of every file, which is also its name.
pub(crate) const SIZE: usize = 1000;

/// A page that requests files one after the other and then reports the result.
pub(crate) fn page() -> String {
    format!(
        "<!doctype html><title>faults</title><p id=said></p><script>\n\
         let asked = 0, failed = 0, longest = 0;\n\
         while (performance.now() < {}) {{\n\
           const begun = performance.now(), request = new XMLHttpRequest();\n\
           asked += 1;\n\
           try {{\n\
             request.open('GET', '/{SIZE}?' + asked, false);\n\
             request.send();\n\
             if (request.status != 200 || request.responseText.length != {SIZE}) failed += 1;\n\
           }} catch (error) {{ failed += 1; }}\n\
           longest = Math.max(longest, performance.now() - begun);\n\
         }}\n\
         document.getElementById('said').textContent =\n\
           ['asked', asked, failed, Math.round(longest)].join(' ');\n\
         </script>\n",
        LOAD * 1000
    )
}

impl Seen {
    fn fails(&mut self, why: &str) {
        self.failed += 1;
        match self.why.iter_mut().find(|(known, _)| known == why) {
            Some((_, count)) => *count += 1,
            None => self.why.push((why.to_owned(), 1)),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.failed, self.asked)?;
        for (why, count) in &self.why {
            write!(f, "; {count}: {why}")?;
        }
        write!(f, "; longest {:.2} s", self.longest.as_secs_f64())
    }
}

fn has(program: &str) -> bool {
    Command::new("which").arg(program).stdout(Stdio::null()).status().is_ok_and(|s| s.success())
}

fn url() -> String {
    format!("http://{}/{SIZE}", LabCluster::SERVICE)
}

/// One process for each request: nothing is tried again.
fn curl(_: &Path) -> Result<Seen> {
    let (begun, mut seen) = (Instant::now(), Seen::default());
    while begun.elapsed() < Duration::from_secs(LOAD) {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "20", "-o", "/dev/null"]);
        curl.args(["-w", "%{http_code} %{size_download}"]).arg(url());
        let asked = Instant::now();
        let output = curl.output()?;
        seen.asked += 1;
        seen.longest = seen.longest.max(asked.elapsed());
        let [said, error] = texts(&output);
        if !output.status.success() {
            let error = error.trim().trim_start_matches("curl: ");
            seen.fails(error.split(" after ").next().unwrap_or(error));
        } else if said != format!("200 {SIZE}") {
            seen.fails(&said);
        }
    }
    Ok(seen)
}

fn wrk(_: &Path, close: bool) -> Result<Seen> {
    let mut wrk = Command::new("wrk");
    wrk.args(["-t1", "-c8", "--timeout", "20s", "--latency", &format!("-d{LOAD}s")]);
    if close {
        wrk.args(["-H", "Connection: close"]);
    }
    let output = wrk.arg(url()).output()?;
    let [text, error] = texts(&output);
    let mut seen = Seen::default();
    for line in text.lines().map(str::trim) {
        let mut words = line.split_whitespace();
        if line.contains(" requests in ") {
            seen.asked = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        } else if line.starts_with("Socket errors:") || line.starts_with("Non-2xx") {
            let counts = line.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
            // The digit of "Non-2xx" is none of its counts.
            let skipped = usize::from(line.starts_with("Non"));
            let counts = counts.skip(skipped).filter_map(|count| count.parse::<u64>().ok());
            seen.failed += counts.sum::<u64>();
            seen.why.push((line.to_owned(), 1));
        } else if line.starts_with("Latency")
            && let Some(longest) = words.nth(3)
        {
            seen.longest = span(longest);
        }
    }
    seen.asked += seen.failed;
    if seen.asked == 0 {
        return Err(format!("wrk: {text}{error}").into());
    }
    Ok(seen)
}

/// As wrk writes it: 1.20ms, 2.00s.
fn span(text: &str) -> Duration {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        _ => 1.0,
    };
    Duration::from_secs_f64(number.parse::<f64>().unwrap_or(0.0) * seconds)
}

fn chromium(directory: &Path) -> Result<Seen> {
    let mut chromium = Command::new("chromium");
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-proxy-server"]);
    chromium.arg(format!("--user-data-dir={}", directory.join("chromium").display()));
    chromium.args(["--timeout=60000", "--dump-dom"]);
    let output = chromium.arg(format!("http://{}/page.html", LabCluster::SERVICE)).output()?;
    let [text, error] = texts(&output);
    let said = text.split("asked ").nth(1).unwrap_or_default();
    let said = said.split('<').next().unwrap_or_default();
    let mut numbers = said.split(' ').filter_map(|word| word.parse::<u64>().ok());
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(asked), Some(failed), Some(longest)) => {
            let longest = Duration::from_millis(longest);
            Ok(Seen { asked, failed, why: Vec::new(), longest })
        }
        _ => Err(format!("Chromium says nothing: {text}{error}").into()),
    }
}

fn texts(output: &Output) -> [String; 2] {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}
