//! Object keys of 64 bits, and the two hash functions of the whole system.
//!
//! Both functions are fixed: all redirectors must compute the same hashes, across restarts and
//! across versions, or every object would move (docs/decisions/0001-hash-functions.md).

/// The identity of an object: the hash of its URL, or of the parts of the request that a site's
/// configuration names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub u64);

impl Key {
    /// The key of `identity`, normally host and path with query.
    pub fn of(identity: &[u8]) -> Self {
        Self(hash64(identity))
    }
}

/// XXH3, 64 bits, seed 0.
pub fn hash64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// The weight of one server for one key: the `hash(url, server_name)` of highest random weight.
///
/// `server` is the [`hash64`] of the server's name. The finalizer of MurmurHash3 (64 bits) combines
/// the two; it makes every output bit depend on every input bit. The name is hashed once, so a
/// weight costs two multiplications.
#[inline]
pub const fn weigh(key: Key, server: u64) -> u64 {
    let mut x = key.0 ^ server;
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_never_change() {
        assert_eq!(hash64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(Key::of(b"example.com/a").0, hash64(b"example.com/a"));
        assert_eq!(weigh(Key(0), 0), 0);
        assert_eq!(weigh(Key(1), 0), 0xb456_bcfc_34c2_cb2c);
    }

    #[test]
    fn weights_spread_evenly_over_servers() {
        let servers: Vec<u64> = (0..8).map(|n| hash64(format!("node-{n}").as_bytes())).collect();
        let mut wins = [0u32; 8];
        for key in 0..80_000u64 {
            let best = (0..8).max_by_key(|&n| weigh(Key(key), servers[n])).unwrap();
            wins[best] += 1;
        }
        assert!(wins.iter().all(|w| (9_500..10_500).contains(w)), "{wins:?}");
    }
}
