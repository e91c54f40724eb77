//! The page of metrics as data: the families of a page in OpenMetrics' text format, which the node has made itself.

use std::borrow::Cow;

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    /// It only grows.
    Counter,
    /// It rises and falls.
    Gauge,
    /// Counts of values by their size.
    Histogram,
}

/// Samples of one name.
#[derive(Debug, PartialEq)]
pub struct Family<'a> {
    /// The name without suffixes.
    pub name: &'a str,
    /// The meaning, for readers.
    pub help: &'a str,
    /// The type.
    pub kind: FamilyKind,
    /// The samples in the order of the page.
    pub samples: Vec<Sample<'a>>,
}

/// One line of a page.
#[derive(Debug, PartialEq)]
pub struct Sample<'a> {
    /// The end of its name: `_bucket`.
    pub suffix: &'a str,
    /// Its labels.
    pub labels: Vec<Label<'a>>,
    /// Its value.
    pub value: f64,
}

/// The name and the value of a label.
pub type Label<'a> = (&'a str, Cow<'a, str>);

/// The families of a page. Lines that are none of a family are left out.
pub fn families(page: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    let mut help = ("", "");
    for line in page.lines() {
        if let Some(words) = line.strip_prefix("# HELP ") {
            help = words.split_once(' ').unwrap_or((words, ""));
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|words| words.split_once(' '))
        {
            let kind = match kind {
                "counter" => FamilyKind::Counter,
                "histogram" => FamilyKind::Histogram,
                _ => FamilyKind::Gauge,
            };
            let help = if help.0 == name { help.1 } else { "" };
            families.push(Family { name, help, kind, samples: Vec::new() });
        } else if !line.starts_with('#')
            && let Some(family) = families.last_mut()
        {
            let sample = line.strip_prefix(family.name).and_then(sample);
            family.samples.extend(sample);
        }
    }
    families
}

/// The rest of a line after the name of the family: `_bucket{le="1.0"} 3`.
fn sample(rest: &str) -> Option<Sample<'_>> {
    let (suffix, rest) = rest.split_at(rest.find(['{', ' '])?);
    let mut labels = Vec::new();
    let mut rest = match rest.strip_prefix('{') {
        None => rest,
        Some(inner) => {
            let mut inner = inner;
            loop {
                inner = inner.trim_start_matches(',');
                if let Some(after) = inner.strip_prefix('}') {
                    break after;
                }
                let (name, value) = inner.split_once("=\"")?;
                let end = end_of_text(value)?;
                labels.push((name, unescaped(&value[..end])));
                inner = &value[end + 1..];
            }
        }
    };
    rest = rest.trim_start();
    let value = rest.split(' ').next()?.parse().ok()?;
    Some(Sample { suffix, labels, value })
}

/// The place of the quote that ends a value.
fn end_of_text(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let (mut out, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some(other) => other,
                None => '\\',
            },
            c => c,
        });
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_read_by_families() {
        let page = "# HELP a_b Bytes of it.\n# TYPE a_b counter\n# UNIT a_b bytes\n\
                    a_b_total{x=\"a \\\"b\\\", {c}\",y=\"\"} 12\na_b_total 3.5\n\
                    # TYPE h histogram\nh_sum 4.5\nh_count 2\nh_bucket{le=\"1.0\"} 1\n\
                    h_bucket{le=\"+Inf\"} 2\n# EOF\n";
        let families = families(page);
        let [counter, histogram] = &families[..] else { panic!("{families:?}") };
        assert_eq!((counter.name, counter.help), ("a_b", "Bytes of it."));
        assert_eq!(counter.kind, FamilyKind::Counter);
        let [first, second] = &counter.samples[..] else { panic!("{counter:?}") };
        assert_eq!((first.suffix, first.value), ("_total", 12.0));
        assert_eq!(first.labels, [("x", "a \"b\", {c}".into()), ("y", "".into())]);
        assert_eq!((second.labels.len(), second.value), (0, 3.5));
        let suffixes: Vec<_> = histogram.samples.iter().map(|sample| sample.suffix).collect();
        assert_eq!(suffixes, ["_sum", "_count", "_bucket", "_bucket"]);
        assert_eq!(histogram.samples[3].labels, [("le", "+Inf".into())]);
    }
}
