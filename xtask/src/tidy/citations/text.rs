//! A file as one line: without the marks of comments and of continued strings at the ends of lines, so
//! that a citation may be broken across lines.

/// The text of a file, and where its lines begin.
pub(super) struct Text {
    pub(super) flat: String,
    starts: Vec<usize>,
}

impl Text {
    pub(super) fn of(text: &str) -> Self {
        let mut flat = String::new();
        let mut starts = Vec::new();
        for line in text.lines() {
            starts.push(flat.len());
            let line = line.trim_start();
            let line =
                line.strip_prefix("//").map_or(line, |line| line.trim_start_matches(['/', '!']));
            flat.push_str(line.trim_end_matches('\\').trim());
            flat.push(' ');
        }
        Self { flat, starts }
    }

    /// The number of the line at a place.
    pub(super) fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at)
    }
}
