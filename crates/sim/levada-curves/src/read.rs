//! Reads logs: one thread splits lines, others parse them and leave out what is not sampled, one keeps the sample.
//!
//! Batches go to the parsers in turn, and their results are taken in the same order, so that requests stay in the
//! order of the files and the same files give the same figures.

use std::{
    io,
    path::PathBuf,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use levada_trace::{LineBatch, OpenError, Skipped, StatedSize, TraceLimits, TraceReader, open};
use levada_types::Key;

use crate::{
    CurveOptions, Curves,
    sample::{SampleFilter, Totals},
};

/// The requests of some files.
pub struct ReadLogs {
    /// The sample of them.
    pub curves: Curves,
    /// The lines that are no request.
    pub skipped: Skipped,
    /// Requests whose lines name the host.
    pub with_host: u64,
    /// Requests whose lines do not.
    pub without_host: u64,
    /// Requests that come at least an hour after later ones.
    pub late: u64,
    /// The latest time so far.
    latest: f64,
}

/// Reads the files in the order given; `-` is standard input.
///
/// # Errors
/// When a file cannot be opened, or its format is unknown.
pub fn read(files: &[PathBuf], options: CurveOptions) -> Result<ReadLogs, OpenError> {
    let parsers = options.threads.max(1);
    let curves = Curves::new(options);
    thread::scope(|scope| {
        let (batches, parsed): (Vec<_>, Vec<_>) = (0..parsers)
            .map(|_| {
                let (batch_sender, batches) = sync_channel::<LineBatch>(WAITING);
                let (sender, parsed) = sync_channel::<ParsedBatch>(WAITING);
                let filter = curves.filter();
                scope.spawn(move || {
                    for batch in batches {
                        // The receiver lives as long as this thread sends.
                        drop(sender.send(ParsedBatch::of(&batch, &filter)));
                    }
                });
                (batch_sender, parsed)
            })
            .unzip();
        let keeper = scope.spawn(move || keep(curves, &parsed));
        let mut turns = batches.iter().cycle();
        let result = files.iter().try_for_each(|file| distribute(file, &mut turns));
        drop(batches);
        let logs = keeper.join().expect("keeping a sample does not panic");
        result.map(|()| logs)
    })
}

/// Batches that may wait for a thread.
const WAITING: usize = 4;

fn distribute<'a>(
    file: &PathBuf,
    turns: &mut impl Iterator<Item = &'a SyncSender<LineBatch>>,
) -> Result<(), OpenError> {
    let mut reader = match file.as_os_str() == "-" {
        true => TraceReader::new(io::stdin(), "standard input")?,
        false => open(file)?,
    };
    while let Some(batch) = reader.next_batch() {
        // The turns never end, and the thread lives as long as there is a sender.
        if let Some(parser) = turns.next() {
            drop(parser.send(batch));
        }
    }
    Ok(())
}

fn keep(curves: Curves, parsed: &[Receiver<ParsedBatch>]) -> ReadLogs {
    let mut logs = ReadLogs {
        curves,
        skipped: Skipped::default(),
        with_host: 0,
        without_host: 0,
        late: 0,
        latest: f64::NEG_INFINITY,
    };
    for parser in parsed.iter().cycle() {
        // The parser whose turn it is has ended: there are no more batches.
        let Ok(batch) = parser.recv() else { break };
        logs.take(batch);
    }
    logs
}

impl ReadLogs {
    fn take(&mut self, batch: ParsedBatch) {
        for (key, size) in batch.sampled {
            self.curves.keep(key, size);
        }
        self.curves.count(batch.totals);
        self.skipped.merge(batch.skipped);
        self.with_host += batch.with_host;
        self.without_host += batch.totals.requests - batch.with_host;
        if let Some((first, last)) = batch.times {
            self.late += if first + HOUR < self.latest { batch.totals.requests } else { 0 };
            self.latest = self.latest.max(last);
        }
    }
}

/// In seconds.
const HOUR: f64 = 3600.0;

/// The requests of a batch of lines.
#[derive(Default)]
struct ParsedBatch {
    sampled: Vec<(Key, StatedSize)>,
    totals: Totals,
    skipped: Skipped,
    with_host: u64,
    /// The times of the first and the last request.
    times: Option<(f64, f64)>,
}

impl ParsedBatch {
    fn of(batch: &LineBatch, filter: &SampleFilter) -> Self {
        let (limits, mut parsed) = (TraceLimits::default(), Self::default());
        for line in batch.records() {
            let record = match line {
                Ok(record) => record,
                Err(error) => {
                    parsed.skipped.add_unreadable(error);
                    continue;
                }
            };
            if let Some(reason) = limits.refuse(&record) {
                parsed.skipped.add(reason, 1);
                continue;
            }
            let (key, size) = (record.object_key(), record.stated_size());
            parsed.totals.count(size);
            parsed.with_host += u64::from(record.host.is_some());
            if let Some(time) = record.time {
                parsed.times = Some((parsed.times.map_or(time, |(first, _)| first), time));
            }
            if filter.takes(key) {
                parsed.sampled.push((key, size));
            }
        }
        parsed
    }
}
