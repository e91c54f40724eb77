//! The sizes of the sets of hot objects over the last two minutes, for viewers who come late.

use std::collections::{BTreeMap, HashMap, VecDeque};

use parking_lot::Mutex;

use crate::status::HotObject;

/// How long a size is kept, and the least time between two of one object: milliseconds.
const SPAN: u64 = 120_000;
const STEP: u64 = 2_000;

/// A size and its Unix time in milliseconds.
pub type SetSize = (u64, usize);

/// See the module.
#[derive(Default)]
pub struct SetSizes(Mutex<HashMap<String, VecDeque<SetSize>>>);

impl SetSizes {
    /// Notes the sets of the hottest objects at this time.
    pub fn note(&self, hottest: &[HotObject], now: u64) {
        let mut all = self.0.lock();
        for object in hottest {
            let sizes = all.entry(object.url.clone()).or_default();
            if sizes.back().is_none_or(|(last, _)| now >= last + STEP) {
                sizes.push_back((now, object.set.len()));
            }
        }
        all.retain(|_, sizes| {
            let old = sizes.iter().take_while(|(at, _)| at + SPAN < now).count();
            sizes.drain(..old);
            !sizes.is_empty()
        });
    }

    /// The sizes by URL, oldest first.
    pub fn told(&self) -> BTreeMap<String, Vec<SetSize>> {
        let all = self.0.lock();
        all.iter().map(|(url, sizes)| (url.clone(), sizes.iter().copied().collect())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot(url: &str, set: usize) -> HotObject {
        let (url, set) = (url.to_owned(), vec!["a".to_owned(); set]);
        let (key, policy) = (String::new(), String::new());
        HotObject { url, key, rate: 1.0, policy, set, share: None }
    }

    #[test]
    fn sizes_are_kept_for_the_span_and_objects_that_cool_down_are_forgotten() {
        let sizes = SetSizes::default();
        for at in (0..=SPAN).step_by(500) {
            sizes.note(&[hot("a", 1 + (at / 60_000) as usize)], at);
        }
        let told = &sizes.told()["a"];
        assert_eq!((told[0], told.last()), ((0, 1), Some(&(SPAN, 3))));
        assert_eq!(told.len() as u64, SPAN / STEP + 1);
        sizes.note(&[hot("b", 2)], SPAN + 60_000);
        assert_eq!(sizes.told()["a"][0].0, 60_000);
        sizes.note(&[], 2 * SPAN + 1);
        assert!(sizes.told().keys().eq(["b"]));
    }
}
