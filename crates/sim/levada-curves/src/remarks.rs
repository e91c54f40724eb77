//! Sentences about requests that limit the meaning of their curves.

use levada_trace::{CutReason, SkipReason};

use crate::{CurvePoint, CurveReport, ReadLogs};

/// Sentences about the lines of the logs.
pub(crate) fn of_lines(logs: &ReadLogs) -> Vec<String> {
    let mut remarks = Vec::new();
    let requests = logs.with_host + logs.without_host;
    let skipped = &logs.skipped;
    if skipped.total() > 0 {
        remarks.push(format!("{skipped}."));
    }
    let unreadable = skipped.count(SkipReason::Unreadable);
    if let Some(first) = skipped.examples.first()
        && (unreadable > requests || skipped.cut == Some(CutReason::Broken))
    {
        remarks.push(match skipped.cut {
            Some(CutReason::Broken) => {
                format!("A file was read up to its damage: {}.", first.problem)
            }
            _ => format!("Most lines are not in the format of their file's first lines: {first}."),
        });
    }
    let fewer = logs.with_host.min(logs.without_host);
    if fewer * 20 > requests {
        remarks.push(format!(
            "{} requests name their host and {} do not, so that one URL counts as two objects: give logs of one format.",
            logs.with_host, logs.without_host
        ));
    }
    if logs.late > 0 {
        remarks.push(format!(
            "{} requests come an hour or more after later ones: give the logs in the order of their time, the oldest first.",
            logs.late
        ));
    }
    remarks
}

/// Sentences about the requests as a whole.
pub(crate) fn of_requests(report: &CurveReport) -> Vec<String> {
    let mut remarks = Vec::new();
    if report.sizeless_requests > 0 {
        let left_out = report.sizeless_requests;
        remarks.push(format!(
            "{left_out} requests are left out: no response states the size of their objects."
        ));
    }
    if report.sampled_objects == 1 && report.requests > 1 {
        remarks.push(
            "All requests are for one object: every cache that it fits has all hits but the first."
                .to_owned(),
        );
    }
    if report.requests > 1 && report.sampled_requests == report.sampled_objects {
        remarks.push(
            "No object is requested twice: no cache has a hit, however large it is.".to_owned(),
        );
    }
    remarks
}

