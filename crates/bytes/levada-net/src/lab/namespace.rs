//! Network namespaces.

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, AsRawFd as _},
    sync::mpsc::{Sender, channel},
    thread,
};

use rustix::{
    io::Errno,
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};

use super::LabError;

/// An unnamed network namespace, empty except for a loopback device that is down.
pub struct Namespace {
    file: File,
    /// Sends work to the thread that lives in the namespace. Programs are children of this thread,
    /// because the kernel kills them when the thread that started them ends.
    resident: Sender<Job>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Namespace {
    /// Creates a namespace.
    ///
    /// # Errors
    /// Usually [`LabError::NotRoot`].
    pub fn new() -> Result<Self, LabError> {
        Self::inhabit(|| {
            // SAFETY: this is unsafe for FILES only, which would give this thread descriptors of
            // its own; NEWNET keeps them shared.
            #[expect(unsafe_code)]
            let unshared = unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
            unshared.map_err(|error| match error {
                Errno::PERM => LabError::NotRoot,
                other => LabError::System(other.into()),
            })
        })
    }

    /// The current namespace of this process.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn present() -> Result<Self, LabError> {
        Self::inhabit(|| Ok(()))
    }

    fn inhabit(
        enter: impl FnOnce() -> Result<(), LabError> + Send + 'static,
    ) -> Result<Self, LabError> {
        let (resident, jobs) = channel::<Job>();
        let (told, entered) = channel();
        thread::Builder::new().name("resident".to_owned()).spawn(move || {
            let file = enter().and_then(|()| Ok(File::open("/proc/thread-self/ns/net")?));
            if told.send(file).is_ok() {
                jobs.into_iter().for_each(|job| job());
            }
        })?;
        let file = entered.recv().map_err(|_| io::Error::other("a thread died"))??;
        Ok(Self { file, resident })
    }

    /// Runs `work` within the namespace, on a temporary thread. Sockets that it opens stay in the
    /// namespace, wherever they are used later.
    ///
    /// # Errors
    /// When the thread cannot be started or cannot enter the namespace.
    ///
    /// # Panics
    /// When `work` panics.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let worker = thread::Builder::new().spawn_scoped(scope, || {
                self.enter()?;
                Ok(work())
            })?;
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A path by which programs can refer to it while this exists.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Moves the calling thread into the namespace permanently.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs `work` on the thread that lives in the namespace.
    pub(super) fn on_resident<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (done, result) = channel();
        let job: Job = Box::new(move || drop(done.send(work())));
        let gone = || io::Error::other("the namespace's thread is gone");
        self.resident.send(job).map_err(|_| gone())?;
        result.recv().map_err(|_| gone())?
    }
}
