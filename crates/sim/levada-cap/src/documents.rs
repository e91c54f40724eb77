//! The site's documents: their sizes and their popularity (WWW10 Sec. 4.2).

use levada_types::{Key, Rng, weigh};

use super::settings::Documents;

/// The site's documents, most popular first.
#[derive(Debug)]
pub(super) struct Tree {
    bytes: Vec<u32>,
    /// The share of the requests that go to this document or a more popular one.
    popularity: Vec<f64>,
    cacheable: f64,
}

/// The number of a document; 0 is the most popular.
pub(super) type DocumentNumber = u32;

impl Tree {
    /// Draws the sizes. Size and popularity are independent.
    pub(super) fn new(settings: &Documents, rng: &mut Rng) -> Self {
        let bytes = (0..settings.count).map(|_| {
            let bytes = if rng.unit() < settings.tail_share.0 {
                settings.tail.draw(rng)
            } else {
                settings.body.draw(rng)
            };
            bytes.round().clamp(1.0, f64::from(settings.largest)) as u32
        });
        let bytes = bytes.collect();
        let mut sum = 0.0;
        let mut popularity: Vec<f64> = (1..=settings.count)
            .map(|rank| {
                sum += libm::pow(f64::from(rank), -settings.zipf);
                sum
            })
            .collect();
        popularity.iter_mut().for_each(|share| *share /= sum);
        Self { bytes, popularity, cacheable: settings.cacheable.0 }
    }

    /// The size of one document.
    pub(super) fn bytes(&self, document: DocumentNumber) -> u64 {
        u64::from(self.bytes[document as usize])
    }

    /// The size of all documents together.
    pub(super) fn total_bytes(&self) -> u64 {
        self.bytes.iter().map(|bytes| u64::from(*bytes)).sum()
    }

    /// Draws a document by popularity.
    pub(super) fn draw(&self, rng: &mut Rng) -> DocumentNumber {
        let place = rng.unit();
        let at = self.popularity.partition_point(|share| *share <= place);
        at.min(self.bytes.len() - 1) as DocumentNumber
    }

    /// Whether the lightly dynamic document `document` may be cached: a property of the document, so
    /// that all servers and all policies agree on it.
    pub(super) fn cacheable(&self, document: DocumentNumber) -> bool {
        let place = weigh(Key(u64::from(document)), 0x6c69_6768_746c_7921) >> 11;
        (place as f64) < self.cacheable * (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn popular_documents_are_drawn_by_zipf() {
        let tree = Tree::new(&Settings::default().documents, &mut Rng::new(1));
        let mut rng = Rng::new(2);
        let mut drawn = vec![0u32; tree.bytes.len()];
        for _ in 0..200_000 {
            drawn[tree.draw(&mut rng) as usize] += 1;
        }
        let ratio = |a: usize, b: usize| f64::from(drawn[a]) / f64::from(drawn[b]);
        assert!((ratio(0, 1) - 2.0).abs() < 0.1, "{}", ratio(0, 1));
        assert!((ratio(0, 9) - 10.0).abs() < 1.0, "{}", ratio(0, 9));
    }

    #[test]
    fn three_in_ten_lightly_dynamic_documents_are_cacheable() {
        let tree = Tree::new(&Settings::default().documents, &mut Rng::new(1));
        let cacheable = (0..10_000).filter(|document| tree.cacheable(*document)).count();
        assert!((2_850..3_150).contains(&cacheable), "{cacheable}");
    }
}
