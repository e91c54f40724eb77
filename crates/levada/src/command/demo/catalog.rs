//! The objects of the demo: those of a trace, under names that fit into a request line.

use std::{collections::HashMap, path::Path};

use levada_testbed::cluster::load::read_trace;
use levada_trace::{RICE, Trace, TraceLimits};
use levada_types::{ByteSize, Key};

/// The objects, and the order in which they are requested.
pub(super) struct Catalog {
    pub(super) objects: Vec<Object>,
    /// Numbers of objects.
    pub(super) requests: Vec<u32>,
    /// The source of the objects, in words.
    pub(super) source: String,
    by_target: HashMap<Box<str>, u32>,
}

/// One object.
pub(super) struct Object {
    /// Path and query.
    pub(super) target: Box<str>,
    /// Its content follows from this key.
    pub(super) key: Key,
    pub(super) size: u64,
}

impl Catalog {
    /// Requests like those of Rice University's trace, scaled to the length of the demo.
    pub(super) fn generate(requests: u64, seed: u64) -> Self {
        let files = (requests / REQUESTS_PER_FILE).clamp(200, 1_000) as usize;
        let trace = RICE.scaled(files, requests).generate(seed);
        let source = format!("a generated trace like Rice University's, seed {seed}");
        Self::new(&trace, source)
    }

    /// The requests of a trace or an access log.
    ///
    /// # Errors
    /// If the file cannot be read or has no requests to replay.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let (requests, memory) = (MOST_REQUESTS, ByteSize(512 << 20));
        let limits = TraceLimits { requests, memory, ..TraceLimits::default() };
        let (trace, note) = read_trace(path, &limits)?;
        Ok(Self::new(&trace, format!("{}{note}", path.display())))
    }

    fn new(trace: &Trace, source: String) -> Self {
        let mut by_target = HashMap::new();
        let mut objects = Vec::new();
        for (id, object) in (0u32..).zip(trace.objects()) {
            let mut target = target(&object.name);
            // Skip the origin's own page, and names that are equal after they were shortened.
            if &*target == "/" || by_target.contains_key(&*target) {
                target = format!("{target}~{id}").into();
            }
            by_target.insert(target.clone(), id);
            objects.push(Object { key: Key::of(target.as_bytes()), target, size: object.size });
        }
        Self { objects, requests: trace.requests().to_vec(), source, by_target }
    }

    pub(super) fn object(&self, id: u32) -> &Object {
        &self.objects[id as usize]
    }

    /// The object of a path and query.
    pub(super) fn find(&self, target: &str) -> Option<&Object> {
        self.by_target.get(target).map(|id| self.object(*id))
    }

    /// Bytes of an average request.
    pub(super) fn mean_transfer(&self) -> f64 {
        let bytes: f64 = self.requests.iter().map(|id| self.object(*id).size as f64).sum();
        bytes / self.requests.len().max(1) as f64
    }

    /// Objects and bytes that the first `requests` requests touch.
    pub(super) fn working_set(&self, requests: usize) -> (u64, u64) {
        let mut touched = vec![false; self.objects.len()];
        for id in self.requests.iter().take(requests) {
            touched[*id as usize] = true;
        }
        let sizes = touched.iter().zip(&self.objects).filter(|(touched, _)| **touched);
        sizes.fold((0, 0), |(count, bytes), (_, object)| (count + 1, bytes + object.size))
    }

    /// The `count` objects that a flash crowd requests: popular objects whose size is near `size`, so
    /// that the load consists of many requests and not of one transfer.
    pub(super) fn hot(&self, count: usize, size: u64) -> Vec<u32> {
        let mut asked = vec![0u64; self.objects.len()];
        self.requests.iter().for_each(|id| asked[*id as usize] += 1);
        let mut ids: Vec<u32> = (0..self.objects.len() as u32).collect();
        ids.sort_by_key(|id| {
            let own = self.object(*id).size.max(1);
            // The ratio of the sizes, in halves of a doubling; popularity decides among similar
            // sizes.
            let apart = ((own as f64 / size as f64).log2().abs() * 2.0) as u64;
            (apart, std::cmp::Reverse(asked[*id as usize]), *id)
        });
        ids.truncate(count);
        ids
    }
}

/// A name as a path: characters that a request line does not allow are escaped, and a very long
/// name is cut.
fn target(name: &str) -> Box<str> {
    let mut target = String::from("/");
    for byte in name.trim_start_matches('/').bytes().take(LONGEST_NAME) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => target.push(byte.into()),
            b'/' | b'-' | b'_' | b'.' | b'~' | b'=' | b'&' | b'%' | b'+' | b',' | b':' | b'?' => {
                target.push(byte.into());
            }
            other => target.push_str(&format!("%{other:02X}")),
        }
    }
    target.into()
}

/// The mean number of requests per object of the generated trace: the hit ratio is at most 1 -
/// 1/this.
const REQUESTS_PER_FILE: u64 = 12;
/// More requests than the longest demo sends.
const MOST_REQUESTS: usize = 5_000_000;
const LONGEST_NAME: usize = 1_000;

#[cfg(test)]
mod tests {
    use levada_trace::TraceObject;

    use super::*;

    fn catalog(objects: &[(&str, u64)]) -> Catalog {
        let named = |(name, size): &(&str, u64)| TraceObject { name: (*name).into(), size: *size };
        let trace = Trace::new(objects.iter().map(named).collect(), vec![0, 1, 1, 2]);
        Catalog::new(&trace, String::new())
    }

    #[test]
    fn every_object_has_a_target_of_its_own() {
        let catalog = catalog(&[("/", 1), ("a b", 2), ("/a%20b", 3)]);
        let targets: Vec<_> = catalog.objects.iter().map(|o| &*o.target).collect();
        assert_eq!(targets, ["/~0", "/a%20b", "/a%20b~2"]);
        assert_eq!(catalog.find("/a%20b").map(|o| o.size), Some(2));
        assert!(targets.iter().all(|t| t.parse::<http::Uri>().is_ok()));
    }

    #[test]
    fn a_crowd_meets_at_a_popular_object_of_middling_size() {
        let catalog = catalog(&[("a", 32_000), ("b", 33_000), ("c", 1 << 30)]);
        assert_eq!(catalog.hot(2, 32 << 10), [1, 0]);
        assert_eq!(catalog.working_set(2), (2, 65_000));
    }
}
