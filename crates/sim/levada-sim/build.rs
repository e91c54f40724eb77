//! Gives the binary a hash of the sources of the simulator, or of their version where they come from a
//! registry. Kept results are shown only by the code that computed them.

use std::{env, fs, io, path::Path};

/// Every crate that determines the outcome of a run.
const CRATES: &[&str] = &[
    "pure/levada-types",
    "pure/levada-policy",
    "pure/levada-cache",
    "sim/levada-trace",
    "sim/levada-topology",
    "sim/levada-outcome",
    "sim/levada-cap",
    "sim/levada-sim",
];

fn main() -> io::Result<()> {
    let crates = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    let mut hash = Fnv::new();
    let sources: Vec<_> = CRATES.iter().map(|name| crates.join(name).join("src")).collect();
    if !sources.iter().all(|source| source.is_dir()) {
        // Crates of a release require each other in exactly this version.
        hash.add(env::var("CARGO_PKG_VERSION").unwrap_or_default().as_bytes());
        println!("cargo:rerun-if-changed=build.rs");
    }
    for source in sources.iter().filter(|source| source.is_dir()) {
        println!("cargo:rerun-if-changed={}", source.display());
        add(source, &mut hash)?;
    }
    println!("cargo:rustc-env=LEVADA_SIM_CODE={:016x}", hash.0);
    Ok(())
}

fn add(directory: &Path, hash: &mut Fnv) -> io::Result<()> {
    let mut paths: Vec<_> =
        fs::read_dir(directory)?.map(|entry| entry.map(|e| e.path())).collect::<io::Result<_>>()?;
    paths.sort();
    for path in &paths {
        if path.is_dir() {
            add(path, hash)?;
        } else {
            hash.add(&fs::read(path)?);
        }
    }
    Ok(())
}

/// FNV-1a, 64 bits, so that the build script needs no dependency.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
