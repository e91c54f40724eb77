//! The objects that clients of a node request most, by a sample of their requests: space saving (Metwally et al.,
//! ICDT'05) with counts that fade.
//!
//! Policies know objects by keys only, and not all of them keep keys. So a node notes the URLs itself, of one request
//! in as many as keep the samples few, whatever the load is.

use std::{
    cell::Cell,
    collections::HashMap,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use levada_types::Key;
use parking_lot::Mutex;

/// The objects that are counted: room for the hottest ones among many others.
const COUNTED: usize = 256;
/// The samples per second that are aimed at.
const SAMPLES: u32 = 400;
/// The part of a count that is left after a second: the counts are about the last ten.
const FADE: f64 = 0.9;
/// Objects below this rate are forgotten, in requests per second.
const FORGOTTEN: f64 = 0.001;
/// Objects with longer URLs are not counted.
const LONGEST_URL: usize = 2_048;

/// The objects that are requested most.
#[derive(Default)]
pub struct PopularObjects {
    /// One request in this many, plus one, is noted on average. It is a power of two less one.
    skipped: AtomicU32,
    table: Mutex<PopularityTable>,
}

#[derive(Default)]
struct PopularityTable {
    samples: u32,
    objects: HashMap<Key, CountedObject>,
}

#[derive(Clone)]
struct CountedObject {
    host: String,
    url: String,
    count: f64,
}

/// An object that is requested often.
#[derive(Clone, Debug, PartialEq)]
pub struct PopularObject {
    /// The key that policies know it by.
    pub key: Key,
    /// The host of its URL.
    pub host: String,
    /// The URL.
    pub url: String,
    /// Requests per second, over about the last ten seconds.
    pub rate: f64,
}

thread_local! {
    // Any number but 0.
    static CHANCE: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
}

impl PopularObjects {
    /// Whether this request is to be noted: by chance, so that requests in a regular order are sampled fairly. The cost
    /// is that of three shifts (xorshift; Marsaglia, 2003).
    #[inline]
    pub fn takes_this_one(&self) -> bool {
        let mut chance = CHANCE.get();
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        CHANCE.set(chance);
        (chance >> 32) as u32 & self.skipped.load(Relaxed) == 0
    }

    /// Notes a request, unless another thread is noting one.
    pub fn note(&self, key: Key, host: &str, url: &str) {
        let Some(mut table) = self.table.try_lock() else { return };
        if url.len() > LONGEST_URL {
            return;
        }
        table.samples += 1;
        let weight = f64::from(self.skipped.load(Relaxed)) + 1.0;
        if let Some(known) = table.objects.get_mut(&key) {
            known.count += weight;
            return;
        }
        let mut count = 0.0;
        if table.objects.len() >= COUNTED {
            let rarest = table.objects.iter().min_by(|a, b| a.1.count.total_cmp(&b.1.count));
            if let Some(rarest) = rarest.map(|(key, _)| *key) {
                count = table.objects.remove(&rarest).map_or(0.0, |object| object.count);
            }
        }
        let object =
            CountedObject { host: host.to_owned(), url: url.to_owned(), count: count + weight };
        table.objects.insert(key, object);
    }

    /// Lets counts fade, and fits the sample to the load. Call it once per second.
    pub fn second_is_over(&self) {
        let mut table = self.table.lock();
        let samples = std::mem::take(&mut table.samples);
        let skipped = self.skipped.load(Relaxed);
        if samples > SAMPLES {
            self.skipped.store(skipped << 1 | 1, Relaxed);
        } else if samples < SAMPLES / 3 {
            self.skipped.store(skipped >> 1, Relaxed);
        }
        table.objects.retain(|_, object| {
            object.count *= FADE;
            object.count * (1.0 - FADE) > FORGOTTEN
        });
    }

    /// The objects with the highest rates, the hottest first, at most `most`.
    pub fn hottest(&self, most: usize) -> Vec<PopularObject> {
        let mut objects: Vec<_> = {
            let table = self.table.lock();
            table.objects.iter().map(|(key, object)| (*key, object.clone())).collect()
        };
        objects.sort_by(|(a, one), (b, other)| {
            other.count.total_cmp(&one.count).then_with(|| a.0.cmp(&b.0))
        });
        objects.truncate(most);
        let popular = |(key, CountedObject { host, url, count })| PopularObject {
            key,
            host,
            url,
            rate: count * (1.0 - FADE),
        };
        objects.into_iter().map(popular).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(objects: &PopularObjects, number: u64) {
        if objects.takes_this_one() {
            objects.note(Key(number), "a.test", &format!("http://a.test/{number}"));
        }
    }

    #[test]
    fn hot_objects_come_first_with_their_rates_among_many_others() {
        let objects = PopularObjects::default();
        for second in 0..60u64 {
            for request in 0..20_000u64 {
                // Half of all requests are for two objects, the others for ever new ones.
                match request % 4 {
                    0 | 1 => note(&objects, 1 + u64::from(request % 3 == 0)),
                    _ => note(&objects, 1_000 + 20_000 * second + request),
                }
            }
            objects.second_is_over();
        }
        let hottest = objects.hottest(2);
        assert_eq!(hottest.iter().map(|object| object.key.0).collect::<Vec<_>>(), [1, 2]);
        assert!((hottest[0].rate / 6_667.0 - 1.0).abs() < 0.3, "{hottest:?}");
        assert!(objects.table.lock().objects.len() <= COUNTED);
        assert!(objects.skipped.load(Relaxed) >= 31, "the sample follows the load");
    }

    #[test]
    fn objects_that_are_not_requested_any_more_are_forgotten() {
        let objects = PopularObjects::default();
        (0..100).for_each(|number| note(&objects, number));
        (0..100).for_each(|_| objects.second_is_over());
        assert_eq!(objects.hottest(10), []);
    }
}
