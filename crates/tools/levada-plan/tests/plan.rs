//! Plans from generated logs.

use std::{collections::HashMap, fs, ops::ControlFlow, path::Path};

use levada_cache::eviction::{Keyed, find_eviction};
use levada_client::command::CommandStatus;
use levada_plan::{PlanArgs, Watch, run, watched_plan};
use levada_types::{Key, Rng};

fn planned(log: &Path, options: &str) -> anyhow::Result<CommandStatus> {
    let log = log.display().to_string();
    run(&PlanArgs::from_words([&*log].into_iter().chain(options.split_whitespace()))?)
}

/// A log of one hour, whose cache was an LRU of `memory`: what it answered is in the last field.
fn log(requests: u64, memory: u64) -> Vec<String> {
    let (mut rng, mut cache) =
        (Rng::new(7), Keyed::new((find_eviction("lru").unwrap().build)(memory)));
    (0..requests)
        .map(|n| {
            let object = (500.0 * rng.unit().powi(3)) as u64;
            let bytes = 1000 + object * 37 % 9000;
            let hit = cache.request(Key::of(&object.to_le_bytes()), bytes);
            let (second, result) = (n * 3600 / requests, if hit { "HIT" } else { "MISS" });
            let (minute, second) = (second / 60, second % 60);
            format!(
                "10.0.0.{} - - [06/Feb/2009:12:{minute:02}:{second:02} +0000] \"GET /{object} HTTP/1.1\" 200 {bytes} \
                 \"-\" \"-\" 0.050 {result}",
                n % 20
            )
        })
        .collect()
}

fn written(lines: &[String]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), lines.join("\n") + "\n").unwrap();
    file
}

/// The plan as its page says it.
fn page(lines: &[String], options: &str) -> (CommandStatus, String) {
    let (file, directory) = (written(lines), tempfile::tempdir().unwrap());
    let html = directory.path().join("plan.html");
    let options = format!("--quick --nodes 1,2 --html {} {options}", html.display());
    let status = planned(file.path(), &options).unwrap();
    (status, fs::read_to_string(html).unwrap())
}

#[test]
fn the_backtest_predicts_the_hit_ratio_within_two_points() {
    let (_, page) = page(&log(4000, 400_000), "--eviction lru");
    let error = page.split("points").next().unwrap().rsplit(": ").next().unwrap();
    let errors: Vec<f64> =
        error.split(" and ").map(|number| number.trim().parse().unwrap()).collect();
    assert!(errors.len() == 2 && errors.iter().all(|error| error.abs() <= 2.0), "{error}");
}

#[test]
fn the_smallest_cluster_that_meets_the_aims_is_chosen_and_can_be_configured() {
    let (file, directory) = (written(&log(4000, 400_000)), tempfile::tempdir().unwrap());
    let options = format!(
        "--quick --nodes 1,2,3 --survive 1 --slo hit=0.85 --memory 256KiB,4MiB --config {}",
        directory.path().display()
    );
    assert_eq!(planned(file.path(), &options).unwrap(), CommandStatus::Success);
    let text = fs::read_to_string(directory.path().join("node-2/levada.toml")).unwrap();
    assert!(text.contains("memory = \"4MiB\"") && text.contains("name = \"node-2\""), "{text}");
    assert!(!directory.path().join("node-3").exists(), "two nodes survive the loss of one");
    let scenario = fs::read_to_string(directory.path().join("scenario.toml")).unwrap();
    let (scenario, problems) = levada_sim::Scenario::read_toml(&scenario);
    assert!(problems.0.is_empty(), "{problems}");
    assert_eq!(scenario.servers.count, 2);
    // Each node is a front-end with a policy of its own, and the simulator reads what was written.
    let network = fs::read_to_string(directory.path().join("network.json")).unwrap();
    assert_eq!(network.matches("\"role\":\"redirector\"").count(), 2, "{network}");
    let file = directory.path().join("scenario.toml");
    let source = levada_sim::scenario_file::read(&file).unwrap();
    let mut library = levada_sim::Library::new(Box::new(levada_sim::scenario_file::Files));
    let changes = levada_sim::scenario_file::Changes::default();
    let checked =
        levada_sim::scenario_file::check(&source, directory.path(), &changes, &mut library);
    assert!(checked.scenario.is_some(), "{:?}", checked.errors);
}

