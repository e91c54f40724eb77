//! The printed report: the network and the load, a line for each arrangement, and whether the limits hold.

use std::time::Duration;

use levada_client::command::CommandStatus;
use levada_testbed::{
    cluster::milliseconds,
    emulation::report::{Claim, LabReport, percent},
};
use serde_json::{Value, json};

use super::{
    RegionsOutcome,
    arrangements::Arrangement,
    load::Answers,
    network::{FAR, HOME, NODES, REGIONS},
    nodes::PurgeReport,
    phases::WARM_RATE,
};
use crate::args::regions::RegionsArgs;

/// Prints the setup.
pub(super) fn begin(args: &RegionsArgs) -> anyhow::Result<LabReport> {
    let [eu, us, ap] = REGIONS.map(|region| region.name);
    let emulated = vec![
        format!("nodes: {NODES} real nodes, {} in each of {eu}, {us} and {ap}", NODES / 3),
        format!("round trips: {eu}-{us} 80 ms, {us}-{ap} 150 ms, {eu}-{ap} 200 ms; origin in {us}"),
        format!(
            "load: {} objects, requested by all regions at once; then {} requests of each region at {WARM_RATE} a second, every byte verified",
            args.objects, args.requests
        ),
    ];
    Ok(LabReport::begin(args.json, emulated, HEAD)?)
}

/// The headings of the table.
const HEAD: &str = concat!(
    "             warm p50/p95 (ms)                     origin/  ap is cut: answered          healed     purge         one away\n",
    "arrangement  eu           us           ap          object   warm     stale    misses     after (s)  nodes  (s)    missing",
);

/// One arrangement.
pub(super) fn row(
    report: &mut LabReport,
    arrangement: &Arrangement,
    outcome: &RegionsOutcome,
) -> anyhow::Result<()> {
    let RegionsOutcome { warm, per_object, cut, healing, purge, purge_without, .. } = outcome;
    let [eu, us, ap] = warm.each_ref().map(|answers| {
        let [p50, p95] = [50, 95].map(|part| milliseconds(answers.within(part)));
        format!("{p50:.1}/{p95:.1}")
    });
    let [warm_share, stale, misses] =
        [&cut.warm[FAR], &cut.stale, &cut.missed[FAR]].map(|answers| percent(answers.share()));
    let healed = match arrangement.has_shield {
        true => healing.by_shield,
        false => healing.any_way,
    };
    let healed =
        healed.map_or_else(|| "never".to_owned(), |after| format!("{:.1}", seconds(after)));
    let line = format!(
        "{:<12} {eu:<12} {us:<12} {ap:<11} {per_object:>6.2}   {warm_share:<8} {stale:<8} {misses:<10} {healed:<10} {:>2}/{:<2}  {:.2}   {}",
        arrangement.name,
        purge.confirmed.len(),
        purge.confirmed.len() + purge.missing.len(),
        seconds(purge.took),
        purge_without.missing.join(", "),
    );
    Ok(report.row(&line, whole(arrangement, outcome))?)
}

/// All figures of an arrangement.
fn whole(arrangement: &Arrangement, outcome: &RegionsOutcome) -> Value {
    let RegionsOutcome { cold, per_object, warm, cut, healing, old, away, .. } = outcome;
    json!({
        "arrangement": arrangement.name,
        "cold": by_region(cold),
        "origin_requests_per_object": per_object,
        "warm": by_region(warm),
        "cut": {
            "region": REGIONS[FAR].name,
            "warm": by_region(&cut.warm),
            "stale": answers(&cut.stale),
            "misses": by_region(&cut.missed),
        },
        "healed_after_s": healing.any_way.map(seconds),
        "by_shield_after_s": healing.by_shield.map(seconds),
        "purge": purge(&outcome.purge),
        "old_after_purge": old,
        "away": away,
        "purge_with_one_away": purge(&outcome.purge_without),
    })
}

