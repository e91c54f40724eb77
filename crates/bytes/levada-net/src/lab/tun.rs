//! A TUN device: a descriptor reads the packets that the kernel sends, and writes packets for it.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd},
        unix::fs::OpenOptionsExt as _,
    },
};

use super::{LabError, Namespace};

/// A device that exists while this is kept. Reading and writing never block.
pub struct Tun {
    file: File,
    name: String,
}

impl Tun {
    /// Creates a device of this name in `namespace`; the kernel replaces `%d` by a number. The
    /// device is down and has no address.
    ///
    /// # Errors
    /// When there is no TUN here, or the name is taken or too long (15 bytes).
    pub fn new(namespace: &Namespace, name: &str) -> Result<Self, LabError> {
        let opened = namespace.run(|| open(name))?;
        opened.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => LabError::NotRoot,
            _ => LabError::Tun(error),
        })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The beginning of `struct ifreq`, padded to its full size.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

fn open(name: &str) -> io::Result<Tun> {
    let mut request = Request {
        name: [0; libc::IFNAMSIZ],
        flags: (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short,
        rest: [0; 22],
    };
    // One byte remains for the terminator.
    let place = request.name[..libc::IFNAMSIZ - 1].get_mut(..name.len());
    place.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(name.as_bytes());
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which is as large as `Request` (40
    // bytes on 64-bit systems, less elsewhere), and keeps no pointer to it.
    #[expect(unsafe_code)]
    let status = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    let end = request.name.iter().position(|byte| *byte == 0).unwrap_or(request.name.len());
    let name = String::from_utf8_lossy(&request.name[..end]).into_owned();
    Ok(Tun { file, name })
}

const _: () = assert!(size_of::<Request>() == 40);