#[test]
fn disk_takes_the_place_of_memory_that_costs_more() {
    let (file, directory) = (written(&log(4000, 400_000)), tempfile::tempdir().unwrap());
    let prices = tempfile::NamedTempFile::new().unwrap();
    fs::write(prices.path(), "node = 10.0\nmemory_gib = 1000.0\ndisk_gib = 1.0\n").unwrap();
    let options = format!(
        "--quick --nodes 1,2 --slo hit=0.85 --memory 256KiB,4MiB --disk 0,16MiB,64MiB --price {} --config {}",
        prices.path().display(),
        directory.path().display()
    );
    assert_eq!(planned(file.path(), &options).unwrap(), CommandStatus::Success);
    let text = fs::read_to_string(directory.path().join("node-1/levada.toml")).unwrap();
    let cache = text.split("[cache]").nth(1).unwrap();
    assert!(cache.contains("memory = \"256KiB\"") && cache.contains("size = \"16MiB\""), "{text}");
    let scenario = fs::read_to_string(directory.path().join("scenario.toml")).unwrap();
    let (scenario, problems) = levada_sim::Scenario::read_toml(&scenario);
    assert!(problems.0.is_empty(), "{problems}");
    assert_eq!(scenario.cache.disk.map(|size| size.0), Some(16 << 20));
    let (_, page) =
        page(&log(4000, 400_000), "--slo hit=0.85,disk=0.000001 --memory 256KiB --disk 16MiB");
    assert!(page.contains("256KiB of memory and 16MiB of disk each"), "{page}");
    assert!(page.contains("the busiest disk is"), "{page}");
}

/// A log of Squid, which says which hits came from memory.
#[test]
fn backtest_knows_both_tiers_where_the_log_does() {
    let cache = |bytes| Keyed::new((find_eviction("lru").unwrap().build)(bytes));
    let (mut rng, mut memory, mut disk) = (Rng::new(7), cache(200_000), cache(1_000_000));
    let lines: Vec<_> = (0..8000)
        .map(|n| {
            let object = (500.0 * rng.unit().powi(3)) as u64;
            let (key, bytes) = (Key::of(&object.to_le_bytes()), 1000 + object * 37 % 9000);
            let result = match (memory.request(key, bytes), disk.contains(key)) {
                (true, _) => "TCP_MEM_HIT",
                (false, true) => "TCP_HIT",
                (false, false) => "TCP_MISS",
            };
            // The disk knows nothing of hits in memory.
            if result != "TCP_MEM_HIT" {
                disk.request(key, bytes);
            }
            let time = 1_700_000_000.0 + f64::from(n) * 0.4;
            format!("{time:.3} 5 10.0.0.1 {result}/200 {bytes} GET http://a/{object} - NONE/- -")
        })
        .collect();
    let (_, page) = page(&lines, "--eviction lru");
    let (_, memory) = page.split_once("of memory alone the log says ").unwrap();
    for part in [page.split("; of memory").next().unwrap(), memory.split("</li>").next().unwrap()] {
        let errors = part.rsplit(": ").next().unwrap().trim_end_matches(" points");
        for error in errors.split(" and ") {
            assert!(error.trim().parse::<f64>().unwrap().abs() <= 2.0, "{part}");
        }
    }
}

/// A log of one hour whose copies expired after 300 s; of those, three in ten had changed.
fn log_that_expires(requests: u64) -> Vec<String> {
    let (mut rng, mut since) = (Rng::new(9), HashMap::new());
    let mut cache = Keyed::new((find_eviction("lru").unwrap().build)(1_500_000));
    let lines = log(requests, 1_500_000).into_iter().enumerate();
    let lines = lines.map(|(n, line)| {
        let object: u64 =
            line.split("GET /").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        let second = n as u64 * 3600 / requests;
        let hit = cache.request(Key::of(&object.to_le_bytes()), 1000 + object * 37 % 9000);
        let age = second - since.get(&object).copied().unwrap_or(second);
        let result = match (hit, age >= 300, rng.unit() < 0.3) {
            (false, _, _) => "MISS",
            (true, false, _) => "HIT",
            (true, true, true) => "EXPIRED",
            (true, true, false) => "REVALIDATED",
        };
        if result != "HIT" {
            since.insert(object, second);
        }
        format!("{} {result}", line.rsplit_once(' ').unwrap().0)
    });
    lines.collect()
}

#[test]
fn lifetime_of_objects_is_learnt_and_the_backtest_uses_it() {
    let lines = log_that_expires(6000);
    let (_, learnt) = page(&lines, "--eviction lru");
    let (_, sentence) = learnt.split_once("objects expire after ").unwrap();
    let seconds: f64 = sentence.split(' ').next().unwrap().parse().unwrap();
    assert!((270.0..330.0).contains(&seconds), "{sentence}");
    let errors = |page: &str| -> Vec<f64> {
        let error = page.split(" points").next().unwrap().rsplit(": ").next().unwrap();
        error.split(" and ").map(|number| number.trim().parse().unwrap()).collect()
    };
    assert!(errors(&learnt).iter().all(|error| error.abs() <= 2.0), "{learnt}");
    // Without expiry the model finds what had to be fetched again.
    let (_, never) = page(&lines, "--eviction lru --ttl 0s");
    assert!(never.contains("no object expires") && errors(&never)[0] > 2.0, "{never}");
}

