//! Hit ratio and byte hit ratio of every eviction and admission over sizes of a cache, from one pass over access
//! logs.
//!
//! ```text
//! files ── levada-trace ── threads: key, size ── Curves: a sample ── finish: a task for each curve and size ──►
//! CurveReport ── text, JSON, page
//! ```
//!
//! An object is in the sample if the hash of its key is below a threshold, and then all its requests are. A cache
//! that is smaller by the same rate, with the sampled requests alone, has about the hit ratio of the whole one:
//! Waldspurger et al., *Efficient MRC Construction with SHARDS* (FAST'15), and *Cache Modeling and Optimization
//! using Miniature Simulations* (USENIX ATC'17).
//!
//! - `sample` keeps the sampled requests in bounded memory: the threshold falls when they become too many.
//! - `distance` computes LRU for all sizes at once from stack distances in bytes.
//! - `simulate` runs the eviction algorithms of `levada-cache`, which a node runs, in caches of scaled size.
//! - `estimate` makes ratios and intervals of what both counted, in the sample and in disjoint parts of it.
//!
//! ```text
//! let mut curves = Curves::new(CurveOptions { sizes: vec![1 << 30, 4 << 30], ..CurveOptions::default() });
//! curves.request(Key::of(b"example.com/a"), StatedSize::Whole(1234));   // in the order of the log
//! let report: CurveReport = curves.finish()?;                            // or CurveError
//! ```

pub mod command;
mod compute;
mod curve;
mod distance;
mod estimate;
mod page;
mod part;
mod read;
mod remarks;
mod sample;
mod simulate;
mod text;

pub use curve::{Admission, CacheCurve, CurveError, CurveOptions, CurvePoint, CurveReport};
pub use page::page;
pub use read::{ReadLogs, read};
pub use sample::{Curves, SampleFilter, Totals};
pub use text::text;