fn by_region(all: &[Answers; REGIONS.len()]) -> Value {
    let regions = REGIONS.iter().zip(all);
    regions.map(|(region, one)| (region.name.to_owned(), answers(one))).collect()
}

fn answers(answers: &Answers) -> Value {
    json!({
        "requests": answers.requests,
        "answered": answers.requests - answers.failed.len(),
        "share": answers.share(),
        "p50_ms": milliseconds(answers.within(50)),
        "p95_ms": milliseconds(answers.within(95)),
        "reasons": answers.reasons(),
    })
}

fn purge(report: &PurgeReport) -> Value {
    json!({
        "confirmed": report.confirmed.len(),
        "missing": report.missing,
        "seconds": seconds(report.took),
    })
}

/// A time in seconds, to the millisecond.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

/// Whether the arrangement with a shield keeps its limits.
pub(super) fn end(
    report: LabReport,
    rows: &[(&Arrangement, RegionsOutcome)],
) -> anyhow::Result<CommandStatus> {
    let claims: Vec<_> = rows
        .iter()
        .filter(|(arrangement, _)| arrangement.has_shield)
        .flat_map(|(_, outcome)| claims(outcome))
        .collect();
    let mut notes = Vec::new();
    for (arrangement, outcome) in rows {
        let name = arrangement.name;
        let failed = outcome.warm.iter().chain(&outcome.cold).flat_map(Answers::reasons);
        notes.extend(failed.map(|(why, count)| format!("{name}: {count} x {why}")));
        let cut = outcome.cut.warm.iter().chain([&outcome.cut.stale]).chain(&outcome.cut.missed);
        let cut = cut.flat_map(Answers::reasons);
        notes.extend(cut.map(|(why, count)| format!("{name}, during the cut: {count} x {why}")));
    }
    Ok(report.end(&claims, &notes)?)
}

fn claims(outcome: &RegionsOutcome) -> Vec<Claim> {
    let RegionsOutcome { per_object, warm, cold, cut, healing, purge, old, away, .. } = outcome;
    let mut claims = Vec::new();
    let mut claim = |text: String, holds| claims.push(Claim { text, holds });
    for (region, answers) in REGIONS.iter().zip(warm) {
        let median = answers.within(50);
        let text =
            format!("warm p50 of {} is at most 5 ms ({:.1})", region.name, milliseconds(median));
        claim(text, median <= MEDIAN);
    }
    let failed: usize = warm.iter().chain(cold).map(|answers| answers.failed.len()).sum();
    claim(
        format!("every request is answered while all links work ({failed} were not)"),
        failed == 0,
    );
    let text = format!("the origin gets at most 1.05 requests for each object ({per_object:.3})");
    claim(text, *per_object <= PER_OBJECT);
    let share = cut.warm[FAR].share();
    let text = format!("a cut region answers at least 95 % of warm requests ({})", percent(share));
    claim(text, share >= SHARE);
    let healed =
        healing.by_shield.map_or("never".to_owned(), |after| format!("{:.1} s", seconds(after)));
    let text = format!("it asks {} again after the cut ({healed})", REGIONS[HOME].name);
    claim(text, healing.by_shield.is_some());
    let text = format!(
        "a purge is confirmed by all {NODES} nodes within 1 s ({} in {:.2} s, {old} with the old version)",
        purge.confirmed.len(),
        seconds(purge.took)
    );
    claim(text, purge.confirmed.len() == NODES && purge.took <= PURGE && *old == 0);
    let named = &outcome.purge_without.missing;
    claim(
        format!("a purge names the node that is away ({})", named.join(", ")),
        *named == [away.clone()],
    );
    claims
}

const MEDIAN: Duration = Duration::from_millis(5);
const PER_OBJECT: f64 = 1.05;
const SHARE: f64 = 0.95;
const PURGE: Duration = Duration::from_secs(1);