#[test]
fn objects_that_expire_sooner_come_from_the_origin_more_often() {
    let lines = log_that_expires(6000);
    let byte_hits = |ttl: &str| -> f64 {
        let (_, page) = page(&lines, &format!("--memory 4MiB --eviction lru --ttl {ttl}"));
        let row = page.split("</thead>").nth(1).unwrap();
        row.split("<td>").nth(8).unwrap().split('<').next().unwrap().parse().unwrap()
    };
    let ratios = ["10s", "5m", "20m", "0s"].map(byte_hits);
    assert!(ratios.is_sorted() && ratios[3] > ratios[0] + 5.0, "{ratios:?}");
    // Copies from before the simulated time expire in it.
    assert!(ratios[2] < ratios[3], "{ratios:?}");
}

#[test]
fn plan_that_was_interrupted_goes_on() {
    let (file, directory) = (written(&log(2000, 400_000)), tempfile::tempdir().unwrap());
    let (results, html) = (directory.path().join("results"), directory.path().join("plan.html"));
    let plan = |watch: &mut Watch<'_>, more: &str| {
        let log = file.path().display();
        let line = format!(
            "{log} --quick --nodes 1,2 --memory 256KiB,4MiB --slo p99=9s --resume {} --html {} {more}",
            results.display(),
            html.display()
        );
        let args = PlanArgs::from_words(line.split_whitespace()).unwrap();
        watched_plan(&args, watch).map(|_| fs::read_to_string(&html).unwrap())
    };
    let kept = || fs::read_to_string(&results).unwrap();
    let go_on = &mut |_: Option<&str>| ControlFlow::Continue(());
    let stop = &mut |news: Option<&str>| match news {
        Some(text) if text.starts_with("candidate 3") => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let stopped = plan(stop, "").unwrap_err().to_string();
    assert!(stopped.contains("with --resume it goes on"), "{stopped}");
    assert_eq!(kept().lines().count(), 1 + 2);
    let interrupted = kept();
    let whole = plan(go_on, "").unwrap();
    let all = kept();
    assert!(all.starts_with(&interrupted) && all.lines().count() == 1 + 6, "{all}");
    assert_eq!(plan(go_on, "").unwrap(), whole);
    assert_eq!(kept(), all, "nothing ran again");
    // A crash cut the last line off.
    fs::write(&results, &all[..all.len() - 40]).unwrap();
    assert_eq!(plan(go_on, "").unwrap(), whole);
    assert_eq!(kept(), all);
    // Other candidates and aims are no other inputs.
    plan(go_on, "--policy maglev --survive 1").unwrap();
    assert!(kept().starts_with(&all) && kept().lines().count() > 1 + 6);
    for (text, more, error) in [
        (all.replacen("mean = 0.", "mean = 1.", 1), "", "line 2 of"),
        (all.clone(), "--client-latency 1s", "other logs, costs or options"),
        ("a letter\n".to_owned(), "", "no file of --resume"),
        ("a letter".to_owned(), "", "no file of --resume"),
    ] {
        fs::write(&results, &text).unwrap();
        let found = format!("{:#}", plan(go_on, more).unwrap_err());
        assert!(found.contains(error), "{error}: {found}");
        assert_eq!(kept(), text, "what is not ours stays as it is");
    }
}

#[test]
fn impossible_aims_have_a_nearest_candidate() {
    let (status, page) = page(&log(2000, 400_000), "--slo hit=1,p99=1ms");
    assert_eq!(status, CommandStatus::ProblemsFound);
    assert!(page.contains("The nearest that is possible is"), "{page}");
    assert!(page.contains("set more --nodes, --memory or --disk"), "{page}");
}

#[test]
fn growth_has_two_models_and_prices_decide() {
    let prices = tempfile::NamedTempFile::new().unwrap();
    fs::write(prices.path(), "node = 10.0\nmemory_gib = 1.0\n").unwrap();
    let (_, page) =
        page(&log(2000, 400_000), &format!("--growth 2x --price {}", prices.path().display()));
    assert!(page.contains("planned for 2 times") && page.contains("price 10."), "{page}");
}