/// The sentence for errors above `most`, which is in points; `None` if there is none above it.
pub(crate) fn of_error(report: &CurveReport, most: f64) -> Option<String> {
    let points =
        report.curves.iter().flat_map(|curve| curve.points.iter().map(move |p| (curve, p)));
    let error = |point: &CurvePoint| point.hit_error.max(point.byte_hit_error) * 100.0;
    let (curve, point) = points.max_by(|a, b| error(a.1).total_cmp(&error(b.1)))?;
    let found = error(point);
    if found <= most {
        return None;
    }
    // The error falls with the root of the sample.
    let needed = report.sampled_requests as f64 * (found / most).powi(2);
    let remedy = match needed * 1.2 < report.requests as f64 {
        true => format!("set --sample to {:.0} or more, and --rate to 1", needed.ceil()),
        false => "set --rate to 1 and --sample to the number of requests".to_owned(),
    };
    Some(format!(
        "The error of {} at {} bytes is {found:.2} points, more than {most}: {remedy}.",
        curve.eviction, point.bytes
    ))
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, path::PathBuf};

    use super::*;
    use crate::{CurveError, CurveOptions, read};

    /// The sentences about logs with these contents.
    fn remarks(contents: &[&[u8]]) -> Result<String, String> {
        let directory = tempfile::tempdir().unwrap();
        let write = |(number, content): (usize, &&[u8])| -> PathBuf {
            let file = directory.path().join(format!("{number}.log"));
            std::fs::write(&file, content).unwrap();
            file
        };
        let files: Vec<PathBuf> = contents.iter().enumerate().map(write).collect();
        let logs = read(&files, CurveOptions::default()).map_err(|error| error.to_string())?;
        let mut remarks = of_lines(&logs);
        let report = logs.curves.finish().map_err(|error| error.to_string())?;
        remarks.extend(of_requests(&report));
        Ok(remarks.join("\n"))
    }

    fn json(targets: impl Iterator<Item = u32>) -> String {
        targets.fold(String::new(), |mut text, target| {
            let _ =
                writeln!(text, r#"{{"method":"GET","uri":"/{target}","status":200,"size":10}}"#);
            text
        })
    }

    #[test]
    fn log_without_remarks_has_none() {
        assert_eq!(remarks(&[json((0..100).map(|n| n % 40)).as_bytes()]), Ok(String::new()));
    }

    #[test]
    fn logs_that_cannot_be_read_are_refused_by_their_names() {
        for content in [&b""[..], b"\x7fELF\x02\x01\x01\0\0\0\xff\xfe\n\0\0\n", b"Dear diary\n"] {
            let good = json(0..9);
            let refused = remarks(&[good.as_bytes(), content]).unwrap_err();
            assert!(refused.contains("1.log"), "{refused}");
        }
    }

    #[test]
    fn logs_without_requests_or_sizes_are_refused() {
        let posts = json(0..9).replace("GET", "POST");
        assert_eq!(remarks(&[posts.as_bytes()]), Err(CurveError::NoRequests.to_string()));
        let sizeless = json(0..9).replace(r#","size":10"#, "");
        assert_eq!(remarks(&[sizeless.as_bytes()]), Err(CurveError::NoSizes.to_string()));
    }

    #[test]
    fn one_object_and_no_object_twice_are_remarked() {
        let one = remarks(&[json((0..9).map(|_| 7)).as_bytes()]).unwrap();
        assert!(one.contains("All requests are for one object"), "{one}");
        let never = remarks(&[json(0..9).as_bytes()]).unwrap();
        assert!(never.contains("No object is requested twice"), "{never}");
    }

    #[test]
    fn objects_without_a_size_are_counted() {
        let mut text = json((0..40).chain(0..40));
        text += &json((50..55).chain(50..55)).replace(r#","size":10"#, "");
        let found = remarks(&[text.as_bytes()]).unwrap();
        assert!(found.starts_with("10 requests are left out: no response states"), "{found}");
    }

    #[test]
    fn lines_of_another_format_are_counted_and_the_first_is_shown() {
        let text = json((0..40).map(|n| n % 9)) + &"1 17 4096\n".repeat(100);
        let found = remarks(&[text.as_bytes()]).unwrap();
        assert!(found.contains("skipped 100 (unreadable line)."), "{found}");
        assert!(found.contains("not in the format") && found.contains("line 41:"), "{found}");
    }

    #[test]
    fn damaged_file_is_read_up_to_the_damage() {
        let text = json((0..20_000).map(|n| n % 900));
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, text.as_bytes()).unwrap();
        let whole = gzip.finish().unwrap();
        let found = remarks(&[&whole[..whole.len() / 2]]).unwrap();
        assert!(found.contains("A file was read up to its damage"), "{found}");
    }

    #[test]
    fn hosts_in_some_logs_only_are_remarked() {
        let with = json((0..40).map(|n| n % 9)).replace(r#""uri""#, r#""host":"a.example","uri""#);
        let found = remarks(&[with.as_bytes(), json((0..40).map(|n| n % 9)).as_bytes()]).unwrap();
        assert!(found.contains("40 requests name their host and 40 do not"), "{found}");
    }

    #[test]
    fn logs_in_the_wrong_order_are_remarked() {
        let day = |day: u32| {
            let line =
                format!("::1 - - [{day:02}/Oct/2000:13:55:36 +0000] \"GET /a HTTP/1.1\" 200 7\n");
            line.repeat(9)
        };
        let (first, second) = (day(1), day(2));
        let right = remarks(&[first.as_bytes(), second.as_bytes()]).unwrap();
        assert!(!right.contains("order"), "{right}");
        let wrong = remarks(&[second.as_bytes(), first.as_bytes()]).unwrap();
        assert!(wrong.contains("9 requests come an hour or more after later ones"), "{wrong}");
    }
}
