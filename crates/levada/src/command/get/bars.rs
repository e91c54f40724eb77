//! Progress bars on standard error, where that is a terminal.

use std::{future::Future, sync::Arc, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use levada_client::DownloadProgress;

/// A bar for each file in progress.
pub(crate) struct DownloadBars {
    all: MultiProgress,
    files: Vec<(String, Arc<DownloadProgress>, ProgressBar)>,
}

impl DownloadBars {
    /// Bars for these files, none in progress yet.
    pub(crate) fn new(quiet: bool, files: Vec<(String, Arc<DownloadProgress>)>) -> Self {
        let all = MultiProgress::new();
        if quiet {
            all.set_draw_target(ProgressDrawTarget::hidden());
        }
        let bar = |(name, progress)| (name, progress, ProgressBar::hidden());
        Self { all, files: files.into_iter().map(bar).collect() }
    }

    /// Shows that the file at `place` is in progress.
    pub(crate) fn begin(&self, place: usize) {
        let Some((name, progress, bar)) = self.files.get(place) else { return };
        bar.set_style(style());
        bar.set_message(short(name));
        self.all.add(bar.clone());
        // Bytes of an earlier run are no measure of this run's speed.
        bar.set_position(progress.held());
        bar.reset_eta();
    }

    /// Removes the bar of the file at `place`.
    pub(crate) fn end(&self, place: usize) {
        if let Some((_, _, bar)) = self.files.get(place) {
            bar.finish_and_clear();
            self.all.remove(bar);
        }
    }

    /// Writes a line above the bars.
    pub(crate) fn say(&self, line: &str) {
        self.all.suspend(|| eprintln!("{line}"));
    }

    /// Draws until `work` ends.
    pub(crate) async fn draw_while<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(DRAW_INTERVAL) => self.draw(),
            }
        }
    }

    fn draw(&self) {
        for (_, progress, bar) in self.files.iter().filter(|(_, _, bar)| !bar.is_finished()) {
            if let Some(total) = progress.total() {
                bar.set_length(total);
            }
            bar.set_position(progress.held());
        }
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn short(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name);
    name.chars().take(30).collect()
}

const TEMPLATE: &str =
    "{msg:30} {wide_bar} {bytes:>10} / {total_bytes:10} {bytes_per_sec:>12} {eta:>4}";
/// The interval at which a bar is drawn: quick enough to look steady, and no load.
pub(crate) const DRAW_INTERVAL: Duration = Duration::from_millis(100);
