//! Reads files by several threads. Which thread counts a line depends on its place only, so that a report is the
//! same each time.

use std::{
    io,
    path::PathBuf,
    sync::mpsc::{SyncSender, sync_channel},
    thread,
};

use levada_trace::{LineBatch, OpenError, TraceReader, open};

use crate::Census;

/// The threads that count.
const THREADS: usize = 4;
/// Batches that may wait for a thread.
const WAITING: usize = 4;

/// The counts of all these files together; `-` is standard input.
///
/// # Errors
/// When a file cannot be opened, or its format is unknown.
pub fn read(files: &[PathBuf]) -> Result<Census, OpenError> {
    thread::scope(|scope| {
        let (senders, counters): (Vec<_>, Vec<_>) = (0..THREADS)
            .map(|_| {
                let (sender, batches) = sync_channel::<LineBatch>(WAITING);
                let count = move || {
                    let mut census = Census::default();
                    for batch in batches {
                        batch.records().for_each(|line| census.take(line));
                    }
                    census
                };
                (sender, scope.spawn(count))
            })
            .unzip();
        let result = files.iter().try_for_each(|file| distribute(file, &senders));
        drop(senders);
        let mut all = Census::default();
        for counter in counters {
            all.merge(counter.join().expect("counting does not panic"));
        }
        result.map(|()| all)
    })
}

fn distribute(file: &PathBuf, senders: &[SyncSender<LineBatch>]) -> Result<(), OpenError> {
    let mut reader = match file.as_os_str() == "-" {
        true => TraceReader::new(io::stdin(), "standard input")?,
        false => open(file)?,
    };
    for sender in senders.iter().cycle() {
        match reader.next_batch() {
            // The thread lives as long as there is a sender.
            Some(batch) => drop(sender.send(batch)),
            None => break,
        }
    }
    Ok(())
}
