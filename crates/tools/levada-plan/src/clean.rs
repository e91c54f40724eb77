//! Cleans a log: leaves out lines that no plan follows from, and names the faults of the rest.

use anyhow::bail;
use serde::Serialize;

use crate::read::Log;

/// The state of a log, after it was cleaned.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Cleaning {
    /// Requests to plan from.
    pub(crate) requests: u64,
    /// Different objects among them.
    pub(crate) objects: u64,
    /// The bytes of these objects.
    pub(crate) object_bytes: u64,
    /// Requests that no cache could answer.
    pub(crate) passed: u64,
    /// Requests that a node passed on to another one, whose line counts.
    pub(crate) relayed: u64,
    /// The lines that were left out, as a sentence.
    pub(crate) skipped: String,
    /// Requests that came before the request of the line above.
    pub(crate) unsorted: u64,
    /// Requests that were left out because the clock had jumped.
    pub(crate) jumped: u64,
    /// Clients that look like scanners.
    pub(crate) scanners: Vec<Scanner>,
    /// Whether their requests were left out.
    pub(crate) without_scans: bool,
    /// Limits to the meaning of a plan from this log.
    pub(crate) remarks: Vec<String>,
}

/// A client that looks like a scanner.
#[derive(Debug, Serialize)]
pub(crate) struct Scanner {
    pub(crate) client: String,
    pub(crate) requests: u64,
    /// Why it looks so.
    pub(crate) reason: String,
}

/// Fewest requests of a scanner whose requests find nothing.
const MISSING: u64 = 100;
/// Fewest requests of a scanner that requests what nobody else does.
const ALONE: u64 = 1000;
/// A longer time without requests, in seconds, separates clocks.
const JUMP: f64 = 7.0 * 86_400.0;

/// Cleans the log and sorts its requests by time.
///
/// # Errors
/// If nothing is left, in one sentence with the remedy.
pub(crate) fn clean(log: &mut Log, without_scans: bool) -> anyhow::Result<Cleaning> {
    if log.requests.is_empty() {
        bail!(
            "there is no request that a cache could answer (GET with status 200, 206 or 304): {}; give another log",
            log.skipped
        );
    }
    log.drop_sizeless();
    if log.requests.iter().all(|request| log.objects[request.object as usize].bytes() == 0) {
        bail!("no response states its size; log the bytes sent (nginx: $body_bytes_sent)");
    }
    let mut cleaning =
        Cleaning { without_scans, passed: log.passed, relayed: log.relayed, ..Cleaning::default() };
    cleaning.scanners = scanners(log, without_scans);
    if log.requests.is_empty() {
        bail!("all requests come from scanners; plan without --without-scans, or from another log");
    }
    if log.requests.iter().all(|request| request.time().is_some()) {
        let unsorted = log.requests.windows(2).filter(|pair| pair[1].order() < pair[0].order());
        cleaning.unsorted = unsorted.count() as u64;
        // Requests of one moment stay in the order of their lines.
        log.requests.sort_by_key(|request| request.order());
        cleaning.jumped = drop_jumped(log);
    }
    describe(log, &mut cleaning);
    Ok(cleaning)
}

fn scanners(log: &mut Log, without_scans: bool) -> Vec<Scanner> {
    let alone = requests_alone(log);
    let mut scans = vec![false; log.clients.len()];
    let mut found = Vec::new();
    for (id, client) in log.clients.iter().enumerate() {
        let is_missing = client.requests >= MISSING && client.missing * 10 >= client.requests * 9;
        let is_alone = client.requests >= ALONE && alone[id] * 100 >= client.requests * 95;
        if is_missing || is_alone {
            scans[id] = true;
            found.push(Scanner {
                client: client.name.to_string(),
                requests: client.requests,
                reason: match is_missing {
                    true => format!("{} responses with 404", client.missing),
                    false => format!("{} objects that nobody else requested", alone[id]),
                },
            });
        }
    }
    if without_scans {
        log.drop_clients(&scans);
    }
    found.sort_by_key(|scanner| std::cmp::Reverse(scanner.requests));
    found
}

/// For each client, its different objects that no other client requested.
fn requests_alone(log: &Log) -> Vec<u64> {
    let mut alone = vec![0; log.clients.len()];
    for object in log.objects.iter().filter(|object| object.size.bytes().is_some()) {
        if let Some(count) = alone.get_mut(object.client as usize) {
            *count += 1;
        }
    }
    // A client alone in the log is the site's only one: nobody else could have requested anything.
    if log.clients.len() == 1 {
        alone.fill(0);
    }
    alone
}

/// Keeps the requests between two long gaps that are most, if the others are less than one in twenty.
fn drop_jumped(log: &mut Log) -> u64 {
    let (requests, all) = (&log.requests, log.requests.len());
    let is_gap = |at: &usize| requests[*at].seconds() - requests[at - 1].seconds() > JUMP;
    let bounds: Vec<usize> = [0].into_iter().chain((1..all).filter(is_gap)).chain([all]).collect();
    let longest = bounds.windows(2).map(|pair| (pair[1] - pair[0], pair[0])).max();
    let Some((count, begin)) = longest else { return 0 };
    if count == all || (all - count) * 20 > all {
        return 0;
    }
    log.requests.truncate(begin + count);
    log.requests.drain(..begin);
    (all - count) as u64
}

fn describe(log: &Log, cleaning: &mut Cleaning) {
    let mut is_seen = vec![false; log.objects.len()];
    log.requests.iter().for_each(|request| is_seen[request.object as usize] = true);
    let seen = log.objects.iter().zip(is_seen).filter(|(_, is_seen)| *is_seen);
    let (objects, bytes) = seen.fold((0, 0), |(count, bytes), (object, _)| {
        (count + 1, bytes + u128::from(object.bytes()))
    });
    cleaning.requests = log.requests.len() as u64;
    cleaning.objects = objects;
    cleaning.object_bytes = bytes.min(u128::from(u64::MAX)) as u64;
    cleaning.skipped = log.skipped.to_string();
    let mut remark = |applies: bool, text: &str| {
        if applies {
            cleaning.remarks.push(text.to_owned());
        }
    };
    let unreadable = log.skipped.count(levada_trace::SkipReason::Unreadable);
    remark(
        objects == 1,
        "all requests are for one object: every memory that holds it is large enough",
    );
    remark(
        objects > 1 && objects == cleaning.requests,
        "no object was requested twice: no cache can help",
    );
    remark(
        log.requests.len() < 1000,
        "there are fewer than 1,000 requests: the figures mean little; give a longer log",
    );
    remark(
        unreadable as usize > log.requests.len(),
        "most lines cannot be read: check that the log has one format",
    );
    remark(
        log.skipped.cut.is_some(),
        "a log could not be read to its end: the plan is from the part before",
    );
}
