//! Calls of `bpf(2)`: programs, and tables that they share with this process.

use std::{
    ffi::c_int,
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
    ptr::NonNull,
    sync::atomic::AtomicU32,
};

use crate::tcp;

/// A program that the kernel has verified and compiled.
pub(super) struct Program(OwnedFd);

/// The type of a program, which decides what it may do.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(super) enum ProgramType {
    /// Decides how many bytes of a packet a socket receives.
    SocketFilter = 1,
    /// Decides what happens to a packet at a device.
    Classifier = 3,
}

impl Program {
    /// Lets the kernel verify and compile the program.
    pub(super) fn load(kind: ProgramType, name: &str, code: &[u64]) -> io::Result<Self> {
        match Self::try_load(kind, name, code, &mut []) {
            Err(refused) if refused.raw_os_error() == Some(libc::EACCES) => {
                let mut log = vec![0; 64 << 10];
                let again = Self::try_load(kind, name, code, &mut log);
                let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                let said = String::from_utf8_lossy(&log[..end]);
                again.map_err(|error| io::Error::other(format!("{error}: {}", said.trim())))
            }
            loaded => loaded,
        }
    }

    fn try_load(kind: ProgramType, name: &str, code: &[u64], log: &mut [u8]) -> io::Result<Self> {
        #[repr(C)]
        struct Load {
            kind: u32,
            instructions: u32,
            code: u64,
            license: u64,
            log_level: u32,
            log_size: u32,
            log: u64,
            kernel: u32,
            flags: u32,
            name: [u8; 16],
        }
        let license = c"Dual MIT/GPL";
        let load = Load {
            kind: kind as u32,
            instructions: code.len() as u32,
            code: code.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
            kernel: 0,
            flags: 0,
            name: name_of(name),
        };
        bpf(PROG_LOAD, &load).map(|fd| Self(own(fd)))
    }

    /// Attaches the program to a socket as its filter.
    pub(super) fn filter(&self, socket: &impl AsFd) -> io::Result<()> {
        let program = self.0.as_raw_fd().to_ne_bytes();
        tcp::put(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &program)
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Creates a table of this kind, with keys and values of these sizes.
fn create(
    name: &str,
    kind: u32,
    [key, value]: [u32; 2],
    entries: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Create {
        kind: u32,
        key: u32,
        value: u32,
        entries: u32,
        flags: u32,
        inner: u32,
        numa: u32,
        name: [u8; 16],
    }
    let name = name_of(name);
    let create = Create { kind, key, value, entries, flags, inner: 0, numa: 0, name };
    bpf(MAP_CREATE, &create).map(own)
}

/// A hash table with keys of `K` bytes and values of `V` bytes.
pub(super) struct HashTable<const K: usize, const V: usize>(OwnedFd);

impl<const K: usize, const V: usize> HashTable<K, V> {
    /// A table for this many entries. A new entry never evicts another.
    pub(super) fn new(name: &str, entries: u32) -> io::Result<Self> {
        const HASH: u32 = 1;
        create(name, HASH, [K as u32, V as u32], entries, 0).map(Self)
    }

    /// Sets the value of a key.
    pub(super) fn put(&self, key: &[u8; K], value: &[u8; V]) -> io::Result<()> {
        self.element(MAP_UPDATE, key, value.as_ptr() as u64).map(drop)
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &[u8; K]) -> io::Result<Option<[u8; V]>> {
        let mut value = [0; V];
        none_if_missing(self.element(MAP_LOOKUP, key, value.as_mut_ptr() as u64))
            .map(|found| found.map(|_| value))
    }

    /// Removes a key.
    pub(super) fn remove(&self, key: &[u8; K]) -> io::Result<()> {
        none_if_missing(self.element(MAP_DELETE, key, 0)).map(drop)
    }

    fn element(&self, command: c_int, key: &[u8; K], value: u64) -> io::Result<c_int> {
        #[repr(C)]
        struct Element {
            map: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let (map, key) = (self.0.as_raw_fd() as u32, key.as_ptr() as u64);
        bpf(command, &Element { map, key, value, flags: 0 })
    }
}

impl<const K: usize, const V: usize> AsFd for HashTable<K, V> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A table in memory that programs and this process share: an array of buckets of words.
pub(super) struct Shared {
    table: OwnedFd,
    words: NonNull<AtomicU32>,
    count: usize,
}

// SAFETY: `words` points to atomics, which any thread may read and write. The only owner unmaps
// them when it drops.
#[expect(unsafe_code)]
unsafe impl Send for Shared {}
// SAFETY: as for `Send`.
#[expect(unsafe_code)]
unsafe impl Sync for Shared {}

impl Shared {
    /// An array of `buckets` buckets of `words` words, all zero.
    pub(super) fn new(name: &str, buckets: u32, words: usize) -> io::Result<Self> {
        const ARRAY: u32 = 2;
        /// `BPF_F_MMAPABLE` (Linux 5.5).
        const MAPPABLE: u32 = 1 << 10;
        let count = words * buckets as usize;
        let table = create(name, ARRAY, [4, (words * 4) as u32], buckets, MAPPABLE)?;
        // SAFETY: a new mapping of the whole table, at an address that the kernel chooses.
        #[expect(unsafe_code)]
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count * 4,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                table.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(mapped.cast()).filter(|_| mapped != libc::MAP_FAILED) {
            Some(words) => Ok(Self { table, words, count }),
            None => Err(io::Error::last_os_error()),
        }
    }

    /// All words, bucket by bucket.
    pub(super) fn words(&self) -> &[AtomicU32] {
        // SAFETY: this many words are mapped and page-aligned while `self` lives. Others write them
        // as well, word by word, which atomics allow.
        #[expect(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.words.as_ptr(), self.count)
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: this is the mapping from `new`, and no reference to it is left.
        #[expect(unsafe_code)]
        unsafe {
            libc::munmap(self.words.as_ptr().cast(), self.count * 4);
        }
    }
}

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}

const MAP_CREATE: c_int = 0;
const MAP_LOOKUP: c_int = 1;
const MAP_UPDATE: c_int = 2;
const MAP_DELETE: c_int = 3;
const PROG_LOAD: c_int = 5;

fn name_of(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let length = name.len().min(15);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    bytes
}

fn none_if_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        result => result.map(Some),
    }
}

/// Calls `bpf(2)`. `attributes` is a prefix of the kernel's `union bpf_attr` for this command; the
/// kernel treats the rest as zero.
fn bpf<T>(command: c_int, attributes: &T) -> io::Result<c_int> {
    // SAFETY: the kernel reads `attributes`, which has the layout of this command's part of the
    // union, and the arrays that its pointers refer to. The callers in this file hold these arrays,
    // with the lengths that the attributes or the table's sizes state. The kernel writes only to a
    // log or a value, which are held mutably.
    #[expect(unsafe_code)]
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as c_int) }
}

fn own(fd: c_int) -> OwnedFd {
    // SAFETY: the kernel has just opened it for this caller, so nothing else owns it.
    #[expect(unsafe_code)]
    unsafe {
        OwnedFd::from_raw_fd(fd)
    }
}