#[test]
fn scanners_are_shown_and_can_be_left_out() {
    let mut lines = log(2000, 400_000);
    lines.extend((0..200).map(|n| {
        format!(
            "6.6.6.6 - - [06/Feb/2009:12:30:00 +0000] \"GET /admin{n} HTTP/1.1\" 404 10 \"-\" \"-\""
        )
    }));
    lines.extend((0..1200).map(|n| {
        format!(
            "7.7.7.7 - - [06/Feb/2009:12:30:00 +0000] \"GET /all{n} HTTP/1.1\" 200 10 \"-\" \"-\""
        )
    }));
    let (_, with) = page(&lines, "");
    for client in ["6.6.6.6 looks like a scanner", "7.7.7.7 looks like a scanner", "3,200 requests"]
    {
        assert!(with.contains(client), "{client}: {with}");
    }
    assert!(with.contains("out of order and have been sorted"), "{with}");
    assert!(page(&lines, "--without-scans").1.contains("2,000 requests for"));
}

#[test]
fn logs_that_are_not_as_they_should_be_are_described() {
    let line = |time: &str, path: &str| {
        format!("1.1.1.1 - - [{time} +0000] \"GET {path} HTTP/1.1\" 200 10 \"-\" \"-\"")
    };
    let noon = "06/Feb/2009:12:00:00";
    let one = vec![line(noon, "/a"); 50];
    let all: Vec<_> = (0..50).map(|n| line(noon, &format!("/{n}"))).collect();
    let mut jumped = vec![line(noon, "/a"); 50];
    jumped.push(line("06/Feb/2039:12:00:00", "/b"));
    let mut mixed = one.clone();
    mixed.extend(vec!["1700000000.123 5 10.0.0.1 TCP_HIT/200 10 GET http://a/".to_owned(); 60]);
    for (lines, sentence) in [
        (&one, "all requests are for one object"),
        (&one, "fewer than 1,000 requests"),
        (&one, "less than an hour"),
        (&one, "the model is not checked"),
        (&all, "no object was requested twice"),
        (&jumped, "1 requests after a jump of the clock"),
        (&mixed, "most lines cannot be read"),
    ] {
        let (_, page) = page(lines, "");
        assert!(page.contains(sentence), "{sentence}: {page}");
    }
}

#[test]
fn what_cannot_be_planned_is_one_sentence_with_the_remedy() {
    let line = "1.1.1.1 - - [06/Feb/2009:12:00:00 +0000] \"GET /a HTTP/1.1\"";
    for (text, options, sentence) in [
        ("", "", "no lines"),
        ("\u{0}\u{1}\u{2} binary", "", "format"),
        ("1 a 10\n2 b 20\n", "", "--rate"),
        (&format!("{line} 200 -\n"), "", "$body_bytes_sent"),
        (&format!("{line} 404 10\n"), "", "give another log"),
        ("1 a 10\n", "--rate nan", "above 0"),
        ("1 a 10\n", "--growth 0x", "from 1x to 100x"),
        ("1 a 10\n", "--policy none", "levada policies"),
        ("1 a 10\n", "--slo hit=2", "from 0 to 1"),
        ("1 a 10\n", "--disk 1MiB", "at least 16MiB"),
        ("1 a 10\n", "--disk much", "much"),
        ("1 a 10\n", "--ttl 10ms", "at least 1s"),
        ("1 a 10\n", "--ttl soon", "soon"),
        ("1 a 10\n", "--rate 1 --memory 64MiB --disk 16MiB", "no smaller than --memory"),
    ] {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let error = format!("{:#}", planned(file.path(), options).unwrap_err());
        assert!(error.contains(sentence), "{sentence}: {error}");
    }
}

#[test]
fn a_trace_without_times_is_planned_at_a_given_rate() {
    let lines: Vec<_> = (0..2000).map(|n| format!("{n} {} 1000", n % 37)).collect();
    let (status, page) = page(&lines, "--rate 50");
    assert_eq!(status, CommandStatus::Success);
    assert!(page.contains("50.0 requests/s as given"), "{page}");
}

#[test]
fn requests_that_a_node_passes_on_count_once() {
    let lines = log(2000, 400_000);
    let (_, alone) = page(&lines, "");
    // The node that met the client has a line, too: with the same time and bytes.
    let relayed = lines.iter().step_by(2).map(|line| {
        let (rest, _) = line.rsplit_once(' ').unwrap();
        format!("{rest} relayed")
    });
    let both: Vec<_> = lines.iter().cloned().chain(relayed).collect();
    let (_, cluster) = page(&both, "");
    assert!(cluster.contains("1,000 requests were passed on to another node"), "{cluster}");
    for part in ["2,000 requests for", "0.556 requests/s"] {
        assert!(alone.contains(part) && cluster.contains(part), "{part}: {alone}\n{cluster}");
    }
}
