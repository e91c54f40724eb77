//! Flash crowds (OSDI'02 Sec. 4.3). Some clients, chosen at random, request only some documents,
//! chosen at random, as often as the other clients request any document.

use levada_types::{Rng, Timestamp};

use super::Document;
use crate::scenario::Flash;

#[derive(Clone, Debug)]
pub(crate) struct Crowd {
    intensive: Vec<bool>,
    hot: Vec<u32>,
    begin: Timestamp,
}

impl Crowd {
    pub(crate) fn new(flash: &Flash, documents: &[Document], clients: u32, rng: &mut Rng) -> Self {
        let hot = match flash.exist {
            true => hot_documents(flash.urls, flash.mean_size.0, documents, rng),
            // They are the last ones.
            false => (documents.len() - flash.urls..documents.len()).map(|n| n as u32).collect(),
        };
        let wanted = (f64::from(clients) * flash.clients.0).round() as usize;
        let mut intensive = vec![false; clients as usize];
        intensive[..wanted].fill(true);
        for last in (1..intensive.len()).rev() {
            intensive.swap(last, rng.below(last + 1));
        }
        Self { intensive, hot, begin: Timestamp::ZERO + flash.begin.0 }
    }

    /// The hot documents.
    pub(crate) fn documents(&self) -> &[u32] {
        &self.hot
    }

    /// The next document of `client`, if it belongs to the crowd at this time.
    pub(crate) fn document(&self, client: u32, now: Timestamp, rng: &mut Rng) -> Option<u32> {
        let intensive = self.intensive[client as usize] && now >= self.begin;
        intensive.then(|| self.hot[rng.below(self.hot.len())])
    }
}

/// Chooses `count` documents whose mean size is near `mean`: the nearest of many draws. The paper
/// gives the mean of its documents but not how they were chosen.
fn hot_documents(count: usize, mean: u64, documents: &[Document], rng: &mut Rng) -> Vec<u32> {
    let count = count.clamp(1, documents.len());
    let wanted = mean * count as u64;
    let mut best = (u64::MAX, Vec::new());
    for _ in 0..DRAWS {
        let mut draw: Vec<u32> = Vec::with_capacity(count);
        while draw.len() < count {
            let document = rng.below(documents.len()) as u32;
            if !draw.contains(&document) {
                draw.push(document);
            }
        }
        let sum: u64 = draw.iter().map(|document| documents[*document as usize].size).sum();
        if sum.abs_diff(wanted) < best.0 {
            best = (sum.abs_diff(wanted), draw);
        }
        if best.0 * 100 <= wanted {
            break;
        }
    }
    best.1
}

const DRAWS: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::scenario::Time;
    use levada_types::Key;

    #[test]
    fn a_quarter_of_the_clients_asks_for_ten_small_documents() {
        let documents: Vec<_> =
            (1..=1000).map(|n| Document { key: Key(n), size: n * 12 }).collect();
        let begin = Time(Duration::from_secs(60));
        let flash = Flash { begin, ..Flash::default() };
        let mut rng = Rng::new(1);
        let crowd = Crowd::new(&flash, &documents, 1000, &mut rng);
        assert_eq!(crowd.intensive.iter().filter(|intensive| **intensive).count(), 250);
        let mean = crowd.hot.iter().map(|d| documents[*d as usize].size).sum::<u64>() / 10;
        assert!((5_400..6_600).contains(&mean), "{mean}");
        let calm = crowd.intensive.iter().position(|intensive| !intensive).unwrap();
        let eager = crowd.intensive.iter().position(|intensive| *intensive).unwrap();
        let mut asked = |client, seconds| {
            crowd.document(client as u32, Timestamp::from_secs(seconds), &mut rng)
        };
        assert_eq!(asked(calm, 60), None);
        assert_eq!(asked(eager, 59), None);
        assert!(asked(eager, 60).is_some());
    }
}
