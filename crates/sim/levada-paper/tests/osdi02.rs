//! The quick tables of OSDI'02, smaller still, show the effect of a change of the simulator on all
//! of them at once. `UPDATE_EXPECT=1` writes the golden file again.

use std::{collections::BTreeMap, env, fmt::Write as _, fs, ops::ControlFlow, path::Path};

use levada_paper::{PAPERS, Report};
use levada_sim::{Library, Outcome, Source, run};
use levada_trace::{RICE, Trace};

struct Small;

impl Source for Small {
    fn trace(&mut self, _: &str) -> Result<Trace, String> {
        Ok(RICE.scaled(3000, 40_000).generate(1))
    }

    fn text(&mut self, path: &str) -> Result<String, String> {
        Err(path.to_owned())
    }
}

#[test]
fn small_worlds_come_out_as_before() {
    let mut library = Library::new(Box::new(Small));
    let mut text = String::new();
    let paper = PAPERS.iter().find(|paper| paper.name == "osdi02").expect("it is listed");
    for table in (paper.quick)() {
        let mut outcomes: BTreeMap<String, Outcome> = BTreeMap::new();
        for row in &table.rows {
            let small = [
                ("workload.trace", "small"),
                ("workload.repeat", "true"),
                ("workload.clients", "48"),
                ("workload.rate", "200"),
                ("workload.growth", "0.2"),
                ("servers.count", "4"),
                ("cache.memory", "4MiB"),
            ];
            let scenario = row.case.scenario.with(small).expect("keys that exist");
            let prepared = scenario.prepare(&mut library).expect("it can run");
            let outcome = run(&prepared, &mut |_| ControlFlow::Continue(()));
            outcomes.insert(row.case.id.clone(), outcome);
        }
        let report = Report::new(&table, &|case| outcomes.get(&case.id));
        writeln!(text, "{}", table.id).unwrap();
        for row in &report.rows {
            write!(text, "  {}", row.key).unwrap();
            for (cell, column) in row.cells.iter().zip(&report.columns) {
                let ours = cell.ours.expect("a ramp has all of them");
                write!(text, "  {} {ours:.3}", column.metric.as_str()).unwrap();
            }
            text.push('\n');
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/osdi02.txt");
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(&path).unwrap_or_default(), "UPDATE_EXPECT=1 rewrites");
}
