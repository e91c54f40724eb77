//! The printed report: the emulated machines, a line for each measurement, and the paper's
//! statements.

use levada_client::command::CommandStatus;
use levada_sim::prototype::{Habits, Measured, Service};
use levada_testbed::emulation::{
    report::{
        Claim, LabReport, QUALITY_1, QUALITY_2, misprediction, notes, nothing_failed, percent,
        quality,
    },
    run::mean,
};
use levada_types::{ByteSize, format_duration};
use serde_json::json;

use super::{CapRow, CapSetup, site};
use crate::args::cap::{CapArgs, MixName};

/// Prints the setup.
pub(super) fn begin(args: &CapArgs, setup: &CapSetup) -> anyhow::Result<LabReport> {
    let mut emulated = vec![format!(
        "servers: {}, {}, CPU shared in slices of 10 ms",
        args.servers,
        args.prototype.hardware(args.memory.0)
    )];
    for mix in setup.mixes.iter().copied() {
        let site = site(args, mix, args.prototype.seed.into());
        let service = |service: &Service| {
            format!(
                ", {:.0} % {} ({} CPU, {} disk)",
                service.share * 100.0,
                service.name,
                format_duration(service.cpu),
                format_duration(service.disk)
            )
        };
        let services: String = site.services().iter().map(service).collect();
        let files = 1.0 - site.services().iter().map(|service| service.share).sum::<f64>();
        emulated.push(format!(
            "{} mix: {:.0} % of the requests for {} files, of {} with the first seed{services}",
            mix.as_str(),
            files * 100.0,
            site.file_count(),
            ByteSize(site.bytes())
        ));
    }
    let Habits { think, longest_think, objects, most_objects } = Habits::default();
    emulated.push(format!(
        "clients: think for Pareto({}, {}) s up to {} s, then load pages of Pareto({}, {}) objects up to {}, \
         one after the other",
        think.alpha,
        think.k,
        longest_think.as_secs(),
        objects.alpha,
        objects.k,
        most_objects
    ));
    emulated.push(setup.window.sentence(args.prototype.time_scale));
    emulated.push(args.prototype.transport().to_owned());
    let seeds: Vec<_> = setup.seeds.iter().map(ToString::to_string).collect();
    emulated.push(format!(
        "seeds: {}; lines are means, ± half of what lies between the extremes",
        seeds.join(", ")
    ));
    let head = format!("{HEAD_1}{QUALITY_1}\n{HEAD_2}{QUALITY_2}");
    Ok(LabReport::begin(args.prototype.json, emulated, &head)?)
}

/// The headings of the other columns, in two lines.
const HEAD_1: &str = "                                                  requests/s             least-most busy     simulated       hit   ";
const HEAD_2: &str = "mix        clients  policy               measured        simulated         of the servers                     ratio ";

/// One measurement.
pub(super) fn row(report: &mut LabReport, row: &CapRow) -> anyhow::Result<()> {
    let (measured, predicted) = (&row.run.measured, &row.predicted);
    let span = |measured: &Measured| {
        format!("{} - {}", percent(measured.least_busy), percent(measured.most_busy))
    };
    let line = format!(
        "{:<9}  {:>7}  {:<20} {:>8.1} {:>6} {:>9.1} {:>5.2}  {:>15}  {:>15}  {:>7} {}",
        row.mix.as_str(),
        row.clients,
        row.policy,
        measured.throughput,
        format!("±{:.1}", spread(row.each.iter().map(|[measured, _]| *measured)) / 2.0),
        predicted.throughput,
        measured.throughput / predicted.throughput,
        span(measured),
        span(predicted),
        percent(measured.hit_ratio),
        quality(&row.run)
    );
    let of = |measured: &Measured| {
        json!({
            "throughput": measured.throughput,
            "hit_ratio": measured.hit_ratio,
            "least_busy": measured.least_busy,
            "most_busy": measured.most_busy,
        })
    };
    let row = json!({
        "mix": row.mix.as_str(),
        "clients": row.clients,
        "policy": row.policy,
        "measured": of(measured),
        "simulated": of(predicted),
        "each": row.each.iter().map(|[measured, simulated]| {
            json!({"measured": measured, "simulated": simulated})
        }).collect::<Vec<_>>(),
        "quality": row.run.quality(),
    });
    Ok(report.row(&line, row)?)
}

/// The paper's statements, and whether they hold.
pub(super) fn end(
    args: &CapArgs,
    report: LabReport,
    rows: &[CapRow],
) -> anyhow::Result<CommandStatus> {
    let runs = || rows.iter().map(|row| &row.run);
    let mut claims = vec![nothing_failed(runs())];
    for cap in rows.iter().filter(|row| row.policy == "cap") {
        let same = |row: &&CapRow| {
            row.mix == cap.mix && row.clients == cap.clients && row.policy == "lard"
        };
        if let Some(lard) = rows.iter().find(same) {
            claims.extend(beside_lard(cap, lard));
        }
    }
    for row in rows {
        let what = format!("{} with {} clients, {} mix", row.policy, row.clients, row.mix.as_str());
        claims.extend(misprediction(&what, &row.run, row.predicted.throughput));
    }
    Ok(report.end(&claims, &notes(args.prototype.transport, runs()))?)
}

fn spread(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().fold(f64::MIN, f64::max) - values.fold(f64::MAX, f64::min)
}

/// Sec. 5.2, Figures 7, 9 and 10. The text gives no numbers for Figure 8.
fn beside_lard(cap: &CapRow, lard: &CapRow) -> Vec<Claim> {
    // Compares seed by seed: with the same site and the same requests.
    let ratios = |which: usize| {
        let pairs = cap.each.iter().zip(&lard.each);
        pairs.map(move |(cap, lard)| cap[which] / lard[which])
    };
    let listed = |which| {
        let each: Vec<_> = ratios(which).map(|ratio| format!("{ratio:.2}")).collect();
        match each.len() {
            1 => each.concat(),
            _ => format!("{:.2} ({})", mean(ratios(which)), each.join(", ")),
        }
    };
    let measured = mean(ratios(0));
    let numbers = format!("measured {}, simulated {}", listed(0), listed(1));
    let with = format!("with {} clients, {} mix", cap.clients, cap.mix.as_str());
    let mut claims = Vec::new();
    match cap.mix {
        MixName::Static => claims.push(Claim {
            text: format!(
                "CAP serves as much as LARD does {with} (paper: they perform similarly; {numbers})"
            ),
            holds: (0.95..=1.05).contains(&measured),
        }),
        MixName::Light => {}
        MixName::Intensive => {
            let published = match cap.clients {
                160 => "paper: 1.13; ",
                240 => "paper: 1.21; ",
                _ => "paper: 1.13 with 160 clients to 1.21 with 240; ",
            };
            claims.push(Claim {
                text: format!(
                    "CAP serves at least 1.1 times what LARD does {with} ({published}{numbers})"
                ),
                holds: measured >= 1.1,
            });
        }
    }
    if cap.mix != MixName::Static {
        let spread = |row: &CapRow| row.run.measured.most_busy - row.run.measured.least_busy;
        claims.push(Claim {
            text: format!(
                "CAP's servers are busy more alike than LARD's {with} (the busiest and the least are {} apart, \
                 with LARD {})",
                percent(spread(cap)),
                percent(spread(lard))
            ),
            holds: spread(cap) < spread(lard),
        });
    }
    claims
}
